"""Rows of a sweep as CSV, JSON lines or Parquet: streamed, complete or resumable, never half a file.

Imports `parameter_sweep`. Text is made where a figure is made: a figure that stands in a thousand rows is formatted
once. A file is written under another name and renamed when it is whole; what an interruption leaves ends with a whole
block, and a note beside it says which, so that CSV and JSON lines can be taken up again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .parameter_sweep import Block, Part, Sweep
from .sweep_points import Column

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("csv", "jsonl", "parquet")
SUFFIXES: Final[dict[str, Format]] = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    blocks: int
    of_blocks: int
    rows: int
    left_out: int
    problems: Mapping[str, int]  # reason → cells without rows


class Sink(Protocol):
    """Where rows go."""

    def write(self, made: Made) -> None:
        """Add a block's rows."""

    def close(self, whole: bool) -> None:
        """End the file; `whole`: everything was written."""


@dataclass(frozen=True)
class Made:
    """A block that is ready to be written, and what is said of it."""

    number: int
    rows: int
    left_out: int
    problem: str | None
    data: bytes | dict[str, Column]  # text, or columns


def format_of(path: Path) -> Format:
    """The format that a file's name ends in. Raises InputError for another end."""
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise InputError(f"{path.name}: write .csv, .jsonl or .parquet, or say the format with --format")
    return form


def made_of(number: int, block: Block, form: Format) -> Made:
    """A block in the form that its sink writes."""
    data: bytes | dict[str, Column] = block.columns() if form == "parquet" else block_text(block, form).encode()
    return Made(number, block.rows, block.left_out, block.problem, data)


def header(sweep: Sweep, form: Format) -> bytes:
    """What stands before the rows."""
    return (",".join(sweep.columns) + "\n").encode() if form == "csv" else b""


def block_text(block: Block, form: Format) -> str:
    """The rows of a block, a line each."""
    if not block.rows:
        return ""
    begin, separator, end = ("", ",", "\n") if form == "csv" else ("{", ", ", "}\n")
    constants = [_cell_text(name, text, form) for name, text in _constant_texts(block.constants, form)]
    pieces = [_texts(part, form)[at].tolist() for part, at in block.parts]
    head = begin + separator.join(constants) + (separator if constants and pieces else "")
    if not pieces:
        return (head + end) * block.rows
    return "".join([f"{head}{separator.join(row)}{end}" for row in zip(*pieces, strict=True)])


def _texts(part: Part, form: Format) -> NDArray[np.object_]:
    """[points] the columns of a part as text."""
    if form not in part.texts:
        columns = [
            [_cell_text(name, text, form) for text in _formatted(name, values, form)]
            for name, values in part.columns.items()
        ]
        separator = "," if form == "csv" else ", "
        part.texts[form] = np.array([separator.join(row) for row in zip(*columns, strict=True)], object)
    return part.texts[form]


def _cell_text(name: str, text: str, form: Format) -> str:
    return text if form == "csv" else f'"{name}": {text}'


def _formatted(name: str, values: Column, form: Format) -> list[str]:
    """Values as text: six significant digits for figures, whole bytes and tokens; unknown ones empty or null."""
    if values.dtype.kind in "iu":
        return list(map(str, values.tolist()))
    if values.dtype.kind == "U":
        return values.tolist() if form == "csv" else [f'"{value}"' for value in values.tolist()]
    unknown = "" if form == "csv" else "null"
    write = _WRITTEN.get(name, "{:.6g}".format)
    return [unknown if value != value else write(value) for value in values.tolist()]


_WRITTEN: Final[dict[str, Callable[[float], str]]] = {
    "fits": lambda value: "true" if value else "false",
    "margin_bytes": "{:.0f}".format,
}


def _constant_texts(constants: Mapping[str, Any], form: Format) -> Iterator[tuple[str, str]]:
    for name, value in constants.items():
        if value is None:
            yield name, "" if form == "csv" else "null"
        elif form == "jsonl" or isinstance(value, bool):
            yield name, json.dumps(value, ensure_ascii=False)
        else:
            text = str(value)
            yield name, f'"{text}"' if any(sign in text for sign in ',"\n') else text


def open_sink(path: Path | None, stream: BinaryIO, sweep: Sweep, form: Format, first: Resumed) -> Sink:
    """A file, or the stream where there is none.

    Raises InputError for a file that cannot be written, and for Parquet on a stream or without pyarrow.
    """
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written, there is no folder {str(path.parent)!r}")
    if form == "parquet":
        if path is None:
            raise InputError("parquet needs a file: say -o FILE.parquet")
        return _ParquetFile(path, sweep)
    if path is None:
        return _Stream(stream, header(sweep, form))
    try:
        return _TextFile(path, sweep, form, first)
    except OSError as error:
        raise InputError(f"{path}: cannot be written, {(error.strerror or str(error)).lower()}") from None


@dataclass(frozen=True)
class Resumed:
    """Where a file that was interrupted goes on: blocks that are in it, its size with them, and what was counted."""

    blocks: int = 0
    size: int = 0
    rows: int = 0
    left_out: int = 0
    problems: Mapping[str, int] | None = None


