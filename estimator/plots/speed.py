"""Speeds along an axis: context, prompt length, sequences at once, offloaded layers; with bands of 80 % and 95 %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..speed_curves import DEPTH_CHUNK, BatchCurve, SpeedCurve
from .labels import halo
from .style import (
    BAND_ALPHA,
    INK,
    MUTED,
    WIDE_BAND_ALPHA,
    SeriesStyle,
    axes_or_new,
    band,
    binary_axis,
    legend,
    listed,
    markers_every,
    rate_axis,
    series_style,
    styled,
    token_axis,
)

Vector = NDArray[np.float64]
Points = Sequence[tuple[float, float]]  # measured: (x, tokens/s)
FAR_ABOVE: Final = 1.6  # times the band: a ceiling beyond does not set the scale
LIMIT_LINE: Final = (0, (1, 1.5))
BANDED: Final = 4  # series up to which bands are drawn; more would hide one another


def decode_against_context(
    curves: SpeedCurve | Sequence[SpeedCurve], ax: Axes | None = None, *, measured: Points = ()
) -> Axes:
    """Decode speed of one sequence over the positions that are occupied; of a single curve also its ceiling."""
    return _against_context(curves, ax, measured, "Decode speed against occupied context", 1)


def prefill_against_context(
    curves: SpeedCurve | Sequence[SpeedCurve], ax: Axes | None = None, *, measured: Points = ()
) -> Axes:
    """Speed of reading the next tokens of a prompt over the positions that are occupied already."""
    return _against_context(curves, ax, measured, "Prefill speed against occupied context", DEPTH_CHUNK)


def _against_context(
    curves: SpeedCurve | Sequence[SpeedCurve], ax: Axes | None, measured: Points, title: str, chunk: int
) -> Axes:
    shown = listed(curves)
    with styled():
        ax = axes_or_new(ax)
        for index, curve in enumerate(shown):
            _speed(ax, curve, index, len(shown))
        _measured(ax, measured)
        token_axis(ax, max(float(curve.tokens[-1]) + chunk for curve in shown), "occupied context (tokens)")
        rate_axis(ax, "speed (tokens/s)")
        ax.set_title(title)
        legend(ax)
    return ax


def prefill_against_prompt(
    curves: SpeedCurve | Sequence[SpeedCurve], ax: Axes | None = None, *, measured: Points = ()
) -> Axes:
    """Prefill speed over the length of the prompt: short ones do not fill the units, long ones pay for attention."""
    shown = listed(curves)
    with styled():
        ax = axes_or_new(ax)
        for index, curve in enumerate(shown):
            _speed(ax, curve, index, len(shown))
        _measured(ax, measured)
        _prompt_axis(ax, shown)
        rate_axis(ax, "speed (tokens/s)")
        ax.set_title("Prefill speed against prompt length")
        legend(ax)
    return ax


def prefill_time_against_prompt(curves: SpeedCurve | Sequence[SpeedCurve], ax: Axes | None = None) -> Axes:
    """Seconds to read a prompt over its length, both logarithmic."""
    shown = listed(curves)
    with styled():
        ax = axes_or_new(ax)
        ax.set_yscale("log")
        for index, curve in enumerate(shown):
            style = series_style(index)
            if len(shown) <= BANDED:
                band(ax, curve.tokens, curve.tokens / curve.high_80, curve.tokens / curve.low_80, style)
            _line(ax, curve.tokens, curve.tokens / curve.tokens_per_s, _name(curve, len(shown)), index, len(shown))
        if len(shown) == 1:
            _band_entry(ax, series_style(0))
        _prompt_axis(ax, shown)
        ax.yaxis.set_major_formatter(seconds_text)
        ax.set_ylabel("time to read the prompt")
        ax.set_title("Prefill time against prompt length")
        legend(ax)
    return ax


def throughput_against_batch(curves: BatchCurve | Sequence[BatchCurve], ax: Axes | None = None) -> Axes:
    """Tokens/s of all sequences together over their number, and how many fit into memory."""
    shown = listed(curves)
    with styled():
        ax = axes_or_new(ax)
        for index, curve in enumerate(shown):
            if len(shown) <= BANDED:
                band(ax, curve.parallel, curve.low_80, curve.high_80, series_style(index))
            _line(ax, curve.parallel, curve.tokens_per_s, _name(curve, len(shown)), index, len(shown))
        _batch_axis(ax, shown)
        rate_axis(ax, "speed of all together (tokens/s)")
        ax.set_title("Decode throughput")
        _limits_that_fit(ax, shown)
        _batch_legend(ax, shown, "lower right" if len(shown) == 1 else "upper left")
    return ax


def latency_against_batch(curves: BatchCurve | Sequence[BatchCurve], ax: Axes | None = None) -> Axes:
    """Time from token to token of each sequence over their number."""
    shown = listed(curves)
    with styled():
        ax = axes_or_new(ax)
        for index, curve in enumerate(shown):
            if len(shown) <= BANDED:
                band(ax, curve.parallel, 1e3 * curve.tpot_low_80, 1e3 * curve.tpot_high_80, series_style(index))
            _line(ax, curve.parallel, 1e3 * curve.tpot_s, _name(curve, len(shown)), index, len(shown))
        _batch_axis(ax, shown)
        rate_axis(ax, "time per token of each (ms)")
        ax.set_title("Decode latency")
        _limits_that_fit(ax, shown)
        _batch_legend(ax, shown, "upper left")
    return ax


def throughput_against_layers(
    layers: Any,
    tokens_per_s: Any,
    ax: Axes | None = None,
    *,
    low_80: Any = None,
    high_80: Any = None,
    most_that_fit: int | None = None,
    names: Sequence[str] = (),
    first: int = 0,
    of: int = 1,
) -> Axes:
    """Tokens/s over the number of layers on the GPU (-ngl).

    `tokens_per_s` (and the bounds of its band): an array as long as `layers`, or one of them a series with `names`.
    `first`: number of the first series' style, where several calls share the axes, with `of` series altogether.
    """
    x = np.asarray(layers, float)
    rows = np.atleast_2d(np.asarray(tokens_per_s, float))
    labels = list(names) or [f"series {i + 1}" if len(rows) > 1 else "estimate" for i in range(len(rows))]
    with styled():
        ax = axes_or_new(ax)
        if low_80 is not None and high_80 is not None and len(rows) <= BANDED:
            for index, (low, high) in enumerate(zip(np.atleast_2d(low_80), np.atleast_2d(high_80), strict=True)):
                band(ax, x, low, high, series_style(first + index))
        for index, row in enumerate(rows):
            _line(ax, x, row, labels[index], first + index, max(of, len(rows)))
        if most_that_fit is not None:
            _vertical(ax, most_that_fit, f"{most_that_fit} layers fit", MUTED, at_top=True)
        ax.set_xlim(x.min(), x.max())
        ax.xaxis.set_major_locator(MaxNLocator(9, integer=True))
        ax.set_xlabel("layers on the GPU (-ngl)")
        rate_axis(ax, "decode speed (tokens/s)")
        ax.set_title("Decode speed against offloaded layers")
        legend(ax, loc="upper left") if len(rows) > 1 else None
    return ax


def seconds_text(value: float, _: object = None) -> str:
    """A positive time for a tick: 20 ms, 5 s, 100 s."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:,.4g} s"


