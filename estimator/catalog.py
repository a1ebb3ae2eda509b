"""Catalogs: the entries of the built-in and the user's YAML files, found by the names people use.

An entry claims its id, its `name`, each of its `aliases` and, for models, its `hugging_face` repositories (whole and
without the owner). No two entries of a catalog may claim one name.

User catalogs overlay the built-in ones in this order: the per-user configuration folder of llmcalc, the folder that
the environment variable LLMCALC_CATALOG names, the folders handed in. In such a folder `hardware/*.yaml` and
`hardware*.yaml` hold devices, `models/*.yaml` and `models*.yaml` hold models; a folder that is itself called `hardware`
or `models` counts as that subfolder. An entry replaces the one of the same id. With `extends: other-id` it starts from
the fields of that entry (all but the names, unless it extends its own id) and overrides some of them; `null` removes a
field, and of a field that is a mapping, such as `peaks`, only the keys that are given change.

Built-in files are searched as text; of their hundreds of entries only those that mention a name are looked at, and only
the one that it means is parsed: a look-up must not cost more than the estimate that needs it. Imports `errors`,
`names` and `catalog_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from .catalog_files import NAME_FIELDS, Block, entry_extents, parse_text, read_text, scan_text
from .errors import FieldError, InputError, UnknownNameError
from .frozen_dataclass import dataclass
from .names import (
    CatalogKind,
    closest,
    flattened,
    goes_on_from,
    mentions,
    normalise,
    normalise_all,
    reduce_name,
    simpler_forms,
)
from .user_folder import user_folder

ENVIRONMENT_VARIABLE: Final = "LLMCALC_CATALOG"
USER_FILES: Final = "hardware/*.yaml, hardware*.yaml, models/*.yaml or models*.yaml"
_NOUN: Final[dict[CatalogKind, str]] = {"hardware": "device", "models": "model"}


@dataclass(frozen=True)
class Entry:
    """One entry: its id, its fields as YAML gives them, and the file and line it begins at."""

    id: str
    fields: Mapping[str, Any]
    file: str
    line: int = 1

    @property
    def where(self) -> str:
        """Place of the entry, for error messages."""
        return f"{self.file}:{self.line}: {self.id}"


@dataclass(frozen=True)
class Catalog:
    """The entries of one kind; each id has its blocks from the built-in one to the user's last, which counts."""

    kind: CatalogKind
    _blocks: Mapping[str, tuple[Block, ...]]
    _parsed: dict[str, Entry] = field(default_factory=dict, repr=False, compare=False)

    def ids(self) -> tuple[str, ...]:
        """Every id, in the order of the files."""
        return tuple(self._blocks)

    def names(self, id: str) -> tuple[str, ...]:
        """The names that the entry of this id claims, as written; the id first."""
        blocks = self._blocks[id]
        if len(blocks) == 1:
            return blocks[0].names
        names: dict[str, None] = {}
        for block in reversed(blocks):
            names |= dict.fromkeys(block.names)
            if not block.amends:
                break
        return tuple(names)

    def entries(self) -> Iterator[Entry]:
        """Every entry, in the order of the files. Raises InputError at the first one that cannot be read."""
        return map(self.entry, self._blocks)

    def entry(self, id: str) -> Entry:
        """The entry of exactly this id. Raises UnknownNameError, or InputError when its text cannot be read."""
        if id not in self._blocks:
            raise self._unknown(id, self.ids())
        if id not in self._parsed:
            block = self._blocks[id][-1]
            self._parsed[id] = Entry(id, MappingProxyType(self._fields(id, -1, ())), block.file, block.line)
        return self._parsed[id]

    def find(self, name: str, accept: Callable[[Entry], bool] | None = None) -> Entry:
        """The entry that `name` means; with `accept`, among those that it accepts.

        Names are compared after `names.normalise`; a name that nobody claims is tried again in `names.simpler_forms`.
        Raises UnknownNameError, which lists the closest ids, for an unknown name or one that may mean several entries.
        """
        matches = self._matches(name, accept)
        if len(matches) == 1:
            return self.entry(matches[0])
        ids = [id for id in self._blocks if accept is None or accept(self.entry(id))]
        matches = matches or [id for id in ids if any(goes_on_from(each, name, self.kind) for each in self.names(id))]
        raise self._ambiguous(name, matches) if len(matches) > 1 else self._unknown(name, ids)

    def _matches(self, name: str, accept: Callable[[Entry], bool] | None) -> list[str]:
        form = ""
        for form in map(normalise, simpler_forms(name, self.kind)):
            claimed = self.claimant(form)
            if claimed is not None and (accept is None or accept(claimed)):
                return [claimed.id]
        return [id for id in self._reduced_claims.get(form, ()) if accept is None or accept(self.entry(id))]

    def claimant(self, form: str) -> Entry | None:
        """The entry that claims the name with this normalised form."""
        id = self._claims.get(form)
        return None if id is None else self.entry(id)

    def place(self, id: str) -> str:
        """File and line of the entry of this id."""
        block = self._blocks[id][-1]
        return f"{block.file}:{block.line}"

    def glance(self, id: str, key: str) -> str | None:
        """A field of one word as the entry itself writes it, without parsing the entry; None where it does not."""
        block = self._blocks[id][-1]
        if block.fields is not None:
            value = block.fields.get(key)
            return None if value is None else str(value)
        at = block.text.find(f"\n  {key}: ", block.begin, block.end)
        return block.text[at : block.text.find("\n", at + 1)].split(maxsplit=2)[1] if at >= 0 else None

    def conflicts(self) -> Iterator[tuple[str, str, str]]:
        """(name, id, id of another entry) for every name of an entry that an earlier one claims already."""
        yield from self._claimed({})

    @cached_property
    def _claims(self) -> dict[str, str]:
        """Normalised name → id. Raises InputError when two entries claim one name."""
        claims: dict[str, str] = {}
        for name, id, other in self._claimed(claims):
            raise self._claimed_twice(name, id, other)
        return claims

    def _claimed(self, claims: dict[str, str]) -> Iterator[tuple[str, str, str]]:
        """Fill `claims`, normalised name → id; yields what `conflicts` does."""
        pairs = [(id, name) for id in self._blocks for name in self.names(id)]
        for (id, name), form in zip(pairs, normalise_all(name for _, name in pairs), strict=True):
            other = claims.setdefault(form, id)
            if other != id:
                yield name, id, other

    @cached_property
    def _reduced_claims(self) -> dict[str, list[str]]:
        claims: dict[str, list[str]] = {}
        for id in self._blocks:
            for form in {normalise(reduce_name(name, self.kind)) for name in self.names(id)} - {""}:
                claims.setdefault(form, []).append(id)
        return claims

    def _claimed_twice(self, name: str, id: str, other: str) -> InputError:
        later, earlier = self._blocks[id][-1], self._blocks[other][-1]
        return InputError(
            f"{later.file}:{later.line}: {id}: the name {name!r} belongs to {other} ({earlier.file}:{earlier.line}); "
            f"take another name, or give the entry the id {other!r} to replace that one"
        )

    def _ambiguous(self, name: str, ids: Sequence[str]) -> UnknownNameError:
        shown = ", ".join(ids[:8]) + (" …" if len(ids) > 8 else "")
        return UnknownNameError(f"{_NOUN[self.kind]} {name[:80]!r} may mean any of: {shown}; say which", ids)

    def _unknown(self, name: str, ids: Sequence[str]) -> UnknownNameError:
        close = closest(name, {id: self.names(id) for id in ids}, self.kind)
        hint = f"closest: {', '.join(close)}" if close else f"see `llmcalc {self.kind} list`"
        return UnknownNameError(f"unknown {_NOUN[self.kind]} {name[:80]!r}; {hint}", close)

    def _fields(self, id: str, version: int, extending: tuple[str, ...]) -> dict[str, Any]:
        """Fields of one version (-1 the last) of an entry, `extending` being the entries that this one is a base of."""
        block = self._blocks[id][version]
        fields = block.parsed_fields()
        base = fields.pop("extends", None)
        if base is None:
            return fields
        where, path = f"{block.file}:{block.line}: {id}: extends", ("extends",)
        if base == id and -version < len(self._blocks[id]):
            return _override(self._fields(id, version - 1, extending), fields)
        if base == id or base in extending:
            raise FieldError(f"{where}: {base} would extend itself", path)
        if not isinstance(base, str) or base not in self._blocks:
            close = closest(str(base), {id: self.names(id)[:1] for id in self._blocks}, self.kind, 3)
            hint = f"; closest: {', '.join(close)}" if close else ""
            raise FieldError(f"{where}: {base!r} is not the id of an entry{hint}", path)
        inherited = self._fields(base, -1, (*extending, id))
        return _override({key: value for key, value in inherited.items() if key not in NAME_FIELDS}, fields)