def resume(path: Path, sweep: Sweep, form: Format) -> Resumed:
    """What an interrupted run of the same sweep left. Raises InputError for a file of another sweep."""
    note = _note_path(path)
    if not note.exists() or not _part_path(path).exists():
        return Resumed()
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        blocks, size, rows, left_out = (_count(told[name]) for name in ("blocks", "size", "rows", "left_out"))
        problems = {str(problem): _count(count) for problem, count in told["problems"].items()}
        state = Resumed(blocks, size, rows, left_out, problems)
        if size > _part_path(path).stat().st_size:
            raise ValueError("more is noted than was written")
        same = told["sweep"] == fingerprint(sweep, form)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{note.name}: is damaged; remove it and {_part_path(path).name} to begin anew") from None
    if not same:
        raise InputError(f"{_part_path(path).name}: is of another sweep; remove it to begin anew")
    if form == "parquet":
        raise InputError("--resume: Parquet files cannot be taken up again; write .csv or .jsonl")
    return state


def _count(value: object) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    raise ValueError(f"{value!r} is no count")


def fingerprint(sweep: Sweep, form: Format) -> str:
    """Equal for equal sweeps."""
    digest = sha256(repr((form, sweep.settings, sweep.fixed, sweep.columns)).encode())
    for name, values in sweep.grid.counts.items():
        digest.update(name.encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def write_sweep(
    sweep: Sweep,
    made: Iterable[Made],
    sink: Sink,
    form: Format,
    progress: Callable[[Progress], None] = lambda _: None,
    first: Resumed | None = None,
) -> Progress:
    """Write blocks, in order, as they come; the sink is closed also when this is interrupted."""
    start = first or Resumed()
    problems = dict(start.problems or {})
    state = Progress(start.blocks, sweep.block_count, start.rows, start.left_out, problems)
    try:
        for one in made:
            if one.problem is not None:
                problems[one.problem] = problems.get(one.problem, 0) + 1
            sink.write(one)
            rows, left_out = state.rows + one.rows, state.left_out + one.left_out
            state = Progress(one.number + 1, sweep.block_count, rows, left_out, problems)
            if isinstance(sink, _TextFile):
                sink.note(state)
            progress(state)
    except BaseException:
        sink.close(whole=False)
        raise
    sink.close(whole=state.rows > 0)
    return state


def local_blocks(sweep: Sweep, form: Format, first: int = 0) -> Iterator[Made]:
    """All blocks from number `first` on, made here."""
    for number, block in enumerate(sweep.blocks(first), first):
        yield made_of(number, block, form)


def _part_path(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _note_path(path: Path) -> Path:
    return path.with_name(path.name + ".part.json")


@dataclass
class _Stream:
    """Rows to a stream, after a head that stands before the first of them."""

    stream: BinaryIO
    head: bytes

    def write(self, made: Made) -> None:
        assert isinstance(made.data, bytes)
        if made.data:
            self.stream.write(self.head + made.data)
            self.head = b""

    def close(self, whole: bool) -> None:
        self.stream.flush()


class _TextFile:
    """CSV or JSON lines in FILE.part, with the note FILE.part.json; renamed to FILE at the end."""

    def __init__(self, path: Path, sweep: Sweep, form: Format, first: Resumed) -> None:
        self.path, self.sweep, self.form = path, sweep, form
        self.stream = _part_path(path).open("r+b" if first.blocks else "wb")
        if first.blocks:
            self.stream.truncate(first.size)
            self.stream.seek(first.size)
        else:
            self.stream.write(header(sweep, form))

    def write(self, made: Made) -> None:
        assert isinstance(made.data, bytes)
        self.stream.write(made.data)

    def note(self, state: Progress) -> None:
        """Say beside the file how much of it is whole."""
        self.stream.flush()
        told = {
            "sweep": fingerprint(self.sweep, self.form),
            "blocks": state.blocks,
            "size": self.stream.tell(),
            "rows": state.rows,
            "left_out": state.left_out,
            "problems": dict(state.problems),
        }
        replacement = _note_path(self.path).with_suffix(".new")
        replacement.write_text(json.dumps(told), encoding="utf-8")
        os.replace(replacement, _note_path(self.path))

    def close(self, whole: bool) -> None:
        self.stream.close()
        if whole:
            os.replace(_part_path(self.path), self.path)
            _note_path(self.path).unlink(missing_ok=True)


class _ParquetFile:
    """Parquet in FILE.part, a row group a block; renamed to FILE at the end, removed when interrupted."""

    def __init__(self, path: Path, sweep: Sweep) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError("parquet needs pyarrow: pip install 'llmcalc-roofline[parquet]'") from None
        self.path, self.columns, self.arrow = path, sweep.columns, pyarrow
        self.writer: Any = None

    def write(self, made: Made) -> None:
        assert isinstance(made.data, dict)
        if not made.rows:
            return
        columns = made.data
        table = self.arrow.table({name: self._array(name, columns[name]) for name in self.columns})
        if self.writer is None:
            self.writer = self.arrow.parquet.ParquetWriter(_part_path(self.path), table.schema)
        self.writer.write_table(table)

    def _array(self, name: str, values: Column) -> Any:
        if name == "fits":
            values = np.array([None if value != value else bool(value) for value in values.tolist()], object)
            return self.arrow.array(values, self.arrow.bool_())
        kind = self.arrow.string() if values.dtype.kind == "U" else None
        return self.arrow.array(values.tolist() if kind else values, kind)

    def close(self, whole: bool) -> None:
        if self.writer is not None:
            self.writer.close()
            if whole:
                os.replace(_part_path(self.path), self.path)
            else:
                _part_path(self.path).unlink(missing_ok=True)
