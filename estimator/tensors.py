"""The tensor inventory of a Model: every tensor of its GGUF file, by llama.cpp's name and shape.

Names and shapes follow llama.cpp b11434 (src/llama-arch.cpp and the tensor lists of src/models). Shapes have ne0, the
row length, first. A matrix of shape (ne0, ne1) maps ne0 inputs to ne1 outputs; an expert matrix has the number of
experts as its third dimension.
Imports `architecture` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import Final, Literal

from .architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    Ffn,
    Indexer,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    MoeFfn,
    Rwkv7,
    ShortConv,
)
from .frozen_dataclass import dataclass

Role = Literal[
    "token_embedding",  # looked up, not multiplied (unless tied: then it is the output matrix as well)
    "output",
    "attention",
    "latent",  # low-rank matrices of MLA and of DeepSeek V4
    "dense_ffn",
    "router",
    "expert",
    "shared_expert",
    "recurrent",
    "norm",
    "bias",  # biases, sinks, decays and other vectors
    "other",  # matrices of every token that fit nowhere above: per-layer inputs, LAuReL, MTP projection
    "table",  # constants and look-up tables: RoPE factors, hash routing; not parameters
]

Shape = tuple[int, ...]
NamedShape = tuple[str, Shape]


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file. `layer` is -1 for those of the whole model; `f32`: the converter keeps it in F32."""

    name: str
    shape: Shape  # ne0 first
    layer: int
    f32: bool

    @property
    def elements(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def role(self) -> Role:
        """What the tensor is for."""
        return role(self.name)

    @property
    def experts(self) -> int:
        """Experts stacked in it, 1 for a tensor that every token uses."""
        return self.shape[-1] if self.role == "expert" else 1


def tensors(model: Model, drafts: bool = False) -> tuple[Tensor, ...]:
    """All tensors of `model`: whole-model ones first, then layer by layer; with `drafts` the NextN/MTP layers too."""
    result = [Tensor(name, shape, -1, kept_f32(name, shape)) for name, shape in _whole_model(model)]
    layers = model.layers + model.draft_layers if drafts else model.layers
    templates: dict[int, tuple[tuple[str, Shape, bool], ...]] = {}  # identical layers are one object
    for index, layer in enumerate(layers):
        template = templates.get(id(layer))
        if template is None:
            named = _layer(layer, model.hidden)
            template = templates[id(layer)] = tuple((name, shape, kept_f32(name, shape)) for name, shape in named)
        prefix = f"blk.{index}."
        result += [Tensor(prefix + name, shape, index, f32) for name, shape, f32 in template]
    return tuple(result)


def layer_shapes(layer: Layer, hidden: int) -> Iterator[NamedShape]:
    """Names, without "blk.N.", and shapes of the tensors of one layer."""
    return _layer(layer, hidden)


def total_params(model: Model, drafts: bool = False) -> int:
    """Learned parameters, as the published checkpoints count them: without RoPE factors, other tables and padding."""
    return _learned(model, drafts) + _activation_scalars(model) - model.padding


def active_params(model: Model) -> int:
    """Learned parameters that one token uses: all but the experts that its routers leave out."""
    idle = sum(
        (layer.ffn.experts - layer.ffn.used) * _expert_params(layer.ffn, model.hidden)
        for layer in model.layers
        if isinstance(layer.ffn, MoeFfn)
    )
    return total_params(model) - idle


def file_params(model: Model, drafts: bool = False) -> int:
    """Values in the file's tensors, as llama-bench's n_params counts them: RoPE factors and tables included."""
    return sum(tensor.elements for tensor in tensors(model, drafts))


def role(name: str) -> Role:
    """The role of the tensor called `name`."""
    return _role(name.split(".", 2)[-1] if name.startswith("blk.") else name)


def kept_f32(name: str, shape: Shape) -> bool:
    """Whether the converter writes the tensor as F32 whatever the file type (conversion/base.py, prepare_tensors)."""
    if sum(size > 1 for size in shape) <= 1 or not name.endswith(".weight"):
        return True
    return name.endswith(_F32_ENDINGS)


_F32_ENDINGS: Final = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight", "token_types.weight",
    "ssm_conv1d.weight", "ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight", "shortconv.conv.weight",
    "time_mix_first.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight", "altup_correct_coef.weight", "altup_predict_coef.weight",
    "indexer.proj.weight", "indexer.q_proj.weight", "indexer.k_proj.weight",
)  # fmt: skip

_ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(("token_embd", "per_layer_token_embd", "position_embd", "nextn.embed_tokens"), "token_embedding"),
    **dict.fromkeys(("output", "nextn.shared_head_head"), "output"),
    **dict.fromkeys(
        ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "attn_gate", "indexer.proj", "indexer.attn_k",
         "indexer.attn_q_b", "indexer.q_proj", "indexer.k_proj", "attn_compressor_kv", "attn_compressor_gate",
         "indexer_compressor_kv", "indexer_compressor_gate"),
        "attention",
    ),
    **dict.fromkeys(
        ("attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b", "attn_k_b", "attn_v_b", "attn_kv", "attn_output_a",
         "attn_output_b"),
        "latent",
    ),
    **dict.fromkeys(
        ("ffn_gate", "ffn_up", "ffn_down", "channel_mix_key", "channel_mix_value", "ffn_latent_down", "ffn_latent_up",
         "ffn_routed_down", "ffn_routed_up"),
        "dense_ffn",
    ),
    **dict.fromkeys(("ffn_gate_inp", "ffn_gate_inp_shexp"), "router"),
    **dict.fromkeys(("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"), "expert"),
    **dict.fromkeys(("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"), "shared_expert"),
    **dict.fromkeys(
        ("ssm_in", "ssm_x", "ssm_dt", "ssm_out", "ssm_ba", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_conv1d_q",
         "ssm_conv1d_k", "ssm_conv1d_v", "ssm_f_a", "ssm_f_b", "ssm_g", "ssm_g_a", "ssm_g_b", "shortconv.conv",
         "shortconv.in_proj", "shortconv.out_proj"),
        "recurrent",
    ),
    **dict.fromkeys(("rope_freqs", "rope_factors_long", "rope_factors_short", "ffn_gate_tid2eid"), "table"),
    **dict.fromkeys(("attn_sinks", "layer_output_scale", "altup_correct_scale"), "bias"),
}  # fmt: skip


@lru_cache(maxsize=1024)
def _role(suffix: str) -> Role:
    """Role of a name without its block prefix."""
    stem, _, ending = suffix.rpartition(".")
    if ending != "weight":
        return "norm" if "norm" in suffix and ending != "bias" else "bias"
    if stem in _ROLES:
        return _ROLES[stem]
    if "norm" in stem:
        return "norm"
    return "recurrent" if stem.startswith("time_mix") else "other"


def _learned(model: Model, drafts: bool) -> int:
    return sum(tensor.elements for tensor in tensors(model, drafts) if tensor.role != "table")


def _activation_scalars(model: Model) -> int:
    """Learned scalars of activation functions, which a GGUF file keeps as metadata (xIELU)."""
    return sum(layer.ffn.scalars for layer in model.layers if isinstance(layer.ffn, DenseFfn))


def _expert_params(ffn: MoeFfn, hidden: int) -> int:
    """Parameters of one expert, with its biases and scales."""
    return sum(prod(shape) for name, shape in _moe(ffn, hidden) if "_exps." in name) // ffn.experts


def _whole_model(model: Model) -> Iterator[NamedShape]:
    yield "token_embd.weight", (model.hidden, model.vocab)
    if model.final_norm:
        name = FINAL_NORM.get(model.architecture, "output_norm")
        yield f"{name}.weight", (model.hidden,)
        if model.norm_bias:
            yield f"{name}.bias", (model.hidden,)
    if not model.tied_embeddings:
        yield "output.weight", (model.hidden, model.vocab)
    for extra in model.extras:
        yield extra.name, extra.shape


