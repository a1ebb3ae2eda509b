"""How all charts look: colours, markers, line styles, fonts, tick labels, legends; and how a figure becomes a file.

Colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008), which stay apart for colour-blind readers;
line styles and markers change with them, so that series stay apart in black and white too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from ..errors import InputError
from ..whole_files import write_output

T = TypeVar("T")

INK: Final = "#1a1a1a"
MUTED: Final = "#6b6b6b"
GRID: Final = "#d9d9d9"
PAPER: Final = "#ffffff"
BLUE, VERMILLION, GREEN, ORANGE = "#0072b2", "#d55e00", "#009e73", "#e69f00"
PURPLE, SKY, YELLOW = "#cc79a7", "#56b4e9", "#f0e442"
COLORS: Final = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK)
LINES: Final = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES: Final = ("", "////", "xxx", "\\\\\\\\", "---")

ONE: Final = (6.4, 4.4)  # inches: one chart
WIDE: Final = (9.6, 4.0)  # two side by side
LETTER: Final = 0.66  # width of a bold letter over its size
TICK_INCHES: Final = 0.5
LEGEND_INSIDE: Final = 5  # entries; more go beside the chart
BESIDE: Final[dict[str, Any]] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
BAND_ALPHA: Final = 0.22
WIDE_BAND_ALPHA: Final = 0.10

PARAMETERS: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.7,
    "lines.markersize": 5.5,
    "legend.fontsize": 8.0,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "figure.dpi": 100.0,
    "savefig.dpi": 160.0,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "llmcalc",
    "hatch.linewidth": 0.5,
}

NO_WINDOWS: Final = frozenset({"agg", "cairo", "pdf", "ps", "svg", "template", "pgf"})
_WINDOW: Final[ContextVar[bool]] = ContextVar("window", default=False)

FORMATS: Final = {".png": "png", ".svg": "svg", ".pdf": "pdf"}
_NO_DATES: Final[dict[str, dict[str, Any]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "llmcalc"},
    "pdf": {"CreationDate": None, "Creator": "llmcalc"},
}


@dataclass(frozen=True)
class SeriesStyle:
    """What tells one series from the others, three times over."""

    color: str
    line: Any
    marker: str


def series_style(index: int) -> SeriesStyle:
    """Style of the `index`-th series; 35 pairs of colour and line before any repeats."""
    return SeriesStyle(COLORS[index % len(COLORS)], LINES[index % len(LINES)], MARKERS[index % len(MARKERS)])


@contextmanager
def styled() -> Iterator[None]:
    """The charts' parameters for as long as the block runs."""
    parameters: Any = PARAMETERS  # newer stubs list every parameter's name
    with matplotlib.rc_context(parameters):
        yield


def axes_or_new(ax: Axes | None, size: tuple[float, float] = ONE) -> Axes:
    """`ax`, or that of a new pyplot figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, made = pyplot.subplots(figsize=size)
    return made


def listed(one_or_several: T | Sequence[T]) -> list[T]:
    """Several series as a list, a single one as a list of one. Raises InputError for none."""
    several: list[T] = list(one_or_several) if isinstance(one_or_several, (list, tuple)) else [one_or_several]  # type: ignore[list-item]
    if not several:
        raise InputError("nothing to plot: no series was given")
    return several


def markers_every(points: int, index: int) -> tuple[int, int]:
    """Some eight markers along a line, each series at other places."""
    step = max(points // 8, 1)
    return (index * 3) % step, step


def tokens_text(value: float, _: object = None) -> str:
    """A token count as people write it: 512, 4k, 128k, 1M (binary thousands), else with its digits."""
    if value >= 2**20 and value % 2**18 == 0:
        return f"{value / 2**20:g}M"
    return f"{value / 2**10:g}k" if value >= 2**10 and value % 2**8 == 0 else f"{value:,.0f}"


def plain_text(value: float, _: object = None) -> str:
    """A positive figure in full: 0.05, 2, 1,500."""
    return f"{value:,.0f}" if value >= 1 and abs(value - round(value)) < 1e-6 * value else f"{value:.4g}"


def si_text(value: float, unit: str, digits: int = 4) -> str:
    """A positive figure with the SI prefix that reads best: 1.008 TB/s, 660.6 TFLOP/s."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def token_axis(ax: Axes, most: float, label: str) -> None:
    """A linear x axis from 0 to `most` tokens, ticks at round binary counts, as many as have room."""
    ticks = float(np.clip(ax.bbox.width / ax.figure.dpi / TICK_INCHES, 2, 8))
    step = 2.0 ** np.ceil(np.log2(max(most, 8) / ticks))
    ax.set_xlim(0, most)
    ax.set_xticks(np.arange(0, most * 1.001, step))
    ax.xaxis.set_major_formatter(FuncFormatter(tokens_text))
    ax.set_xlabel(label)


