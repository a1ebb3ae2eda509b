"""Models to Hugging Face configurations: the counterpart of `hf_fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

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
from ..conventions import CONVENTIONS
from .hf_fields import CLASSES, DRAFT_KEYS, LAYER_LETTERS, MODEL_TYPES

Config = dict[str, Any]
_Part = TypeVar("_Part")

_LAYER_TYPES: Final = {letter: word for word, letter in reversed(LAYER_LETTERS.items())}
_CLASS_NAMES: Final = {architecture: name for name, architecture in reversed(CLASSES.items())}
_MODEL_TYPES: Final = {architecture: name for name, architecture in reversed(MODEL_TYPES.items())}


def write_config(model: Model) -> Config:
    """A config.json, as a mapping, from which `read_config` makes the same Model, but for its id and name."""
    config = _head(model) | _heads(model) | _widths(model) | _latent(model) | _flags(model) | _rope(model)
    if model.draft_layers:
        config[DRAFT_KEYS[0]] = len(model.draft_layers)
    if model.architecture in _SPECIAL:
        config |= _SPECIAL[model.architecture](model)
    return {key: value for key, value in config.items() if value is not None}


def pattern_of(model: Model) -> str:
    """The letter of each layer, as in `conventions`."""
    return "".join(map(_letter, model.layers))


def _letter(layer: Layer) -> str:
    if not layer.mixers:
        single = layer.norms == ("attn_norm",)  # a block of its own, not a layer that lost its attention
        return ("E" if isinstance(layer.ffn, MoeFfn) else "D") if single else "N"
    if len(layer.mixers) > 1:
        return "P"
    mixer = layer.mixers[0]
    if isinstance(mixer, Attention):
        return "S" if mixer.window else "F"
    letters: dict[type[Mixer], str] = {Mamba: "M", ShortConv: "C", Rwkv7: "R", DeltaNet: "L", KimiDelta: "L",
                                       LightningAttention: "L"}  # fmt: skip
    return letters.get(type(mixer), "F")


def _mixers(model: Model, kind: type[_Part]) -> list[_Part]:
    return [mixer for layer in model.layers for mixer in layer.mixers if isinstance(mixer, kind)]


def _first(parts: Iterable[_Part]) -> _Part | None:
    return next(iter(parts), None)


def _only(model: Model, kind: type[_Part]) -> _Part:
    """The first mixer of this kind, in a model that has one."""
    return _mixers(model, kind)[0]


def _full(model: Model) -> Attention | None:
    """Attention of the layers without a window, or of any layer."""
    attention = _mixers(model, Attention)
    return _first(each for each in attention if each.window is None) or _first(attention)


def _sliding(model: Model) -> Attention | None:
    return _first(each for each in _mixers(model, Attention) if each.window is not None)


def _experts(model: Model) -> MoeFfn | None:
    return _first(layer.ffn for layer in model.layers if isinstance(layer.ffn, MoeFfn))


def _dense(model: Model) -> DenseFfn | None:
    return _first(layer.ffn for layer in model.layers if isinstance(layer.ffn, DenseFfn))


# What most configurations share


def _head(model: Model) -> Config:
    config: Config = {
        "architectures": [_class_name(model)],
        "model_type": _MODEL_TYPES.get(model.architecture),
        "num_hidden_layers": model.n_layers,
        "hidden_size": model.hidden,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied_embeddings,
        "max_position_embeddings": model.max_context,
    }
    pattern = pattern_of(model)
    if set(pattern) <= set(_LAYER_TYPES) and len(set(pattern)) > 1:
        config["layer_types"] = [_LAYER_TYPES[letter] for letter in pattern]
    return config


def _class_name(model: Model) -> str:
    experts = _experts(model)
    if model.architecture == "llama":
        return "MixtralForCausalLM" if experts else "LlamaForCausalLM"
    if model.architecture == "deepseek2":
        return "DeepseekV3ForCausalLM" if experts and experts.selection_bias else "DeepseekV2ForCausalLM"
    return _CLASS_NAMES["nemotron_h" if model.architecture == "nemotron_h_moe" else model.architecture]


def _heads(model: Model) -> Config:
    attention, sliding = _full(model), _sliding(model)
    if attention is None:
        return {}
    return {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.key_dim,
        "v_head_dim": attention.value_dim if attention.value_dim != attention.key_dim else None,
        "sliding_window": sliding.window if sliding else None,
        "num_kv_shared_layers": sum(each.shares_cache for each in _mixers(model, Attention)) or None,
    }


def _widths(model: Model) -> Config:
    dense, experts = _dense(model), _experts(model)
    config: Config = {"intermediate_size": dense.width if dense else None}
    if experts is None:
        return config
    return config | {
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.used,
        "moe_intermediate_size": experts.width,
        "shared_expert_intermediate_size": experts.shared_width or None,
        "first_k_dense_replace": _leading_dense(model) or None,
        "topk_method": "noaux_tc" if experts.selection_bias and _selects_by_method(model) else None,
        "moe_latent_size": experts.latent or None,
    }


def _selects_by_method(model: Model) -> bool:
    return not CONVENTIONS[model.architecture].selection_bias


def _leading_dense(model: Model) -> int:
    return next((i for i, layer in enumerate(model.layers) if isinstance(layer.ffn, MoeFfn)), 0)


def _latent(model: Model) -> Config:
    latent = _first(_mixers(model, LatentAttention))
    if latent is None:
        return {}
    config: Config = {
        "num_attention_heads": latent.heads,
        "num_key_value_heads": latent.heads,
        "q_lora_rank": latent.query_rank or None,
        "kv_lora_rank": latent.kv_rank,
        "qk_nope_head_dim": latent.nope_dim,
        "qk_rope_head_dim": latent.rope_dim,
        "v_head_dim": latent.value_dim,
    }
    return config | _indexer([mixer.indexer for mixer in _mixers(model, LatentAttention)])


def _indexer(indexers: list[Indexer | None]) -> Config:
    first = _first(each for each in indexers if each is not None)
    if first is None:
        return {}
    return {
        "index_n_heads": first.heads,
        "index_head_dim": first.head_dim,
        "index_topk": first.top_k,
        "indexer_types": ["full" if each and each.owns_weights else "shared" for each in indexers],
    }


def _flags(model: Model) -> Config:
    attention, dense = _full(model), _dense(model)
    return {
        "attention_bias": attention.qkv_bias if attention else None,
        "mlp_bias": dense.bias if dense else None,
        "use_qk_norm": attention.qk_norm != "none" if attention else None,
    }


def _rope(model: Model) -> Config:
    shapes = {extra.name: extra.shape[0] for extra in model.extras}
    if "rope_freqs.weight" in shapes and model.architecture != "gemma4":
        return {"rope_scaling": {"rope_type": "llama3"}}
    if "rope_factors_long.weight" not in shapes:
        return {}
    attention = _full(model)
    head_dim = attention.key_dim if attention else 2 * shapes["rope_factors_long.weight"]
    factor = 2 * shapes["rope_factors_long.weight"] / head_dim
    return {"rope_scaling": {"rope_type": "longrope"}, "partial_rotary_factor": factor if factor < 1 else None}


# One function for each architecture with keys of its own


def _expert_width_is_plain(model: Model) -> Config:
    """Experts as wide as intermediate_size says, and no dense layers."""
    experts = _experts(model)
    return {"intermediate_size": experts.width, "moe_intermediate_size": None} if experts else {}


def _dbrx(model: Model) -> Config:
    attention, experts = _full(model), _experts(model)
    assert attention is not None and experts is not None
    ffn = {"moe_num_experts": experts.experts, "moe_top_k": experts.used, "ffn_hidden_size": experts.width}
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_key_value_heads", "intermediate_size")
    return {"attn_config": {"kv_n_heads": attention.kv_heads}, "ffn_config": ffn} | dict.fromkeys(names)


def _arctic(model: Model) -> Config:
    experts = _experts(model)
    return {"intermediate_size": experts.width if experts else None, "moe_intermediate_size": None}


def _chatglm(model: Model) -> Config:
    return {"multi_query_attention": True, "num_key_value_heads": None, "multi_query_group_num": _full_kv_heads(model)}


def _full_kv_heads(model: Model) -> int | None:
    attention = _full(model)
    return attention.kv_heads if attention else None


def _command_r(model: Model) -> Config:
    attention = _full(model)
    return {"use_qk_norm": attention is not None and attention.qk_norm == "heads"}


def _deci(model: Model) -> Config:
    return {"block_configs": [_deci_block(layer, model.hidden) for layer in model.layers], "intermediate_size": None}


def _deci_block(layer: Layer, hidden: int) -> Config:
    attention = _first(mixer for mixer in layer.mixers if isinstance(mixer, Attention))
    width = layer.ffn.width if isinstance(layer.ffn, DenseFfn) else 0
    return {
        "attention": {
            "no_op": attention is None,
            "n_heads_in_group": attention.heads // attention.kv_heads if attention else None,
        },
        "ffn": {"no_op": width == 0, "ffn_mult": 1.5 * width / hidden if width else None},
    }


def _deepseek4(model: Model) -> Config:
    mixers = _mixers(model, CompressedAttention)
    first = mixers[0]
    hashed = [not layer.ffn.selection_bias for layer in model.layers if isinstance(layer.ffn, MoeFfn)]
    streams = next(extra.shape[0] for extra in model.extras if extra.name == "output_hc_base.weight")
    return {
        "num_attention_heads": first.heads,
        "num_key_value_heads": 1,
        "head_dim": first.head_dim,
        "q_lora_rank": first.query_rank,
        "o_lora_rank": first.output_rank,
        "o_groups": first.output_groups,
        "qk_rope_head_dim": first.rope_dim,
        "sliding_window": first.window,
        "compress_ratios": [mixer.ratio for mixer in mixers],
        "hc_mult": streams,
        "num_hash_layers": sum(hashed) or None,
    } | _indexer([mixer.indexer for mixer in mixers if mixer.indexer]) | {"indexer_types": None}  # fmt: skip


def _falcon(model: Model) -> Config:
    attention = _full(model)
    assert attention is not None
    parallel_norms = 1 if model.layers[0].norms == ("attn_norm",) else 2
    return {
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": parallel_norms,
        "num_kv_heads": attention.kv_heads,
    }


def _falcon_h1(model: Model) -> Config:
    mamba = _only(model, Mamba)
    return {
        "mamba_d_ssm": mamba.inner,
        "mamba_d_head": mamba.inner // mamba.heads,
        "mamba_d_state": mamba.state,
        "mamba_d_conv": mamba.conv,
        "mamba_n_heads": mamba.heads,
        "mamba_n_groups": mamba.groups,
        "mamba_rms_norm": mamba.gated_norm,
    }


def _per_layer_embedding(model: Model) -> Config:
    shapes = {extra.name: extra.shape for extra in model.extras}
    if "per_layer_proj_norm.weight" not in shapes:
        return {}
    width = shapes["per_layer_proj_norm.weight"][0]
    rows = model.vocab - model.padding // (width * model.n_layers)
    return {"hidden_size_per_layer_input": width, "vocab_size_per_layer_input": rows}


def _gemma3n(model: Model) -> Config:
    extras = {extra.name: extra.shape for extra in model.layers[0].extras}
    return _per_layer_embedding(model) | {
        "altup_num_inputs": extras["altup_correct_coef.weight"][0],
        "laurel_rank": extras["laurel_l.weight"][1],
    }


def _gemma4(model: Model) -> Config:
    attention, sliding, experts = _full(model), _sliding(model), _experts(model)
    assert attention is not None and sliding is not None
    widths = [layer.ffn.width for layer in model.layers if isinstance(layer.ffn, DenseFfn)]
    dense = experts.dense if experts else None
    return _per_layer_embedding(model) | {
        "num_key_value_heads": sliding.kv_heads,
        "head_dim": sliding.key_dim,
        "num_global_key_value_heads": attention.kv_heads,
        "global_head_dim": attention.key_dim,
        "attention_k_eq_v": attention.key_is_value,
        "intermediate_size": dense.width if dense else min(widths),
        "use_double_wide_mlp": len(set(widths)) > 1,
    }


def _granite_hybrid(model: Model) -> Config:
    mamba, dense = _only(model, Mamba), _dense(model)
    config = _expert_width_is_plain(model) | {
        "mamba_expand": mamba.inner // model.hidden,
        "mamba_d_state": mamba.state,
        "mamba_d_conv": mamba.conv,
        "mamba_n_heads": mamba.heads,
        "mamba_n_groups": mamba.groups,
    }
    return config | ({"shared_intermediate_size": dense.width} if dense else {})


def _hunyuan_moe(model: Model) -> Config:
    experts = _experts(model)
    assert experts is not None
    shared = experts.shared_width // experts.width
    return {"intermediate_size": experts.width, "num_shared_expert": shared, "shared_expert_intermediate_size": None}


def _jamba(model: Model) -> Config:
    mamba, dense, pattern = _only(model, Mamba), _dense(model), pattern_of(model)
    offset = pattern.index("F")
    period = pattern.index("F", offset + 1) - offset
    routed = [i for i, layer in enumerate(model.layers) if isinstance(layer.ffn, MoeFfn)]
    every = routed[1] - routed[0] if routed else 2
    return {
        "layer_types": None,
        "attn_layer_period": period,
        "attn_layer_offset": offset,
        "mamba_expand": mamba.inner // model.hidden,
        "mamba_d_state": mamba.state,
        "mamba_d_conv": mamba.conv,
        "mamba_dt_rank": mamba.dt_rank,
        "num_experts": _count(model) or 1,
        "expert_layer_period": every,
        "expert_layer_offset": every - 1,
        "intermediate_size": dense.width if dense else None,
        "moe_intermediate_size": None,
        "first_k_dense_replace": None,
    }


def _count(model: Model) -> int:
    experts = _experts(model)
    return experts.experts if experts else 0


def _kimi_linear(model: Model) -> Config:
    kda = _only(model, KimiDelta)
    full = [index + 1 for index, letter in enumerate(pattern_of(model)) if letter == "F"]
    linear = {"num_heads": kda.heads, "head_dim": kda.head_dim, "short_conv_kernel_size": kda.conv}
    return {"linear_attn_config": linear | {"full_attn_layers": full}, "layer_types": None}


def _lfm2(model: Model) -> Config:
    dense = _dense(model)
    return {
        "conv_L_cache": _only(model, ShortConv).kernel,
        "block_ff_dim": dense.width if dense else None,
        "block_auto_adjust_ff_dim": False,
    }


def _llama4(model: Model) -> Config:
    experts, dense, sliding = _experts(model), _dense(model), _sliding(model)
    assert experts is not None
    routed = [i for i, layer in enumerate(model.layers) if isinstance(layer.ffn, MoeFfn)]
    return {
        "intermediate_size": experts.width,
        "intermediate_size_mlp": dense.width if dense else 2 * experts.width,
        "interleave_moe_layer_step": routed[1] - routed[0],
        "sliding_window": None,
        "attention_chunk_size": sliding.window if sliding else None,
        "first_k_dense_replace": None,
    }


def _mamba1(model: Model) -> Config:
    mamba = _only(model, Mamba)
    return {
        "intermediate_size": mamba.inner,
        "state_size": mamba.state,
        "conv_kernel": mamba.conv,
        "time_step_rank": mamba.dt_rank,
    }


def _mamba2(model: Model) -> Config:
    mamba = _only(model, Mamba)
    return {
        "num_heads": mamba.heads,
        "head_dim": mamba.inner // mamba.heads,
        "state_size": mamba.state,
        "conv_kernel": mamba.conv,
        "n_groups": mamba.groups,
    }


def _mimo2(model: Model) -> Config:
    sliding = _sliding(model)
    assert sliding is not None
    return {
        "layer_types": None,
        "hybrid_layer_pattern": [int(letter == "S") for letter in pattern_of(model)],
        "swa_num_attention_heads": sliding.heads,
        "swa_num_key_value_heads": sliding.kv_heads,
        "swa_head_dim": sliding.key_dim,
        "swa_v_head_dim": sliding.value_dim,
        "moe_layer_freq": [int(isinstance(layer.ffn, MoeFfn)) for layer in model.layers],
        "first_k_dense_replace": None,
    }


def _minimax01(model: Model) -> Config:
    kinds = [int(letter == "F") for letter in pattern_of(model)]
    return _expert_width_is_plain(model) | {"layer_types": None, "attn_type_list": kinds}


def _minimax_m3(model: Model) -> Config:
    dense, indexers = _dense(model), [mixer.indexer for mixer in _mixers(model, Attention)]
    index = _first(each for each in indexers if each is not None)
    assert index is not None
    return {
        "dense_intermediate_size": dense.width if dense else None,
        "moe_layer_freq": [int(isinstance(layer.ffn, MoeFfn)) for layer in model.layers],
        "first_k_dense_replace": None,
        "sparse_attention_config": {
            "sparse_num_index_heads": index.heads,
            "sparse_index_dim": index.head_dim,
            "sparse_topk_blocks": index.top_k // 128,
            "sparse_block_size": 128,
            "sparse_attention_freq": [int(each is not None) for each in indexers],
        },
    }


def _nemotron_h(model: Model) -> Config:
    mamba = _only(model, Mamba)
    pattern = pattern_of(model).replace("F", "*").replace("D", "-")
    return {
        "hybrid_override_pattern": pattern,
        "layer_types": None,
        "mamba_num_heads": mamba.heads,
        "mamba_head_dim": mamba.inner // mamba.heads,
        "ssm_state_size": mamba.state,
        "conv_kernel": mamba.conv,
        "n_groups": mamba.groups,
        "first_k_dense_replace": None,
    }


def _qwen_hybrid(model: Model) -> Config:
    net = _only(model, DeltaNet)
    return {
        "linear_num_key_heads": net.key_heads,
        "linear_num_value_heads": net.value_heads,
        "linear_key_head_dim": net.key_dim,
        "linear_value_head_dim": net.value_dim,
        "linear_conv_kernel_dim": net.conv,
        "mtp_num_hidden_layers": len(model.draft_layers),
        DRAFT_KEYS[0]: None,
    }


def _rwkv7(model: Model) -> Config:
    rwkv = _mixers(model, Rwkv7)[-1]
    whole = (2 * (rwkv.rate_rank - rwkv.value_rank)) * model.hidden
    return {
        "head_dim": rwkv.head_dim,
        "decay_low_rank_dim": rwkv.decay_rank,
        "a_low_rank_dim": rwkv.rate_rank,
        "v_low_rank_dim": rwkv.value_rank,
        "gate_low_rank_dim": rwkv.gate_rank,
        "_v_lora_in_layer0": model.padding == whole,
    }


def _stablelm(model: Model) -> Config:
    attention = _full(model)
    assert attention is not None
    return {
        "use_qkv_bias": attention.qkv_bias,
        "qk_layernorm": attention.qk_norm == "heads",
        "use_parallel_residual": model.layers[0].norms == ("attn_norm",),
    }


def _starcoder(model: Model) -> Config:
    return {"multi_query": _full_kv_heads(model) == 1}


def _step35(model: Model) -> Config:
    sliding = _sliding(model)
    return {"num_sliding_attention_heads": sliding.heads if sliding else None}


_SPECIAL: Final[dict[str, Callable[[Model], Config]]] = {
    "arctic": _arctic,
    "chatglm": _chatglm,
    "command-r": _command_r,
    "dbrx": _dbrx,
    "deci": _deci,
    "deepseek4": _deepseek4,
    "falcon": _falcon,
    "falcon-h1": _falcon_h1,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "gpt-oss": _expert_width_is_plain,
    "granitehybrid": _granite_hybrid,
    "granitemoe": _expert_width_is_plain,
    "grok": _expert_width_is_plain,
    "hunyuan-moe": _hunyuan_moe,
    "jamba": _jamba,
    "kimi-k3": _kimi_linear,
    "kimi-linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2,
    "llama": _expert_width_is_plain,
    "llama4": _llama4,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "mimo2": _mimo2,
    "minimax-01": _minimax01,
    "minimax-m2": _expert_width_is_plain,
    "minimax-m3": _minimax_m3,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "olmoe": _expert_width_is_plain,
    "phimoe": _expert_width_is_plain,
    "qwen35": _qwen_hybrid,
    "qwen35moe": _qwen_hybrid,
    "qwen3next": _qwen_hybrid,
    "rwkv7": _rwkv7,
    "stablelm": _stablelm,
    "starcoder": _starcoder,
    "step35": _step35,
}