def _speed(ax: Axes, curve: SpeedCurve, index: int, count: int) -> None:
    style = series_style(index)
    if count == 1:
        band(ax, curve.tokens, curve.low_95, curve.high_95, style, WIDE_BAND_ALPHA)
    if count <= BANDED:
        band(ax, curve.tokens, curve.low_80, curve.high_80, style)
    _line(ax, curve.tokens, curve.tokens_per_s, _name(curve, count), index, count)
    if count == 1:
        _ceiling(ax, curve)
        _band_entries(ax, style)


def _ceiling(ax: Axes, curve: SpeedCurve) -> None:
    """The datasheet's ceiling; where it would squeeze the estimate it leaves the chart, and the legend says so."""
    highest, top = float(np.max(curve.ceiling_tokens_per_s)), float(np.max(curve.high_95))
    name = "datasheet ceiling"
    if highest > FAR_ABOVE * top:
        ax.set_ylim(top=1.15 * top)
        name += f" (up to {float(f'{highest:.3g}'):,.0f})"
    ax.plot(curve.tokens, curve.ceiling_tokens_per_s, color=MUTED, linestyle=":", label=name)


def _band_entries(ax: Axes, style: SeriesStyle) -> None:
    """Legend entries of the bands: as dark as they look where they lie on one another."""
    ax.fill_between([], [], [], color=style.color, alpha=0.30, linewidth=0, label="80 % of runs")
    ax.fill_between([], [], [], color=style.color, alpha=WIDE_BAND_ALPHA, linewidth=0, label="95 % of runs")


