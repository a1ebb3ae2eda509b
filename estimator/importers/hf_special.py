"""What single architectures spell their own way in Hugging Face configurations: one function each.

Each amends the fields that `hf_fields` read by the usual keys. Key names are those of the configuration classes of
transformers and of the models' own code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..conventions import CONVENTIONS
from ..field_reader import FieldReader
from .hf_keys import classes_of, expert_fields, indexer_fields, layer_list, leading_zeros, nested
from .hf_names import Fields


def _afmoe(config: FieldReader, fields: Fields) -> None:
    fields["pattern"] = fields.get("pattern") or CONVENTIONS["afmoe"].pattern


def _arctic(config: FieldReader, fields: Fields) -> None:
    """Experts have the width of the config; the dense block beside them is as wide as the model."""
    expert_fields(config, fields)["ffn"] = config.integer("intermediate_size")
    fields["ffn"] = fields["hidden"]


def _four_times_hidden(config: FieldReader, fields: Fields) -> None:
    fields["ffn"] = fields.get("ffn") or 4 * fields["hidden"]


def _chatglm(config: FieldReader, fields: Fields) -> None:
    if not config.flag("multi_query_attention", True):
        fields["kv_heads"] = fields["heads"]


def _dbrx(config: FieldReader, fields: Fields) -> None:
    attention = nested(config, "attn_config")
    ffn = nested(config, "ffn_config")
    fields["kv_heads"] = attention.integer("kv_n_heads", fields["heads"])
    fields["experts"] = {
        "count": ffn.integer("moe_num_experts"),
        "used": ffn.integer("moe_top_k"),
        "ffn": ffn.integer("ffn_hidden_size"),
    }


def _deci(config: FieldReader, fields: Fields) -> None:
    """Blocks without attention or with narrower feed-forwards, as a neural architecture search left them."""
    blocks = config.fields.get("block_configs")
    if not isinstance(blocks, list):
        raise config.fail("block_configs", "is missing")
    pattern, widths, kv_heads = "", [], None
    for index, block in enumerate(blocks):
        attention = nested(config, "block_configs", block, index, "attention")
        ffn = nested(config, "block_configs", block, index, "ffn")
        if attention.flag("replace_with_linear", False) or ffn.flag("replace_with_linear", False):
            raise config.fail("block_configs", f"block {index}: linear replacements are not supported")
        attends = not attention.flag("no_op", False)
        pattern += "F" if attends else "N"
        if attends:
            kv_heads = max(1, fields["heads"] // attention.integer("n_heads_in_group"))
        widths.append(0 if ffn.flag("no_op", False) else _deci_width(ffn, fields["hidden"]))
    fields |= {"pattern": pattern, "ffn": widths, "kv_heads": kv_heads}


def _deci_width(ffn: FieldReader, hidden: int) -> int:
    """Two thirds of multiplier × 2 × hidden, rounded up to a multiple of 256 (transformers code of the model)."""
    multiplier = ffn.fields.get("ffn_mult")
    if isinstance(multiplier, bool) or not isinstance(multiplier, (int, float)) or not 0 < multiplier < 1024:
        raise ffn.fail("ffn_mult", f"expected a positive number, got {str(multiplier)[:40]!r}")
    return -(-int(2 * multiplier * hidden / 3) // 256) * 256


def _deepseek4(config: FieldReader, fields: Fields) -> None:
    ratios = list(layer_list(config, fields, "compress_ratios"))
    fields["compression"] = {
        "query_rank": config.integer("q_lora_rank"),
        "output_rank": config.integer("o_lora_rank"),
        "output_groups": config.integer("o_groups"),
        "rope": config.integer("qk_rope_head_dim"),
        "first": ratios[:2],
        "ratios": ratios[2:],
    }
    fields["indexer"] = indexer_fields(config)
    fields.pop("ffn", None)


def _ernie_moe(config: FieldReader, fields: Fields) -> None:
    expert_fields(config, fields).pop("every", None)


def _falcon(config: FieldReader, fields: Fields) -> None:
    if not config.flag("new_decoder_architecture", False):
        fields["kv_heads"] = 1 if config.flag("multi_query", True) else fields["heads"]
        fields["norms"] = 1
    elif config.integer("num_ln_in_parallel_attn", 2) == 1:
        fields["norms"] = 1
    _four_times_hidden(config, fields)


def _falcon_h1(config: FieldReader, fields: Fields) -> None:
    heads, inner = config.integer("mamba_n_heads"), config.fields.get("mamba_d_ssm")
    fields["mamba"] = {
        "inner": config.integer("mamba_d_ssm") if inner else heads * config.integer("mamba_d_head"),
        "state": config.integer("mamba_d_state"),
        "conv": config.integer("mamba_d_conv"),
        "heads": heads,
        "groups": config.integer("mamba_n_groups"),
        "gated_norm": config.flag("mamba_rms_norm", True),
    }


def _gemma3(config: FieldReader, fields: Fields) -> None:
    if "pattern" not in fields and "sliding_window_pattern" in config:
        period = config.integer("sliding_window_pattern")
        fields["pattern"] = "S" * min(period - 1, fields["layers"]) + "F"


def _gemma3n(config: FieldReader, fields: Fields) -> None:
    fields["altup"] = {"inputs": config.integer("altup_num_inputs"), "laurel_rank": config.integer("laurel_rank")}
    _per_layer_embedding(config, fields)


def _per_layer_embedding(config: FieldReader, fields: Fields) -> None:
    if config.fields.get("hidden_size_per_layer_input"):
        fields["per_layer_embedding"] = {
            "width": config.integer("hidden_size_per_layer_input"),
            "vocab": config.integer("vocab_size_per_layer_input", fields["vocab"]),
        }


def _gemma4(config: FieldReader, fields: Fields) -> None:
    """Its head_dim and num_key_value_heads are those of the window layers; the global_ ones are of the full layers."""
    kv_heads, head_dim = config.integer("num_key_value_heads"), config.integer("head_dim")
    fields["window_layers"] = {"kv_heads": kv_heads, "head_dim": head_dim}
    fields["kv_heads"] = config.integer("num_global_key_value_heads", kv_heads)
    fields["head_dim"] = config.integer("global_head_dim", head_dim)
    fields["key_is_value"] = config.flag("attention_k_eq_v", False)
    _per_layer_embedding(config, fields)
    if config.flag("use_double_wide_mlp", False):
        shared, width = fields.get("shared_cache_layers", 0), config.integer("intermediate_size")
        fields["ffn"] = [f"{width} x {max(0, fields['layers'] - shared)}", f"{2 * width} x {shared}"]


def _granite_hybrid(config: FieldReader, fields: Fields) -> None:
    heads = config.integer("mamba_n_heads")
    inner = config.integer("mamba_expand", 2) * fields["hidden"]
    fields["mamba"] = {
        "inner": inner,
        "state": config.integer("mamba_d_state"),
        "conv": config.integer("mamba_d_conv"),
        "heads": heads,
        "groups": config.integer("mamba_n_groups", 1),
    }
    if "experts" not in fields:  # the dense ones have only the shared block
        fields["ffn"] = config.integer("shared_intermediate_size")


def _grok(config: FieldReader, fields: Fields) -> None:
    fields.pop("ffn", None)


def _hunyuan_moe(config: FieldReader, fields: Fields) -> None:
    experts = expert_fields(config, fields)
    experts["shared_ffn"] = experts.pop("shared", 0) * config.integer("intermediate_size")
    fields.pop("ffn", None)


def _jamba(config: FieldReader, fields: Fields) -> None:
    period, offset = config.integer("attn_layer_period", 8), config.integer("attn_layer_offset", 4, minimum=0)
    fields["pattern"] = "".join("F" if i % period == offset else "M" for i in range(min(period, fields["layers"])))
    fields["mamba"] = {
        "inner": config.integer("mamba_expand", 2) * fields["hidden"],
        "state": config.integer("mamba_d_state", 16),
        "conv": config.integer("mamba_d_conv", 4),
        "dt_rank": config.integer("mamba_dt_rank", -(-fields["hidden"] // 16)),
    }
    width = config.integer("intermediate_size")
    fields["ffn"] = width
    if config.integer("num_experts", 16) < 2:
        fields.pop("experts", None)
        return
    every, offset = config.integer("expert_layer_period", 2), config.integer("expert_layer_offset", 1, minimum=0)
    if offset != every - 1:
        raise config.fail("expert_layer_offset", f"{offset} is not supported with a period of {every}")
    fields["experts"] = expert_fields(config, fields) | {"ffn": width, "every": every}


def _kimi_linear(config: FieldReader, fields: Fields) -> None:
    linear = nested(config, "linear_attn_config")
    fields["kda"] = {
        "heads": linear.integer("num_heads"),
        "head_dim": linear.integer("head_dim"),
        "conv": linear.integer("short_conv_kernel_size"),
    }
    if full := linear.integers("full_attn_layers"):  # counted from 1
        fields["pattern"] = "".join("F" if index + 1 in full else "L" for index in range(fields["layers"]))
    fields.pop("head_dim", None)


def _lfm2(config: FieldReader, fields: Fields) -> None:
    fields["short_conv"] = config.integer("conv_L_cache")
    if "_ff_dim" in config or "block_ff_dim" in config:
        fields["ffn"] = _lfm2_width(config)


def _lfm2_width(config: FieldReader) -> int:
    """The block's width is two thirds of block_ff_dim, rounded up to block_multiple_of, if block_auto_adjust_ff_dim."""
    if "_ff_dim" in config:
        return config.integer("_ff_dim")
    width = config.integer("block_ff_dim")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    multiple = config.integer("block_multiple_of", 256)
    return -(-(2 * width // 3) // multiple) * multiple


def _llama4(config: FieldReader, fields: Fields) -> None:
    """intermediate_size is the width of the experts and of the shared one, intermediate_size_mlp of dense layers."""
    width = config.integer("intermediate_size")
    fields["ffn"] = config.integer("intermediate_size_mlp")
    every = config.integer("interleave_moe_layer_step", 1)
    fields["experts"] = expert_fields(config, fields) | {"ffn": width, "shared_ffn": width, "every": every}


def _mamba1(config: FieldReader, fields: Fields) -> None:
    rank = config.fields.get("time_step_rank")
    fields["mamba"] = {
        "inner": config.integer("intermediate_size", config.integer("expand", 2) * fields["hidden"]),
        "state": config.integer("state_size", 16),
        "conv": config.integer("conv_kernel", 4),
        "dt_rank": -(-fields["hidden"] // 16) if rank in (None, "auto") else config.integer("time_step_rank"),
    }
    fields.pop("ffn", None)


def _mamba2(config: FieldReader, fields: Fields) -> None:
    heads, head_dim = config.integer("num_heads"), config.integer("head_dim")
    fields["mamba"] = {
        "inner": heads * head_dim,
        "state": config.integer("state_size"),
        "conv": config.integer("conv_kernel"),
        "heads": heads,
        "groups": config.integer("n_groups"),
    }
    fields.pop("head_dim", None)
    fields.pop("ffn", None)


def _mimo2(config: FieldReader, fields: Fields) -> None:
    fields["pattern"] = "".join(
        "S" if sliding else "F" for sliding in layer_list(config, fields, "hybrid_layer_pattern")
    )
    fields["window_layers"] = {
        "heads": config.integer("swa_num_attention_heads", fields["heads"]),
        "kv_heads": config.integer("swa_num_key_value_heads", fields.get("kv_heads")),
        "head_dim": config.integer("swa_head_dim", fields.get("head_dim")),
        "value_dim": config.integer("swa_v_head_dim", fields.get("value_dim")),
    }
    experts = expert_fields(config, fields)
    experts["dense_layers"] = leading_zeros(layer_list(config, fields, "moe_layer_freq"))
    experts.pop("selection_bias", None)


def _minimax01(config: FieldReader, fields: Fields) -> None:
    kinds = layer_list(config, fields, "attn_type_list")
    fields["pattern"] = "".join("F" if kind else "L" for kind in kinds)
    fields.pop("ffn", None)


def _minimax_m3(config: FieldReader, fields: Fields) -> None:
    fields["ffn"] = config.integer("dense_intermediate_size")
    dense_layers = leading_zeros(layer_list(config, fields, "moe_layer_freq"))
    expert_fields(config, fields)["dense_layers"] = dense_layers
    sparse = nested(config, "sparse_attention_config")
    blocks = sparse.integer("sparse_topk_blocks") * sparse.integer("sparse_block_size")
    fields["indexer"] = {
        "heads": sparse.integer("sparse_num_index_heads"),
        "head_dim": sparse.integer("sparse_index_dim"),
        "top_k": blocks,
        "pattern": "".join("F" if used else "N" for used in sparse.integers("sparse_attention_freq")),
    }
    fields.pop("draft", None)  # the MTP modules are not part of the released weights


def _nemotron_h(config: FieldReader, fields: Fields) -> None:
    override = config.fields.get("hybrid_override_pattern")
    if isinstance(override, str):
        if len(override) != fields["layers"]:
            raise config.fail("hybrid_override_pattern", f"has {len(override)} letters for {fields['layers']} layers")
        fields["pattern"] = override.replace("*", "F").replace("-", "D")
    heads = config.integer("mamba_num_heads")
    fields["mamba"] = {
        "inner": heads * config.integer("mamba_head_dim"),
        "state": config.integer("ssm_state_size"),
        "conv": config.integer("conv_kernel"),
        "heads": heads,
        "groups": config.integer("n_groups"),
    }
    if "experts" in fields:
        fields["experts"].pop("shared", None)
        fields.pop("ffn", None)


def _qwen_hybrid(config: FieldReader, fields: Fields) -> None:
    fields["delta_net"] = {
        "key_heads": config.integer("linear_num_key_heads"),
        "value_heads": config.integer("linear_num_value_heads"),
        "key_dim": config.integer("linear_key_head_dim"),
        "value_dim": config.integer("linear_value_head_dim"),
        "conv": config.integer("linear_conv_kernel_dim"),
    }
    # The released checkpoints carry one MTP block, whether their configuration says so or not.
    fields["draft"] = {"layers": config.integer("mtp_num_hidden_layers", 1, minimum=0)}
    interval = config.integer("full_attention_interval", 4)
    if "pattern" not in fields:
        fields["pattern"] = "L" * min(interval - 1, fields["layers"]) + "F"
    if "experts" in fields:
        fields.pop("ffn", None)


def _rwkv7(config: FieldReader, fields: Fields) -> None:
    fields["rwkv"] = {
        "head_dim": config.integer("head_dim", 64),
        "decay_rank": config.integer("decay_low_rank_dim"),
        "rate_rank": config.integer("a_low_rank_dim"),
        "value_rank": config.integer("v_low_rank_dim"),
        "gate_rank": config.integer("gate_low_rank_dim"),
        "first_value_residual": config.flag("_v_lora_in_layer0", True),
    }
    for key in ("heads", "kv_heads", "head_dim", "value_dim"):
        fields.pop(key, None)


def _stablelm(config: FieldReader, fields: Fields) -> None:
    fields["qkv_bias"] = config.flag("use_qkv_bias", False)
    if config.flag("qk_layernorm", False):
        fields["qk_norm"] = "heads"
    if config.flag("use_parallel_residual", False):
        fields["norms"] = 1


def _starcoder(config: FieldReader, fields: Fields) -> None:
    if config.flag("multi_query", True):
        fields["kv_heads"] = 1
    _four_times_hidden(config, fields)


def _step35(config: FieldReader, fields: Fields) -> None:
    fields["window_layers"] = {"heads": config.integer("num_sliding_attention_heads", fields["heads"])}
    expert_fields(config, fields).pop("shared", None)


def _qwen2_moe(config: FieldReader, fields: Fields) -> None:
    expert_fields(config, fields).pop("shared", None)
    fields.pop("ffn", None)


def _deepseek2(config: FieldReader, fields: Fields) -> None:
    if config.text("model_type", "") == "glm4_moe_lite" or "Glm4MoeLiteForCausalLM" in classes_of(config):
        expert_fields(config, fields)["selection_bias"] = True


SPECIAL: Final[dict[str, Callable[[FieldReader, Fields], None]]] = {
    "afmoe": _afmoe,
    "arctic": _arctic,
    "bloom": _four_times_hidden,
    "chatglm": _chatglm,
    "dbrx": _dbrx,
    "deci": _deci,
    "deepseek2": _deepseek2,
    "deepseek4": _deepseek4,
    "ernie4_5-moe": _ernie_moe,
    "falcon": _falcon,
    "falcon-h1": _falcon_h1,
    "gemma3": _gemma3,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "gpt2": _four_times_hidden,
    "gptj": _four_times_hidden,
    "granitehybrid": _granite_hybrid,
    "grok": _grok,
    "hunyuan-moe": _hunyuan_moe,
    "jamba": _jamba,
    "kimi-k3": _kimi_linear,
    "kimi-linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2,
    "llama4": _llama4,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "mimo2": _mimo2,
    "minimax-01": _minimax01,
    "minimax-m3": _minimax_m3,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "phi2": _four_times_hidden,
    "qwen2moe": _qwen2_moe,
    "qwen35": _qwen_hybrid,
    "qwen35moe": _qwen_hybrid,
    "qwen3next": _qwen_hybrid,
    "rwkv7": _rwkv7,
    "stablelm": _stablelm,
    "starcoder": _starcoder,
    "step35": _step35,
}
