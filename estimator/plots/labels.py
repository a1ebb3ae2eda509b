"""Labels of points that neither lie on one another nor on the points: a greedy search over places round each point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from .style import INK, PAPER

# (offset in points, horizontal and vertical alignment), the preferred places first
_NEAR: Final = (
    ((7, 0), "left", "center"),
    ((-7, 0), "right", "center"),
    ((0, 7), "center", "bottom"),
    ((0, -7), "center", "top"),
    ((6, 6), "left", "bottom"),
    ((6, -6), "left", "top"),
    ((-6, 6), "right", "bottom"),
    ((-6, -6), "right", "top"),
)
_FAR: Final = tuple(((dx * 2.6, dy * 2.6), ha, va) for (dx, dy), ha, va in _NEAR)
_FARTHER: Final = tuple(((dx * 4.5, dy * 4.5), ha, va) for (dx, dy), ha, va in _NEAR)
PLACES: Final = (*_NEAR, *_FAR, *_FARTHER)
MARKER_POINTS: Final = 4.0  # half the side of a marker
PADDING: Final = 1.5  # pixels round a text
DISTANCE: Final = 150.0  # cost of a place farther out, which needs a line to its point
TOLERABLE: Final = 120.0  # cost up to which optional labels are set: they may cross a line


@dataclass(frozen=True)
class Label:
    """A text at a point in data coordinates.

    `optional`: left out rather than set on something else; `near`: only right beside the point, without a line to it.
    """

    text: str
    x: float
    y: float
    color: str = INK
    optional: bool = False
    near: bool = False


def place_labels(
    ax: Axes,
    labels: Sequence[Label],
    points: Sequence[tuple[float, float]] = (),
    lines: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]] = (),
    size: float = 7.5,
) -> list[Any]:
    """Annotate `ax` with `labels` where they hide least: each other, `points`, `lines`, the texts that are there.

    The limits of the axes must be set before; texts are placed for the figure's present size.
    """
    figure: Any = ax.figure
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    scale = figure.dpi / 72
    taken = [text.get_window_extent(renderer) for text in ax.texts if text.get_rotation() % 90 == 0]
    legend = ax.get_legend()
    if legend is not None:
        taken.append(legend.get_window_extent(renderer))
    marks = [_mark(ax.transData.transform(point), scale) for point in [*points, *((one.x, one.y) for one in labels)]]
    marks += _slanted(ax, renderer, scale)
    samples = _line_samples(ax, lines)
    placed = []
    for label in labels:
        best = _best(ax, label, [*taken, *marks], samples, renderer, size)
        if best is not None:
            placed.append(best)
            taken.append(best.get_window_extent(renderer))
    return placed


def _best(ax: Axes, label: Label, boxes: list[Bbox], samples: Any, renderer: Any, size: float) -> Any:
    """The annotation at the place with the least cost; None for an optional one without a free place."""
    probe = _annotate(ax, label, PLACES[0], size)
    extent = probe.get_window_extent(renderer)
    probe.remove()
    at, figure = ax.transData.transform((label.x, label.y)), ax.figure
    places = _NEAR if label.near else PLACES
    costs = [_cost(_box(extent, at, place, figure.dpi / 72), boxes, samples, ax.bbox) for place in places]
    rank = min(range(len(places)), key=lambda i: costs[i] + DISTANCE * (i // len(_NEAR)))
    if label.optional and costs[rank] > TOLERABLE:
        return None
    return _annotate(ax, label, places[rank], size)


def _box(extent: Bbox, at: Any, place: Any, scale: float) -> Bbox:
    """Where a text of the size of `extent` would lie at a place round the pixel `at`."""
    (dx, dy), ha, va = place
    left = at[0] + dx * scale - {"left": 0.0, "center": 0.5, "right": 1.0}[ha] * extent.width
    bottom = at[1] + dy * scale - {"bottom": 0.0, "center": 0.5, "top": 1.0}[va] * extent.height
    return Bbox.from_bounds(left, bottom, extent.width, extent.height).padded(PADDING)


def _annotate(ax: Axes, label: Label, place: Any, size: float) -> Any:
    offset, ha, va = place
    far = max(map(abs, offset)) > 10
    arrow = {"arrowstyle": "-", "color": label.color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if far else None
    return ax.annotate(
        label.text,
        (label.x, label.y),
        xytext=offset,
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=size,
        color=label.color,
        arrowprops=arrow,
        path_effects=[halo()],
        zorder=6,
    )


def halo() -> withStroke:
    """A rim in the paper's colour, which keeps a text readable where it must cross a line."""
    return withStroke(linewidth=2.2, foreground=PAPER)


def _cost(box: Bbox, boxes: list[Bbox], samples: Any, inside: Bbox) -> float:
    """Pixels hidden or outside, those of lines counting less; 0 for a free place."""
    hidden = sum(_shared(box, other) for other in boxes)
    outside = box.width * box.height - _shared(box, inside)
    crossed = 0.0
    if len(samples):
        within = (abs(samples[:, 0] - (box.x0 + box.x1) / 2) < box.width / 2 + 1) & (
            abs(samples[:, 1] - (box.y0 + box.y1) / 2) < box.height / 2 + 1
        )
        crossed = float(np.count_nonzero(within)) * 4
    return hidden * 4 + outside * 20 + crossed


def _shared(a: Bbox, b: Bbox) -> float:
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return float(max(width, 0.0) * max(height, 0.0))


def _mark(point: Any, scale: float) -> Bbox:
    half = MARKER_POINTS * scale
    return Bbox([[point[0] - half, point[1] - half], [point[0] + half, point[1] + half]])


def _slanted(ax: Axes, renderer: Any, scale: float) -> list[Bbox]:
    """Small boxes along the texts that rise with a line, whose own boxes would cover all that is below them."""
    boxes = [text.get_window_extent(renderer) for text in ax.texts if text.get_rotation() % 90 != 0]
    step = 2 * MARKER_POINTS * scale
    return [
        _mark(point, scale)
        for box in boxes
        for point in np.linspace((box.x0, box.y0), (box.x1, box.y1), int(np.hypot(box.width, box.height) / step) + 2)
    ]


def _line_samples(ax: Axes, lines: Sequence[tuple[Any, Any]]) -> Any:
    """Pixels along the lines, every few of them. Shape [n, 2]."""
    parts = []
    for x, y in lines:
        pixels = ax.transData.transform(np.column_stack([x, y]))
        for start, end in pairwise(pixels):
            steps = int(np.clip(np.hypot(*(end - start)) / 4, 1, 400)) + 1
            parts.append(np.linspace(start, end, steps))
    return np.concatenate(parts) if parts else np.empty((0, 2))