def _line(ax: Axes, x: Vector, y: Vector, name: str, index: int, count: int) -> None:
    style = series_style(index)
    marker = style.marker if count > 1 else None
    ax.plot(
        x,
        y,
        color=style.color,
        linestyle=style.line,
        marker=marker,
        markevery=markers_every(len(x), index),
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=name,
        zorder=3,
    )


def _measured(ax: Axes, points: Points) -> None:
    if points:
        x, y = zip(*points, strict=True)
        ax.scatter(x, y, s=60, marker="*", color=INK, edgecolors="white", linewidths=0.6, label="measured", zorder=5)


def _prompt_axis(ax: Axes, curves: Sequence[SpeedCurve]) -> None:
    least = min(float(curve.tokens[0]) for curve in curves)
    binary_axis(ax, least, max(float(curve.tokens[-1]) for curve in curves), "prompt (tokens)")


def _batch_axis(ax: Axes, curves: Sequence[BatchCurve]) -> None:
    binary_axis(ax, 1, max(float(curve.parallel[-1]) for curve in curves), "sequences at once")


def _name(curve: SpeedCurve | BatchCurve, count: int) -> str:
    """A single curve needs no name of its own beside its bands."""
    return "estimate" if count == 1 else curve.name


def _band_entry(ax: Axes, style: SeriesStyle) -> None:
    ax.fill_between([], [], [], color=style.color, alpha=BAND_ALPHA, linewidth=0, label="80 % of runs")


def _batch_legend(ax: Axes, shown: Sequence[BatchCurve], loc: str) -> None:
    if len(shown) == 1:
        _band_entry(ax, series_style(0))
    elif any(_ends_within(curve) for curve in shown):
        ax.plot([], [], color=MUTED, linestyle=LIMIT_LINE, linewidth=1.2, label="memory ends, in its colour")
    legend(ax, loc=loc if len(shown) <= 2 else None)


def _ends_within(curve: BatchCurve) -> bool:
    return curve.most_that_fit is not None and 1 <= curve.most_that_fit < curve.parallel[-1]


def _limits_that_fit(ax: Axes, curves: Sequence[BatchCurve]) -> None:
    """A line at the most sequences that fit: of a single curve with words, else in the curve's colour."""
    for index, curve in enumerate(curves):
        if _ends_within(curve) and curve.most_that_fit is not None:
            most, alone = curve.most_that_fit, len(curves) == 1
            color = MUTED if alone else series_style(index).color
            _vertical(ax, most, f"memory ends at {most}" if alone else "", color, at_top=True)


def _vertical(ax: Axes, x: float, text: str, color: str, at_top: bool = False) -> None:
    ax.axvline(x, color=color, linestyle=LIMIT_LINE, linewidth=1.2, zorder=1)
    if text:
        ax.annotate(
            text,
            (x, 0.98 if at_top else 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            rotation=90,
            va="top" if at_top else "bottom",
            fontsize=7.5,
            color=color,
            path_effects=[halo()],
        )
