"""A model's architecture as data: layers of mixers and feed-forwards, with shapes but without weights.

Imports nothing of the package but `errors`. Shapes follow llama.cpp (`models` in the catalog, GGUF metadata and
Hugging Face config.json are only different spellings of what is here).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cached_property
from typing import Literal

from .frozen_dataclass import dataclass


@dataclass(frozen=True)
class Indexer:
    """Lightning indexer of sparse attention (DeepSeek V3.2, GLM-5): own keys in the cache, top-k positions attended."""

    heads: int
    head_dim: int
    top_k: int
    owns_weights: bool = True  # False: the layer reuses an earlier layer's selection


@dataclass(frozen=True)
class Attention:
    """Softmax attention over a KV cache: MHA, GQA and MQA are the same with fewer `kv_heads`."""

    heads: int
    kv_heads: int
    key_dim: int  # per head, of Q and K
    value_dim: int  # per head, of V
    window: int | None = None  # positions attended; None = all
    shares_cache: bool = False  # reads an earlier layer's K and V and stores none of its own
    fused_qkv: bool = False  # one attn_qkv matrix
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "heads", "full"] = (
        "none"  # one vector for all heads, one a head, or heads × key_dim
    )
    gate: Literal["none", "query", "head", "element"] = "none"  # query: Wq twice as wide; head: h×H; element: h×H·d
    sinks: bool = False  # one learned logit a head
    key_is_value: bool = False  # no V matrix; V is still cached
    chunked: bool = False  # `window` is a chunk that positions do not look back across (Llama 4)
    indexer: Indexer | None = None


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): the cache holds one latent of kv_rank + rope_dim a position."""

    heads: int
    query_rank: int  # 0: no low-rank query
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    absorbed: bool = True  # False: old GGUF files, and minicpm3, which cache full K and V of every head
    gate: bool = False  # element-wise output gate, h×H·v (Kimi K3)
    indexer: Indexer | None = None


@dataclass(frozen=True)
class CompressedAttention:
    """DeepSeek V4 attention: K = V of `head_dim`, a raw window, and one compressed entry every `ratio` tokens."""

    heads: int
    head_dim: int
    query_rank: int
    output_rank: int
    output_groups: int
    rope_dim: int
    window: int
    ratio: int  # 0: window only
    indexer: Indexer | None = None


@dataclass(frozen=True)
class Mamba:
    """Selective state space layer, version 1 (dt_rank) or 2 (heads, groups)."""

    version: Literal[1, 2]
    inner: int
    state: int
    conv: int
    groups: int = 0  # version 2
    heads: int = 0  # version 2
    dt_rank: int = 0  # version 1
    inner_norms: bool = False  # Jamba: norms of dt, B and C
    gated_norm: bool = True  # version 2: norm before the output matrix


@dataclass(frozen=True)
class DeltaNet:
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): a key_dim × value_dim state per value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int
    fused_beta_alpha: bool = True  # ssm_ba; False: ssm_alpha and ssm_beta


@dataclass(frozen=True)
class KimiDelta:
    """Kimi delta attention (KDA): a head_dim × head_dim state per head, three short convolutions."""

    heads: int
    head_dim: int
    conv: int
    full_rank_gate: bool = False  # Kimi K3: one ssm_g instead of ssm_g_a and ssm_g_b


@dataclass(frozen=True)
class ShortConv:
    """Gated short convolution of LFM2."""

    kernel: int


@dataclass(frozen=True)
class Rwkv7:
    """RWKV-7 time mixing, with its low-rank adapters (the first layer's value residual has the rate's rank)."""

    head_dim: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int
    first: bool = False  # the first layer has no value residual


@dataclass(frozen=True)
class LightningAttention:
    """Linear attention of MiniMax-Text-01: a head_dim × head_dim state per head."""

    heads: int
    head_dim: int


CachedMixer = Attention | LatentAttention | CompressedAttention
RecurrentMixer = Mamba | DeltaNet | KimiDelta | ShortConv | Rwkv7 | LightningAttention
Mixer = CachedMixer | RecurrentMixer


@dataclass(frozen=True)
class DenseFfn:
    """Feed-forward block: gate, up, down when gated; up, down otherwise."""

    width: int
    gated: bool = True
    fused_gate_up: bool = False  # phi3, glm4: one ffn_up of twice the width
    bias: bool = False
    kind: Literal["mlp", "rwkv"] = "mlp"  # rwkv: channel mixing
    scalars: int = 0  # learned activation scalars (xIELU)


@dataclass(frozen=True)
class MoeFfn:
    """Mixture of experts: a router picks `used` of `experts`; shared parts see every token."""

    experts: int
    used: int
    width: int
    gated: bool = True
    shared_width: int = 0  # all shared experts together
    shared_gate: bool = False
    selection_bias: bool = False  # exp_probs_b
    router_bias: bool = False
    expert_bias: bool = False
    latent: int = 0  # experts work in a narrower space (Nemotron 3 Super, Kimi K3)
    latent_norm: bool = False  # Kimi K3
    fused_gate_up: bool = False  # one ffn_gate_up_exps (Gemma 4)
    dense: DenseFfn | None = None  # a dense block beside the experts (Arctic, Gemma 4)


Ffn = DenseFfn | MoeFfn


@dataclass(frozen=True)
class ExtraTensor:
    """A tensor that no part implies: its llama.cpp name (without "blk.N." inside a layer) and shape (ne0 first)."""

    name: str
    shape: tuple[int, ...]


def by_name(extras: Iterable[ExtraTensor]) -> tuple[ExtraTensor, ...]:
    """`extras` in the order in which layers and models hold them, so that equal ones compare equal."""
    return tuple(sorted(extras, key=lambda extra: extra.name))


@dataclass(frozen=True)
class Layer:
    """One block: its mixers (two where attention and state space run side by side), its feed-forward, its norms.

    A layer without mixers is a feed-forward block alone, one without `ffn` a mixer alone (Nemotron-H).
    """

    mixers: tuple[Mixer, ...]
    ffn: Ffn | None
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")  # tensor names, one weight vector of `hidden` each
    norm_bias: bool = False
    extras: tuple[ExtraTensor, ...] = ()


@dataclass(frozen=True)
class Model:
    """A complete architecture. `draft_layers` are NextN/MTP blocks: in the file, not in plain decoding, no cache."""

    id: str
    name: str
    architecture: str  # GGUF architecture name
    vocab: int
    hidden: int
    layers: tuple[Layer, ...]
    draft_layers: tuple[Layer, ...] = ()
    tied_embeddings: bool = False
    max_context: int | None = None
    final_norm: bool = True  # False: no weights in it (OLMo 1)
    norm_bias: bool = False  # bias of the final norm
    extras: tuple[ExtraTensor, ...] = ()
    # Values the converter adds to the checkpoint's: in the file, but not parameters. A file does not tell them apart.
    padding: int = field(default=0, compare=False)

    @property
    def n_layers(self) -> int:
        """Layers that plain decoding runs."""
        return len(self.layers)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Models are keys of many caches, and hashing a hundred layers costs more than most of what is cached.
        return hash((self.id, self.architecture, self.hidden, self.vocab, self.layers))
