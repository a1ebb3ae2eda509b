"""What single architectures spell their own way in a written configuration: the counterpart of `hf_special`.

Each function gives keys to add to the usual ones or, with None, to leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    Indexer,
    KimiDelta,
    Layer,
    Mamba,
    Model,
    MoeFfn,
    Rwkv7,
    ShortConv,
)
from .hf_names import DRAFT_KEYS
from .hf_names import Fields as Config
from .hf_parts import dense_of, experts_of, first, full_attention, mixers_of, only, pattern_of, sliding_attention


def indexer_config(indexers: list[Indexer | None]) -> Config:
    """Keys of the lightning indexer; `indexers` has one for each layer, None where a layer has none."""
    indexer = first(each for each in indexers if each is not None)
    if indexer is None:
        return {}
    return {
        "index_n_heads": indexer.heads,
        "index_head_dim": indexer.head_dim,
        "index_topk": indexer.top_k,
        "indexer_types": ["full" if each and each.owns_weights else "shared" for each in indexers],
    }


def plain_expert_width(model: Model) -> Config:
    """Experts as wide as intermediate_size says, and no dense layers."""
    experts = experts_of(model)
    return {"intermediate_size": experts.width, "moe_intermediate_size": None} if experts else {}


def _dbrx(model: Model) -> Config:
    attention, experts = full_attention(model), experts_of(model)
    assert attention is not None and experts is not None
    ffn = {"moe_num_experts": experts.experts, "moe_top_k": experts.used, "ffn_hidden_size": experts.width}
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_key_value_heads", "intermediate_size")
    return {"attn_config": {"kv_n_heads": attention.kv_heads}, "ffn_config": ffn} | dict.fromkeys(names)


def _arctic(model: Model) -> Config:
    experts = experts_of(model)
    return {"intermediate_size": experts.width if experts else None, "moe_intermediate_size": None}


def _chatglm(model: Model) -> Config:
    return {"multi_query_attention": True, "num_key_value_heads": None, "multi_query_group_num": _full_kv_heads(model)}


def _full_kv_heads(model: Model) -> int | None:
    attention = full_attention(model)
    return attention.kv_heads if attention else None


def _command_r(model: Model) -> Config:
    attention = full_attention(model)
    return {"use_qk_norm": attention is not None and attention.qk_norm == "heads"}


def _deci(model: Model) -> Config:
    return {"block_configs": [_deci_block(layer, model.hidden) for layer in model.layers], "intermediate_size": None}


def _deci_block(layer: Layer, hidden: int) -> Config:
    attention = first(mixer for mixer in layer.mixers if isinstance(mixer, Attention))
    width = layer.ffn.width if isinstance(layer.ffn, DenseFfn) else 0
    return {
        "attention": {
            "no_op": attention is None,
            "n_heads_in_group": attention.heads // attention.kv_heads if attention else None,
        },
        "ffn": {"no_op": width == 0, "ffn_mult": 1.5 * width / hidden if width else None},
    }


def _deepseek4(model: Model) -> Config:
    mixers = mixers_of(model, CompressedAttention)
    mixer = mixers[0]
    hashed = [not layer.ffn.selection_bias for layer in model.layers if isinstance(layer.ffn, MoeFfn)]
    streams = next(extra.shape[0] for extra in model.extras if extra.name == "output_hc_base.weight")
    return {
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": 1,
        "head_dim": mixer.head_dim,
        "q_lora_rank": mixer.query_rank,
        "o_lora_rank": mixer.output_rank,
        "o_groups": mixer.output_groups,
        "qk_rope_head_dim": mixer.rope_dim,
        "sliding_window": mixer.window,
        "compress_ratios": [mixer.ratio for mixer in mixers],
        "hc_mult": streams,
        "num_hash_layers": sum(hashed) or None,
    } | indexer_config([mixer.indexer for mixer in mixers if mixer.indexer]) | {"indexer_types": None}  # fmt: skip


def _falcon(model: Model) -> Config:
    attention = full_attention(model)
    assert attention is not None
    parallel_norms = 1 if model.layers[0].norms == ("attn_norm",) else 2
    return {
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": parallel_norms,
        "num_kv_heads": attention.kv_heads,
    }


def _falcon_h1(model: Model) -> Config:
    mamba = only(model, Mamba)
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
    attention, sliding, experts = full_attention(model), sliding_attention(model), experts_of(model)
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
    mamba, dense = only(model, Mamba), dense_of(model)
    config = plain_expert_width(model) | {
        "mamba_expand": mamba.inner // model.hidden,
        "mamba_d_state": mamba.state,
        "mamba_d_conv": mamba.conv,
        "mamba_n_heads": mamba.heads,
        "mamba_n_groups": mamba.groups,
    }
    return config | ({"shared_intermediate_size": dense.width} if dense else {})


def _hunyuan_moe(model: Model) -> Config:
    experts = experts_of(model)
    assert experts is not None
    shared = experts.shared_width // experts.width
    return {"intermediate_size": experts.width, "num_shared_expert": shared, "shared_expert_intermediate_size": None}


def _jamba(model: Model) -> Config:
    mamba, dense, pattern = only(model, Mamba), dense_of(model), pattern_of(model)
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
    experts = experts_of(model)
    return experts.experts if experts else 0


def _kimi_linear(model: Model) -> Config:
    kda = only(model, KimiDelta)
    full = [index + 1 for index, letter in enumerate(pattern_of(model)) if letter == "F"]
    linear = {"num_heads": kda.heads, "head_dim": kda.head_dim, "short_conv_kernel_size": kda.conv}
    return {"linear_attn_config": linear | {"full_attn_layers": full}, "layer_types": None}


def _lfm2(model: Model) -> Config:
    dense = dense_of(model)
    return {
        "conv_L_cache": only(model, ShortConv).kernel,
        "block_ff_dim": dense.width if dense else None,
        "block_auto_adjust_ff_dim": False,
    }


def _llama4(model: Model) -> Config:
    experts, dense, sliding = experts_of(model), dense_of(model), sliding_attention(model)
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
    mamba = only(model, Mamba)
    return {
        "intermediate_size": mamba.inner,
        "state_size": mamba.state,
        "conv_kernel": mamba.conv,
        "time_step_rank": mamba.dt_rank,
    }


def _mamba2(model: Model) -> Config:
    mamba = only(model, Mamba)
    return {
        "num_heads": mamba.heads,
        "head_dim": mamba.inner // mamba.heads,
        "state_size": mamba.state,
        "conv_kernel": mamba.conv,
        "n_groups": mamba.groups,
    }


def _mimo2(model: Model) -> Config:
    sliding = sliding_attention(model)
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
    return plain_expert_width(model) | {"layer_types": None, "attn_type_list": kinds}


def _minimax_m3(model: Model) -> Config:
    dense, indexers = dense_of(model), [mixer.indexer for mixer in mixers_of(model, Attention)]
    index = first(each for each in indexers if each is not None)
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
    mamba = only(model, Mamba)
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
    net = only(model, DeltaNet)
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
    rwkv = mixers_of(model, Rwkv7)[-1]
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
    attention = full_attention(model)
    assert attention is not None
    return {
        "use_qkv_bias": attention.qkv_bias,
        "qk_layernorm": attention.qk_norm == "heads",
        "use_parallel_residual": model.layers[0].norms == ("attn_norm",),
    }


def _starcoder(model: Model) -> Config:
    return {"multi_query": _full_kv_heads(model) == 1}


def _step35(model: Model) -> Config:
    sliding = sliding_attention(model)
    return {"num_sliding_attention_heads": sliding.heads if sliding else None}


SPECIAL: Final[dict[str, Callable[[Model], Config]]] = {
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
    "gpt-oss": plain_expert_width,
    "granitehybrid": _granite_hybrid,
    "granitemoe": plain_expert_width,
    "grok": plain_expert_width,
    "hunyuan-moe": _hunyuan_moe,
    "jamba": _jamba,
    "kimi-k3": _kimi_linear,
    "kimi-linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2,
    "llama": plain_expert_width,
    "llama4": _llama4,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "mimo2": _mimo2,
    "minimax-01": _minimax01,
    "minimax-m2": plain_expert_width,
    "minimax-m3": _minimax_m3,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "olmoe": plain_expert_width,
    "phimoe": plain_expert_width,
    "qwen35": _qwen_hybrid,
    "qwen35moe": _qwen_hybrid,
    "qwen3next": _qwen_hybrid,
    "rwkv7": _rwkv7,
    "stablelm": _stablelm,
    "starcoder": _starcoder,
    "step35": _step35,
}
