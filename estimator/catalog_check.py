"""Validate catalog files as one asks for it: every problem of every entry, not only the first one.

What an entry must be is said by `device_catalog`, `model_catalog` and their rules; here it is applied to whole files.
Imports `catalog`, `catalog_files`, `entry_errors`, `device_rules` and `model_rules`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from .catalog import USER_FILES, Catalog, Entry, built_in_catalog, built_in_files, files_of, layered, user_files
from .catalog_files import Block, load_entries, parse_text, read_text, scan_text
from .device_catalog import FIELDS
from .device_rules import device_faults
from .entry_errors import readable
from .errors import FieldError, InputError
from .model_fields import DESCRIPTION_FIELDS, SHAPE_FIELDS
from .model_rules import implied_fields, model_faults
from .names import CatalogKind
from .system import Device

KINDS: Final[tuple[CatalogKind, ...]] = get_args(CatalogKind)
NEEDED_IN_BUILT_IN: Final[dict[CatalogKind, tuple[str, ...]]] = {
    "hardware": ("name", "vendor", "kind", "class", "architecture", "isa", "released", "confidence"),
    "models": ("name",),
}
_KNOWN: Final[dict[CatalogKind, frozenset[str]]] = {
    "hardware": frozenset(FIELDS),
    "models": frozenset(DESCRIPTION_FIELDS + SHAPE_FIELDS),
}
_BUILT_IN_ID: Final = r"[a-z0-9]+([-.][a-z0-9]+)*"


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where: `field` is the field within its groups, such as "peaks: fp32"."""

    file: str
    line: int | None
    entry: str | None
    field: str | None
    text: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.entry, self.field, self.text) if part)


@dataclass(frozen=True)
class CatalogCheck:
    """The problems of catalog files, in the order of files and entries, and how much was looked at."""

    files: tuple[str, ...]
    devices: int
    models: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class _Source(NamedTuple):
    path: Path
    name: str  # as messages write it
    kind: CatalogKind
    built_in: bool


def check_catalog(paths: Sequence[str | Path] = (), folders: Sequence[Path] = ()) -> CatalogCheck:
    """Check the built-in catalogs and the user's own, or only the files and folders given, laid over these.

    `folders`: catalogs that lie below those given, as with --catalog. Raises InputError for a path that holds no
    catalog; everything within the files becomes a Problem.
    """
    given = [source for path in paths for source in _sources(Path(path).expanduser())]
    own = [_Source(path, str(path), kind, False) for kind in KINDS for path in user_files(kind, folders)]
    asked = given or [*_built_in(), *own]
    below = [source for source in own if given and source.path.resolve() not in {one.path.resolve() for one in given}]
    problems: list[Problem] = []
    notes: list[str] = []
    entries = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        checked = _Kind(kind, [one for one in asked if one.kind == kind], [one for one in below if one.kind == kind])
        problems += checked.problems()
        notes += checked.notes()
        entries[kind] = len(checked.ids)
    files = tuple(dict.fromkeys(one.name for one in asked))
    order = {name: place for place, name in enumerate(files)}
    problems.sort(key=lambda problem: (order.get(problem.file, len(order)), problem.line or 0))
    return CatalogCheck(files, entries["hardware"], entries["models"], tuple(problems), tuple(notes))


def _built_in() -> list[_Source]:
    return [_Source(path, f"{kind}/{path.name}", kind, True) for kind in KINDS for path in built_in_files(kind)]


def _sources(path: Path) -> list[_Source]:
    """The catalog files of a folder, or the file. Raises InputError where there are none."""
    if os.path.isdir(path):
        found = [_Source(file, str(file), kind, False) for kind in KINDS for file in files_of(path, kind)]
        if not found:
            raise InputError(f"{path}: holds none of {USER_FILES}, which are the files that a catalog is read from")
        return found
    return [_Source(path, str(path), _kind_of(path), False)]


def _kind_of(path: Path) -> CatalogKind:
    """Devices or models, by the file's name or folder, or else by its fields."""
    for kind in KINDS:
        if path.name.startswith(kind) or path.resolve().parent.name == kind:
            return kind
    try:
        entries = load_entries(read_text(path), str(path))
    except InputError:
        if os.path.isfile(path):
            return "hardware"  # reading it again says what is wrong with it
        raise
    return max(KINDS, key=lambda kind: sum(_likeness(kind, fields) for _, fields, _ in entries))


def _likeness(kind: CatalogKind, fields: Mapping[str, Any]) -> int:
    return len(_KNOWN[kind] & set(fields)) + (fields.get("extends") in built_in_catalog(kind).ids())


