"""Benchmark cards for the terminal: one table a kind of figure, so that different kinds are not read side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calibration.benchmark_card import KINDS, NOISY
from ..units import GB
from .layout import Style, columns, paragraph, rate

if TYPE_CHECKING:
    from ..calibration.benchmark_card import Benchmark, Card, Figure

COLUMNS = ("test", "tokens/s", "±", "GB/s", "of bandwidth", "TFLOP/s", "of peak", "of estimate")


def benchmark_page(benchmark: Benchmark, style: Style) -> list[str]:
    """All cards as lines."""
    lines: list[str] = []
    for card in benchmark.cards:
        lines += ([""] if lines else []) + _card(card, style)
    if benchmark.notes:
        lines += ["", style.heading("Notes")]
        lines += [line for note in benchmark.notes for line in paragraph(note, style.width, "  · ", "    ")]
    return lines


def _card(card: Card, style: Style) -> list[str]:
    backend = f" ({card.backend})" if card.backend else ""
    lines = [style.paint(f"{card.model} · {card.device}{backend}", "bold")]
    about = ", ".join(filter(None, (f"build {card.build}" if card.build else "", *card.settings)))
    lines += [style.paint(line, "dim") for line in paragraph(about, style.width, "", "")]
    for kind, title in KINDS.items():
        figures = card.of_kind(kind)
        if figures:
            lines += ["", style.heading(title), *_table(figures), *_remarks(figures, style)]
    if card.missing:
        lines += ["", style.heading("Not stated")]
        lines += [line for text in card.missing for line in paragraph(text, style.width, "  · ", "    ")]
    return lines


def _table(figures: list[Figure]) -> list[str]:
    rows = [COLUMNS, *map(_row, figures)]
    kept = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows[1:])]
    return columns([[row[i] for i in kept] for row in rows], "<" + ">" * (len(kept) - 1))


def _row(figure: Figure) -> tuple[str, ...]:
    noise = figure.noise
    judged = figure.achieved
    cells = (figure.test, rate(figure.run.t_s), _percent(noise) if noise is not None else "")
    if judged is None:
        return (*cells, "", "", "", "", "")
    return (
        *cells,
        rate(judged.bytes_per_s / GB),
        _percent(judged.of_bandwidth),
        rate(judged.flop_per_s / 1e12),
        f"{_percent(judged.of_peak)} {judged.peak}" if judged.of_peak is not None else "",
        _percent(judged.of_estimate),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1f} %"


def _remarks(figures: list[Figure], style: Style) -> list[str]:
    texts = []
    for reason in dict.fromkeys(figure.reason for figure in figures if figure.reason):
        tests = ", ".join(figure.test for figure in figures if figure.reason == reason)
        texts.append(f"{tests}: not set against roofs ({reason}).")
    noisy = [figure.test for figure in figures if (figure.noise or 0.0) > NOISY]
    if noisy:
        texts.append(f"{', '.join(noisy)}: repetitions vary by more than {NOISY:.0%}; something else was running?")
    return [line for text in texts for line in paragraph(text, style.width)]
