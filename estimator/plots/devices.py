"""Devices compared: speed against price or power, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ..errors import InputError
from ..pareto import pareto_front as unbeaten
from .labels import Label, place_labels
from .style import BLUE, INK, MUTED, VERMILLION, axes_or_new, legend, log_axis, styled


def on_front(cost: Any, tokens_per_s: Any) -> NDArray[np.bool_]:
    """Which points no other one beats: none that costs no more is faster, and none as fast costs less."""
    return unbeaten(np.stack([np.asarray(cost, float), -np.asarray(tokens_per_s, float)], axis=1))


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
) -> Axes:
    """Devices by cost and speed, both logarithmic; the front is joined and always named, others where there is room."""
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
        if low_80 is not None and high_80 is not None:
            spread = np.vstack([y - np.asarray(low_80, float), np.asarray(high_80, float) - y])
            ax.errorbar(x, y, spread, fmt="none", ecolor=MUTED, elinewidth=0.7, alpha=0.7, label="80 % range", zorder=2)
        ax.step(x[order], y[order], where="post", color=VERMILLION, linewidth=1.4, label="_front", zorder=3)
        ax.scatter(x[order], y[order], s=46, marker="D", color=VERMILLION, edgecolors="white", label="front", zorder=5)
        ax.scatter(x[~front], y[~front], s=30, marker="o", color=BLUE, edgecolors="white", label="beaten", zorder=4)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
        ax.set_xlabel(cost_label)
        ax.set_ylabel(speed_label)
        ax.set_title("Speed against cost")
        legend(ax, entries=1, loc="lower right")
        _names(ax, names, x, y, order, front)
    return ax


def _names(ax: Axes, names: Sequence[str], x: Any, y: Any, order: Any, front: Any) -> None:
    first = [Label(names[i], float(x[i]), float(y[i]), INK) for i in order.tolist()]
    rest = [Label(names[i], float(x[i]), float(y[i]), MUTED, optional=True) for i in np.flatnonzero(~front).tolist()]
    place_labels(ax, [*first, *rest], [*zip(x.tolist(), y.tolist(), strict=True)], [_steps(x[order], y[order])])


def _steps(x: Any, y: Any) -> tuple[Any, Any]:
    """The corners of the front's line."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
