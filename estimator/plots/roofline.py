"""The roofline: FLOP/s over arithmetic intensity, both logarithmic, with the phases of a request under the roofs.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..roofline_view import ComputeRoof, PointKind, RooflinePoint, RooflineView
from .labels import Label, halo, place_labels
from .style import (
    BESIDE,
    INK,
    MUTED,
    SeriesStyle,
    axes_or_new,
    listed,
    log_axis,
    series_style,
    set_title,
    si_text,
    styled,
)

Line = tuple[NDArray[np.float64], NDArray[np.float64]]

PHASES: Final[tuple[PointKind, ...]] = ("prefill", "decode", "batched")
POINT_MARKERS: Final = {"prefill": "s", "decode": "o", "batched": "^", "operation": "x", "measured": "*"}
POINT_NAMES: Final = {
    "prefill": "prefill",
    "decode": "decode",
    "batched": "batched decode",
    "operation": "single operations",
    "measured": "measured",
}
MARGIN: Final = 2.5  # of the axes, as a factor, around everything shown
DETAILED: Final = 4  # requests up to which batches and reached roofs are drawn
REACHED: Final = (0, (4, 2))
TEXT_SIZE: Final = 7.5
SMALL_TEXT_SIZE: Final = 6.5  # numbers at points
TERA: Final = 1e12


def roofline(
    views: RooflineView | Sequence[RooflineView],
    ax: Axes | None = None,
    *,
    operations: bool = False,
    measured: Sequence[RooflinePoint] = (),
    brief: bool = False,
) -> Axes:
    """One request, with all its compute paths and ridge points labelled; or several, each with its highest roof.

    Thick roofs are the datasheet's, thin ones what the estimate reaches (of a few requests). Diamonds are ridge points.
    `operations`: also the single operations of each phase. `measured`: points of real runs. `brief`: short labels, for
    small charts.
    """
    shown = listed(views)
    with styled():
        ax = axes_or_new(ax)
        _limits(ax, shown, measured, operations)
        lines: list[Line] = []
        for index, view in enumerate(shown):
            lines += _roofs(ax, view, index, len(shown))
            _points(ax, view, index, len(shown))
        if operations:
            _operations(ax, shown)
        _scatter(ax, measured, INK, "measured", "measured", size=70)
        _finish(ax, shown, brief)
        _label(ax, shown, lines, operations, measured, brief)
    return ax


def roof_line(x: NDArray[np.float64], bandwidth: float, peak: float) -> NDArray[np.float64]:
    """The roof over intensities: the lesser of bandwidth × intensity and the peak."""
    return np.minimum(bandwidth * x, peak)


def _limits(ax: Axes, views: Sequence[RooflineView], measured: Sequence[RooflinePoint], operations: bool) -> None:
    points = [point for view in views for point in (*view.points, *(view.operations if operations else ()))]
    x = [point.intensity for point in (*points, *measured)]
    x += [view.ridge(roof) for view in views for roof in view.roofs]
    y = [point.flop_per_s for point in (*points, *measured)] + [view.peak_flop_per_s for view in views]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(min(x) / MARGIN, max(x) * MARGIN * 2)
    ax.set_ylim(min(y) / MARGIN, max(y) * MARGIN)


def _roofs(ax: Axes, view: RooflineView, index: int, count: int) -> list[Line]:
    """Each compute path's roof by datasheet and as reached; the memory slope goes up to the highest one."""
    style = series_style(index)
    lines: list[Line] = []
    for order, roof in enumerate(view.roofs if count == 1 else view.roofs[:1]):
        line = "-" if count == 1 else style.line
        name = _numbered(view, index, count) if order == 0 else "_roof"
        x, y = _corners(ax, view.bandwidth_bytes_per_s, roof.flop_per_s, order == 0)
        ax.plot(x, y, color=style.color, linestyle=line, linewidth=1.7, label=name, zorder=2)
        lines.append((x, y))
        _ridge(ax, view.ridge(roof), roof.flop_per_s, style)
        if count <= DETAILED:
            x, y = _corners(ax, view.reached_bandwidth_bytes_per_s, roof.reached_flop_per_s, order == 0)
            ax.plot(x, y, color=style.color, linestyle=REACHED, linewidth=0.9, label="_reached", zorder=2)
            lines.append((x, y))
            _ridge(ax, view.reached_ridge(roof), roof.reached_flop_per_s, style)
    return lines


