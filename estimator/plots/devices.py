"""Devices compared: speed against price or power, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from ..errors import InputError
from ..pareto import on_front
from .labels import Label, place_labels
from .style import BLUE, INK, MUTED, VERMILLION, axes_or_new, legend, log_axis, set_title, styled

Lines = list[tuple[Any, Any]]
CROWDED: Final = 24  # machines; of more only the ranges of the front are drawn


def pareto_front(
    names: Sequence[str],
    cost: Any,
    tokens_per_s: Any,
    ax: Axes | None = None,
    *,
    low_80: Any = None,
    high_80: Any = None,
    cost_label: str = "price (US dollars)",
    speed_label: str = "decode speed (tokens/s)",
    title: str = "Speed against cost",
) -> Axes:
    """Devices by cost and speed, both logarithmic; the front is joined and always named, others where there is room.

    The range of every device is drawn, or of the front alone where there are many.
    """
    x, y = np.asarray(cost, float), np.asarray(tokens_per_s, float)
    if not len(names) or not len(names) == len(x) == len(y):
        raise InputError("pareto front: needs as many costs and speeds as names, and at least one")
    front = on_front(x, y)
    order = np.flatnonzero(front)[np.argsort(x[front], kind="stable")]
    with styled():
        ax = axes_or_new(ax)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(x.min() / 1.5, x.max() * 1.8)
        ax.set_ylim(y.min() / 1.6, y.max() * 1.6)
        bars: Lines = []
        if low_80 is not None and high_80 is not None:
            ranged = front if len(x) > CROWDED else np.ones_like(front)
            bars = _ranges(ax, x[ranged], np.asarray(low_80, float)[ranged], np.asarray(high_80, float)[ranged])
        ax.step(x[order], y[order], where="post", color=VERMILLION, linewidth=1.4, label="_front", zorder=3)
        ax.scatter(x[order], y[order], s=46, marker="D", color=VERMILLION, edgecolors="white", label="front", zorder=5)
        ax.scatter(x[~front], y[~front], s=30, marker="o", color=BLUE, edgecolors="white", label="beaten", zorder=4)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
        ax.set_xlabel(cost_label)
        ax.set_ylabel(speed_label)
        set_title(ax, title)
        legend(ax, entries=1, loc="lower right")
        _names(ax, names, x, y, order, front, bars)
    return ax


def _names(ax: Axes, names: Sequence[str], x: Any, y: Any, order: Any, front: Any, bars: Lines) -> None:
    first = [Label(names[i], float(x[i]), float(y[i]), INK) for i in order.tolist()]
    rest = [
        Label(names[i], float(x[i]), float(y[i]), MUTED, optional=True, near=True)
        for i in np.flatnonzero(~front).tolist()
    ]
    points = [*zip(x.tolist(), y.tolist(), strict=True)]
    place_labels(ax, [*first, *rest], points, [_steps(x[order], y[order]), *bars])


def _ranges(ax: Axes, x: Any, low: Any, high: Any) -> Lines:
    """Draw the ranges, each a vertical line."""
    ax.vlines(x, low, high, color=MUTED, linewidth=0.7, alpha=0.7, label="80 % range", zorder=2)
    ends = zip(x.tolist(), low.tolist(), high.tolist(), strict=True)
    return [(np.array([at, at]), np.array([bottom, top])) for at, bottom, top in ends]


def _steps(x: Any, y: Any) -> tuple[Any, Any]:
    """The corners of the front's line."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
