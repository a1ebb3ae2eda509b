"""A Hugging Face configuration to the fields that `model_fields` understands, as far as most of them agree."""

from __future__ import annotations

from typing import Final

from ..conventions import CONVENTIONS
from ..errors import InputError
from ..field_reader import FieldReader
from ..model_fields import MAX_LAYERS
from .hf_keys import classes_of, indexer_fields, key_in, whole, whole_or_first, widths
from .hf_names import CLASSES, DEFAULTS, DRAFT_KEYS, EXPERT_KEYS, KEYS, LAYER_LETTERS, MODEL_TYPES, Fields
from .hf_special import SPECIAL

# Architectures whose window, if the configuration has one, llama.cpp applies. Elsewhere the key is inert.
_WINDOWED: Final = frozenset(name for name, rules in CONVENTIONS.items() if "S" in rules.pattern) | {"deepseek4"}


def architecture_of(config: FieldReader) -> str:
    """The GGUF architecture of a configuration; raises InputError, saying what an unknown one would need."""
    names = [name for name in classes_of(config) if isinstance(name, str)]
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
    has_experts = any(config.fields.get(key) for key in EXPERT_KEYS["count"])
    if architecture == "nemotron_h" and has_experts:
        return "nemotron_h_moe"
    if architecture == "granitehybrid" and "mamba" not in str(config.fields.get("layer_types")):
        return "granitemoe" if has_experts else "granite"
    if architecture == "mistral3" and "kv_lora_rank" in config:
        return "mistral4"
    return architecture


def fields_from_config(config: FieldReader, architecture: str) -> Fields:
    """The fields of a model of `architecture`; `config` holds the keys of its text part."""
    fields: Fields = {"architecture": architecture}
    for field, keys in KEYS.items():
        fields[field] = widths(config, keys) if field == "ffn" else whole(config, keys)
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


def _require(config: FieldReader, fields: Fields, architecture: str) -> None:
    """Refuse a configuration without the figures that nothing can do without."""
    attends = bool(set(CONVENTIONS[architecture].pattern) & set("FSP"))
    for field in ("layers", "hidden", "vocab", "heads") if attends else ("layers", "hidden", "vocab"):
        if not fields.get(field):
            raise config.fail(KEYS[field][0], "is missing" if field not in fields else "must not be 0")
    if fields["layers"] > MAX_LAYERS:
        raise config.fail(KEYS["layers"][0], f"{fields['layers']} is more than {MAX_LAYERS}")


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
    experts: Fields = {field: whole_or_first(config, keys) for field, keys in EXPERT_KEYS.items()}
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
        fields["indexer"] = indexer_fields(config)


def _pattern(config: FieldReader, fields: Fields) -> None:
    key = key_in(config, ("layer_types", "layers_block_type"))
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
    if count := whole(config, DRAFT_KEYS):
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