def _corners(ax: Axes, bandwidth: float, peak: float, with_slope: bool) -> Line:
    low, high = ax.get_xlim()
    ridge = peak / bandwidth
    x = np.array([low, ridge, high] if with_slope and low < ridge else [ridge, high])
    return x, roof_line(x, bandwidth, peak)


def _ridge(ax: Axes, intensity: float, peak: float, style: SeriesStyle) -> None:
    ax.plot([intensity], [peak], "D", markersize=4, color=style.color, fillstyle="none", label="_ridge", zorder=3)


def _points(ax: Axes, view: RooflineView, index: int, count: int) -> None:
    color = series_style(index).color
    for kind in PHASES:
        points = _shown(view, kind, count)
        if points and count <= DETAILED:
            x, y = [point.intensity for point in points], [point.flop_per_s for point in points]
            ax.plot(x, y, color=color, linewidth=0.7, alpha=0.6, zorder=3, label="_join")
        _scatter(ax, points, color, kind, POINT_NAMES[kind] if count == 1 else "_points")


def _shown(view: RooflineView, kind: PointKind, count: int) -> list[RooflinePoint]:
    """The points of a kind: of many requests only the first prefill and decode of each."""
    points = [point for point in view.points if point.kind == kind]
    return points if count <= DETAILED else [] if kind == "batched" else points[:1]


def _numbered(view: RooflineView, index: int, count: int) -> str:
    """The request's name, with a number that stands at its points where there are many."""
    return view.name if count <= DETAILED else f"{index + 1}  {view.name}"


def _scatter(
    ax: Axes, points: Sequence[RooflinePoint], color: str, kind: PointKind, name: str, size: float = 34
) -> None:
    if not points:
        return
    x, y = [point.intensity for point in points], [point.flop_per_s for point in points]
    edge: dict[str, Any] = {} if kind == "operation" else {"edgecolors": "white", "linewidths": 0.6}
    ax.scatter(x, y, s=size, marker=POINT_MARKERS[kind], color=color, label=name, zorder=5, **edge)


def _operations(ax: Axes, views: Sequence[RooflineView]) -> None:
    for index, view in enumerate(views):
        color = MUTED if len(views) == 1 else series_style(index).color
        name = "single operations" if index == 0 else "_operations"
        _scatter(ax, view.operations, color, "operation", name, size=22)


def _finish(ax: Axes, views: Sequence[RooflineView], brief: bool) -> None:
    log_axis(ax.xaxis)
    log_axis(ax.yaxis, TERA)
    ax.set_xlabel("arithmetic intensity (FLOP/byte of weights and cache)")
    ax.set_ylabel("performance (TFLOP/s)")
    set_title(ax, _title(views, brief))
    if len(views) > 1:
        for kind in PHASES if len(views) <= DETAILED else PHASES[:2]:
            ax.scatter([], [], s=30, marker=POINT_MARKERS[kind], color=MUTED, label=POINT_NAMES[kind])
    ax.plot([], [], color=MUTED, linestyle="-", linewidth=1.7, label="datasheet roof")
    if len(views) <= DETAILED:
        ax.plot([], [], color=MUTED, linestyle=REACHED, linewidth=0.9, label="roof as reached")
    ax.plot([], [], "D", color=MUTED, markersize=4, fillstyle="none", label="ridge point")
    handles, labels = ax.get_legend_handles_labels()
    own = views[0].name if len(views) == 1 else None
    kept = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label != own]
    ax.legend(*zip(*kept, strict=True), **({"loc": "lower right"} if len(views) == 1 else BESIDE))


def _title(views: Sequence[RooflineView], brief: bool) -> str:
    view = views[0]
    if len(views) > 1:
        return "Rooflines"
    name = "Roofline" if brief else view.name
    return name if view.whole else f"{name}: the part of the {view.device}"