FINAL_NORM: Final = {"lfm2": "token_embd_norm", "lfm2moe": "token_embd_norm"}  # a slip that became the name


def _layer(layer: Layer, hidden: int) -> Iterator[NamedShape]:
    for norm in layer.norms:
        yield f"{norm}.weight", (hidden,)
        if layer.norm_bias:
            yield f"{norm}.bias", (hidden,)
    for mixer in layer.mixers:
        yield from _mixer(mixer, hidden)
    yield from _ffn(layer.ffn, hidden)
    for extra in layer.extras:
        yield extra.name, extra.shape


def _mixer(mixer: Mixer, hidden: int) -> Iterable[NamedShape]:
    if isinstance(mixer, Attention):
        return _attention(mixer, hidden)
    if isinstance(mixer, LatentAttention):
        return _latent_attention(mixer, hidden)
    if isinstance(mixer, CompressedAttention):
        return _compressed_attention(mixer, hidden)
    return _recurrent(mixer, hidden)


def _recurrent(mixer: Mixer, hidden: int) -> Iterable[NamedShape]:
    if isinstance(mixer, Mamba):
        return _mamba1(mixer, hidden) if mixer.version == 1 else _mamba2(mixer, hidden)
    if isinstance(mixer, DeltaNet):
        return _delta_net(mixer, hidden)
    if isinstance(mixer, KimiDelta):
        return _kimi_delta(mixer, hidden)
    if isinstance(mixer, ShortConv):
        return _short_conv(mixer, hidden)
    if isinstance(mixer, Rwkv7):
        return _rwkv7(mixer, hidden)
    if isinstance(mixer, LightningAttention):
        return _lightning(mixer, hidden)
    raise TypeError(f"no tensors are known for {type(mixer).__name__}")


def _attention(a: Attention, hidden: int) -> Iterator[NamedShape]:
    q, k, v = a.heads * a.key_dim, a.kv_heads * a.key_dim, a.kv_heads * a.value_dim
    q_out = 2 * q if a.gate == "query" else q
    parts = [("q", q_out), ("k", k)] if a.key_is_value else [("q", q_out), ("k", k), ("v", v)]
    if a.fused_qkv:
        parts = [("qkv", q_out + k + v)]
    for part, width in parts:
        yield f"attn_{part}.weight", (hidden, width)
        if a.qkv_bias:
            yield f"attn_{part}.bias", (width,)
    yield "attn_output.weight", (a.heads * a.value_dim, hidden)
    if a.output_bias:
        yield "attn_output.bias", (hidden,)
    yield from _qk_norms(a)
    if a.gate in ("head", "element"):
        yield "attn_gate.weight", (hidden, a.heads if a.gate == "head" else a.heads * a.value_dim)
    if a.sinks:
        yield "attn_sinks.weight", (a.heads,)
    if a.indexer is not None:
        yield from _block_indexer(a.indexer, hidden)


def _qk_norms(a: Attention) -> Iterator[NamedShape]:
    for part, heads in (("q", a.heads), ("k", a.kv_heads)):
        if a.qk_norm == "head":
            yield f"attn_{part}_norm.weight", (a.key_dim,)
        elif a.qk_norm == "heads":
            yield f"attn_{part}_norm.weight", (a.key_dim, heads)
        elif a.qk_norm == "full":
            yield f"attn_{part}_norm.weight", (heads * a.key_dim,)


def _block_indexer(index: Indexer, hidden: int) -> Iterator[NamedShape]:
    """Indexer over blocks of plain keys (MiniMax M3)."""
    yield "indexer.q_proj.weight", (hidden, index.heads * index.head_dim)
    yield "indexer.k_proj.weight", (hidden, index.head_dim)
    yield "indexer.q_norm.weight", (index.head_dim,)
    yield "indexer.k_norm.weight", (index.head_dim,)


