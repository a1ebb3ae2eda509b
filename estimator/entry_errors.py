"""All errors of a catalog entry's fields, where reading the entry stops at the first one.

Imports `catalog`, `device_catalog` and `model_catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .architecture import Model
from .catalog import Entry
from .device_catalog import device_from_fields
from .errors import FieldError, InputError
from .model_catalog import info_from_fields, model_from_fields
from .model_fields import SHAPE_FIELDS
from .names import CatalogKind
from .system import Device

MOST_ERRORS: Final = 40  # of one entry
_NO_STAND_IN: Final = frozenset({"architecture", "layers", "pattern", "ratios", "head_dim"})
# Parts of a model that mean nothing by half.
_GROUPS: Final = frozenset({"mamba", "delta_net", "kda", "rwkv", "experts", "latent", "indexer", "compression"})


class Reading(NamedTuple):
    """What could be read of an entry, and what could not."""

    errors: list[InputError]
    unread: frozenset[str]  # fields that were wrong or missing
    fields: Mapping[str, Any]  # the others
    made: Device | Model | None  # a model is None where one of its shapes was wrong


def readable(kind: CatalogKind, entry: Entry) -> Reading:
    """All errors of an entry's fields, and what the entry makes without these.

    A field that is wrong is taken away, one that is missing gets a stand-in, until the rest can be read.
    """
    reader = _Reader(kind, entry)
    made = reader.made()
    unread = frozenset(path[0] for path in reader.repaired)
    return Reading(reader.errors, unread, reader.fields, made)


class _Reader:
    """Reads an entry again and again, each time without what was wrong the last time."""

    def __init__(self, kind: CatalogKind, entry: Entry) -> None:
        self.kind = kind
        self.entry = entry
        self.fields: Mapping[str, Any] = entry.fields
        self.errors: list[InputError] = []
        self.repaired: set[tuple[str, ...]] = set()

    def made(self) -> Device | Model | None:
        for _ in range(MOST_ERRORS):
            try:
                return self._build()
            except FieldError as error:
                if not self._follows(error.path):
                    self.errors.append(error)
                if not self._repair(error.path):
                    return None
            except InputError as error:
                self.errors.append(error)
                return None
        return None

    def _build(self) -> Device | Model | None:
        entry, fields = self.entry, self.fields
        if self.kind == "hardware":
            return device_from_fields(entry.id, fields, entry.where)
        info_from_fields(entry.id, fields, entry.where, entry.file)
        model = model_from_fields(entry.id, fields, entry.where)
        return None if {path[0] for path in self.repaired} & set(SHAPE_FIELDS) else model

    def _follows(self, path: tuple[str, ...]) -> bool:
        """Whether an error comes of a repair only."""
        return path in self.repaired or (path == ("derived",) and any(one[0] == "peaks" for one in self.repaired))

    def _repair(self, path: tuple[str, ...]) -> bool:
        """Take the field away, or give a stand-in; False where neither helps."""
        if _value(self.fields, path) is not None:
            value = None
        else:
            value = _stand_in(self.kind, path, self.fields)
            if value is None:
                return False
        self.fields = _with(self.fields, path, value)
        self.repaired.add(path)
        return True


def _stand_in(kind: CatalogKind, path: tuple[str, ...], fields: Mapping[str, Any]) -> Any:
    """A value that lets the other fields be read where a needed one is missing; None where there is no such value."""
    if kind == "hardware":
        return "1 GB/s" if path[-1] == "bandwidth" else "none"
    if path[-1] in _NO_STAND_IN or (len(path) == 1 and path[0] in _GROUPS):
        return None
    heads, kv_heads = fields.get("heads"), fields.get("kv_heads")
    if path == ("heads",) and isinstance(kv_heads, int):
        return kv_heads
    return 64 * heads if path == ("hidden",) and isinstance(heads, int) else 1


def _value(fields: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = fields
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _with(fields: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """The fields with another value at a path; None takes it away."""
    key, rest = path[0], path[1:]
    inner = fields.get(key)
    new = _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value
    changed = {**fields, key: new}
    return {name: each for name, each in changed.items() if name != key or each is not None}