def _label(
    ax: Axes,
    views: Sequence[RooflineView],
    lines: Sequence[Line],
    operations: bool,
    measured: Sequence[RooflinePoint],
    brief: bool,
) -> None:
    """Roofs and points of a single request in words, operations where there is room; those of many by number."""
    if len(views) > 1:
        _label_by_number(ax, views)
        return
    view, color = views[0], series_style(0).color
    _slope_label(ax, view, color, brief)
    for roof in view.roofs:
        _roof_label(ax, view, roof, color, brief)
    labels = [
        Label(point.label if brief else _point_text(point), point.intensity, point.flop_per_s) for point in _named(view)
    ]
    shown = [*view.points, *measured]
    if operations:
        shown += view.operations
        labels += [Label(p.label, p.intensity, p.flop_per_s, MUTED, optional=True) for p in _distinct(view)]
    place_labels(ax, labels, [(point.intensity, point.flop_per_s) for point in shown], lines, TEXT_SIZE)


def _label_by_number(ax: Axes, views: Sequence[RooflineView]) -> None:
    """Numbers of the requests left and right of their points in turn, pushed apart downwards."""
    if len(views) <= DETAILED:
        return
    figure: Any = ax.figure
    figure.draw_without_rendering()
    for kind in PHASES[:2]:
        marked = [(point, str(i + 1)) for i, view in enumerate(views) for point in _shown(view, kind, len(views))]
        marked.sort(key=lambda pair: -pair[0].flop_per_s)
        for column, side in ((marked[::2], 1), (marked[1::2], -1)):
            heights = [float(ax.transData.transform((p.intensity, p.flop_per_s))[1]) for p, _ in column]
            apart = _apart(heights, SMALL_TEXT_SIZE * 1.25 * figure.dpi / 72)
            for (point, number), height, moved in zip(column, heights, apart, strict=True):
                _number(ax, point, number, side, (moved - height) * 72 / figure.dpi)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Falling heights, each at least `gap` below the one before."""
    placed: list[float] = []
    for height in heights:
        placed.append(min(height, placed[-1] - gap) if placed else height)
    return placed


def _number(ax: Axes, point: RooflinePoint, number: str, side: int, shift: float) -> None:
    ax.annotate(
        number,
        (point.intensity, point.flop_per_s),
        xytext=(side * 12, shift),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        fontsize=SMALL_TEXT_SIZE,
        color=INK,
        path_effects=[halo()],
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
        zorder=6,
    )


def _named(view: RooflineView) -> list[RooflinePoint]:
    """Points that get a label: all but the batches between the smallest and the largest."""
    batched = [point for point in view.points if point.kind == "batched"]
    return [point for point in view.points if point.kind != "batched"] + batched[:1] + batched[-1:]


def _point_text(point: RooflinePoint) -> str:
    if point.tokens_per_s is None:
        return point.label
    return f"{point.label}: {float(f'{point.tokens_per_s:.3g}'):,g} tok/s"


def _distinct(view: RooflineView) -> list[RooflinePoint]:
    return list({(point.intensity, point.flop_per_s): point for point in view.operations}.values())


def _slope_label(ax: Axes, view: RooflineView, color: str, brief: bool) -> None:
    """The memory roof's name along its slope, which depends on the figure's shape."""
    figure: Any = ax.figure
    figure.draw_without_rendering()
    bandwidth, (low, _) = view.bandwidth_bytes_per_s, ax.get_xlim()
    ends = ax.transData.transform([(x, bandwidth * x) for x in (low, low * 10)])
    angle = float(np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1])))
    text = f"memory {si_text(bandwidth, 'B/s')}"
    if not brief:
        text += f", {si_text(view.reached_bandwidth_bytes_per_s, 'B/s', 3)} reached"
    start = max(low * 1.3, ax.get_ylim()[0] * 1.3 / bandwidth)
    ax.annotate(
        text,
        (start, bandwidth * start),
        xytext=(0, 3),
        textcoords="offset points",
        rotation=angle,
        rotation_mode="anchor",
        va="bottom",
        fontsize=TEXT_SIZE,
        color=color,
    )


def _roof_label(ax: Axes, view: RooflineView, roof: ComputeRoof, color: str, brief: bool) -> None:
    text = f"{roof.name} {si_text(roof.flop_per_s, 'FLOP/s')}"
    ax.annotate(
        text if brief else f"{text}, ridge at {view.ridge(roof):,.3g} FLOP/byte",
        (ax.get_xlim()[1], roof.flop_per_s),
        xytext=(-3, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=TEXT_SIZE,
        color=color,
        path_effects=[halo()],
    )
