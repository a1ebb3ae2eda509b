"""Reading values of a Hugging Face configuration that may stand under one of several keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..field_reader import FieldReader
from .hf_names import EXPERT_KEYS, Fields


def key_in(config: FieldReader, keys: Iterable[str]) -> str | None:
    """The first of `keys` that the configuration has."""
    return next((key for key in keys if key in config), None)


def whole(config: FieldReader, keys: Iterable[str]) -> int | None:
    """The first of `keys` that is there, as a whole number."""
    key = key_in(config, keys)
    return config.integer(key, minimum=0) if key else None


def whole_or_first(config: FieldReader, keys: Iterable[str]) -> int | None:
    """As `whole`; of a list with one value a layer, the same in every known model, the first."""
    key = key_in(config, keys)
    if key is None or not isinstance(config.fields[key], list):
        return whole(config, keys)
    return next(iter(config.integers(key)), None)


def widths(config: FieldReader, keys: Iterable[str]) -> int | list[int] | None:
    """A whole number for all layers, or one for each."""
    key = key_in(config, keys)
    if key is None or not isinstance(config.fields[key], list):
        return whole(config, keys)
    return list(config.integers(key))


def expert_fields(config: FieldReader, fields: Fields) -> Fields:
    """The fields of the experts, for an architecture that always has some."""
    experts: Fields | None = fields.get("experts")
    if experts is None:
        raise config.fail(EXPERT_KEYS["count"][0], "is missing")
    return experts


def layer_list(config: FieldReader, fields: Fields, key: str) -> tuple[int, ...]:
    """A list with a whole number for each layer; what it says beyond the layers is about draft layers."""
    values = config.integers(key)
    if len(values) < fields["layers"]:
        raise config.fail(key, f"has {len(values)} values for {fields['layers']} layers")
    return values[: fields["layers"]]


def nested(config: FieldReader, key: str, block: Any = None, index: int = 0, part: str = "") -> FieldReader:
    """The mapping under `key`, or under `part` of `block`, which is the item `index` of the list there."""
    value = config.fields.get(key) if not part else block.get(part) if isinstance(block, dict) else None
    if not isinstance(value, dict):
        raise config.fail(f"{key}[{index}].{part}" if part else key, "expected a mapping")
    return FieldReader(value, f"{config.where}: {key}", value)


def indexer_fields(config: FieldReader) -> Fields:
    """The lightning indexer of sparse attention."""
    indexer = {
        "heads": config.integer("index_n_heads"),
        "head_dim": config.integer("index_head_dim"),
        "top_k": config.integer("index_topk"),
    }
    if isinstance(kinds := config.fields.get("indexer_types"), list) and kinds:
        return indexer | {"pattern": "".join("F" if kind == "full" else "S" for kind in kinds)}
    return indexer


def leading_zeros(values: tuple[int, ...]) -> int:
    """Number of zeros before the first other value."""
    return next((index for index, value in enumerate(values) if value), len(values))


def classes_of(config: FieldReader) -> list[Any]:
    """The class names that the configuration gives, unchecked."""
    names = config.fields.get("architectures")
    return names if isinstance(names, list) else []
