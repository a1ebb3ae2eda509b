"""What reading one file gathers: drafts of runs, finished runs, problems, and the context that log lines give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final

from ..runs import Origin, Run
from .context import Context
from .record import Draft, Fields, run_of
from .values import Malformed

MAX_PROBLEMS: Final = 200  # of one file; more of them say nothing new
DEVICES: Final = frozenset({"gpu_info", "cpu_info"})
EVERYTHING: Final = DEVICES | {
    "backends", "build_number", "build_commit", "model_filename", "model_type", "model_size", "model_n_params",
    "architecture", "n_gpu_layers", "partly_offloaded", "n_batch", "n_ubatch", "n_threads", "flash_attn",
    "type_k", "type_v",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Something that could not be read: file, line from 1 (0: the file as a whole) and the reason, one sentence."""

    file: str
    line: int
    reason: str
    id: str | None = None  # of a row that has one
    more_lines: int = 0  # that it stands for, without a place each

    @property
    def lines(self) -> int:
        """How many lines could not be read; 0 where it is the file as a whole."""
        return self.more_lines or (1 if self.line else 0)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class Collector:
    """Runs and problems of one file, in the order of its lines."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.context = Context()
        self.last_table: list[Draft] = []  # Markdown rows that the next "build: …" line speaks of
        self.batched_settings: dict[str, str] = {}  # of llama-batched-bench, from the line before its table
        self._entries: list[Draft | Run] = []
        self._problems: list[Problem] = []
        self._problem_count = 0
        self._foreign: list[int] = []

    def add(self, fields: Fields, line: int, from_context: Container[str] = DEVICES) -> Draft:
        """Take a record: its own fields count; the context may fill in those of `from_context`."""
        own = {name: value for name, value in fields.items() if value is not None}
        known = self.context.known()
        if own.get("backends", known.get("backends")) != known.get("backends"):
            known.pop("gpu_info", None)  # devices of another backend
        context = {name: value for name, value in known.items() if name in from_context}
        draft = Draft({**context, **own}, line)
        self._entries.append(draft)
        return draft

    def add_run(self, run: Run) -> None:
        """Take a run that is complete already."""
        self._entries.append(run)

    def problem(self, line: int, reason: str, id: str | None = None) -> None:
        """Report line `line`; of very many only the first are kept, and their number."""
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(self.file, line, reason, id or None))

    def foreign(self, line: int) -> None:
        """Note an object that is no benchmark record."""
        self._foreign.append(line)

    def finish(self) -> tuple[list[Run], list[Problem]]:
        """All runs and problems."""
        runs = [run for entry in self._entries if (run := self._run(entry)) is not None]
        if self._foreign:
            self.problem(self._foreign[0], _foreign_reason(len(self._foreign)))
        problems = sorted(self._problems, key=lambda problem: problem.line)
        if self._problem_count > len(problems):
            more = self._problem_count - len(problems)
            problems.append(Problem(self.file, 0, f"{more} more lines are malformed", more_lines=more))
        return _with_ids(runs), problems

    def _run(self, entry: Draft | Run) -> Run | None:
        if isinstance(entry, Run):
            return entry
        try:
            return run_of(entry.fields, Origin(self.file, entry.line))
        except Malformed as error:
            self.problem(entry.line, str(error))
            return None


def _foreign_reason(count: int) -> str:
    return (
        "this object is no benchmark record" if count == 1 else f"{count} objects from here on are no benchmark records"
    )


def _with_ids(runs: list[Run]) -> list[Run]:
    """Runs with an id each: that of the source, or file:line, numbered where a line gave several."""
    given: Counter[str] = Counter()
    result = []
    for run in runs:
        if run.id is None:
            place = str(run.origin)
            given[place] += 1
            run = replace(run, id=place if given[place] == 1 else f"{place}#{given[place]}")
        result.append(run)
    return result
