"""An Estimate as one HTML page that needs nothing else: no network, no scripts; charts are SVG within it.

Readable on a phone (tables scroll, charts are made narrow and stand one below the other) and in dark mode (charts take
the page's colours). Imports `plots` only while a page is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from ..units import gib
from .explain import factor_rows, operation_rows
from .layout import duration, interval, margin, rate
from .rows import SPEED_COLUMNS, memory_rows, speed_rows, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..efficiency import Efficiency
    from ..estimation import Estimate

CHART: Final = (4.4, 3.5)  # inches: about as wide as a phone, so that its letters need no magnifying
TALL_CHART: Final = (4.6, 4.2)
CURVE_POINTS: Final = 65

STYLE: Final = """
:root { --paper: #ffffff; --ink: #1a1a1a; --muted: #5f5f5f; --grid: #d9d9d9; --card: #f5f6f8; --good: #00704f;
  --bad: #b23c00; --first: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e8e8e8; --muted: #a3a8b0; --grid: #3a3d44; --card: #20232a; --good: #4cc79a;
    --bad: #ff9a62; --first: #4aa8e0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--grid); }
.sub, figcaption, footer { color: var(--muted); font-size: .88rem; margin: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.card { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.3rem; line-height: 1.3; }
.card span { color: var(--muted); font-size: .85rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1rem; }
.charts { margin-top: 1rem; }
figure { margin: 0; } figcaption { padding-top: .3rem; }
figure svg text { paint-order: stroke; stroke: var(--paper); stroke-width: 2px; stroke-linejoin: round; }
figure svg { width: 100%; height: auto; max-width: 34rem; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--muted); font-weight: 600; } th:first-child, td:first-child, .text { text-align: left; }
pre { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; overflow-x: auto; font-size: .85rem; }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
li { margin: .2rem 0; overflow-wrap: anywhere; }
@media print { body { max-width: none; } details > * { display: block; } .charts figure { break-inside: avoid; } }
"""

# What charts are drawn with → what the page's style makes of it, by day and by night.
_THEMED: Final = (
    ("#1a1a1a", "var(--ink)"), ("#6b6b6b", "var(--muted)"), ("#d9d9d9", "var(--grid)"),
    ("#0072b2", "var(--first)"), ("#ffffff", "var(--paper)"),
)  # fmt: skip


def page(e: Estimate, command: str | None = None, efficiency: Efficiency | None = None) -> str:
    """The whole page. `command`: the command line that makes it again. `efficiency`: what the estimate rests on."""
    sections = [
        _head(e),
        _section("Memory", _table(("part", "size"), memory_rows(e)), _charts(e, ("memory",), efficiency)),
        _section("Speed", _table(SPEED_COLUMNS, speed_rows(e)), _ceilings(e), _charts(e, SPEED_CHARTS, efficiency)),
        _section("Roofline", _charts(e, ("roofline",), efficiency)),
        _section("One request", _table(("", "time"), _latency_rows(e))),
        _section("What this rests on", _bullets((*e.basis, *e.notes))),
        _section("Derivation", *_derivation(e)),
        _section("Check it", _check(e, command)),
    ]
    body = "\n".join(sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title(e))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n"
        "<footer>Made by llmcalc. Estimates are ceilings of the datasheet times fitted efficiency; ranges hold 80 % of "
        "runs.</footer>\n</body>\n</html>\n"
    )


SPEED_CHARTS: Final = ("decode", "prefill", "prompt", "batch")


def _head(e: Estimate) -> str:
    w, d, p = e.request.workload, e.decode[min(1, len(e.decode) - 1)], e.prefill[0]
    sub = f"context {w.context:,} tokens reserved" + (f" for {w.parallel} sequences" if w.parallel > 1 else "")
    words = margin(e.memory.margin_bytes).removeprefix("fits, ").removeprefix("does not fit, ")
    mood = {True: "good", False: "bad", None: ""}[e.memory.fits]
    verdict = {True: "fits", False: "does not fit", None: "size unknown"}[e.memory.fits]
    cards = (
        _card(verdict, f"{gib(e.memory.total_bytes)} needed, {words}", mood),
        _card(f"{rate(d.tokens_per_s)} tok/s", f"decode at {d.occupied_tokens:,} tokens, {interval(d.interval_80)}"),
        _card(f"{rate(p.tokens_per_s)} tok/s", f"prefill of {p.prompt_tokens:,}, {interval(p.interval_80)}"),
        _card(duration(e.latency.ttft_s), f"to the first token of {e.latency.prompt_tokens:,} in"),
        _card(duration(e.latency.end_to_end_s), f"for an answer of {e.latency.output_tokens:,} tokens"),
    )
    return (
        f'<header><h1>{escape(title(e))}</h1><p class="sub">{escape(sub)}</p></header>\n'
        f'<div class="cards">{"".join(cards)}</div>'
    )


def _card(figure: str, words: str, mood: str = "") -> str:
    return f'<div class="card"><b class="{mood}">{escape(figure)}</b><span>{escape(words)}</span></div>'


def _section(heading: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = ()) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        marks = (' class="text"' if i in text_columns else "" for i in range(len(row)))
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells(head, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _bullets(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _ceilings(e: Estimate) -> str:
    prefill = rate(max(one.ceiling_tokens_per_s for one in e.prefill))
    decode = rate(e.weights_ceiling_tokens_per_s)
    return (
        f'<p class="sub">Ceilings by datasheet: prefill {prefill} tokens/s; decode {decode} tokens/s '
        "(bandwidth ÷ bytes of weights that a token reads).</p>"
    )


def _latency_rows(e: Estimate) -> list[tuple[str, str]]:
    t = e.latency
    parts = [("queue", t.queue_s), ("tokenising", t.tokenisation_s), ("prefill", t.prefill_s), ("step", t.first_step_s)]
    return [
        *((name, duration(seconds)) for name, seconds in parts if seconds),
        ("first token after", duration(t.ttft_s)),
        ("each further token, on average", duration(t.itl_s)),
        (f"whole answer of {t.output_tokens:,} tokens after", duration(t.end_to_end_s)),
    ]


def _derivation(e: Estimate) -> list[str]:
    """The operations of both phases and the factors, folded away until they are asked for."""
    everyday = min(1, len(e.decode) - 1)
    head, *prefill = operation_rows(e.prefill_time.main, 0)
    _, *decode = operation_rows(e.decode_time.main, everyday)
    factors_head, *factors = factor_rows(e)
    return [
        _folded(
            f"Prefill of {e.prefill[0].prompt_tokens:,} tokens, operation by operation", _table(head, prefill, (3,))
        ),
        _folded(f"Decode at {e.decode[everyday].occupied_tokens:,} tokens in the cache", _table(head, decode, (3,))),
        _folded("Efficiency factors, as multiples of the datasheet's time", _table(factors_head, factors, (3,))),
    ]


def _folded(summary: str, content: str) -> str:
    return f"<details>\n<summary>{escape(summary)}</summary>\n{content}\n</details>"


def _check(e: Estimate, command: str | None) -> str:
    measure = "\n".join(e.check_command.split("; "))
    again = f"<p>This page again:</p><pre>{escape(command)}</pre>" if command else ""
    return (
        f"<p>Measure the same with llama.cpp:</p><pre>{escape(measure)}</pre>"
        "<p>and compare: save what it prints to a file, then</p><pre>llmcalc validate FILE</pre>" + again
    )


def _charts(e: Estimate, kinds: Sequence[str], efficiency: Efficiency | None) -> str:
    figures = "\n".join(_chart(e, kind, efficiency) for kind in kinds)
    return f'<div class="charts">\n{figures}\n</div>'


def _chart(e: Estimate, kind: str, efficiency: Efficiency | None) -> str:
    figure, words = _figure(e, kind, efficiency)
    svg = _inline_svg(figure, kind, words)
    return f"<figure>\n{svg}\n<figcaption>{escape(words)}</figcaption>\n</figure>"


def _figure(e: Estimate, kind: str, efficiency: Efficiency | None) -> tuple[Figure, str]:
    """A chart in a phone's width, and what it shows in a sentence."""
    from .. import plots, speed_curves
    from ..memory_stack import memory_stack
    from ..roofline_view import roofline_view

    with plots.styled():
        made, (ax,) = plots.figure(TALL_CHART if kind == "roofline" else CHART)
        if kind == "memory":
            plots.memory_against_context(memory_stack(e), ax)
            return made, "What lies in the device's memory when a context of this length is reserved."
        if kind == "decode":
            plots.decode_against_context(speed_curves.decode_curve(e, efficiency, points=CURVE_POINTS), ax)
            return made, "Decode slows down as the context fills, for every token reads the cache."
        if kind == "prefill":
            plots.prefill_against_context(speed_curves.prefill_depth_curve(e, efficiency, points=CURVE_POINTS), ax)
            return made, "Reading 512 more tokens of a prompt behind those that are in the cache."
        if kind == "prompt":
            plots.prefill_time_against_prompt(speed_curves.prefill_curve(e, efficiency), ax)
            return made, "Time to read a prompt; the first token follows."
        if kind == "batch":
            plots.throughput_against_batch(speed_curves.batch_curve(e, efficiency), ax)
            return made, "All sequences together, when several are written at once."
        plots.roofline(roofline_view(e, efficiency), ax, brief=True)
        return made, "Below the slope memory is the limit, below the flat roofs arithmetic."


def _inline_svg(figure: Figure, name: str, words: str) -> str:
    """The figure as an SVG element with ids of its own, letters as text, and the page's colours."""
    from .. import plots

    source = plots.picture(figure, "svg", as_text=True).decode()
    svg = source[source.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 role="img" aria-label="{escape(words)}"', svg, count=1)
    for drawn, themed in _THEMED:
        svg = svg.replace(drawn, themed)
    return _own_ids(svg, name)


def _own_ids(svg: str, name: str) -> str:
    """Ids that something refers to get the chart's name before them, others go: a page may not have an id twice."""
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    return re.sub(r'(url\(|href=")#([\w.-]+)', rf"\1#{name}-\2", svg)
