"""A Comparison as a page for the terminal, as Markdown, HTML and plain data."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..units import gib
from .layout import Style, columns, duration, fitted, interval, paragraph, rate
from .tables import markdown_table

if TYPE_CHECKING:
    from ..comparison import Comparison
    from ..estimation import Estimate
    from ..sensitivity import Effect

SCHEMA: Final = "llmcalc.compare/1"

MEMORY_HEAD: Final = ("", "needs", "left", "prompt tok/s", "80 % range", "TTFT")
DECODE_HEAD: Final = ("", "tokens/s", "80 % range", "full ctx", "all together", "first = 1")
EFFECT_HEAD: Final = ("", "decode", "all", "prefill", "TTFT", "memory")


def comparison_page(c: Comparison, style: Style) -> list[str]:
    """The page as lines."""
    labels, legend = _labels(c, style)
    lines = [style.paint(c.same or "Comparison", "bold"), *legend, ""]
    lines += [style.heading("Memory and prompt"), *columns([MEMORY_HEAD, *_memory_rows(c, labels)], "<>>>>>"), ""]
    lines += [style.heading(_decode_heading(c)), *columns([DECODE_HEAD, *_decode_rows(c, labels)], "<>>>>>")]
    for label, effects in zip(labels, c.effects, strict=False):
        lines += ["", *_effects(label, effects, style)]
    for note in _notes(c):
        lines += paragraph(note, style.width, "  · ", "    ")
    return lines


def comparison_markdown(c: Comparison) -> str:
    """Two tables, and one for the sensitivities of each estimate."""
    lines = [f"### {c.same or 'Comparison'}", "", *markdown_table(MEMORY_HEAD, _memory_rows(c, c.names)), ""]
    lines += markdown_table(DECODE_HEAD, _decode_rows(c, c.names))
    for name, effects in zip(c.names, c.effects, strict=False):
        lines += ["", f"**{name}**", "", *markdown_table(EFFECT_HEAD, [_effect_row(one) for one in effects])]
    return "\n".join([*lines, *(["", *(f"- {note}" for note in _notes(c))] if _notes(c) else [])])


def comparison_html(c: Comparison) -> str:
    """The two tables for a notebook."""
    tables = ((MEMORY_HEAD, _memory_rows(c, c.names)), (DECODE_HEAD, _decode_rows(c, c.names)))
    return f"<h4>{html.escape(c.same or 'Comparison')}</h4>" + "".join(_html_table(head, rows) for head, rows in tables)


def comparison_data(c: Comparison) -> dict[str, Any]:
    """Names with the objects of `llmcalc estimate`, and sensitivities as relative changes."""
    entries: list[dict[str, Any]] = []
    for i, (name, estimate) in enumerate(zip(c.names, c.estimates, strict=True)):
        entry: dict[str, Any] = {"name": name, "estimate": estimate.to_dict(), "decode_relative": _relative(c, i)}
        if c.effects:
            entry["sensitivity"] = [_effect_data(one) for one in c.effects[i]]
        entries.append(entry)
    return {"schema": SCHEMA, "same": c.same, "entries": entries, "problems": list(c.problems)}


def _labels(c: Comparison, style: Style) -> tuple[tuple[str, ...], list[str]]:
    """Names as they stand in the tables, and the lines that explain them where too long ones become numbers."""
    tables = ((MEMORY_HEAD, _memory_rows(c, c.names)), (DECODE_HEAD, _decode_rows(c, c.names)))
    lines = [line for head, rows in tables for line in columns([head, *rows], "<>>>>>")]
    if max(map(len, lines)) <= style.width:
        return c.names, []
    numbers = tuple(f"[{i}]" for i in range(1, len(c.names) + 1))
    return numbers, [f"  {number} {name}" for number, name in zip(numbers, c.names, strict=True)]


def _memory_rows(c: Comparison, labels: Sequence[str]) -> list[tuple[str, ...]]:
    return [(label, *_memory_cells(e)) for label, e in zip(labels, c.estimates, strict=True)]


def _memory_cells(e: Estimate) -> tuple[str, ...]:
    prefill = e.prefill[0]
    return (
        gib(e.memory.device_bytes),
        _left(e.memory.margin_bytes),
        rate(prefill.tokens_per_s),
        interval(prefill.interval_80),
        duration(e.latency.ttft_s),
    )


def _left(margin_bytes: int | None) -> str:
    if margin_bytes is None:
        return "unknown"
    return gib(margin_bytes) if margin_bytes >= 0 else f"lacks {gib(-margin_bytes)}"


def _decode_rows(c: Comparison, labels: Sequence[str]) -> list[tuple[str, ...]]:
    return [
        (label, *_decode_cells(e), f"{_relative(c, i):.2f}")
        for i, (label, e) in enumerate(zip(labels, c.estimates, strict=True))
    ]


def _decode_cells(e: Estimate) -> tuple[str, ...]:
    everyday, full = e.decode[min(1, len(e.decode) - 1)], e.decode[-1]
    together = rate(everyday.aggregate_tokens_per_s)
    return rate(everyday.tokens_per_s), interval(everyday.interval_80), rate(full.tokens_per_s), together


def _relative(c: Comparison, i: int) -> float:
    first, one = (e.decode[min(1, len(e.decode) - 1)] for e in (c.estimates[0], c.estimates[i]))
    return one.tokens_per_s / first.tokens_per_s


def _decode_heading(c: Comparison) -> str:
    several = any(e.request.workload.parallel > 1 for e in c.estimates)
    return "Decode, tokens/s of one sequence" + (" and of all together" if several else "")


def _effects(label: str, effects: Sequence[Effect], style: Style) -> list[str]:
    rows = [EFFECT_HEAD, *(_effect_row(one) for one in effects)]
    return [
        style.heading(f"What would change {label} (decode with the context full)"),
        *fitted(rows, "<>>>>>", style.width, 0),
    ]


def _effect_row(one: Effect) -> tuple[str, ...]:
    size = one.device_bytes
    memory = ("+" if size > 0 else "-") + gib(abs(size)) if size else ""
    return one.change, *(_percent(x) for x in (one.decode, one.aggregate, one.prefill, one.ttft)), memory


def _percent(change: float) -> str:
    return f"{change:+.1%}".replace("%", " %") if abs(change) >= 0.0005 else "="


def _effect_data(one: Effect) -> dict[str, Any]:
    return {
        "change": one.change,
        "decode": one.decode,
        "aggregate": one.aggregate,
        "prefill": one.prefill,
        "ttft": one.ttft,
        "device_bytes": one.device_bytes,
        "fits": one.changed.fits,
    }


def _notes(c: Comparison) -> list[str]:
    notes = [f"left out: {problem}" for problem in c.problems]
    if any(e.memory.fits is False for e in c.estimates):
        notes.append("What lacks memory does not run like this: its speeds are those it would have with enough of it.")
    return notes


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line("th", head) + "".join(line("td", row) for row in rows) + "</table>"