def _latent_attention(a: LatentAttention, hidden: int) -> Iterator[NamedShape]:
    key_dim = a.nope_dim + a.rope_dim
    if a.query_rank:
        yield "attn_q_a.weight", (hidden, a.query_rank)
        yield "attn_q_a_norm.weight", (a.query_rank,)
        yield "attn_q_b.weight", (a.query_rank, a.heads * key_dim)
    else:
        yield "attn_q.weight", (hidden, a.heads * key_dim)
    yield "attn_kv_a_mqa.weight", (hidden, a.kv_rank + a.rope_dim)
    yield "attn_kv_a_norm.weight", (a.kv_rank,)
    if a.absorbed:
        yield "attn_k_b.weight", (a.nope_dim, a.kv_rank, a.heads)
        yield "attn_v_b.weight", (a.kv_rank, a.value_dim, a.heads)
    else:
        yield "attn_kv_b.weight", (a.kv_rank, a.heads * (a.nope_dim + a.value_dim))
    yield "attn_output.weight", (a.heads * a.value_dim, hidden)
    if a.gate:
        yield "attn_gate.weight", (hidden, a.heads * a.value_dim)
    if a.indexer is not None and a.indexer.owns_weights:
        yield from _lightning_indexer(a.indexer, a.query_rank, hidden)


def _lightning_indexer(index: Indexer, query_rank: int, hidden: int) -> Iterator[NamedShape]:
    yield "indexer.k_norm.weight", (index.head_dim,)
    yield "indexer.k_norm.bias", (index.head_dim,)
    yield "indexer.proj.weight", (hidden, index.heads)
    yield "indexer.attn_k.weight", (hidden, index.head_dim)
    yield "indexer.attn_q_b.weight", (query_rank, index.heads * index.head_dim)


