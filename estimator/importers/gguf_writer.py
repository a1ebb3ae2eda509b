"""A Model to a GGUF header: the metadata that its shapes imply, and tensor infos with a hole for the data.

For tests and for llama.cpp's own tools in their dry runs: such a file has the right size and shapes, but no weights and
no tokenizer. Keys: llama.cpp b11434, src/llama-arch.cpp and conversion/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ..architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
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
from ..quantization import SCALAR_HEAD_COUNTS, Weights, padded

if TYPE_CHECKING:
    import gguf

Figure = int | float | bool | str
MetadataValue = Figure | Sequence[Figure]
_M = TypeVar("_M")

# What the shapes do not say, but llama.cpp insists on: values that change no size.
_NEUTRAL: Final[dict[str, Figure]] = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.group_norm_epsilon": 64e-5,
    "rope.freq_base": 10000.0,
}


_NEUTRAL_OF: Final[dict[str, dict[str, MetadataValue]]] = {
    **{name: {"logit_scale": 1.0} for name in ("cohere2", "command-r", "granite", "granitemoe", "granitehybrid")},
    **{name: {"rope.dimension_sections": [11, 11, 10, 0]} for name in ("qwen35", "qwen35moe")},
    "dbrx": {"attention.clamp_kqv": 8.0},
    "deepseek4": {
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "swiglu_clamp_exp": 7.0,
        "attention.compress_rope_freq_base": 10000.0,
        "hyper_connection.sinkhorn_iterations": 20,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": 3,
    },
    "kimi-k3": {
        "attn_res.block_size": 4,
        "expert_gating_func": 2,
        "activation.situ_beta": 1.0,
        "activation.situ_linear_beta": 1.0,
    },
    "minimax-m3": {"attention.indexer.block_size": 128, "attention.indexer.local_blocks": 1},
    "gptneox": {"use_parallel_residual": True},
    "ernie4_5-moe": {"interleave_moe_layer_step": 1},
    "minimax-01": {"residual_scale": 1.0},
}


_XIELU: Final = ("xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps")  # no architecture before them


def metadata(model: Model, drafts: bool = False) -> dict[str, MetadataValue]:
    """Key → value of the metadata that says what the tensors of `model` do not."""
    layers = (*model.layers, *model.draft_layers) if drafts else model.layers
    figures = {
        "block_count": len(layers),
        "context_length": model.max_context or 0,
        "embedding_length": model.hidden,
        "vocab_size": model.vocab,
        **({"nextn_predict_layers": len(model.draft_layers)} if drafts and model.draft_layers else {}),
        **_NEUTRAL,
        **_attention(model, layers),
        **_feed_forward(model.architecture, layers),
        **_recurrent(layers),
        **_from_extras(model),
        **_NEUTRAL_OF.get(model.architecture, {}),
    }
    prefix = model.architecture
    return {
        "general.name": model.name,
        "tokenizer.ggml.model": "none",
        **{f"{prefix}.{key}": value for key, value in figures.items()},
        **(dict.fromkeys(_XIELU, 1.0) if prefix == "apertus" else {}),
    }


def _attention(model: Model, layers: Sequence[Layer]) -> dict[str, MetadataValue]:
    figures: dict[str, MetadataValue] = _head_counts(model.architecture, layers)
    cached = [mixer for layer in layers for mixer in layer.mixers if isinstance(mixer, _CACHED)]
    if cached:
        figures.update(_head_sizes(cached))
        figures.update(_windows(layers, cached))
    if shared := sum(isinstance(mixer, Attention) and mixer.shares_cache for mixer in cached):
        figures["attention.shared_kv_layers"] = shared
    if any(isinstance(mixer, CompressedAttention) for mixer in cached):
        figures["attention.compress_ratios"] = [getattr(layer.mixers[0], "ratio", 0) for layer in layers]
    figures.update(_indexer(layers, model.n_layers))
    rotated = next((2 * extra.shape[0] for extra in model.extras if extra.name.startswith("rope_f")), None)
    return {**figures, **({"rope.dimension_count": rotated} if rotated else {})}


_CACHED: Final = (Attention, LatentAttention, CompressedAttention)


def _head_counts(architecture: str, layers: Sequence[Layer]) -> dict[str, MetadataValue]:
    counts = [_heads(layer.mixers) for layer in layers]
    attending = [count for count in counts if count[0]] or [(0, 0)]
    if architecture in SCALAR_HEAD_COUNTS:
        counts = [max(attending)] * len(counts)
    absent = 0 if architecture == "deci" else attending[0][0]  # heads of a layer without attention
    return {
        "attention.head_count": _scalar_or_array([heads or absent for heads, _ in counts]),
        "attention.head_count_kv": _scalar_or_array([kv_heads for _, kv_heads in counts]),
    }


def _heads(mixers: Iterable[Mixer]) -> tuple[int, int]:
    """Heads and key/value heads; MLA is stored as if it had one of the latter."""
    for mixer in mixers:
        if isinstance(mixer, Attention):
            return mixer.heads, mixer.kv_heads
        if isinstance(mixer, LatentAttention):
            return mixer.heads, 1 if mixer.absorbed else mixer.heads
        if isinstance(mixer, (CompressedAttention, LightningAttention)):
            return mixer.heads, 1
    return 0, 0


def _head_sizes(cached: Sequence[Mixer]) -> dict[str, MetadataValue]:
    for latent in _of(cached, LatentAttention):
        return _latent_sizes(latent)
    for compressed in _of(cached, CompressedAttention):
        return {
            "attention.key_length": compressed.head_dim,
            "attention.value_length": compressed.head_dim,
            "rope.dimension_count": compressed.rope_dim,
            "attention.q_lora_rank": compressed.query_rank,
            "attention.output_lora_rank": compressed.output_rank,
            "attention.output_group_count": compressed.output_groups,
        }
    plain = list(_of(cached, Attention))
    base = next((mixer for mixer in plain if mixer.window is None), plain[0])
    window = next((mixer for mixer in plain if mixer.window is not None), base)
    sizes = {"attention.key_length": base.key_dim, "attention.value_length": base.value_dim}
    if (window.key_dim, window.value_dim) != (base.key_dim, base.value_dim):
        sizes |= {"attention.key_length_swa": window.key_dim, "attention.value_length_swa": window.value_dim}
    return {**sizes, "rope.dimension_count": base.key_dim}


def _latent_sizes(a: LatentAttention) -> dict[str, MetadataValue]:
    key_dim = a.nope_dim + a.rope_dim
    sizes: dict[str, MetadataValue] = {"attention.kv_lora_rank": a.kv_rank, "rope.dimension_count": a.rope_dim}
    if a.query_rank:
        sizes["attention.q_lora_rank"] = a.query_rank
    if not a.absorbed:
        return {**sizes, "attention.key_length": key_dim, "attention.value_length": a.value_dim}
    return {
        **sizes,
        "attention.key_length": a.kv_rank + a.rope_dim,
        "attention.value_length": a.kv_rank,
        "attention.key_length_mla": key_dim,
        "attention.value_length_mla": a.value_dim,
    }


def _windows(layers: Sequence[Layer], cached: Sequence[Mixer]) -> dict[str, MetadataValue]:
    window: int | None = next((found for mixer in cached if (found := getattr(mixer, "window", None))), None)
    if window is None:
        return {}
    slides = [any(isinstance(mixer, Attention) and mixer.window for mixer in layer.mixers) for layer in layers]
    pattern: dict[str, MetadataValue] = {"attention.sliding_window_pattern": slides} if any(slides) else {}
    return {"attention.sliding_window": window, **pattern}


def _indexer(layers: Sequence[Layer], trunk: int) -> dict[str, MetadataValue]:
    indexers: list[Indexer | None] = [
        next((mixer.indexer for mixer in layer.mixers if isinstance(mixer, _CACHED)), None) for layer in layers
    ]
    first = next((indexer for indexer in indexers if indexer is not None), None)
    if first is None:
        return {}
    return {
        "attention.indexer.head_count": first.heads,
        "attention.indexer.key_length": first.head_dim,
        "attention.indexer.top_k": first.top_k,
        "attention.indexer.types": [int(indexer is not None and indexer.owns_weights) for indexer in indexers[:trunk]],
    }


def _from_extras(model: Model) -> dict[str, MetadataValue]:
    """Figures of single architectures that only their extra tensors show."""
    shapes = {extra.name: extra.shape for extra in model.extras}
    figures: dict[str, MetadataValue] = {}
    if model.architecture in ("gemma3n", "gemma4"):
        figures["embedding_length_per_layer_input"] = shapes.get("per_layer_proj_norm.weight", (0,))[0]
    if "output_hc_base.weight" in shapes:
        figures["hyper_connection.count"] = shapes["output_hc_base.weight"][0]
    return figures


def _feed_forward(architecture: str, layers: Sequence[Layer]) -> dict[str, MetadataValue]:
    experts = [layer.ffn for layer in layers if isinstance(layer.ffn, MoeFfn)]
    if architecture == "arctic":  # its dense blocks are as wide as the model
        return {"feed_forward_length": experts[0].width, **_experts(layers, experts)}
    widths = [layer.ffn.width for layer in layers if isinstance(layer.ffn, DenseFfn)]
    widths += [ffn.dense.width for ffn in experts if ffn.dense]
    usual = max(widths, default=experts[0].width if experts else 0)
    figures = {"feed_forward_length": _scalar_or_array([_width(layer, usual) for layer in layers])}
    if architecture == "llama4":
        figures["interleave_moe_layer_step"] = 1 + next(
            i for i, layer in enumerate(layers) if isinstance(layer.ffn, MoeFfn)
        )
    return {**figures, **(_experts(layers, experts) if experts else {})}


def _width(layer: Layer, usual: int) -> int:
    if isinstance(layer.ffn, DenseFfn):
        return layer.ffn.width
    if isinstance(layer.ffn, MoeFfn):
        return layer.ffn.dense.width if layer.ffn.dense else usual
    return 0


def _experts(layers: Sequence[Layer], experts: Sequence[MoeFfn]) -> dict[str, MetadataValue]:
    first = next(index for index, layer in enumerate(layers) if isinstance(layer.ffn, MoeFfn))
    shared = experts[0].shared_width
    return {
        "expert_count": experts[0].experts,
        "expert_used_count": experts[0].used,
        "expert_feed_forward_length": experts[0].width,
        "leading_dense_block_count": first,
        "expert_weights_scale": 1.0,
        "expert_gating_func": 2 if experts[0].selection_bias else 1,
        **(
            {"expert_latent_length": experts[0].latent, "moe_latent_size": experts[0].latent}
            if experts[0].latent
            else {}
        ),
        **(
            {"expert_shared_count": max(1, shared // experts[0].width), "expert_shared_feed_forward_length": shared}
            if shared
            else {}
        ),
    }


def _recurrent(layers: Sequence[Layer]) -> dict[str, MetadataValue]:
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    figures: dict[str, MetadataValue] = {}
    for kind, keys in _STATE_KEYS.items():
        for mixer in _of(mixers, kind):
            figures.update({key: getattr(mixer, name) for key, name in keys.items()})
            break
    for mamba in _of(mixers, Mamba):
        figures["ssm.time_step_rank"] = mamba.dt_rank or mamba.heads
    for net in _of(mixers, DeltaNet):
        figures["ssm.inner_size"] = net.value_heads * net.value_dim
    states = [int(any(not isinstance(mixer, _CACHED) for mixer in layer.mixers)) for layer in layers]
    if 0 < sum(states) < len(states):
        figures["attention.recurrent_layers"] = states
    return figures


_STATE_KEYS: Final[dict[type[Mixer], dict[str, str]]] = {
    Mamba: {
        "ssm.conv_kernel": "conv",
        "ssm.inner_size": "inner",
        "ssm.state_size": "state",
        "ssm.group_count": "groups",
    },
    DeltaNet: {
        "ssm.conv_kernel": "conv",
        "ssm.state_size": "key_dim",
        "ssm.group_count": "key_heads",
        "ssm.time_step_rank": "value_heads",
    },
    KimiDelta: {"kda.head_dim": "head_dim", "ssm.conv_kernel": "conv"},
    ShortConv: {"shortconv.l_cache": "kernel"},
    Rwkv7: {
        "wkv.head_size": "head_dim",
        "attention.decay_lora_rank": "decay_rank",
        "attention.iclr_lora_rank": "rate_rank",
        "attention.value_residual_mix_lora_rank": "value_rank",
        "attention.gate_lora_rank": "gate_rank",
    },
}


def _of(mixers: Iterable[Mixer], kind: type[_M]) -> Iterator[_M]:
    return (mixer for mixer in mixers if isinstance(mixer, kind))


def _scalar_or_array(values: list[int]) -> MetadataValue:
    return values[0] if len(set(values)) == 1 else values


def write_header(model: Model, weights: Weights, path: str | os.PathLike[str], file_type: int = 1) -> None:
    """Writes a GGUF file of the tensors of `weights`, whose data is a hole of the right length.

    Needs the gguf package. NextN/MTP layers are in the file if `weights` has them.
    """
    import gguf

    drafts = any(quantized.tensor.layer >= model.n_layers for quantized in weights.tensors)
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_file_type(file_type)
    for key, value in metadata(model, drafts).items():
        _add(writer, key, value)
    for quantized in weights.tensors:
        writer.add_tensor_info(
            quantized.tensor.name,
            quantized.tensor.shape[::-1],
            np.dtype(np.float16),
            quantized.bytes,
            raw_dtype=gguf.GGMLQuantizationType(quantized.type.id),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    _make_hole(path, weights)


def _add(writer: gguf.GGUFWriter, key: str, value: MetadataValue) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def _make_hole(path: str | os.PathLike[str], weights: Weights) -> None:
    data_bytes = sum(padded(quantized.bytes) for quantized in weights.tensors)
    with open(path, "r+b") as file:
        file.truncate(padded(os.path.getsize(path)) + data_bytes)
