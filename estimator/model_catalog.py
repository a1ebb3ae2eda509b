"""The model catalog: names to Models, with what is published about each.

Imports `catalog` and `model_fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .architecture import Model
from .catalog import Entry, find_entry, open_catalog, user_files
from .field_reader import FieldReader
from .frozen_dataclass import dataclass
from .model_fields import DESCRIPTION_FIELDS, SHAPE_FIELDS, model_from_fields

__all__ = ["ModelInfo", "find_info", "find_model", "info_from_fields", "list_models", "model_from_fields"]


@dataclass(frozen=True)
class ModelInfo:
    """What the catalog says about a model beside its shapes. Figures nobody published are None."""

    id: str
    name: str
    architecture: str
    hugging_face: tuple[str, ...]
    aliases: tuple[str, ...]
    published_params: int | None  # of the whole checkpoint, which may hold more than the text model
    also_holds: str | None  # what it holds beside the text model
    published_active_params: int | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    file: str


def find_model(name: str, folders: Sequence[Path] = ()) -> Model:
    """The Model that `name` means in the built-in catalog and those of `folders`.

    Raises UnknownNameError, which lists the closest ids, for an unknown or ambiguous name, and InputError, which names
    file, entry and field, for an entry that does not describe a model.
    """
    return _model(find_entry("models", name, folders)) if user_files("models", folders) else _built_in(name)


@lru_cache(maxsize=1024)
def _built_in(name: str) -> Model:
    return _model(find_entry("models", name))


def find_info(name: str, folders: Sequence[Path] = ()) -> ModelInfo:
    """What the catalog says about the model that `name` means; raises as `find_model`."""
    return _info(find_entry("models", name, folders))


def list_models(folders: Sequence[Path] = ()) -> Iterator[tuple[ModelInfo, Model]]:
    """Every entry with its Model, in the order of the files; raises InputError at the first one that is wrong."""
    for entry in open_catalog("models", folders).entries():
        yield _info(entry), _model(entry)


def _model(entry: Entry) -> Model:
    return model_from_fields(entry.id, entry.fields, entry.where)


def _info(entry: Entry) -> ModelInfo:
    return info_from_fields(entry.id, entry.fields, entry.where, entry.file)


def info_from_fields(id: str, given: Mapping[str, Any], where: str, file: str) -> ModelInfo:
    """What the fields of an entry say beside its shapes. Raises InputError naming `where` and the field."""
    fields = FieldReader(given, where, DESCRIPTION_FIELDS + SHAPE_FIELDS)
    return ModelInfo(
        id=id,
        name=fields.text("name", id),
        architecture=fields.text("architecture"),
        hugging_face=fields.texts("hugging_face"),
        aliases=fields.texts("aliases"),
        published_params=fields.count("parameters"),
        also_holds=fields.text("also_holds") if "also_holds" in fields else None,
        published_active_params=fields.count("active_parameters"),
        sources=fields.texts("sources"),
        notes=fields.texts("notes"),
        file=file,
    )
