"""Ollama: the text of `ollama run --verbose` and the last message of its API.

Its runner (ollama/ollama, runner/ollamarunner/runner.go) starts the clock of the generation when the prompt's logits
are there and counts the token sampled from them, so N tokens took N − 1 steps; the rate that it prints counts N.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .collector import EVERYTHING, Collector
from .lines import Lines
from .values import Malformed, optional_count, optional_real, optional_text, shown

_LINE: Final = re.compile(
    r"\s{0,8}(total duration|load duration|prompt eval count|prompt eval duration|prompt eval rate|eval count"
    r"|eval duration|eval rate):\s{0,40}(\S.{0,60})"
)
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|µs|μs|us|ns)")
_DURATION_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9}
_BLOCK: Final = 12  # lines of one block at most, blank ones included


def is_record(value: Mapping[str, Any]) -> bool:
    """Whether this is the final message of /api/generate or /api/chat."""
    return "eval_count" in value and "eval_duration" in value


def add_response(value: Mapping[str, Any], line: int, out: Collector) -> None:
    """Add the runs of one API message (durations in nanoseconds)."""
    try:
        numbers = {
            name: (optional_count(value.get(f"{name}_count"), f"{name}_count"),
                   optional_real(value.get(f"{name}_duration"), f"{name}_duration"))
            for name in ("prompt_eval", "eval")
        }  # fmt: skip
        common = {"model_filename": optional_text(value.get("model")), "test_time": value.get("created_at")}
        seconds = {name: (count, duration and duration / 1e9) for name, (count, duration) in numbers.items()}
        _add(seconds, common, line, out)
    except Malformed as error:
        out.problem(line, str(error))


def read_block(lines: Lines, out: Collector) -> bool:
    """Read the block of `--verbose` at the cursor and go beyond it; False where none begins."""
    if not _LINE.match(lines.current[:200]):
        return False
    number, values = lines.number, {}
    for line in lines.ahead(_BLOCK):
        match = _LINE.match(line[:200])
        if (match is None and line.strip()) or (match and match[1] in values):
            break
        lines.index += 1
        if match:
            values[match[1]] = match[2]
        if match and match[1] == "eval rate":
            break
    try:
        _add(
            {name: (_count(values, name), _seconds(values, name)) for name in ("prompt eval", "eval")}, {}, number, out
        )
    except Malformed as error:
        out.problem(number, str(error))
    return True


def _add(
    timed: Mapping[str, tuple[int | None, float | None]], common: Mapping[str, object], line: int, out: Collector
) -> None:
    (prompt_n, prompt_s), (eval_n, eval_s) = timed.values()
    fields = {**common, "engine": "ollama"}
    found = False
    if prompt_n and prompt_s:
        out.add({**fields, "n_prompt": prompt_n, "avg_ts": prompt_n / prompt_s}, line, EVERYTHING)
        found = True
    if eval_n and eval_n > 1 and eval_s:
        notes = None if prompt_n else "prompt length not stated"
        rate = (eval_n - 1) / eval_s
        depth = prompt_n or 0
        out.add({**fields, "n_gen": eval_n, "n_depth": depth, "avg_ts": rate, "notes": notes}, line, EVERYTHING)
        found = True
    if not found:
        raise Malformed("counts or durations of prompt and generation are missing")


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(f"{name} count")
    return None if text is None else optional_count(text.split()[0], f"{name} count")


def _seconds(values: Mapping[str, str], name: str) -> float | None:
    """Seconds of a Go duration: "1m2.5s", "130ms"."""
    text = values.get(f"{name} duration")
    if text is None:
        return None
    parts = _DURATION.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise Malformed(f"{name} duration is {shown(text)}, not a duration such as '1m2.5s'")
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
