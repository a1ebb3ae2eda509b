"""One block of a GGUF file to a Layer: what its tensors' names and shapes say, with the few figures they leave open.

The inverse of `tensors`. Shapes have ne0, the row length, first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    ExtraTensor,
    Ffn,
    Indexer,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    MoeFfn,
    Rwkv7,
    ShortConv,
    by_name,
)
from ..conventions import Convention
from ..errors import InputError
from ..tensors import Shape, layer_shapes


@dataclass(frozen=True)
class Block:
    """The tensors of one block, without "blk.N.", and the metadata figures that apply to it (0 where there is none)."""

    where: str  # for errors: "model.gguf: blk.3"
    hidden: int
    shapes: Mapping[str, Shape]
    architecture: str
    heads: int = 0
    kv_heads: int = 0
    window: int | None = None
    shares_cache: bool = False
    rope_dim: int = 0
    experts_used: int = 0
    state: int = 0  # ssm.state_size
    groups: int = 0  # ssm.group_count
    wkv_head: int = 0
    value_rank: int = 0  # RWKV-7: of the layers after the first
    first: bool = False  # layer 0
    indexer: Indexer | None = None  # of a layer without indexer weights
    top_k: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def fail(self, problem: str) -> InputError:
        """The error for what is wrong with this block."""
        return InputError(f"{self.where}: {problem}")

    def size(self, name: str, axis: int) -> int:
        """Extent of a tensor along `axis`, 1 beyond its dimensions; InputError if the block lacks the tensor."""
        shape = self.shapes.get(name)
        if shape is None:
            raise self.fail(f"has no tensor {name}")
        return shape[axis] if axis < len(shape) else 1

    def figure(self, value: int, key: str) -> int:
        """A metadata figure that must be there; InputError if it is not."""
        if value <= 0:
            raise self.fail(f"the metadata lacks {key}")
        return value

    def share(self, total: int, parts: int, what: str) -> int:
        """`total` ÷ `parts`, which must come out even."""
        if parts <= 0 or total <= 0 or total % parts:
            raise self.fail(f"{what}: {total} does not divide into {parts} parts")
        return total // parts


_QkNorm = Literal["none", "head", "heads", "full"]
_Gate = Literal["none", "query", "head", "element"]


def layer_from(block: Block, rules: Convention, norms: tuple[str, ...]) -> Layer:
    """The Layer whose tensors are those of `block`; tensors that no part implies become extras.

    Raises InputError where tensors are missing, or shapes contradict each other.
    """
    if not block.shapes and block.architecture != "deci":  # which keeps pruned blocks as empty ones
        raise block.fail("has no tensors, though block_count includes it")
    present = tuple(name for name in norms if block.shapes.get(f"{name}.weight") == (block.hidden,))
    bias = any(f"{name}.bias" in block for name in present) if present else rules.norm_bias
    bare = Layer(_mixers(block, rules), _ffn(block, rules), present, bias)
    return Layer(bare.mixers, bare.ffn, bare.norms, bias, _extras(block, bare))


def _extras(block: Block, bare: Layer) -> tuple[ExtraTensor, ...]:
    implied = {name: trimmed(shape) for name, shape in layer_shapes(bare, block.hidden)}
    for name, shape in implied.items():
        found = block.shapes.get(name)
        if found is None:
            if not (block.shares_cache and name in _UNUSED_IF_SHARED):
                raise block.fail(f"has no tensor {name}")
        elif trimmed(found) != shape:
            raise block.fail(f"{name} has the shape {found} where {shape} is due")
    return by_name(ExtraTensor(name, shape) for name, shape in block.shapes.items() if name not in implied)


_UNUSED_IF_SHARED: Final = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")  # some files leave them out


def trimmed(shape: Shape) -> Shape:
    """`shape` without trailing ones, which files keep or drop as they like."""
    used = len(shape)
    while used > 1 and shape[used - 1] == 1:
        used -= 1
    return shape[:used]


def _mixers(b: Block, rules: Convention) -> tuple[Mixer, ...]:
    recurrent = _recurrent(b)
    if recurrent is not None and not isinstance(recurrent, Mamba):
        return (recurrent,)
    cached: Mixer | None = None
    if "attn_kv_a_mqa.weight" in b:
        cached = _latent(b)
    elif "attn_output_a.weight" in b:
        cached = _compressed(b)
    elif "attn_q.weight" in b or "attn_qkv.weight" in b:
        cached = _attention(b, rules)
    return tuple(mixer for mixer in (recurrent, cached) if mixer is not None)


def _recurrent(b: Block) -> Mixer | None:
    if "ssm_x.weight" in b:
        return _mamba1(b)
    if "ssm_in.weight" in b:
        return _mamba2(b)
    if "ssm_f_a.weight" in b:
        return _kimi_delta(b)
    if "ssm_conv1d.weight" in b:
        return _delta_net(b)
    if "shortconv.conv.weight" in b:
        return ShortConv(b.size("shortconv.conv.weight", 0))
    if "time_mix_w1.weight" in b:
        return _rwkv7(b)
    if b.architecture == "minimax-01" and "attn_qkv.weight" in b:
        heads = b.figure(b.heads, "attention.head_count")
        return LightningAttention(heads, b.share(b.size("attn_output.weight", 0), heads, "attn_output.weight"))
    return None


def _attention(b: Block, rules: Convention) -> Attention:
    heads = b.figure(b.heads, "attention.head_count")
    kv_heads, key_dim, value_dim = _head_sizes(b, heads, 2 if rules.gate == "query" else 1)
    b.share(heads, kv_heads, "attention.head_count")
    fused = "attn_qkv.weight" in b
    return Attention(
        heads,
        kv_heads,
        key_dim,
        value_dim,
        window=b.window,
        shares_cache=b.shares_cache,
        fused_qkv=fused,
        qkv_bias=("attn_qkv.bias" if fused else "attn_q.bias") in b,
        output_bias="attn_output.bias" in b,
        qk_norm=_qk_norm(b, key_dim),
        gate=_gate(b, rules, heads),
        sinks="attn_sinks.weight" in b,
        key_is_value=not fused and "attn_v.weight" not in b and "attn_k.weight" in b,
        chunked=b.window is not None and rules.chunked,
        indexer=_block_indexer(b),
    )


def _head_sizes(b: Block, heads: int, query_parts: int) -> tuple[int, int, int]:
    """Key/value heads, and the sizes of a key and a value."""
    value_dim = b.share(b.size("attn_output.weight", 0), heads, "attn_output.weight")
    if "attn_qkv.weight" in b:
        kv_heads = b.figure(b.kv_heads, "attention.head_count_kv")
        keys = b.size("attn_qkv.weight", 1) - kv_heads * value_dim
        return kv_heads, b.share(keys, heads + kv_heads, "attn_qkv.weight"), value_dim
    key_dim = b.share(b.size("attn_q.weight", 1), heads * query_parts, "attn_q.weight")
    if "attn_k.weight" not in b:
        return b.figure(b.kv_heads, "attention.head_count_kv"), key_dim, value_dim
    return b.share(b.size("attn_k.weight", 1), key_dim, "attn_k.weight"), key_dim, value_dim


def _qk_norm(b: Block, key_dim: int) -> _QkNorm:
    shape = b.shapes.get("attn_q_norm.weight")
    if shape is None:
        return "none"
    if len(shape) > 1:
        return "heads"
    return "head" if shape == (key_dim,) else "full"


def _gate(b: Block, rules: Convention, heads: int) -> _Gate:
    if rules.gate == "query":
        return "query"
    if "attn_gate.weight" not in b:
        return "none"
    return "head" if b.size("attn_gate.weight", 1) == heads else "element"


def _block_indexer(b: Block) -> Indexer | None:
    if "indexer.q_proj.weight" not in b:
        return None
    head_dim = b.size("indexer.k_proj.weight", 1)
    heads = b.share(b.size("indexer.q_proj.weight", 1), head_dim, "indexer.q_proj.weight")
    return Indexer(heads, head_dim, b.figure(b.top_k, "attention.indexer.top_k"))


def _latent(b: Block) -> LatentAttention:
    heads = b.figure(b.heads, "attention.head_count")
    kv_rank = b.size("attn_kv_a_norm.weight", 0)
    rope_dim = b.size("attn_kv_a_mqa.weight", 1) - kv_rank
    low_rank = "attn_q_a.weight" in b
    query = "attn_q_b.weight" if low_rank else "attn_q.weight"
    return LatentAttention(
        heads,
        query_rank=b.size("attn_q_a.weight", 1) if low_rank else 0,
        kv_rank=kv_rank,
        nope_dim=b.share(b.size(query, 1), heads, query) - rope_dim,
        rope_dim=rope_dim,
        value_dim=b.share(b.size("attn_output.weight", 0), heads, "attn_output.weight"),
        absorbed="attn_kv_b.weight" not in b,
        gate="attn_gate.weight" in b,
        indexer=_lightning_indexer(b),
    )


def _lightning_indexer(b: Block) -> Indexer | None:
    if "indexer.proj.weight" not in b:
        return b.indexer
    heads, top_k = b.size("indexer.proj.weight", 1), b.figure(b.top_k, "attention.indexer.top_k")
    return Indexer(heads, b.size("indexer.attn_k.weight", 1), top_k)


def _compressed(b: Block) -> CompressedAttention:
    heads, head_dim = b.size("attn_sinks.weight", 0), b.size("attn_kv.weight", 1)
    groups = b.share(heads * head_dim, b.size("attn_output_a.weight", 0), "attn_output_a.weight")
    return CompressedAttention(
        heads,
        head_dim,
        query_rank=b.size("attn_q_a.weight", 1),
        output_rank=b.share(b.size("attn_output_a.weight", 1), groups, "attn_output_a.weight"),
        output_groups=groups,
        rope_dim=b.figure(b.rope_dim, "rope.dimension_count"),
        window=b.figure(b.window or 0, "attention.sliding_window"),
        ratio=b.size("attn_compressor_ape.weight", 1) if "attn_compressor_ape.weight" in b else 0,
        indexer=_compressed_indexer(b),
    )


def _compressed_indexer(b: Block) -> Indexer | None:
    if "indexer.proj.weight" not in b:
        return None
    heads = b.size("indexer.proj.weight", 1)
    head_dim = b.share(b.size("indexer.attn_q_b.weight", 1), heads, "indexer.attn_q_b.weight")
    return Indexer(heads, head_dim, b.figure(b.top_k, "attention.indexer.top_k"))


def _mamba1(b: Block) -> Mamba:
    state, inner = b.size("ssm_a", 0), b.size("ssm_out.weight", 0)
    return Mamba(
        1,
        inner,
        state,
        b.size("ssm_conv1d.weight", 0),
        dt_rank=b.size("ssm_dt.weight", 0),
        inner_norms="ssm_dt_norm.weight" in b,
    )


def _mamba2(b: Block) -> Mamba:
    inner = b.size("ssm_out.weight", 0)
    groups = b.figure(b.groups, "ssm.group_count")
    state = b.share(b.size("ssm_conv1d.weight", 1) - inner, 2 * groups, "ssm_conv1d.weight")
    heads, conv = b.size("ssm_dt.bias", 0), b.size("ssm_conv1d.weight", 0)
    return Mamba(2, inner, state, conv, groups=groups, heads=heads, gated_norm="ssm_norm.weight" in b)


def _delta_net(b: Block) -> DeltaNet:
    key_dim = b.figure(b.state, "ssm.state_size")
    value, value_dim = b.size("ssm_out.weight", 0), b.size("ssm_norm.weight", 0)
    keys = b.share(b.size("attn_qkv.weight", 1) - value, 2, "attn_qkv.weight")
    return DeltaNet(
        key_heads=b.share(keys, key_dim, "attn_qkv.weight"),
        value_heads=b.share(value, value_dim, "ssm_out.weight"),
        key_dim=key_dim,
        value_dim=value_dim,
        conv=b.size("ssm_conv1d.weight", 0),
        fused_beta_alpha="ssm_ba.weight" in b,
    )


def _kimi_delta(b: Block) -> KimiDelta:
    return KimiDelta(
        heads=b.size("ssm_beta.weight", 1),
        head_dim=b.size("ssm_norm.weight", 0),
        conv=b.size("ssm_conv1d_q.weight", 0),
        full_rank_gate="ssm_g.weight" in b,
    )


def _rwkv7(b: Block) -> Rwkv7:
    return Rwkv7(
        head_dim=b.figure(b.wkv_head, "wkv.head_size"),
        decay_rank=b.size("time_mix_w1.weight", 1),
        rate_rank=b.size("time_mix_a1.weight", 1),
        value_rank=b.value_rank or b.size("time_mix_v1.weight", 1),
        gate_rank=b.size("time_mix_g1.weight", 1),
        first=b.first,
    )


def _ffn(b: Block, rules: Convention) -> Ffn | None:
    if "ffn_gate_inp.weight" in b:
        return _moe(b, rules)
    if "channel_mix_key.weight" in b:
        return DenseFfn(b.size("channel_mix_key.weight", 1), gated=rules.gated, kind="rwkv")
    return _dense(b, rules) if "ffn_up.weight" in b else None


def _dense(b: Block, rules: Convention) -> DenseFfn:
    width = b.size("ffn_down.weight", 0)
    fused = "ffn_gate.weight" not in b and b.size("ffn_up.weight", 1) == 2 * width
    return DenseFfn(
        width,
        gated=fused or "ffn_gate.weight" in b,
        fused_gate_up=fused,
        bias="ffn_down.bias" in b,
        scalars=rules.activation_scalars,
    )


def _moe(b: Block, rules: Convention) -> MoeFfn:
    latent = next((name for name in ("ffn_latent_down.weight", "ffn_routed_down.weight") if name in b), None)
    fused = "ffn_gate_up_exps.weight" in b
    experts = b.size("ffn_down_exps.weight", 2)
    if b.experts_used > experts:
        raise b.fail(f"{b.experts_used} experts are used, but there are only {experts}")
    return MoeFfn(
        experts,
        used=b.figure(b.experts_used, "expert_used_count"),
        width=b.size("ffn_down_exps.weight", 0),
        gated=fused or "ffn_gate_exps.weight" in b,
        shared_width=b.size("ffn_down_shexp.weight", 0) if "ffn_down_shexp.weight" in b else 0,
        shared_gate="ffn_gate_inp_shexp.weight" in b,
        selection_bias="exp_probs_b.bias" in b,
        router_bias="ffn_gate_inp.bias" in b,
        expert_bias="ffn_down_exps.bias" in b,
        latent=b.size(latent, 1) if latent else 0,
        latent_norm="ffn_routed_norm.weight" in b,
        fused_gate_up=fused,
        dense=_dense(b, rules) if "ffn_up.weight" in b else None,
    )