def binary_axis(ax: Axes, least: float, most: float, label: str, every: int = 1) -> None:
    """A logarithmic x axis with ticks at powers of two."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(least, most)
    first, last = int(np.ceil(np.log2(least))), int(np.floor(np.log2(most) + 1e-9))
    ax.set_xticks([2.0**n for n in range(first, last + 1, max(every, (last - first) // 8 + 1))])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(tokens_text))
    ax.set_xlabel(label)


def rate_axis(ax: Axes, label: str) -> None:
    """A linear y axis from 0."""
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.set_ylabel(label)


def log_axis(axis: Any, unit: float = 1.0) -> None:
    """Ticks of a decimal logarithmic axis, in `unit`s: decades, and 2 and 5 between them where there are few."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_text(value / unit)))
    axis.set_minor_formatter(NullFormatter())


def band(ax: Axes, x: NDArray[np.float64], low: Any, high: Any, style: SeriesStyle, alpha: float = BAND_ALPHA) -> None:
    """The area between two lines in a series' colour."""
    ax.fill_between(x, low, high, color=style.color, alpha=alpha, linewidth=0)


def set_title(ax: Axes, text: str, size: float = 10.0) -> None:
    """A title in as many lines as the width of the axes needs."""
    letters = ax.bbox.width / ax.figure.dpi * 72 / (LETTER * size)
    ax.set_title("\n".join(wrap(text, max(int(letters), 12))), fontsize=size)


def no_legend(ax: Axes) -> None:
    """Take the legend away, if there is one."""
    found = ax.get_legend()
    if found is not None:
        found.remove()


def legend(ax: Axes, entries: int | None = None, **options: Any) -> None:
    """A legend within the chart for a few entries, beside it for many; none where nothing has a label."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    options = {name: value for name, value in options.items() if value is not None}
    if (entries or len(labels)) > LEGEND_INSIDE:
        options = BESIDE | options
    ax.legend(handles, labels, **options)


def figure(size: tuple[float, float] = ONE, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with its Axes row by row; outside pyplot, unless it is made to be shown in a window."""
    if _WINDOW.get():
        from matplotlib import pyplot

        made = pyplot.figure(figsize=size, layout="constrained")
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        made = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(made)
    grid = made.subplots(rows, columns, squeeze=False)
    return made, [one for row in grid for one in row]


def show(make: Callable[[], Figure]) -> None:
    """Open a window with the figure that `make` makes, until it is closed. Raises InputError without a display."""
    from matplotlib import pyplot

    if pyplot.get_backend().lower() in NO_WINDOWS:
        raise InputError("--show: there is no display to open a window on; write the picture with -o FILE")
    token = _WINDOW.set(True)
    try:
        make()
    finally:
        _WINDOW.reset(token)
    pyplot.show()


def picture_format(path: Path) -> str:
    """png, svg or pdf, by a file's ending. Raises InputError for another one."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputError(f"{path}: pictures are told by their ending, which must be .png, .svg or .pdf")
    return found


def picture(made: Figure, form: str, *, as_text: bool = False) -> bytes:
    """The figure as a file's content, the same bytes for the same figure.

    `as_text`: letters of an SVG stay text, without the rims that would turn them into shapes.
    """
    out = io.BytesIO()
    if as_text:
        for text in made.findobj(Text):
            text.set_path_effects([])
    with styled(), matplotlib.rc_context({"svg.fonttype": "none" if as_text else "path"}):
        made.savefig(out, format=form, metadata=_NO_DATES[form])
    return out.getvalue()


def save(made: Figure, path: str | Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the path's ending. Raises InputError if that is none or not writable."""
    target = Path(path)
    write_output(target, picture(made, picture_format(target)))