def _override(inherited: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """`inherited` with `fields` over it; of a field that is a mapping, only the given keys change; None removes."""
    result = {**inherited, **fields}
    for key, value in fields.items():
        if isinstance(value, Mapping) and isinstance(inherited.get(key), Mapping):
            result[key] = _override(inherited[key], value)
    return {key: value for key, value in result.items() if value is not None}


def find_entry(
    kind: CatalogKind, name: str, folders: Sequence[Path] = (), accept: Callable[[Entry], bool] | None = None
) -> Entry:
    """The entry that `name` means in the catalog of `kind` with the user's catalogs over it, as `Catalog.find` does.

    Entries that have nothing to do with the name are not parsed, so that what is wrong with them does not show.
    """
    with suppress(InputError):  # the whole catalog finds out what is wrong
        texts = {str(path): read_text(path) for path in user_files(kind, folders)}
        for form in map(normalise, simpler_forms(name, kind)):
            found = (_overlaid(kind, form, texts) if texts else _mentioning(kind, form)).claimant(form)
            if found is not None and (accept is None or accept(found)):
                return found
    return open_catalog(kind, folders).find(name, accept)


def _overlaid(kind: CatalogKind, form: str, texts: Mapping[str, str]) -> Catalog:
    """The entries that mention a name, in the built-in or the user's files, with all versions and bases of each."""
    layers = [(file, text, entry_extents(text)) for file, text in texts.items()]
    waiting = [*_mentioning(kind, form).ids()]
    for file, text, extents in layers:
        if extents is None:
            raise InputError(f"{file}: its entries cannot be told apart without parsing all of it")
        if mentions(flattened(text.encode()), form):
            waiting += [id for id, (a, b) in extents.items() if mentions(flattened(text[a:b].encode()), form)]
    blocks: dict[str, tuple[Block, ...]] = {}
    while waiting:
        id = waiting.pop()
        if id in blocks:
            continue
        users = [
            block
            for file, text, extents in layers
            if extents and id in extents
            for block in parse_text(text, file, *extents[id])
        ]
        blocks[id] = (*_mentioning(kind, normalise(id))._blocks.get(id, ()), *users)
        waiting += [base for block in users if isinstance(base := (block.fields or {}).get("extends"), str)]
    return Catalog(kind, MappingProxyType({id: versions for id, versions in blocks.items() if versions}))


def entries_with(kind: CatalogKind, name: str) -> Catalog:
    """The catalog with the user's over it, or as much of it as holds every entry in which `name` occurs."""
    return open_catalog(kind) if user_files(kind, ()) else _mentioning(kind, normalise(name))


def open_catalog(kind: CatalogKind, folders: Sequence[Path] = ()) -> Catalog:
    """The built-in catalog of `kind` with the user's catalogs laid over it, the last of `folders` on top.

    Raises InputError for a folder that does not exist or holds no catalog, and for files that cannot be read.
    """
    files = user_files(kind, folders)
    if not files:
        return built_in_catalog(kind)
    catalog = layered(
        built_in_catalog(kind), (block for path in files for block in parse_text(read_text(path), str(path)))
    )
    _ = catalog._claims  # two claims to one name are reported before anything is looked up
    return catalog


def layered(below: Catalog, blocks: Iterable[Block]) -> Catalog:
    """A catalog with more entries laid over it, in this order; an id that is there already gets one version more."""
    layers = dict(below._blocks)
    for block in blocks:
        layers[block.id] = (*layers.get(block.id, ()), block)
    return Catalog(below.kind, MappingProxyType(layers))


def built_in_files(kind: CatalogKind) -> list[Path]:
    """The files of the built-in catalog, in their order."""
    folder = Path(import_module(f"{__package__}.{kind}").__path__[0])
    return sorted(path for path in folder.iterdir() if path.suffix == ".yaml")


@lru_cache(maxsize=2)
def built_in_catalog(kind: CatalogKind) -> Catalog:
    """The catalog that llmcalc comes with, scanned, not parsed. Raises InputError for an id that is there twice."""
    return _scanned(kind, None)


@lru_cache(maxsize=64)
def _mentioning(kind: CatalogKind, form: str) -> Catalog:
    """Of the built-in catalog, the entries whose text may hold the name with this normalised form."""
    return _scanned(kind, form)


def _scanned(kind: CatalogKind, form: str | None) -> Catalog:
    """The built-in entries, or those that mention a name."""

    def wanted(text: str) -> bool:
        return mentions(flattened(text.encode()), form or "")

    blocks: dict[str, tuple[Block, ...]] = {}
    for file, text in _built_in_texts(kind).items():
        if form and not mentions(_flattened_texts(kind)[file], form):
            continue
        for block in scan_text(text.decode(), file, wanted if form else None):
            if block.id in blocks:
                raise InputError(f"{block.file}:{block.line}: {block.id} is in {blocks[block.id][0].file} already")
            blocks[block.id] = (block,)
    return Catalog(kind, MappingProxyType(blocks))


@lru_cache(maxsize=2)
def _built_in_texts(kind: CatalogKind) -> dict[str, bytes]:
    """The built-in files by their names for messages."""
    return {f"{kind}/{path.name}": path.read_bytes() for path in built_in_files(kind)}


@lru_cache(maxsize=2)
def _flattened_texts(kind: CatalogKind) -> dict[str, bytes]:
    return {name: flattened(text) for name, text in _built_in_texts(kind).items()}


def user_files(kind: CatalogKind, folders: Sequence[Path]) -> list[Path]:
    """Files that overlay the built-in ones, the lowest layer first. Raises InputError for a folder without any."""
    variable = os.environ.get(ENVIRONMENT_VARIABLE)
    files = files_of(user_folder(), kind)
    for folder in [*([Path(variable)] if variable else []), *map(Path, folders)]:
        folder = folder.expanduser()
        if not os.path.isdir(folder):
            raise InputError(f"catalog folder {str(folder)!r} does not exist")
        if not any(files_of(folder, each) for each in _NOUN):
            raise InputError(f"catalog folder {str(folder)!r} holds none of {USER_FILES}")
        files += files_of(folder, kind)
    return files


def files_of(folder: Path, kind: CatalogKind) -> list[Path]:
    """The files of a user's folder that hold entries of `kind`, in their order."""
    if not os.path.isdir(folder):
        return []
    patterns = [f"{kind}/*.y*ml", f"{kind}*.y*ml", *(["*.y*ml"] if folder.name == kind else [])]
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
