"""Trace files: when requests came and how long their prompts and outputs were, from CSV or JSON lines.

Imports `errors` and `lengths`. Column names of the Azure, BurstGPT and Mooncake traces are known beside plain ones.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from .errors import InputError
from .lengths import TracedLengths

_PROMPT: Final = (
    "prompt",
    "prompt_tokens",
    "input_tokens",
    "input_length",
    "contexttokens",
    "request tokens",
    "prompt_len",
)
_OUTPUT: Final = (
    "output", "output_tokens", "completion_tokens", "output_length", "generatedtokens", "response tokens", "output_len",
)  # fmt: skip
_SECONDS: Final = {"arrival_s": 1.0, "timestamp_s": 1.0, "arrival_ms": 1e-3, "timestamp_ms": 1e-3}
_DATES: Final = ("timestamp", "time", "arrival")


@dataclass(frozen=True)
class Trace:
    """Recorded requests in order of arrival; `arrivals_s` counts from the first, None where no time was recorded."""

    lengths: TracedLengths
    arrivals_s: tuple[float, ...] | None = None

    @property
    def rate_per_s(self) -> float | None:
        """Mean arrival rate; None without times or with fewer than two of them."""
        if self.arrivals_s is None or len(self.arrivals_s) < 2 or self.arrivals_s[-1] <= 0:
            return None
        return (len(self.arrivals_s) - 1) / self.arrivals_s[-1]


def read_trace(path: str | Path) -> Trace:
    """Requests of a .csv, .jsonl or .ndjson file.

    Needs a prompt and an output column in tokens; an arrival column is optional: `arrival_s`, `arrival_ms`, or
    `timestamp` with dates. Raises InputError with file, line and what would be right.
    """
    file = Path(path)
    rows = [(line, _request(row, f"{file.name}, line {line}")) for line, row in _rows(file)]
    if not rows:
        raise InputError(f"{file.name}: holds no requests")
    timed = [request[2] is not None for _, request in rows]
    if any(timed) and not all(timed):
        raise InputError(f"{file.name}, line {rows[timed.index(False)][0]}: has no arrival time, though others do")
    requests = [request for _, request in rows]
    if not all(timed):
        prompts, outputs, _ = zip(*requests, strict=True)
        return Trace(TracedLengths(prompts, outputs))
    requests.sort(key=lambda request: request[2] or 0.0)
    prompts, outputs, times = zip(*requests, strict=True)
    return Trace(TracedLengths(prompts, outputs), tuple(time - times[0] for time in times))


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    """(line, record with lower-case names) of a file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        return _json_rows(file, text)
    if file.suffix.lower() == ".csv":
        return _csv_rows(file, text)
    raise InputError(f"{file.name}: a trace is a .csv or .jsonl file")


def _json_rows(file: Path, text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for line, record in enumerate(text.splitlines(), 1):
        if not record.strip():
            continue
        try:
            row = json.loads(record)
        except ValueError as error:
            raise InputError(f"{file.name}, line {line}: is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f'{file.name}, line {line}: must be an object such as {{"prompt": 512, "output": 128}}')
        yield line, {str(name).strip().lower(): value for name, value in row.items()}


def _csv_rows(file: Path, text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    reader = csv.reader(text.splitlines())
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        for row in reader:
            if row and any(cell.strip() for cell in row):
                yield reader.line_num, dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise InputError(f"{file.name}, line {reader.line_num}: is no CSV: {error}") from None


def _request(row: Mapping[str, object], where: str) -> tuple[int, int, float | None]:
    return _tokens(row, _PROMPT, where), _tokens(row, _OUTPUT, where), _arrival_s(row, where)


def _tokens(row: Mapping[str, object], names: tuple[str, ...], where: str) -> int:
    name = next((name for name in names if name in row), None)
    if name is None:
        raise InputError(f"{where}: has no {names[0]} column; known names: {', '.join(names)}")
    tokens = _number(row[name], f"{where}, {name}")
    if tokens < 1 or tokens != int(tokens):
        raise InputError(f"{where}, {name}: {row[name]!r} is no whole number of at least 1 token")
    return int(tokens)


def _arrival_s(row: Mapping[str, object], where: str) -> float | None:
    for name, factor in _SECONDS.items():
        if name in row:
            return _number(row[name], f"{where}, {name}") * factor
    column = next((name for name in _DATES if name in row), None)
    if column is None:
        return None
    try:
        date = datetime.fromisoformat(_short_fraction(str(row[column]).strip()))
    except ValueError:
        raise InputError(
            f"{where}, {column}: {row[column]!r} is no date; name the column arrival_s or arrival_ms if it counts time"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()


def _short_fraction(date: str) -> str:
    """A date with at most microseconds, and "+00:00" for "Z": all that Python 3.10 reads."""
    head, point, fraction = date.replace("Z", "+00:00").partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    return head + point + digits[:6].ljust(6, "0") + fraction[len(digits) :] if point else head


def _number(value: object, where: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{where}: {value!r} is no number") from None
    if not math.isfinite(number):
        raise InputError(f"{where}: {value!r} is no finite number")
    return number
