"""Predicted against measured: every run a point, the diagonal where both agree, a band around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from ..errors import InputError
from ..request import BACKENDS
from .style import GREEN, INK, MUTED, axes_or_new, legend, log_axis, series_style, styled

RASTER_FROM: Final = 2000  # points; so many are drawn as pixels in SVG and PDF too
BAND: Final = 0.20


def predicted_against_measured(
    measured: Any, predicted: Any, groups: Sequence[str], ax: Axes | None = None, *, within: float = BAND
) -> Axes:
    """Rates (tokens/s) of runs, coloured by group (backend), on equal logarithmic axes with a band of ± `within`."""
    x, y, names = np.asarray(measured, float), np.asarray(predicted, float), np.asarray(groups)
    if not len(x) or not len(x) == len(y) == len(names):
        raise InputError("predicted against measured: needs as many predicted and groups as measured, and at least one")
    with styled():
        ax = axes_or_new(ax, (5.2, 5.2))
        ax.set_xscale("log")
        ax.set_yscale("log")
        low, high = min(x.min(), y.min()) / 1.5, max(x.max(), y.max()) * 1.5
        ends = np.array([low, high])
        ax.fill_between(ends, ends * (1 - within), ends * (1 + within), color=GREEN, alpha=0.15, linewidth=0,
                        label=f"within ±{within:.0%}".replace("%", " %"))  # fmt: skip
        ax.plot(ends, ends, color=INK, linewidth=0.9, label="predicted = measured")
        for index, name in _ordered(groups):
            inside = names == name
            _group(ax, x[inside], y[inside], f"{name} ({np.count_nonzero(inside):,})", index, len(x))
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.set_aspect("equal")
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
        ax.set_xlabel("measured (tokens/s)")
        ax.set_ylabel("predicted (tokens/s)")
        ax.set_title("Predicted against measured")
        _share(ax, x, y, within)
        legend(ax, entries=1, loc="upper left")
    return ax


def _ordered(groups: Sequence[str]) -> list[tuple[int, str]]:
    """The groups with the number of their style: a backend has the same in every chart, others follow by name."""
    others = sorted(set(groups) - set(BACKENDS))
    return [(i, name) for i, name in enumerate((*BACKENDS, *others)) if name in set(groups)]


def _group(ax: Axes, x: Any, y: Any, name: str, index: int, total: int) -> None:
    style = series_style(index)
    ax.scatter(
        x,
        y,
        s=26 if total < 200 else 14,
        marker=style.marker,
        facecolors=style.color,
        edgecolors="white",
        linewidths=0.3,
        alpha=0.85 if total < 200 else 0.6,
        label=name,
        rasterized=total >= RASTER_FROM,
        zorder=3,
    )


def _share(ax: Axes, x: Any, y: Any, within: float) -> None:
    error = np.abs(y - x) / x
    inside, median = float(np.mean(error <= within)), float(np.median(error))
    text = f"{inside:.0%} of {len(x):,} within ±{within:.0%}\nmedian error {median:.1%}".replace("%", " %")
    ax.text(0.97, 0.03, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=8, color=MUTED)
