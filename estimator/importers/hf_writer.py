"""Models to Hugging Face configurations: the counterpart of `hf_fields`."""

from __future__ import annotations

from typing import Final

from ..architecture import Attention, LatentAttention, Model, MoeFfn
from ..conventions import CONVENTIONS
from .hf_names import CLASSES, DRAFT_KEYS, LAYER_LETTERS, MODEL_TYPES
from .hf_names import Fields as Config
from .hf_parts import dense_of, experts_of, first, full_attention, mixers_of, pattern_of, sliding_attention
from .hf_special_write import SPECIAL, indexer_config

_LAYER_TYPES: Final = {letter: word for word, letter in reversed(LAYER_LETTERS.items())}
_CLASS_NAMES: Final = {architecture: name for name, architecture in reversed(CLASSES.items())}
_MODEL_TYPES: Final = {architecture: name for name, architecture in reversed(MODEL_TYPES.items())}


def write_config(model: Model) -> Config:
    """A config.json, as a mapping, from which `read_config` makes the same Model, but for its id and name."""
    config = _head(model) | _heads(model) | _widths(model) | _latent(model) | _flags(model) | _rope(model)
    if model.draft_layers:
        config[DRAFT_KEYS[0]] = len(model.draft_layers)
    if model.architecture in SPECIAL:
        config |= SPECIAL[model.architecture](model)
    return {key: value for key, value in config.items() if value is not None}


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
    experts = experts_of(model)
    if model.architecture == "llama":
        return "MixtralForCausalLM" if experts else "LlamaForCausalLM"
    if model.architecture == "deepseek2":
        return "DeepseekV3ForCausalLM" if experts and experts.selection_bias else "DeepseekV2ForCausalLM"
    return _CLASS_NAMES["nemotron_h" if model.architecture == "nemotron_h_moe" else model.architecture]


def _heads(model: Model) -> Config:
    attention, sliding = full_attention(model), sliding_attention(model)
    if attention is None:
        return {}
    return {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.key_dim,
        "v_head_dim": attention.value_dim if attention.value_dim != attention.key_dim else None,
        "sliding_window": sliding.window if sliding else None,
        "num_kv_shared_layers": sum(each.shares_cache for each in mixers_of(model, Attention)) or None,
    }


def _widths(model: Model) -> Config:
    dense, experts = dense_of(model), experts_of(model)
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
    latent = first(mixers_of(model, LatentAttention))
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
    return config | indexer_config([mixer.indexer for mixer in mixers_of(model, LatentAttention)])


def _flags(model: Model) -> Config:
    attention, dense = full_attention(model), dense_of(model)
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
    attention = full_attention(model)
    head_dim = attention.key_dim if attention else 2 * shapes["rope_factors_long.weight"]
    factor = 2 * shapes["rope_factors_long.weight"] / head_dim
    return {"rope_scaling": {"rope_type": "longrope"}, "partial_rotary_factor": factor if factor < 1 else None}
