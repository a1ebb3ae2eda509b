"""Aligned columns, bars and colours for terminals: how text is set, not what it says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from ..frozen_dataclass import dataclass
from ..units import gib

_ANSI: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
BAR_FULL: Final = "█"
BAR_EMPTY: Final = "░"


@dataclass(frozen=True)
class Style:
    """What the place of output allows: its width in columns, and whether colours show."""

    width: int = 80
    color: bool = False

    def paint(self, text: str, *names: str) -> str:
        """`text` in the named colours, or as it is where colours do not show."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_ANSI[name] for name in names)}m{text}\x1b[0m"

    def heading(self, text: str, right: str = "") -> str:
        """A section's first line, with a remark set against the right margin where there is room for one."""
        gap = self.width - len(text) - len(right)
        return self.paint(text, "bold") + (" " * max(gap, 2) + right if right else "")


def columns(rows: Sequence[Sequence[str]], align: str, indent: int = 2, gap: int = 2) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell. `align` has one of < and > a column."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(align))]
    lines = []
    for row in rows:
        cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)]
        lines.append((" " * indent + (" " * gap).join(cells)).rstrip())
    return lines


def fitted(
    rows: Sequence[Sequence[str]], align: str, width: int, shortened: int, indent: int = 2, gap: int = 2
) -> list[str]:
    """`columns`, with the cells of column `shortened` cut, and an ellipsis at their end, where lines are too wide."""
    over = max(map(len, columns(rows, align, indent, gap)), default=0) - width
    if over <= 0:
        return columns(rows, align, indent, gap)
    room = max(max(len(row[shortened]) for row in rows) - over, 8)
    cut = [
        [cell if i != shortened or len(cell) <= room else f"{cell[: room - 1]}…" for i, cell in enumerate(row)]
        for row in rows
    ]
    return columns(cut, align, indent, gap)


def paragraph(text: str, width: int, first: str = "  ", rest: str = "  ") -> list[str]:
    """`text` wrapped to `width` columns, with prefixes; words longer than a line (paths, commands) stay whole."""
    return wrap(
        text,
        max(width, 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def bar(share: float, width: int) -> str:
    """A bar `width` columns long of which `share` (clipped to 0–1) is filled."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return BAR_FULL * filled + BAR_EMPTY * (width - filled)


def rate(value: float) -> str:
    """A positive rate with three significant digits, thousands set apart: 7,310 · 148 · 14.2 · 0.530."""
    if value < 0.1:
        return f"{value:.2g}"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(2 - math.floor(math.log10(rounded)), 0)}f}"


def duration(seconds: float) -> str:
    """A positive time in the unit that reads best, with three significant digits: 6.43 ms, 1.74 s, 12.5 min, 3.10 h."""
    if seconds < 1:
        return f"{rate(seconds * 1e3)} ms"
    if seconds < 100:
        return f"{rate(seconds)} s"
    return f"{rate(seconds / 60)} min" if seconds < 5400 else f"{rate(seconds / 3600)} h"


def interval(bounds: tuple[float, float]) -> str:
    """A range of rates: 138–163."""
    return f"{rate(bounds[0])}–{rate(bounds[1])}"


def margin(n_bytes: int | None) -> str:
    """The verdict on memory in words."""
    if n_bytes is None:
        return "memory of the device unknown"
    return f"fits, {gib(n_bytes)} to spare" if n_bytes >= 0 else f"does not fit, {gib(-n_bytes)} too much"
