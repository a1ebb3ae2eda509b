"""JSON in a text: arrays, objects, one object a line, server-sent events, between whatever else the text holds.

Objects are decoded one by one, so a file that was cut off, or has one bad object, loses only that one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from . import batched_bench, ollama, timings
from .collector import Collector
from .lines import Lines

_OPENING: Final = re.compile(r"\s{0,400}(?:data:\s{0,4})?(?=\{|\[\s*(?:\{|\]|$))")
_BETWEEN: Final = re.compile(r"[\s,\[\]]{1,4000}")
_DECODER: Final = json.JSONDecoder()
_MAX_DEPTH: Final = 6
_COUNTING: Final = 64  # an error counts the lines before it, this many times faster than it decodes
_FAILURE: Final = 300  # characters that could be decoded while one error is reported
_EFFORT: Final = 16  # characters that may be looked at in vain, per character of the text

JsonObject = dict[str, Any]


class JsonReader:
    """Reads the JSON that begins at the cursor; gives up on texts made to waste its time."""

    def __init__(self, lines: Lines, out: Collector) -> None:
        self._lines = lines
        self._out = out
        self._effort = _EFFORT * (len(lines.text) + 10_000)

    def read(self) -> bool:
        """Read the JSON at the cursor and go beyond it; False where none begins."""
        opening = _OPENING.match(self._lines.current[:500]) if self._effort > 0 else None
        if opening is None:
            return False
        position = self._lines.offset + opening.end()
        text = self._lines.text
        while position < len(text):
            between = _BETWEEN.match(text, position)
            position = between.end() if between else position
            if not text.startswith("{", position):
                break
            end = self._object(position)
            if end is None:
                self._lines.move_to(self._line_end(position))
                return True
            position = end
        self._lines.move_to(position)
        return True

    def _object(self, start: int) -> int | None:
        """Decode the object at `start` and hand it on; its end, or None where it is malformed."""
        number = self._lines.number_at(start)
        try:
            value, end = _DECODER.raw_decode(self._lines.text, start)
        except json.JSONDecodeError as error:
            self._spend(number, error.pos - start + error.pos // _COUNTING)
            at = self._lines.number_at(error.pos)
            place = "" if at == number else f" at line {at}"
            self._out.problem(number, f"this JSON object is malformed or cut off{place} ({error.msg})")
            return None
        except (RecursionError, ValueError) as error:
            self._spend(number, len(self._lines.text) - start)
            reason = "is too deeply nested" if isinstance(error, RecursionError) else "holds a number too long to read"
            self._out.problem(number, f"this JSON object {reason}")
            return None
        self._hand_on(value, number)
        return end

    def _spend(self, number: int, effort: int) -> None:
        self._effort -= effort + _FAILURE
        if self._effort <= 0:
            self._out.problem(number, "too much malformed JSON; what follows of it was not read")

    def _line_end(self, offset: int) -> int:
        end = self._lines.text.find("\n", offset)
        return len(self._lines.text) if end < 0 else end + 1

    def _hand_on(self, value: JsonObject, number: int) -> None:
        records = list(_records(value, 0))
        for record in records:
            dispatch(record, number, self._out)
        if not records and not _is_part_of_stream(value):
            self._out.foreign(number)


def dispatch(record: JsonObject, number: int, out: Collector) -> None:
    """Hand a record to the reader of its kind."""
    if _is_llama_bench(record):
        out.add(record, number)
    elif batched_bench.is_record(record):
        batched_bench.add(record, number, out)
    elif ollama.is_record(record):
        ollama.add_response(record, number, out)
    else:
        timings.add_response(record, number, out)


def _records(value: object, depth: int) -> Iterator[JsonObject]:
    """The benchmark records in a JSON value, at any place in it that is not too deep."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, depth + 1)
    elif isinstance(value, dict):
        if _is_record(value):
            yield value
        else:
            for item in value.values():
                yield from _records(item, depth + 1)


def _is_record(value: JsonObject) -> bool:
    return (
        _is_llama_bench(value)
        or batched_bench.is_record(value)
        or ollama.is_record(value)
        or timings.is_response(value)
    )


def _is_part_of_stream(value: JsonObject) -> bool:
    """Whether this is a message of a streamed response before the last, which holds the figures."""
    return value.get("done") is False or value.get("stop") is False or value.get("object") == "chat.completion.chunk"


def _is_llama_bench(value: JsonObject) -> bool:
    return ("n_prompt" in value or "n_gen" in value) and any(
        name in value for name in ("avg_ts", "avg_ns", "samples_ts", "samples_ns")
    )