def _compressed_attention(a: CompressedAttention, hidden: int) -> Iterator[NamedShape]:
    yield "attn_sinks.weight", (a.heads,)
    yield "attn_q_a.weight", (hidden, a.query_rank)
    yield "attn_q_a_norm.weight", (a.query_rank,)
    yield "attn_q_b.weight", (a.query_rank, a.heads * a.head_dim)
    yield "attn_kv.weight", (hidden, a.head_dim)
    yield "attn_kv_a_norm.weight", (a.head_dim,)
    yield "attn_output_a.weight", (a.heads * a.head_dim // a.output_groups, a.output_rank * a.output_groups)
    yield "attn_output_b.weight", (a.output_groups * a.output_rank, hidden)
    if a.ratio:
        overlap = 2 if a.indexer else 1  # layers with an indexer compress overlapping pairs of groups
        yield from _compressor("attn_compressor", hidden, a.head_dim, a.ratio, overlap)
    if a.indexer is not None:
        yield "indexer.proj.weight", (hidden, a.indexer.heads)
        yield "indexer.attn_q_b.weight", (a.query_rank, a.indexer.heads * a.indexer.head_dim)
        yield from _compressor("indexer_compressor", hidden, a.indexer.head_dim, a.ratio, 2)


def _compressor(name: str, hidden: int, width: int, ratio: int, overlap: int) -> Iterator[NamedShape]:
    yield f"{name}_kv.weight", (hidden, overlap * width)
    yield f"{name}_gate.weight", (hidden, overlap * width)
    yield f"{name}_ape.weight", (overlap * width, ratio)
    yield f"{name}_norm.weight", (width,)


def _mamba1(m: Mamba, hidden: int) -> Iterator[NamedShape]:
    yield "ssm_in.weight", (hidden, 2 * m.inner)
    yield "ssm_conv1d.weight", (m.conv, m.inner)
    yield "ssm_conv1d.bias", (m.inner,)
    yield "ssm_x.weight", (m.inner, m.dt_rank + 2 * m.state)
    if m.inner_norms:
        yield "ssm_dt_norm.weight", (m.dt_rank,)
        yield "ssm_b_norm.weight", (m.state,)
        yield "ssm_c_norm.weight", (m.state,)
    yield "ssm_dt.weight", (m.dt_rank, m.inner)
    yield "ssm_dt.bias", (m.inner,)
    yield "ssm_a", (m.state, m.inner)
    yield "ssm_d", (m.inner,)
    yield "ssm_out.weight", (m.inner, hidden)


def _mamba2(m: Mamba, hidden: int) -> Iterator[NamedShape]:
    conv_width = m.inner + 2 * m.groups * m.state
    yield "ssm_in.weight", (hidden, m.inner + conv_width + m.heads)
    yield "ssm_conv1d.weight", (m.conv, conv_width)
    yield "ssm_conv1d.bias", (conv_width,)
    yield "ssm_dt.bias", (m.heads,)
    yield "ssm_a", (1, m.heads)
    yield "ssm_d", (1, m.heads)
    if m.gated_norm:
        yield "ssm_norm.weight", (m.inner // m.groups, m.groups)
    yield "ssm_out.weight", (m.inner, hidden)


def _delta_net(d: DeltaNet, hidden: int) -> Iterator[NamedShape]:
    key, value = d.key_heads * d.key_dim, d.value_heads * d.value_dim
    yield "attn_qkv.weight", (hidden, 2 * key + value)
    yield "attn_gate.weight", (hidden, value)
    yield "ssm_conv1d.weight", (d.conv, 2 * key + value)
    yield "ssm_dt.bias", (d.value_heads,)
    yield "ssm_a", (d.value_heads,)
    if d.fused_beta_alpha:
        yield "ssm_ba.weight", (hidden, 2 * d.value_heads)
    else:
        yield "ssm_beta.weight", (hidden, d.value_heads)
        yield "ssm_alpha.weight", (hidden, d.value_heads)
    yield "ssm_norm.weight", (d.value_dim,)
    yield "ssm_out.weight", (value, hidden)


def _kimi_delta(d: KimiDelta, hidden: int) -> Iterator[NamedShape]:
    width = d.heads * d.head_dim
    for part in "qkv":
        yield f"attn_{part}.weight", (hidden, width)
        yield f"ssm_conv1d_{part}.weight", (d.conv, 1, width)
    yield "ssm_f_a.weight", (hidden, d.head_dim)
    yield "ssm_f_b.weight", (d.head_dim, width)
    yield "ssm_beta.weight", (hidden, d.heads)
    yield "ssm_a", (d.heads,) if d.full_rank_gate else (1, d.heads)
    yield "ssm_dt.bias", (width,)
    if d.full_rank_gate:
        yield "ssm_g.weight", (hidden, width)
    else:
        yield "ssm_g_a.weight", (hidden, d.head_dim)
        yield "ssm_g_b.weight", (d.head_dim, width)
    yield "ssm_norm.weight", (d.head_dim,)
    yield "attn_output.weight", (width, hidden)


def _short_conv(c: ShortConv, hidden: int) -> Iterator[NamedShape]:
    yield "shortconv.conv.weight", (c.kernel, hidden)
    yield "shortconv.in_proj.weight", (hidden, 3 * hidden)
    yield "shortconv.out_proj.weight", (hidden, hidden)


def _rwkv7(r: Rwkv7, hidden: int) -> Iterator[NamedShape]:
    value_rank = r.rate_rank if r.first else r.value_rank
    for letter, rank in (("w", r.decay_rank), ("a", r.rate_rank), ("v", value_rank)):
        yield f"time_mix_{letter}0.weight", (hidden,)
        yield f"time_mix_{letter}1.weight", (hidden, rank)
        yield f"time_mix_{letter}2.weight", (rank, hidden)
    yield "time_mix_g1.weight", (hidden, r.gate_rank)
    yield "time_mix_g2.weight", (r.gate_rank, hidden)
    yield "time_mix_lerp_fused.weight", (hidden, 1, 1, 6)
    for vector in ("k_k", "k_a", "r_k"):
        yield f"time_mix_{vector}.weight", (hidden,)
    for matrix in ("key", "value", "receptance", "output"):
        yield f"time_mix_{matrix}.weight", (hidden, hidden)
    yield "time_mix_ln.weight", (hidden,)
    yield "time_mix_ln.bias", (hidden,)


def _lightning(a: LightningAttention, hidden: int) -> Iterator[NamedShape]:
    width = a.heads * a.head_dim
    yield "attn_norm_2.weight", (width,)
    yield "attn_qkv.weight", (hidden, 3 * width)
    yield "attn_gate.weight", (hidden, width)
    yield "attn_output.weight", (width, hidden)


def _ffn(ffn: Ffn | None, hidden: int) -> Iterable[NamedShape]:
    if ffn is None:
        return ()
    return _moe(ffn, hidden) if isinstance(ffn, MoeFfn) else _dense(ffn, hidden)


def _dense(f: DenseFfn, hidden: int) -> Iterator[NamedShape]:
    if f.kind == "rwkv":
        yield "channel_mix_lerp_k.weight", (hidden, 1, 1)
        yield "channel_mix_key.weight", (hidden, f.width)
        yield "channel_mix_value.weight", (f.width, hidden)
        return
    names = ("gate", "up") if f.gated and not f.fused_gate_up else ("up",)
    width = 2 * f.width if f.fused_gate_up else f.width
    for name in names:
        yield f"ffn_{name}.weight", (hidden, width)
        if f.bias:
            yield f"ffn_{name}.bias", (width,)
    yield "ffn_down.weight", (f.width, hidden)
    if f.bias:
        yield "ffn_down.bias", (hidden,)


def _moe(f: MoeFfn, hidden: int) -> Iterator[NamedShape]:
    yield "ffn_gate_inp.weight", (hidden, f.experts)
    if f.router_bias:
        yield "ffn_gate_inp.bias", (f.experts,)
    if f.selection_bias:
        yield "exp_probs_b.bias", (f.experts,)
    yield from _latent_projection(f, hidden)
    yield from _experts(f, f.latent or hidden)
    if f.shared_width:
        yield from _shared_expert(f, hidden)
    yield from _ffn(f.dense, hidden)


def _experts(f: MoeFfn, hidden: int) -> Iterator[NamedShape]:
    up = [("gate", f.width), ("up", f.width)] if f.gated else [("up", f.width)]
    if f.fused_gate_up:
        up = [("gate_up", 2 * f.width)]
    for name, width in up:
        yield f"ffn_{name}_exps.weight", (hidden, width, f.experts)
        if f.expert_bias:
            yield f"ffn_{name}_exps.bias", (width, f.experts)
    yield "ffn_down_exps.weight", (f.width, hidden, f.experts)
    if f.expert_bias:
        yield "ffn_down_exps.bias", (hidden, f.experts)


def _latent_projection(f: MoeFfn, hidden: int) -> Iterator[NamedShape]:
    if not f.latent:
        return
    name = "ffn_routed" if f.latent_norm else "ffn_latent"
    yield f"{name}_down.weight", (hidden, f.latent)
    yield f"{name}_up.weight", (f.latent, hidden)
    if f.latent_norm:
        yield f"{name}_norm.weight", (f.latent,)


def _shared_expert(f: MoeFfn, hidden: int) -> Iterator[NamedShape]:
    if f.shared_gate:
        yield "ffn_gate_inp_shexp.weight", (hidden,)
    for name in ("gate", "up") if f.gated else ("up",):
        yield f"ffn_{name}_shexp.weight", (hidden, f.shared_width)
    yield "ffn_down_shexp.weight", (f.shared_width, hidden)
