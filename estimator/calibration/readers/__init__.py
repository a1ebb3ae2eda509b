"""Readers of benchmark output: whatever llama.cpp's tools, Ollama and people print → `Run`.

The format is told by the content, never by a file's name. Imports `runs`, and of the package `errors`, `units` and
`file_types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError
from ..runs import Run
from .collector import Problem
from .scanner import scan
from .sources import Source, texts

__all__ = ["Problem", "ReadResult", "Source", "read_runs"]


@dataclass(frozen=True)
class ReadResult:
    """Runs in the order they were read, and what could not be read."""

    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]


def read_runs(source: Source | Sequence[Source]) -> ReadResult:
    """All runs in `source`: a file, a folder (with its subfolders), a text stream, a text, or several of these.

    A string is benchmark output, unless it is one line that names an existing file; `Path("-")` is standard input.
    Reads llama-bench's JSON, JSON lines, CSV, SQL and Markdown of every version, llama-batched-bench, timing lines of
    llama-cli and llama-server, `timings` of the server's responses, Ollama's `--verbose` and API messages, and
    measurement files in this project's columns; several of them may stand in one text, with prose between. A malformed
    line is a problem, and the others count. Raises InputError for what cannot be opened or is no text.
    """
    sources = [source] if isinstance(source, str) or not isinstance(source, Sequence) else source
    runs: list[Run] = []
    problems: list[Problem] = []
    for each in sources:
        for name, text in texts(each):
            if isinstance(text, InputError):
                problems.append(Problem(name, 0, str(text).removeprefix(f"{name}: ")))
                continue
            found, unread = scan(text, name)
            runs += found
            problems += unread or ([] if found else [Problem(name, 0, "no benchmark output that is known here")])
    return ReadResult(tuple(runs), tuple(problems))
