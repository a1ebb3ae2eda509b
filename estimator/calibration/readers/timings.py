"""Timings of llama-cli and llama-server: log lines of every version, and the `timings` object of JSON responses.

Sources: llama.cpp b11434, src/llama-context.cpp, common/sampling.cpp, tools/server/server-context.cpp, and earlier
versions of them. The library counts decode steps ("runs"). The server counts tokens, and the first of them is sampled
from the prompt's logits before its clock starts: N tokens took N − 1 steps, whatever rate the version printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .collector import EVERYTHING, Collector
from .record import Draft
from .values import Malformed, optional_count, optional_real, optional_text

_EVAL: Final = re.compile(
    r"(prompt eval|generation eval|\beval) +time {0,10}= {0,20}([\d.]{1,20}) ms / {0,10}(\d{1,12}) (tokens?|runs?)\b"
)
_EVAL_BROKEN: Final = re.compile(r"(?:prompt eval|generation eval|\beval) +time {0,10}=")
_TASK: Final = re.compile(r"\bid +(-?\d{1,9}) +\| +task +(-?\d{1,12}) +\|")
_ACCEPTED: Final = re.compile(r"draft acceptance(?: rate)? = ")
_RELEASE: Final = re.compile(r"stop processing: (?:n_tokens|n_past) = (\d{1,9})")
_CLI_RATES: Final = re.compile(r"\[ Prompt: ([\d.]{1,12}) t/s \| Generation: ([\d.]{1,12}) t/s \]")
_FINGERPRINT: Final = re.compile(r"b(\d{1,6})-(\w{4,40})")

_SHARED_SERVER: Final = (
    "this request was served together with others, so its rate is neither a single stream's nor the total"
)


class TimingLines:
    """Reads log lines with timings; knows the prompt that a decode line belongs to, and which requests overlap."""

    def __init__(self, out: Collector) -> None:
        self._out = out
        self._prompts: dict[str, int] = {}  # task → tokens of its prompt
        self._drafts: dict[str, list[Draft]] = {}  # task → its runs
        self._active: set[str] = set()
        self._shared: set[str] = set()
        self._last_task = ""

    def read(self, line: str, number: int) -> bool:
        """Take `line` when it tells of timings or of requests; False otherwise."""
        if len(line) > 2000:
            return False
        task_match = _TASK.search(line)
        task = task_match[2] if task_match else ""
        if task_match and "processing task" in line:
            return self._launch(task)
        if task_match and (released := _RELEASE.search(line)):
            return self._release(task, int(released[1]))
        if "time" in line and _EVAL_BROKEN.search(line):
            return self._timing(line, task, number)
        if "draft acceptance" in line and _ACCEPTED.search(line):
            return self._drafted(task)
        return "Generation:" in line and self._cli_rates(line, number)

    def _launch(self, task: str) -> bool:
        self._active.add(task)
        if len(self._active) == 2:
            self._shared |= self._active
        elif len(self._active) > 2:
            self._shared.add(task)
        return True

    def _release(self, task: str, n_tokens: int) -> bool:
        """At release the cache holds prompt + generated − 1: what of the prompt came from the cache shows now."""
        self._active.discard(task)
        for draft in self._drafts.pop(task, []):
            n_gen = draft.fields.get("n_gen")
            if isinstance(n_gen, int):
                depth = n_tokens - (n_gen - 1)
                self._set_cached(task, draft, depth)
        self._prompts.pop(task, None)
        return True

    def _set_cached(self, task: str, decode: Draft, depth: int) -> None:
        if depth >= self._prompts.get(task, 0):
            decode.fields["n_depth"] = depth

    def _timing(self, line: str, task: str, number: int) -> bool:
        match = _EVAL.search(line)
        if match is None:
            self._out.problem(number, "this timing line cannot be read; expected 'eval time = … ms / … runs'")
            return True
        kind, milliseconds, count = match[1], float(match[2]) if match[2].count(".") < 2 else 0.0, int(match[3])
        if task in self._shared:
            self._out.problem(number, _SHARED_SERVER)
        elif kind == "prompt eval":
            self._prompts[task] = count
            self._add({"n_prompt": count}, count, milliseconds, task, number)
        else:
            steps = count if match[4].startswith("run") and kind == "eval" else count - 1
            self._add({"n_gen": count, "n_depth": self._prompts.get(task, 0)}, steps, milliseconds, task, number)
        return True

    def _add(self, fields: dict[str, object], steps: int, milliseconds: float, task: str, number: int) -> None:
        if steps < 1 or milliseconds <= 0:
            return  # nothing was timed: no prompt, or a single token
        draft = self._out.add({**fields, "avg_ts": steps * 1e3 / milliseconds}, number, EVERYTHING)
        self._last_task = task
        if "n_prompt" in fields:
            self._drafts[task] = []
        self._drafts.setdefault(task, []).append(draft)

    def _drafted(self, task: str) -> bool:
        for draft in self._drafts.get(task or self._last_task, []):
            if "n_gen" in draft.fields:
                draft.fields["drafted"] = True
        return True

    def _cli_rates(self, line: str, number: int) -> bool:
        match = _CLI_RATES.search(line)
        if match is None:
            return False
        notes = "prompt and output length not stated"
        self._out.add({"length_unknown": True, "avg_ts": match[2], "notes": notes}, number, EVERYTHING)
        self._out.problem(
            number, "the rate of the prompt is of no use without its length, which this line does not say"
        )
        return True


def is_response(value: Mapping[str, Any]) -> bool:
    """Whether this is a response with a `timings` object, or such an object itself."""
    timings = value.get("timings", value)
    return isinstance(timings, dict) and "prompt_ms" in timings and "predicted_ms" in timings


def add_response(response: Mapping[str, Any], line: int, out: Collector) -> None:
    """Add the runs of one response: its prompt and its generation; parts of a stream but the last say nothing yet."""
    if _unfinished(response):
        return
    try:
        for fields in _runs(response):
            out.add(fields, line, EVERYTHING)
    except Malformed as error:
        out.problem(line, str(error))


def _unfinished(response: Mapping[str, Any]) -> bool:
    choices = response.get("choices")
    if isinstance(choices, list) and choices:
        return all(isinstance(choice, dict) and choice.get("finish_reason", 0) is None for choice in choices)
    return response.get("stop") is False


def _runs(response: Mapping[str, Any]) -> list[dict[str, object]]:
    timings = response.get("timings", response)
    prompt_n, predicted_n, cached, drafted = (
        optional_count(timings.get(name), name) or 0 for name in ("prompt_n", "predicted_n", "cache_n", "draft_n")
    )
    prompt_ms, predicted_ms = (optional_real(timings.get(name), name) or 0.0 for name in ("prompt_ms", "predicted_ms"))
    common = _common(response)
    runs: list[dict[str, object]] = []
    if prompt_n and prompt_ms:
        runs.append({**common, "n_prompt": prompt_n, "n_depth": cached, "avg_ts": prompt_n * 1e3 / prompt_ms})
    if predicted_n > 1 and predicted_ms:
        depth = cached + prompt_n
        rate = (predicted_n - 1) * 1e3 / predicted_ms
        runs.append({**common, "n_gen": predicted_n, "n_depth": depth, "avg_ts": rate, "drafted": drafted > 0})
    if not runs:
        raise Malformed("this response timed neither a prompt nor more than one generated token")
    return runs


def _common(response: Mapping[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {"model_filename": optional_text(response.get("model"))}
    match = _FINGERPRINT.fullmatch(str(response.get("system_fingerprint") or ""))
    if match:
        fields |= {"build_number": match[1], "build_commit": match[2]}
    return fields
