"""Tables with a header line and delimiters: llama-bench's CSV, and measurement files in this project's columns.

Comma, semicolon and tab are told apart by the header, which also says what kind of table it is.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Final

from . import corpus
from .collector import Collector
from .lines import Lines
from .values import Malformed

_DELIMITERS: Final = ",;\t"
_RATES: Final = ("t_s", "avg_ts", "avg_ns")  # one of these is a column of every table
_MAX_HEADER: Final = 4000
_MAX_JOINED: Final = 20  # lines that one quoted value may reach over

AddRow = Callable[[dict[str, str], int], None]


def read_table(lines: Lines, out: Collector) -> bool:
    """Read the table whose header is at the cursor and go beyond it; False where there is none."""
    header, delimiter = _header(lines.current)
    add = _kind(header, out)
    if add is None:
        return False
    lines.index += 1
    blank_before = False
    while not lines.at_end and not _kind(_header(lines.current)[0], out):
        if not lines.current.strip():
            blank_before = True
            lines.index += 1
            continue
        number = lines.number
        cells, used = _cells(lines, delimiter)
        fits = cells is not None and len(cells) == len(header)
        if not fits and (blank_before or (used == 1 and _is_talk(lines.current, delimiter))):
            if blank_before:
                break
            lines.index += 1
            continue
        lines.index += used
        _take(cells, header, number, add, out)
    return True


def _take(cells: list[str] | None, header: list[str], number: int, add: AddRow, out: Collector) -> None:
    if cells is None:
        out.problem(number, "a quoted value in this line is not closed")
        return
    if len(cells) != len(header):
        out.problem(number, f"{len(cells)} values where the header has {len(header)} columns")
        return
    row = dict(zip(header, cells, strict=True))
    try:
        add(row, number)
    except Malformed as error:
        out.problem(number, str(error), row.get("id"))


def _header(line: str) -> tuple[list[str], str]:
    """Column names and delimiter of a header line; no names where the line is none.

    Columns that are not known may be called anything, or nothing; no name may stand twice.
    """
    folded = line.lower()
    if len(line) > _MAX_HEADER or not any(name in folded for name in _RATES):
        return [], ","
    delimiter = max(_DELIMITERS, key=line.count)
    try:
        cells = next(csv.reader([folded], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return [], delimiter
    names = [name.strip() for name in cells]
    named = [name for name in names if name]
    return (names if len(set(named)) == len(named) else []), delimiter


def _kind(header: list[str], out: Collector) -> AddRow | None:
    names = set(header)
    if names >= corpus.REQUIRED:
        return lambda row, number: out.add_run(corpus.run_of(row, out.file, number))
    if names & {"n_prompt", "n_gen"} and names & {"avg_ts", "avg_ns"}:
        return lambda row, number: _add_llama_bench(row, number, out)
    return None


def _add_llama_bench(row: dict[str, str], number: int, out: Collector) -> None:
    out.add(row, number)


def _cells(lines: Lines, delimiter: str) -> tuple[list[str] | None, int]:
    """The values of the record at the cursor and the lines it takes; None where a quote is not closed."""
    joined = ""
    for used, line in enumerate(lines.ahead(_MAX_JOINED), start=1):
        joined = line if used == 1 else f"{joined}\n{line}"
        if joined.count('"') % 2 == 0:
            try:
                return next(csv.reader([joined], delimiter=delimiter)), used
            except (csv.Error, StopIteration):
                return None, used
    return None, 1


def _is_talk(line: str, delimiter: str) -> bool:
    """Whether a line among the rows is a tool's progress message rather than a damaged row."""
    return delimiter not in line and '"' not in line and any(mark in line for mark in (": ", "...", "ggml", "llama"))
