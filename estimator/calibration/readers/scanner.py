"""One text → runs and problems: every line goes to the reader that knows it, by content alone."""

from __future__ import annotations

from ..runs import Run
from . import batched_bench, delimited, markdown, ollama
from .collector import Collector, Problem
from .json_records import JsonReader
from .lines import Lines
from .sql import SqlReader
from .timings import TimingLines


def scan(text: str, file: str) -> tuple[list[Run], list[Problem]]:
    """Runs in `text` and what in it could not be read; `file` is the name to report."""
    lines, out = Lines(text), Collector(file)
    json_reader, sql_reader, timing_lines = JsonReader(lines, out), SqlReader(lines, out), TimingLines(out)
    while not lines.at_end:
        line = lines.current
        if not line.strip():
            lines.index += 1
        elif (
            json_reader.read() or sql_reader.read() or delimited.read_table(lines, out) or ollama.read_block(lines, out)
        ):
            continue
        elif (
            timing_lines.read(line, lines.number)
            or markdown.read_build(line, out)
            or batched_bench.read_config(line, out)
            or out.context.read(line)
            or not markdown.read_table(lines, out)
        ):
            lines.index += 1
    return out.finish()