class _Kind:
    """The files of one kind that were asked for, laid over those below them."""

    def __init__(self, kind: CatalogKind, asked: Sequence[_Source], below: Sequence[_Source]) -> None:
        self.kind = kind
        self.sources = {source.name: source for source in asked}
        self.unread: list[Problem] = []
        whole = any(source.built_in for source in asked)
        base = Catalog(kind, {}) if whole else built_in_catalog(kind)
        lower = layered(base, [block for source in below for block in self._read(source)])
        self.built_in_ids = frozenset(lower.ids())
        self.blocks = [block for source in asked for block in self._read(source)]
        self.catalog = layered(lower, self.blocks)
        self.ids = tuple(dict.fromkeys(block.id for block in self.blocks))

    def problems(self) -> Iterator[Problem]:
        """Those of all files and entries that were asked for."""
        yield from self.unread
        yield from self._twice()
        yield from self._taken()
        for id in self.ids:
            yield from self._entry_problems(id)

    def notes(self) -> Iterator[str]:
        """What is right, but may surprise."""
        for block in self.blocks:
            if block.id in self.built_in_ids and not block.amends:
                yield f"{block.file}:{block.line}: {block.id} replaces the entry of this id"
        for source in self.sources.values():
            read = source.built_in or source.path in files_of(source.path.parent, self.kind)
            if not read and source.path.resolve().parent.name != self.kind:
                yield f"{source.name}: from a folder only {self.kind}/*.yaml and {self.kind}*.yaml are read"

    def _read(self, source: _Source) -> list[Block]:
        try:
            text = read_text(source.path)
            blocks = list(parse_text(text, source.name))
        except InputError as error:
            self.unread.append(_placed(str(error), source.name))
            return []
        if source.built_in:
            self.unread += _unscanned(text, blocks, source.name)
        return blocks

    def _twice(self) -> Iterator[Problem]:
        """Ids that several of the files give."""
        first: dict[str, Block] = {}
        for block in self.blocks:
            other = first.setdefault(block.id, block)
            if other is not block and not block.amends:
                yield Problem(block.file, block.line, block.id, None, f"is in {other.file}:{other.line} already")

    def _taken(self) -> Iterator[Problem]:
        """Names that another entry has."""
        for name, id, other in self.catalog.conflicts():
            culprit, owner = (id, other) if id in self.ids else (other, id)
            if culprit in self.ids:
                mine, theirs = self._block(culprit), self.catalog.place(owner)
                text = f"{name!r} is taken by {owner} ({theirs}); take another name, or that id to replace the entry"
                yield Problem(mine.file, mine.line, culprit, _name_field(mine, name), text)

    def _block(self, id: str) -> Block:
        return [block for block in self.blocks if block.id == id][-1]

    def _entry_problems(self, id: str) -> Iterator[Problem]:
        block = self._block(id)
        try:
            entry = self.catalog.entry(id)
        except InputError as error:
            path = error.path if isinstance(error, FieldError) else ()
            yield _placed(str(error), block.file, id, path)
            return
        source = self.sources[block.file]
        for key, text in dict.fromkeys(_entry_faults(self.kind, entry, source)):
            yield Problem(block.file, block.line, id, key, text)


def _unscanned(text: str, blocks: Sequence[Block], name: str) -> Iterator[Problem]:
    """Entries of a built-in file whose names the quick look-up would not find."""
    scanned = {block.id: set(block.names) for block in scan_text(text, name)}
    for block in blocks:
        if scanned.get(block.id) != set(block.names):
            form = "id at the margin, fields indented by two spaces, aliases on one line in square brackets"
            yield Problem(name, block.line, block.id, None, f"does not keep to the form of the built-in files: {form}")


def _entry_faults(kind: CatalogKind, entry: Entry, source: _Source) -> Iterator[tuple[str | None, str]]:
    read = readable(kind, entry)
    for error in read.errors:
        problem = _placed(str(error), entry.file, entry.id, error.path if isinstance(error, FieldError) else ())
        yield problem.field, problem.text
    if isinstance(read.made, Device):
        faults = device_faults(read.made, read.unread)
        yield from ((key, text) for key, text in faults if key.split(":")[0] not in read.unread)
    elif read.made is not None:
        yield from model_faults(read.made, read.fields)
    if not entry.fields.get("sources"):
        yield "sources", "is missing: say where the figures are from"
    if source.built_in:
        yield from _built_in_faults(kind, entry, source.path.parent)


def _built_in_faults(kind: CatalogKind, entry: Entry, folder: Path) -> Iterator[tuple[str | None, str]]:
    """What entries of the project itself keep to beside."""
    if not re.fullmatch(_BUILT_IN_ID, entry.id):
        yield None, "an id is lower case letters and digits, parted by hyphens"
    for key in NEEDED_IN_BUILT_IN[kind]:
        if entry.fields.get(key) is None:
            yield key, "is missing, and the built-in catalog has it everywhere"
    if kind == "models":
        yield from implied_fields(entry.fields) if "architecture" in entry.fields else ()
        return
    ordered = [key for key in FIELDS if key in entry.fields]
    if [key for key in entry.fields if key in FIELDS] != ordered:
        yield None, f"fields are out of order; the order is {', '.join(ordered)}"
    described = (folder / "SOURCES.md").read_text(encoding="utf-8")
    for name in entry.fields.get("sources") or ():
        if str(name) not in described:
            yield "sources", f"{name!r} is not described in {kind}/SOURCES.md"


def _name_field(block: Block, name: str) -> str | None:
    """The field that a claimed name stands in; None for the id."""
    fields: Callable[[str], Any] = block.parsed_fields().get
    for key in ("name", "aliases", "hugging_face"):
        values = fields(key)
        listed = values if isinstance(values, list) else [values]
        if any(name == str(value) or str(value).endswith(f"/{name}") for value in listed):
            return key
    return None


def _placed(message: str, file: str, entry: str | None = None, path: Sequence[str] = ()) -> Problem:
    """An error's message, taken apart into place, field and text."""
    rest, line = message.removeprefix(f"{file}:").lstrip(), None
    if match := re.match(r"(\d+): ", rest):
        line, rest = int(match[1]), rest[match.end() :]
    if entry is not None:
        rest = rest.removeprefix(f"{entry}: ")
    if entry is not None and not path and (match := re.match(r"(\w+): ", rest)):
        path = (match[1],)
    if "unknown field" in rest:  # the message names it
        path = path[:-1]
    field = ": ".join(path) or None
    return Problem(file, line, entry, field, rest.removeprefix(f"{field}: "))
