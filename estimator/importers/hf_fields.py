"""A Hugging Face configuration to the fields that `model_fields` understands.

What most configurations share is read by tables of the keys in use; what one architecture spells its own way is read by
one function each. Key names are those of the configuration classes of transformers and of the models' own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..conventions import CONVENTIONS
from ..errors import InputError
from ..field_reader import FieldReader
from ..model_fields import MAX_LAYERS

Fields = dict[str, Any]

# GGUF architecture by class name; what a class leaves open is decided by `architecture_of`.
CLASSES: Final[dict[str, str]] = {
    "AfmoeForCausalLM": "afmoe",
    "ApertusForCausalLM": "apertus",
    "ArceeForCausalLM": "arcee",
    "ArcticForCausalLM": "arctic",
    "BaichuanForCausalLM": "baichuan",
    "BaiChuanForCausalLM": "baichuan",
    "BailingMoeForCausalLM": "bailingmoe",
    "BailingMoeV2ForCausalLM": "bailingmoe2",
    "BloomForCausalLM": "bloom",
    "BloomModel": "bloom",
    "ChatGLMModel": "chatglm",
    "ChatGLMForConditionalGeneration": "chatglm",
    "GlmForCausalLM": "chatglm",
    "Cohere2ForCausalLM": "cohere2",
    "CohereForCausalLM": "command-r",
    "DbrxForCausalLM": "dbrx",
    "DeciLMForCausalLM": "deci",
    "DeepseekForCausalLM": "deepseek",
    "DeepseekV2ForCausalLM": "deepseek2",
    "DeepseekV3ForCausalLM": "deepseek2",
    "KimiK25ForConditionalGeneration": "deepseek2",
    "Glm4MoeLiteForCausalLM": "deepseek2",
    "DeepseekV32ForCausalLM": "deepseek32",
    "DeepseekV4ForCausalLM": "deepseek4",
    "Dots1ForCausalLM": "dots1",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5-moe",
    "ExaoneForCausalLM": "exaone",
    "ExaoneMoEForCausalLM": "exaone-moe",
    "ExaoneMoeForCausalLM": "exaone-moe",
    "Exaone4ForCausalLM": "exaone4",
    "FalconForCausalLM": "falcon",
    "RWForCausalLM": "falcon",
    "FalconH1ForCausalLM": "falcon-h1",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma3nForCausalLM": "gemma3n",
    "Gemma3nForConditionalGeneration": "gemma3n",
    "Gemma4ForCausalLM": "gemma4",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Gemma4UnifiedForConditionalGeneration": "gemma4",
    "GlmMoeDsaForCausalLM": "glm-dsa",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4moe",
    "SolarOpenForCausalLM": "glm4moe",
    "GptOssForCausalLM": "gpt-oss",
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gptneox",
    "GraniteForCausalLM": "granite",
    "GraniteMoeHybridForCausalLM": "granitehybrid",
    "GraniteMoeForCausalLM": "granitemoe",
    "Grok1ForCausalLM": "grok",
    "GrokForCausalLM": "grok",
    "HunYuanDenseV1ForCausalLM": "hunyuan-dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan-moe",
    "InternLM2ForCausalLM": "internlm2",
    "JambaForCausalLM": "jamba",
    "KimiK3ForConditionalGeneration": "kimi-k3",
    "KimiLinearForCausalLM": "kimi-linear",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2moe",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "InternLM3ForCausalLM": "llama",
    "Llama4ForCausalLM": "llama4",
    "Llama4ForConditionalGeneration": "llama4",
    "MambaForCausalLM": "mamba",
    "MambaLMHeadModel": "mamba",
    "FalconMambaForCausalLM": "mamba",
    "Mamba2ForCausalLM": "mamba2",
    "MiMoForCausalLM": "mimo",
    "MiMoV2FlashForCausalLM": "mimo2",
    "MiniCPMForCausalLM": "minicpm",
    "MiniCPM3ForCausalLM": "minicpm3",
    "MiniMaxText01ForCausalLM": "minimax-01",
    "MiniMaxM1ForCausalLM": "minimax-01",
    "MiniMaxM2ForCausalLM": "minimax-m2",
    "MiniMaxM3ForCausalLM": "minimax-m3",
    "MiniMaxM3SparseForCausalLM": "minimax-m3",
    "MiniMaxM3SparseForConditionalGeneration": "minimax-m3",
    "Ministral3ForCausalLM": "mistral3",
    "Mistral3ForConditionalGeneration": "mistral3",
    "Mistral4ForCausalLM": "mistral4",
    "NemotronForCausalLM": "nemotron",
    "NemotronHForCausalLM": "nemotron_h",
    "OlmoForCausalLM": "olmo",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "OlmoeForCausalLM": "olmoe",
    "OPTForCausalLM": "opt",
    "GPTJForCausalLM": "gptj",
    "PhiForCausalLM": "phi2",
    "Phi3ForCausalLM": "phi3",
    "PhiMoEForCausalLM": "phimoe",
    "PhimoeForCausalLM": "phimoe",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
    "Qwen3_5MoeForConditionalGeneration": "qwen35moe",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Qwen3NextForCausalLM": "qwen3next",
    "Rwkv7ForCausalLM": "rwkv7",
    "RWKV7ForCausalLM": "rwkv7",
    "SeedOssForCausalLM": "seed_oss",
    "SmolLM3ForCausalLM": "smollm3",
    "StableLmForCausalLM": "stablelm",
    "StableLMEpochForCausalLM": "stablelm",
    "GPTBigCodeForCausalLM": "starcoder",
    "Starcoder2ForCausalLM": "starcoder2",
    "Step3p5ForCausalLM": "step35",
    "Step3p7FlashForCausalLM": "step35",
    "Step3p7ForConditionalGeneration": "step35",
}

# Where a configuration names no class, its model_type decides.
MODEL_TYPES: Final[dict[str, str]] = {
    "afmoe": "afmoe", "apertus": "apertus", "arcee": "arcee", "arctic": "arctic", "baichuan": "baichuan",
    "bailing_moe": "bailingmoe", "bailing_moe_v2": "bailingmoe2", "bloom": "bloom", "chatglm": "chatglm",
    "glm": "chatglm", "cohere": "command-r", "cohere2": "cohere2", "dbrx": "dbrx", "deci": "deci",
    "nemotron-nas": "deci", "deepseek": "deepseek", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2", "glm4_moe_lite": "deepseek2", "deepseek_v32": "deepseek32", "deepseek_v4": "deepseek4",
    "dots1": "dots1", "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe", "exaone": "exaone",
    "exaone4": "exaone4", "exaone_moe": "exaone-moe", "falcon": "falcon", "falcon_h1": "falcon-h1",
    "falcon_mamba": "mamba", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3",
    "gemma3n": "gemma3n", "gemma3n_text": "gemma3n", "gemma4": "gemma4", "gemma4_text": "gemma4",
    "gemma4_unified_text": "gemma4", "glm4": "glm4", "glm4_moe": "glm4moe", "solar_open": "glm4moe",
    "glm_moe_dsa": "glm-dsa", "gpt2": "gpt2", "gpt_bigcode": "starcoder", "gpt_neox": "gptneox", "gpt_oss": "gpt-oss",
    "gptj": "gptj", "granite": "granite", "granitemoe": "granitemoe", "granitemoehybrid": "granitehybrid",
    "grok-1": "grok", "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe", "internlm2": "internlm2",
    "internlm3": "llama", "jamba": "jamba", "kimi_k3": "kimi-k3", "kimi_linear": "kimi-linear", "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe", "llama": "llama", "llama4": "llama4", "llama4_text": "llama4", "mamba": "mamba",
    "mamba2": "mamba2", "mimo": "mimo", "mimo_v2_flash": "mimo2", "minicpm": "minicpm", "minicpm3": "minicpm3",
    "minimax_text_01": "minimax-01", "minimax": "minimax-01", "minimax_m2": "minimax-m2", "minimax_m3": "minimax-m3",
    "ministral3": "mistral3", "mistral": "llama", "mistral3": "mistral3", "mistral4": "mistral4", "mixtral": "llama",
    "nemotron": "nemotron", "nemotron_h": "nemotron_h", "olmo": "olmo", "olmo2": "olmo2", "olmo3": "olmo2",
    "olmoe": "olmoe", "opt": "opt", "phi": "phi2", "phi-msft": "phi2", "phi3": "phi3", "phi4": "phi3",
    "phimoe": "phimoe", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_5": "qwen35",
    "qwen3_5_text": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_5_moe_text": "qwen35moe", "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next", "rwkv7": "rwkv7", "seed_oss": "seed_oss", "smollm3": "smollm3", "stablelm": "stablelm",
    "starcoder2": "starcoder2", "step3p5": "step35", "step3p7": "step35",
}  # fmt: skip

# The keys in use for each field, the usual one first.
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "value_dim": ("v_head_dim",),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_context": (
        "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length",
    ),
    "window": ("sliding_window", "sliding_window_size", "sliding_window_attention_size", "attention_chunk_size"),
    "shared_cache_layers": ("num_kv_shared_layers",),
    "hash_layers": ("num_hash_layers",),
    "hyper_connections": ("hc_mult",),
}  # fmt: skip
EXPERT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "count": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "used": (
        "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts", "experts_per_token",
    ),
    "ffn": ("moe_intermediate_size", "expert_intermediate_size"),
    "shared": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_ffn": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
        "share_expert_dim",
    ),
    "dense_layers": ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"),
    "latent": ("moe_latent_size", "routed_expert_hidden_size"),
}  # fmt: skip
DEFAULTS: Final[dict[str, Fields]] = {
    # Gemma 3 4B's file leaves these to its class (transformers, Gemma3TextConfig).
    "gemma3": {"vocab": 262208, "heads": 8, "kv_heads": 4, "head_dim": 256, "max_context": 131072},
}
DRAFT_KEYS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
LAYER_LETTERS: Final = {
    "full_attention": "F", "attention": "F", "sliding_attention": "S", "chunked_attention": "S",
    "linear_attention": "L", "conv": "C", "mamba": "M", "moe": "E", "mlp": "D",
}  # fmt: skip
"""Letters of `conventions` for the words of layer_types and layers_block_type."""

# Architectures whose window, if the configuration has one, llama.cpp applies. Elsewhere the key is inert.
_WINDOWED: Final = frozenset(name for name, rules in CONVENTIONS.items() if "S" in rules.pattern) | {"deepseek4"}
_SIDE_BY_SIDE: Final = ("command-r", "cohere2", "phi2", "gptj")


def architecture_of(config: FieldReader) -> str:
    """The GGUF architecture of a configuration; raises InputError, saying what an unknown one would need."""
    names = [name for name in _classes(config) if isinstance(name, str)]
    name = next((name for name in names if name in CLASSES), names[0] if names else None)
    model_type = config.text("model_type", "?")
    found = CLASSES.get(name) if name else None
    found = found or MODEL_TYPES.get(model_type)
    if found is None:
        wanted = ", ".join(keys[0] for keys in KEYS.values())
        raise InputError(
            f"{config.where}: unknown architecture {(name or model_type)[:80]!r}; estimating it would need its "
            f"attention kind, norms, biases and layer pattern besides {wanted}"
        )
    return _variant(config, found)


def _variant(config: FieldReader, architecture: str) -> str:
    """Tell apart the GGUF architectures that share one class."""
    if architecture == "nemotron_h" and any(key in config for key in EXPERT_KEYS["count"]):
        return "nemotron_h_moe"
    if architecture == "granitehybrid" and "mamba" not in str(config.fields.get("layer_types")):
        return "granitemoe" if any(key in config for key in EXPERT_KEYS["count"]) else "granite"
    if architecture == "mistral3" and "kv_lora_rank" in config:
        return "mistral4"
    return architecture


def fields_from_config(config: FieldReader, architecture: str) -> Fields:
    """The fields of a model of `architecture`; `config` holds the keys of its text part."""
    fields: Fields = {"architecture": architecture}
    for field, keys in KEYS.items():
        fields[field] = _widths(config, keys) if field == "ffn" else _whole(config, keys)
    fields = {field: value for field, value in fields.items() if value is not None}
    for field, value in DEFAULTS.get(architecture, {}).items():
        fields.setdefault(field, value)
    _require(config, fields, architecture)
    _drop_inert(config, fields, architecture)
    _tied(config, fields)
    _rope(config, fields)
    _experts(config, fields)
    _latent(config, fields)
    _pattern(config, fields)
    _drafts(config, fields)
    _flags(config, fields, architecture)
    if architecture in SPECIAL:
        SPECIAL[architecture](config, fields)
    return {key: value for key, value in fields.items() if value is not None}


def _key(config: FieldReader, keys: Iterable[str]) -> str | None:
    return next((key for key in keys if key in config), None)


def _whole(config: FieldReader, keys: Iterable[str]) -> int | None:
    """The first of `keys` that is there, as a whole number."""
    key = _key(config, keys)
    return config.integer(key, minimum=0) if key else None


def _whole_or_first(config: FieldReader, keys: Iterable[str]) -> int | None:
    """As `_whole`; of a list with one value a layer, the same in every known model, the first."""
    key = _key(config, keys)
    if key is None or not isinstance(config.fields[key], list):
        return _whole(config, keys)
    return next(iter(config.integers(key)), None)


def _widths(config: FieldReader, keys: Iterable[str]) -> int | list[int] | None:
    key = _key(config, keys)
    if key is None or not isinstance(config.fields[key], list):
        return _whole(config, keys)
    return list(config.integers(key))


def _require(config: FieldReader, fields: Fields, architecture: str) -> None:
    """Refuse a configuration without the figures that nothing can do without."""
    attends = bool(set(CONVENTIONS[architecture].pattern) & set("FSP"))
    for field in ("layers", "hidden", "vocab", "heads") if attends else ("layers", "hidden", "vocab"):
        if not fields.get(field):
            raise config.fail(KEYS[field][0], "is missing" if field not in fields else "must not be 0")
    if fields["layers"] > MAX_LAYERS:
        raise config.fail(KEYS["layers"][0], f"{fields['layers']} is more than {MAX_LAYERS}")


def _expert_fields(config: FieldReader, fields: Fields) -> Fields:
    """The fields of the experts, for an architecture that always has some."""
    experts: Fields | None = fields.get("experts")
    if experts is None:
        raise config.fail(EXPERT_KEYS["count"][0], "is missing")
    return experts


def _layer_list(config: FieldReader, fields: Fields, key: str) -> tuple[int, ...]:
    """A list with a whole number for each layer; what it says beyond the layers is about draft layers."""
    values = config.integers(key)
    if len(values) < fields["layers"]:
        raise config.fail(key, f"has {len(values)} values for {fields['layers']} layers")
    return values[: fields["layers"]]


def _drop_inert(config: FieldReader, fields: Fields, architecture: str) -> None:
    """Keys that are there but mean nothing for this architecture."""
    if architecture not in _WINDOWED or fields.get("window") == 0 or config.flag("use_sliding_window", True) is False:
        fields.pop("window", None)
    if "kv_lora_rank" in config:
        for key in ("head_dim", "value_dim", "kv_heads"):
            fields.pop(key, None)
    for key in ("shared_cache_layers", "hash_layers"):
        if fields.get(key) == 0:
            del fields[key]


def _tied(config: FieldReader, fields: Fields) -> None:
    if "tie_word_embeddings" in config:
        fields["tied_embeddings"] = config.flag("tie_word_embeddings", False)


def _rope(config: FieldReader, fields: Fields) -> None:
    """RoPE factors that become tensors of the file."""
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.fields.get(key)
        if not isinstance(scaling, dict):
            continue
        kind = scaling.get("rope_type") or scaling.get("type")
        if kind in ("llama3", "longrope", "su"):
            fields["rope_scaling"] = "llama3" if kind == "llama3" else "longrope"
    factor = config.fields.get("partial_rotary_factor")
    if "rope_scaling" in fields and isinstance(factor, float) and 0 < factor < 1 and "heads" in fields:
        head_dim = fields.get("head_dim") or fields["hidden"] // fields["heads"]
        fields["rope_dim"] = int(head_dim * factor)


def _experts(config: FieldReader, fields: Fields) -> None:
    experts: Fields = {field: _whole_or_first(config, keys) for field, keys in EXPERT_KEYS.items()}
    if not experts["count"]:
        return
    if experts["ffn"] is None:
        experts["ffn"] = fields.pop("ffn", None)
    if config.fields.get("topk_method") == "noaux_tc":
        experts["selection_bias"] = True
    fields["experts"] = {key: value for key, value in experts.items() if value}


def _latent(config: FieldReader, fields: Fields) -> None:
    if "kv_lora_rank" not in config:
        return
    fields["latent"] = {
        "query_rank": config.integer("q_lora_rank", 0, minimum=0),
        "kv_rank": config.integer("kv_lora_rank"),
        "nope": config.integer("qk_nope_head_dim"),
        "rope": config.integer("qk_rope_head_dim"),
        "value": config.integer("v_head_dim"),
    }
    if "index_n_heads" in config:
        fields["indexer"] = _indexer(config)


def _indexer(config: FieldReader) -> Fields:
    indexer = {
        "heads": config.integer("index_n_heads"),
        "head_dim": config.integer("index_head_dim"),
        "top_k": config.integer("index_topk"),
    }
    if isinstance(kinds := config.fields.get("indexer_types"), list) and kinds:
        return indexer | {"pattern": "".join("F" if kind == "full" else "S" for kind in kinds)}
    return indexer


def _pattern(config: FieldReader, fields: Fields) -> None:
    key = _key(config, ("layer_types", "layers_block_type"))
    if key is None:
        return
    kinds = config.fields[key]
    if not isinstance(kinds, list) or len(kinds) < fields["layers"]:
        raise config.fail(key, f"expected a list with a kind for each of the {fields['layers']} layers")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in LAYER_LETTERS:
            raise config.fail(key, f"unknown kind of layer {str(kind)[:40]!r}")
    fields["pattern"] = "".join(LAYER_LETTERS[kind] for kind in kinds)


def _drafts(config: FieldReader, fields: Fields) -> None:
    if count := _whole(config, DRAFT_KEYS):
        fields["draft"] = {"layers": count}


def _flags(config: FieldReader, fields: Fields, architecture: str) -> None:
    """Biases and norms that some models of an architecture have and others have not."""
    rules = CONVENTIONS[architecture]
    if "attention_bias" in config and architecture in _ATTENTION_BIAS:
        fields["qkv_bias"] = config.flag("attention_bias", rules.qkv_bias)
        if architecture in _OUTPUT_BIAS:
            fields["output_bias"] = fields["qkv_bias"]
    if "mlp_bias" in config and architecture in _OUTPUT_BIAS:
        fields["ffn_bias"] = config.flag("mlp_bias", False)
    if architecture in ("glm4moe", "command-r") and config.flag("use_qk_norm", False):
        fields["qk_norm"] = "head" if architecture == "glm4moe" else "heads"


_OUTPUT_BIAS: Final = ("llama", "mistral3", "granite", "granitemoe", "deci", "exaone")
_ATTENTION_BIAS: Final = (*_OUTPUT_BIAS, "glm4", "glm4moe")


# One function for each architecture with keys of its own


def _afmoe(config: FieldReader, fields: Fields) -> None:
    fields["pattern"] = fields.get("pattern") or CONVENTIONS["afmoe"].pattern


def _arctic(config: FieldReader, fields: Fields) -> None:
    """Experts have the width of the config; the dense block beside them is as wide as the model."""
    _expert_fields(config, fields)["ffn"] = config.integer("intermediate_size")
    fields["ffn"] = fields["hidden"]


def _four_times_hidden(config: FieldReader, fields: Fields) -> None:
    fields["ffn"] = fields.get("ffn") or 4 * fields["hidden"]


def _chatglm(config: FieldReader, fields: Fields) -> None:
    if not config.flag("multi_query_attention", True):
        fields["kv_heads"] = fields["heads"]


def _dbrx(config: FieldReader, fields: Fields) -> None:
    attention = _nested(config, "attn_config")
    ffn = _nested(config, "ffn_config")
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
        attention = _nested(config, "block_configs", block, index, "attention")
        ffn = _nested(config, "block_configs", block, index, "ffn")
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


def _nested(config: FieldReader, key: str, block: Any = None, index: int = 0, part: str = "") -> FieldReader:
    value = config.fields.get(key) if not part else block.get(part) if isinstance(block, dict) else None
    if not isinstance(value, dict):
        raise config.fail(f"{key}[{index}].{part}" if part else key, "expected a mapping")
    return FieldReader(value, f"{config.where}: {key}", value)


def _deepseek4(config: FieldReader, fields: Fields) -> None:
    ratios = list(_layer_list(config, fields, "compress_ratios"))
    fields["compression"] = {
        "query_rank": config.integer("q_lora_rank"),
        "output_rank": config.integer("o_lora_rank"),
        "output_groups": config.integer("o_groups"),
        "rope": config.integer("qk_rope_head_dim"),
        "first": ratios[:2],
        "ratios": ratios[2:],
    }
    fields["indexer"] = _indexer(config)
    fields.pop("ffn", None)


def _ernie_moe(config: FieldReader, fields: Fields) -> None:
    _expert_fields(config, fields).pop("every", None)


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
    experts = _expert_fields(config, fields)
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
    fields["experts"] = _expert_fields(config, fields) | {"ffn": width, "every": every}


def _kimi_linear(config: FieldReader, fields: Fields) -> None:
    linear = _nested(config, "linear_attn_config")
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
    fields["experts"] = _expert_fields(config, fields) | {"ffn": width, "shared_ffn": width, "every": every}


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
        "S" if sliding else "F" for sliding in _layer_list(config, fields, "hybrid_layer_pattern")
    )
    fields["window_layers"] = {
        "heads": config.integer("swa_num_attention_heads", fields["heads"]),
        "kv_heads": config.integer("swa_num_key_value_heads", fields.get("kv_heads")),
        "head_dim": config.integer("swa_head_dim", fields.get("head_dim")),
        "value_dim": config.integer("swa_v_head_dim", fields.get("value_dim")),
    }
    experts = _expert_fields(config, fields)
    experts["dense_layers"] = _leading_zeros(_layer_list(config, fields, "moe_layer_freq"))
    experts.pop("selection_bias", None)


def _leading_zeros(values: tuple[int, ...]) -> int:
    return next((index for index, value in enumerate(values) if value), len(values))


def _minimax01(config: FieldReader, fields: Fields) -> None:
    kinds = _layer_list(config, fields, "attn_type_list")
    fields["pattern"] = "".join("F" if kind else "L" for kind in kinds)
    fields.pop("ffn", None)


def _minimax_m3(config: FieldReader, fields: Fields) -> None:
    fields["ffn"] = config.integer("dense_intermediate_size")
    dense_layers = _leading_zeros(_layer_list(config, fields, "moe_layer_freq"))
    _expert_fields(config, fields)["dense_layers"] = dense_layers
    sparse = _nested(config, "sparse_attention_config")
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
    _expert_fields(config, fields).pop("shared", None)


def _qwen2_moe(config: FieldReader, fields: Fields) -> None:
    _expert_fields(config, fields).pop("shared", None)
    fields.pop("ffn", None)


def _deepseek2(config: FieldReader, fields: Fields) -> None:
    if config.text("model_type", "") == "glm4_moe_lite" or "Glm4MoeLiteForCausalLM" in _classes(config):
        _expert_fields(config, fields)["selection_bias"] = True


def _classes(config: FieldReader) -> list[Any]:
    names = config.fields.get("architectures")
    return names if isinstance(names, list) else []


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
