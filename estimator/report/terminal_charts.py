"""Charts for terminals: lines in Braille dots or plain ASCII, with axes, labels and a legend.

A character cell holds 2 × 4 Braille dots, each its own pixel; in ASCII it is one pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .layout import Style, paragraph, rate

if TYPE_CHECKING:
    from ..roofline_view import RooflineView
    from ..speed_curves import BatchCurve, LayersCurve, SpeedCurve
    from ..speed_front import SpeedFront

Vector = NDArray[np.float64]

BRAILLE: Final = 0x2800
DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] of a cell
COLORS: Final = ("cyan", "yellow", "green", "red")
SIGNS: Final = "*o+x#@%&"  # of series in ASCII, and of marked points
HEIGHT: Final = 18  # rows of the plotting area
TERA: Final = 1e12


@dataclass(frozen=True)
class Line:
    """A polyline in data coordinates. `dots`: only every so many pixels are set; `name`: None: not in the legend."""

    x: Vector
    y: Vector
    series: int = 0
    name: str | None = None
    dots: int = 1


@dataclass(frozen=True)
class Mark:
    """A sign at a point, with an optional text after it."""

    x: float
    y: float
    sign: str
    series: int = 0
    text: str = ""


@dataclass(frozen=True)
class Chart:
    """Lines and marks in a window of data coordinates, linear or logarithmic along either axis."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    marks: Sequence[Mark] = ()
    x_log: bool = False
    y_log: bool = False
    x_text: Callable[[float], str] = rate
    y_text: Callable[[float], str] = rate
    notes: Sequence[str] = ()


@dataclass
class _Canvas:
    """Cells of the plotting area, each with its dots and the series that colours it."""

    columns: int
    rows: int
    plain: bool
    cells: dict[tuple[int, int], int] = field(default_factory=dict)
    owner: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return (self.columns, self.rows) if self.plain else (2 * self.columns, 4 * self.rows)

    def dot(self, x: int, y: int, series: int) -> None:
        """Set the pixel `x` from the left and `y` from the top."""
        column, row = (x, y) if self.plain else (x // 2, y // 4)
        if 0 <= column < self.columns and 0 <= row < self.rows:
            bit = 1 if self.plain else DOTS[y % 4][x % 2]
            self.cells[column, row] = self.cells.get((column, row), 0) | bit
            self.owner.setdefault((column, row), series)

    def write(self, column: int, row: int, text: str, series: int) -> None:
        """A text from a cell on, as far as there is room."""
        for i, sign in enumerate(text):
            if 0 <= column + i < self.columns and 0 <= row < self.rows:
                self.texts[column + i, row] = (sign, series)

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether no text is in the way."""
        inside = column >= 0 and column + length <= self.columns and 0 <= row < self.rows
        return inside and not any((column + i, row) in self.texts for i in range(-1, length + 1))

    def line(self, row: int, style: Style) -> str:
        """A row of cells as text."""
        return "".join(self._cell(column, row, style) for column in range(self.columns)).rstrip()

    def _cell(self, column: int, row: int, style: Style) -> str:
        if (column, row) in self.texts:
            sign, series = self.texts[column, row]
            return style.paint(sign, *(() if series < 0 else (COLORS[series % len(COLORS)],)), "bold")
        dots = self.cells.get((column, row))
        if dots is None:
            return " "
        series = self.owner[column, row]
        sign = SIGNS[series % len(SIGNS)] if self.plain else chr(BRAILLE + dots)
        return style.paint(sign, COLORS[series % len(COLORS)])


def render(chart: Chart, style: Style, plain: bool = False, rows: int = HEIGHT) -> list[str]:
    """The chart as lines of at most `style.width` columns; `plain`: ASCII alone."""
    ticks_y = _ticks(chart.y_range, chart.y_log, rows // 4)
    labels = [chart.y_text(value) for value in ticks_y]
    margin = max(map(len, labels)) + 2
    canvas = _Canvas(style.width - margin - 1, rows, plain)
    for line in chart.lines:
        _draw(canvas, chart, line)
    _set_marks(canvas, chart)
    at = {_row(canvas, chart, value): label for value, label in zip(ticks_y, labels, strict=True)}
    upright, corner, level, down = ("|", "+", "-", "+") if plain else ("│", "└", "─", "┬")
    out = [style.paint(line, "bold") for line in paragraph(chart.title, style.width, "", "")]
    out.append(style.paint(chart.y_label, "dim"))
    for row in range(rows):
        tick = ("+" if plain else "┤") if row in at else upright
        out.append(f"{at.get(row, ''):>{margin - 1}} {tick}{canvas.line(row, style)}")
    out += _x_axis(chart, canvas, margin, corner, level, down)
    out.append(style.paint(f"{chart.x_label:>{style.width}}", "dim"))
    out += _legend(chart, style, plain)
    text = [ascii_only(line) for line in out] if plain else out
    return [line.rstrip() for line in text]


def ascii_only(text: str) -> str:
    """The text in ASCII: signs that this package writes by their nearest likeness, others as '?'."""
    for sign, plain in (("·", "-"), ("–", "-"), ("×", "x"), ("÷", "/"), (" ", " "), ("…", "..."), ("µ", "u")):
        text = text.replace(sign, plain)
    return text.encode("ascii", "replace").decode("ascii")


def _scale(value: Any, bounds: tuple[float, float], log: bool) -> Any:
    low, high = bounds
    if log:
        return (np.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return (np.asarray(value, float) - low) / (high - low)


def _pixel(canvas: _Canvas, chart: Chart, x: Any, y: Any) -> tuple[Any, Any]:
    width, height = canvas.pixels
    across = np.rint(_scale(x, chart.x_range, chart.x_log) * (width - 1))
    down = np.rint((1 - _scale(y, chart.y_range, chart.y_log)) * (height - 1))
    return across, down


def _row(canvas: _Canvas, chart: Chart, y: float) -> int:
    _, down = _pixel(canvas, chart, chart.x_range[0], y)
    return int(down) // (1 if canvas.plain else 4)


def _draw(canvas: _Canvas, chart: Chart, line: Line) -> None:
    """Pixels along the line's segments, as dense as the canvas."""
    xs, ys = _pixel(canvas, chart, line.x, line.y)
    count = 0
    for x0, y0, x1, y1 in zip(xs[:-1], ys[:-1], xs[1:], ys[1:], strict=True):
        steps = int(max(abs(x1 - x0), abs(y1 - y0), 1))
        for i in range(steps):
            if count % line.dots == 0:
                canvas.dot(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps), line.series)
            count += 1
    if line.dots == 1 and len(xs):
        canvas.dot(int(xs[-1]), int(ys[-1]), line.series)


