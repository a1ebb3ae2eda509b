"""Catalog files: from YAML text to entries, whole and checked, or as blocks of text of which few are ever parsed.

A catalog file is a mapping whose keys, at column 0, are the entries' ids, and whose values are mappings of plain data.
Imports only `errors`, and `plain_yaml` when something is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from .errors import InputError

NAME_FIELDS: Final = ("name", "aliases", "hugging_face")
MAX_FILE_BYTES: Final = 4 * 2**20

# Begins with a line break, not with ^, which the search engine tries at every character.
_ID: Final = r"""\n([^\s#:'"\[{][^\s:]*):[ \t]*(?=[\n#])"""
_ANY_ID: Final = r"""\n([^\s#:'"\[{][^\s:]*):(?=\s)"""  # also of entries on one line


class Block(NamedTuple):
    """An entry whose fields may not have been needed yet: `fields` once they are there, else `text[begin:end]`."""

    id: str
    names: tuple[str, ...]  # all that it claims, as written, the id first
    file: str
    text: str
    begin: int = 0
    end: int | None = None
    fields: Mapping[str, Any] | None = None

    @property
    def line(self) -> int:
        """The line of the file that the entry begins at."""
        return self.text.count("\n", 0, self.begin) + 1

    @property
    def amends(self) -> bool:
        """Whether it changes fields of the entry with its own id, which lies below it."""
        return self.fields is not None and self.fields.get("extends") == self.id

    def parsed_fields(self) -> dict[str, Any]:
        """The fields; parses the text. Raises InputError when it cannot be read."""
        if self.fields is not None:
            return dict(self.fields)
        [(_, fields, _)] = load_entries(self.text[self.begin : self.end], self.file, self.line)
        return fields


def scan_text(text: str, file: str, wanted: Callable[[str], bool] | None = None) -> Iterator[Block]:
    """The entries of a catalog file that keeps to the form of the built-in ones, without parsing them.

    That form: block mappings indented by two spaces, a `name` on one line, `aliases` in square brackets and without
    commas of their own. `wanted`: whether to look at an entry, by its text.
    """
    for id, begin, end in _extents(text, _ID):
        if wanted is None or wanted(text[begin:end]):
            written = [name for field in NAME_FIELDS for name in _scanned_names(text, field, begin, end)]
            yield Block(id, _claimed_names([id, *written]), file, text, begin, end)


def _scanned_names(text: str, field: str, begin: int, end: int) -> list[str]:
    """The names that one field of the entry `text[begin:end]` gives."""
    at = text.find(f"\n  {field}: ", begin, end)
    if at < 0:
        return []
    at += len(f"\n  {field}: ")
    value = text[at : text.find("\n", at, end)].strip()
    if value[:1] == "[":
        listed = text[text.index("[", at) + 1 : text.index("]", at)]
        return [name for item in listed.split(",") if (name := item.strip(" \n\"'"))]
    if value[:1] in ("'", '"'):
        return [value[1 : value.rindex(value[0])]]
    return [value.partition(" #")[0].rstrip()] if value else []


def _extents(text: str, id_pattern: str) -> list[tuple[str, int, int]]:
    starts = [(match[1], match.start()) for match in re.finditer(id_pattern, "\n" + text)]
    return [(id, begin, end) for (id, begin), (_, end) in pairwise([*starts, ("", len(text))])]


def entry_extents(text: str) -> dict[str, tuple[int, int]] | None:
    """Where each entry begins and ends, by id, without parsing; None where the lines of a file do not tell."""
    extents = {id: (begin, end) for id, begin, end in _extents(text, _ANY_ID)}
    others = len(re.findall(r"\n[^\s#]", "\n" + text)) - len(extents)
    return None if others else extents


def parse_text(text: str, file: str, begin: int = 0, end: int | None = None) -> Iterator[Block]:
    """The same as `scan_text` for any YAML, by parsing all of it, or the entries of a part.

    Raises InputError as `load_entries` does.
    """
    for id, fields, line in load_entries(text[begin:end], file, text.count("\n", 0, begin) + 1):
        where = f"{file}:{line}: {id[:60]}"
        if not id.strip() or not id.isprintable():
            raise InputError(f"{file}:{line}: {id[:60]!r} is no id: use letters, digits, '.', '_', '+' and '-'")
        written = [name for key in NAME_FIELDS for name in _written_names(fields.get(key), f"{where}: {key}")]
        yield Block(id, _claimed_names([id, *written]), file, text, _offset(text, line), fields=fields)


def _written_names(value: object, where: str) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise InputError(f"{where}: expected text, got {each!r}; put names such as on or null in quotes")
    return [str(each) for each in values]


def _offset(text: str, line: int) -> int:
    return sum(len(each) for each in text.splitlines(keepends=True)[: line - 1])


def _claimed_names(written: Sequence[str]) -> tuple[str, ...]:
    """The names as written, each once; a Hugging Face repository is claimed without its owner as well."""
    bare = [repository for name in written if "/" in name and (repository := _repository(name))]
    return tuple(dict.fromkeys((*written, *bare)))


def _repository(name: str) -> str:
    owner, _, repository = name.partition("/")
    return "" if " " in name or "/" in repository or not owner else repository


def read_text(path: Path) -> str:
    """The UTF-8 text of a file. Raises InputError when it cannot be read or is larger than any catalog."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB, which no catalog needs")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def load_entries(text: str, file: str, first_line: int = 1) -> list[tuple[str, dict[str, Any], int]]:
    """The entries (id, fields, line) of a YAML text that begins at `first_line` of `file`.

    Raises InputError, naming file and line, for text that is not YAML, is not a mapping of mappings, repeats a key,
    nests absurdly, or uses tags, anchors or aliases (with which a small file can stand for a huge one).
    """
    import yaml

    from .plain_yaml import loader_class, refuse_hostile

    loader = loader_class()
    try:
        refuse_hostile(text, loader)
        root = yaml.compose(text, Loader=loader)
        if root is None:
            return []
        constructor = loader("")
        return [
            (id.value, _build(yaml, constructor, node), first_line + id.start_mark.line)
            for id, node in _checked_pairs(yaml, root)
            if _checked_pairs(yaml, node)
        ]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{first_line + mark.line}" if mark else ""
        raise InputError(f"{file}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}:{first_line}: {str(error).splitlines()[0]}") from None


def _checked_pairs(yaml: Any, node: Any) -> list[tuple[Any, Any]]:
    """Key and value nodes of a mapping node, its keys checked to be scalars, each there once."""
    if not isinstance(node, yaml.MappingNode):
        raise yaml.MarkedYAMLError(problem="expected a mapping, `key: value`", problem_mark=node.start_mark)
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key.start_mark)
        if key.value in seen:
            raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
        seen.add(key.value)
    return list(node.value)


def _build(yaml: Any, constructor: Any, node: Any) -> Any:
    """Python value of a node; keys stay the text that is written."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: _build(yaml, constructor, value) for key, value in _checked_pairs(yaml, node)}
    if isinstance(node, yaml.SequenceNode):
        return [_build(yaml, constructor, item) for item in node.value]
    try:
        return constructor.construct_object(node)
    except (ValueError, OverflowError):
        problem = f"cannot read the value {node.value[:40]!r}"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