def _set_marks(canvas: _Canvas, chart: Chart) -> None:
    """All signs, then each mark's text on whichever side has room; a text without room is left out."""
    cells = []
    for mark in chart.marks:
        across, down = _pixel(canvas, chart, mark.x, mark.y)
        cells.append((int(across), int(down)) if canvas.plain else (int(across) // 2, int(down) // 4))
        canvas.write(*cells[-1], mark.sign, mark.series)
    for mark, (column, row) in zip(chart.marks, cells, strict=True):
        right, left = column + 2, column - 1 - len(mark.text)
        for at, line in (
            (right, row),
            (left, row),
            (right, row + 1),
            (right, row - 1),
            (left, row + 1),
            (left, row - 1),
        ):
            if mark.text and canvas.free(at, line, len(mark.text)):
                canvas.write(at, line, mark.text, -1)
                break


def _ticks(bounds: tuple[float, float], log: bool, most: int) -> list[float]:
    low, high = bounds
    if log:
        decades = [10.0**n for n in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]
        if len(decades) < 2:  # 2 and 5 between them too
            tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            between = [10.0**n * factor for n in tens for factor in (1, 2, 5)]
            return [value for value in between if low <= value <= high] or [low, high]
        return decades[:: max(-(-len(decades) // max(most, 1)), 1)]
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step_size = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step_size)
    return [n * step_size for n in range(first, math.floor(high / step_size + 1e-9) + 1)]


def _x_axis(chart: Chart, canvas: _Canvas, margin: int, corner: str, level: str, down: str) -> list[str]:
    ticks = _binary_ticks(chart) if not chart.x_log else _ticks(chart.x_range, True, 6)
    rule, labels = [level] * canvas.columns, [" "] * (margin + canvas.columns + 1)
    for value in ticks:
        at = round(float(_scale(value, chart.x_range, chart.x_log)) * (canvas.columns - 1))
        if not 0 <= at < canvas.columns:
            continue
        rule[at] = down
        text = chart.x_text(value)
        start = min(max(margin + at - len(text) // 2, 0), len(labels) - len(text))
        if all(sign == " " for sign in labels[max(start - 1, 0) : start + len(text) + 1]):
            labels[start : start + len(text)] = text
    return [" " * margin + corner + "".join(rule), "".join(labels)]


def _binary_ticks(chart: Chart) -> list[float]:
    low, high = chart.x_range
    step = 2.0 ** math.ceil(math.log2(max(high - low, 8) / 8))
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def _legend(chart: Chart, style: Style, plain: bool) -> list[str]:
    lines = []
    for line in chart.lines:
        if line.name:
            sign = SIGNS[line.series % len(SIGNS)] * 2 if plain else "━━"
            first, *rest = paragraph(line.name, style.width - 5, "", "")
            lines.append(f"  {style.paint(sign, COLORS[line.series % len(COLORS)])} {first}")
            lines += [f"     {more}" for more in rest]
    return lines + [line for note in chart.notes for line in paragraph(note, style.width)]


def tokens(value: float) -> str:
    """A token count: 512, 4k, 128k."""
    return f"{value / 1024:g}k" if value >= 1024 and value % 256 == 0 else f"{value:,.0f}"


def speed_chart(curves: Sequence[SpeedCurve], title: str, x_label: str, log: bool = False) -> Chart:
    """Speed curves over tokens, the 80 % range of a single one dotted."""
    lines, notes = [], []
    for index, curve in enumerate(curves):
        lines.append(Line(curve.tokens, curve.tokens_per_s, index, curve.name if len(curves) > 1 else None))
        if len(curves) == 1:
            lines += [Line(curve.tokens, edge, 1, dots=3) for edge in (curve.low_80, curve.high_80)]
            notes = [f"solid: estimate, dotted: 80 % of runs ({_ends(curve)})"]
    top = max(float(np.max(curve.high_80 if len(curves) == 1 else curve.tokens_per_s)) for curve in curves)
    low, high = min(float(c.tokens[0]) for c in curves), max(float(c.tokens[-1]) + (not log) for c in curves)
    return Chart(title, x_label, "tokens/s", lines, (low, high), (0, top * 1.05), x_log=log, x_text=tokens,
                 y_text=_plain, notes=notes)  # fmt: skip


def _ends(curve: SpeedCurve) -> str:
    first, last = rate(float(curve.tokens_per_s[0])), rate(float(curve.tokens_per_s[-1]))
    return f"{first} at {tokens(float(curve.tokens[0]))}, {last} at {tokens(float(curve.tokens[-1]) + 1)}"


def batch_chart(curves: Sequence[BatchCurve]) -> Chart:
    """Throughput over the number of sequences."""
    lines = [
        Line(curve.parallel, curve.tokens_per_s, index, curve.name if len(curves) > 1 else None)
        for index, curve in enumerate(curves)
    ]
    most, top = max(float(c.parallel[-1]) for c in curves), max(float(np.max(c.tokens_per_s)) for c in curves)
    title = f"Decode throughput: {curves[0].name}" if len(curves) == 1 else "Decode throughput"
    notes = [f"{curves[0].occupied_tokens:,} tokens in the cache of each"]
    return Chart(title, "sequences at once", "tokens/s of all", lines, (1, max(most, 2)), (0, top * 1.05),
                 x_text=_plain, y_text=_plain, notes=notes)  # fmt: skip


def layers_chart(curves: Sequence[LayersCurve]) -> Chart:
    """Decode speed over the layers on the GPU."""
    lines = [
        Line(curve.layers, curve.tokens_per_s, index, curve.name if len(curves) > 1 else None)
        for index, curve in enumerate(curves)
    ]
    most, top = max(float(c.layers[-1]) for c in curves), max(float(np.max(c.tokens_per_s)) for c in curves)
    title = f"Decode by layers on the GPU: {curves[0].name}" if len(curves) == 1 else "Decode by layers on the GPU"
    notes = [f"{curves[0].occupied_tokens:,} tokens in the cache"]
    notes += [f"{curve.most_that_fit} layers fit ({curve.name})" for curve in curves if curve.most_that_fit is not None]
    return Chart(title, "layers on the GPU (-ngl)", "tokens/s", lines, (0, most), (0, top * 1.05),
                 x_text=_plain, y_text=_plain, notes=notes)  # fmt: skip


def front_chart(front: SpeedFront) -> Chart:
    """Speed over cost, both logarithmic, with the front's machines named and joined."""
    from ..comparison import machine_name

    order = np.flatnonzero(front.on_front)[np.argsort(front.costs[front.on_front], kind="stable")]
    x, y = front.costs[order], front.tokens_per_s[order]
    marks = [
        Mark(float(front.costs[i]), float(front.tokens_per_s[i]), "*", 1, machine_name(front.machines[i].devices))
        for i in order.tolist()
    ]
    beaten = np.flatnonzero(~front.on_front).tolist()
    marks = [*(Mark(float(front.costs[i]), float(front.tokens_per_s[i]), "o", 0) for i in beaten), *marks]
    ranges = [(float(values.min() / 1.4), float(values.max() * 1.4)) for values in (front.costs, front.tokens_per_s)]
    step = Line(np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1], 1, dots=3)
    return Chart(front.title, front.label, "tokens/s", [step], ranges[0], ranges[1], marks, x_log=True, y_log=True,
                 x_text=_plain, y_text=_plain, notes=["* on the front, o beaten by another in both"])  # fmt: skip


def roofline_chart(views: Sequence[RooflineView]) -> Chart:
    """Rooflines on logarithmic axes, with P for prefill, D for decode and B for batched decode."""
    points = [point for view in views for point in view.points]
    x = [point.intensity for point in points] + [view.ridge(roof) for view in views for roof in view.roofs]
    y = [point.flop_per_s for point in points] + [view.peak_flop_per_s for view in views]
    window = (min(x) / 2.5, max(x) * 4), (min(y) / 2.5, max(y) * 2)
    lines: list[Line] = []
    marks: list[Mark] = []
    for index, view in enumerate(views):
        lines += _roof_lines(view, index, window[0], alone=len(views) == 1)
        marks += _roof_marks(view, index, alone=len(views) == 1)
    return Chart(
        f"Roofline: {views[0].name}" if len(views) == 1 else "Rooflines",
        "FLOP/byte of weights and cache",
        "TFLOP/s",
        lines,
        *window,
        marks,
        x_log=True,
        y_log=True,
        x_text=_plain,
        y_text=lambda value: _plain(value / TERA),
        notes=("P prefill, D decode, B batched decode" + (", dotted: roof as reached" if len(views) == 1 else ""),),
    )


def _roof_lines(view: RooflineView, index: int, bounds: tuple[float, float], alone: bool) -> list[Line]:
    """Corners of the roofs within the window: all paths of a single request, else the highest one."""
    low, high = bounds
    lines = []
    for order, roof in enumerate(view.roofs if alone else view.roofs[:1]):
        pairs = [(view.bandwidth_bytes_per_s, roof.flop_per_s, 1)]
        if alone:
            pairs.append((view.reached_bandwidth_bytes_per_s, roof.reached_flop_per_s, 3))
        for bandwidth, peak, dots in pairs:
            x = np.array([low if order == 0 else peak / bandwidth, peak / bandwidth, high])
            series = order if alone else index
            name = _roof_name(view, order, alone) if dots == 1 else None
            lines.append(Line(x, np.minimum(bandwidth * x, peak), series, name, dots))
    return lines


def _roof_name(view: RooflineView, order: int, alone: bool) -> str:
    roof = view.roofs[order]
    peak = f"{roof.name} {roof.flop_per_s / TERA:,.4g} TFLOP/s, ridge at {view.ridge(roof):,.3g} FLOP/byte"
    if not alone:
        return f"{view.name}: {view.bandwidth_bytes_per_s / 1e9:,.4g} GB/s, {peak}"
    return f"memory {view.bandwidth_bytes_per_s / 1e9:,.4g} GB/s and {peak}" if order == 0 else peak


def _roof_marks(view: RooflineView, index: int, alone: bool) -> list[Mark]:
    marks = []
    for point in view.points:
        last_batch = point.label == view.points[-1].label
        named = alone and point.tokens_per_s is not None and (point.kind != "batched" or last_batch)
        text = f"{point.label} {rate(point.tokens_per_s)} tok/s" if named and point.tokens_per_s else ""
        marks.append(Mark(point.intensity, point.flop_per_s, point.kind[0].upper(), index, text))
    return sorted(marks, key=lambda mark: not mark.text)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 and value == round(value) else f"{value:.4g}"
