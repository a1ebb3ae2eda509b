"""Whole figures, as the command line and reports put them out: one chart, or those that belong side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import InputError
from ..memory_stack import MemoryStack
from ..roofline_view import RooflinePoint, RooflineView
from ..speed_curves import BatchCurve, LayersCurve, SpeedCurve
from .accuracy import predicted_against_measured
from .devices import pareto_front
from .memory import memory_against_context, memory_legend
from .roofline import roofline
from .speed import (
    Points,
    decode_against_context,
    latency_against_batch,
    prefill_against_context,
    prefill_against_prompt,
    prefill_time_against_prompt,
    throughput_against_batch,
    throughput_against_layers,
)
from .style import LEGEND_INSIDE, ONE, WIDE, figure, legend, no_legend, save, set_title, styled

if TYPE_CHECKING:
    from ..calibration.validation import Prediction, Report
    from ..speed_front import SpeedFront

FRONT: Final = (7.2, 5.0)
BESIDE_INCHES: Final = 2.4  # for a legend beside the charts


def roofline_figure(
    views: Sequence[RooflineView],
    *,
    operations: bool = False,
    measured: Sequence[RooflinePoint] = (),
    size: tuple[float, float] | None = None,
) -> Figure:
    """The roofline of one request or several."""
    with styled():
        made, (ax,) = figure(size or ((7.2, 5.0) if len(views) == 1 else (9.2, 5.0)))
        roofline(views, ax, operations=operations, measured=measured)
    return made


def context_figure(
    decode: Sequence[SpeedCurve],
    prefill: Sequence[SpeedCurve],
    *,
    measured_decode: Points = (),
    measured_prefill: Points = (),
) -> Figure:
    """Decode and prefill speed against occupied context, side by side."""
    with styled():
        made, (left, right) = figure(_wide(len(decode)), columns=2)
        decode_against_context(decode, left, measured=measured_decode)
        prefill_against_context(prefill, right, measured=measured_prefill)
        left.set_title("Decode")
        right.set_title("Prefill of the next 512 tokens")
        _share_legend(made, left, right, [curve.name for curve in decode])
    return made


def prefill_figure(curves: Sequence[SpeedCurve], *, measured: Points = ()) -> Figure:
    """Prefill speed and time against prompt length."""
    with styled():
        made, (left, right) = figure(_wide(len(curves)), columns=2)
        prefill_against_prompt(curves, left, measured=measured)
        prefill_time_against_prompt(curves, right)
        left.set_title("Prefill speed")
        right.set_title("Time to read the prompt")
        _share_legend(made, left, right, [curve.name for curve in curves])
    return made


def batch_figure(curves: Sequence[BatchCurve]) -> Figure:
    """Throughput and latency against the number of sequences."""
    with styled():
        made, (left, right) = figure(_wide(len(curves)), columns=2)
        throughput_against_batch(curves, left)
        latency_against_batch(curves, right)
        names = [curve.name for curve in curves]
        _share_legend(made, left, right, names)
        if len(curves) == 1:
            depth = f"{curves[0].occupied_tokens:,} tokens in the cache of each"
            made.suptitle(f"{names[0]}, {depth}", x=0.01, ha="left", fontsize=10)
    return made


def layers_figure(curves: Sequence[LayersCurve]) -> Figure:
    """Decode speed against the layers on the GPU."""
    if not curves:
        raise InputError("nothing to plot: no series was given")
    alone = len(curves) == 1
    with styled():
        made, (ax,) = figure(ONE if alone else (ONE[0] + BESIDE_INCHES, ONE[1]))
        for index, curve in enumerate(curves):
            throughput_against_layers(
                curve.layers, curve.tokens_per_s, ax, low_80=curve.low_80, high_80=curve.high_80,
                most_that_fit=curve.most_that_fit if alone else None, names=[curve.name], first=index, of=len(curves),
            )  # fmt: skip
        ax.set_xlim(0, max(float(curve.layers[-1]) for curve in curves))
        set_title(ax, curves[0].name if alone else "Decode speed against layers on the GPU")
        no_legend(ax) if alone else legend(ax, entries=LEGEND_INSIDE + 1)
    return made


def memory_figure(stacks: Sequence[MemoryStack]) -> Figure:
    """Memory against configured context, a panel a request."""
    if not stacks:
        raise InputError("nothing to plot: no series was given")
    if len(stacks) == 1:
        with styled():
            made, (ax,) = figure(ONE)
            set_title(memory_against_context(stacks[0], ax), stacks[0].name)
        return made
    columns = min(len(stacks), 3)
    rows = -(-len(stacks) // columns)
    with styled():
        made, axes = figure((3.4 * columns + BESIDE_INCHES, 3.0 * rows), columns, rows)
        for ax, stack in zip(axes, stacks, strict=False):
            set_title(memory_against_context(stack, ax, with_legend=False), stack.name, 8)
        memory_legend(axes[columns - 1], axes[: len(stacks)])
        for unused in axes[len(stacks) :]:
            unused.remove()
    return made


def front_figure(front: SpeedFront) -> Figure:
    """Speed against cost of machines, and their Pareto front."""
    from ..comparison import machine_name

    names = [machine_name(one.devices).replace("GeForce ", "") for one in front.machines]
    with styled():
        made, (ax,) = figure(FRONT)
        pareto_front(
            names, front.costs, front.tokens_per_s, ax, low_80=front.low_80, high_80=front.high_80,
            cost_label=front.label, title=front.title,
        )  # fmt: skip
    return made


def accuracy_figure(predictions: Sequence[Prediction]) -> Figure:
    """Predicted against measured of decode and prefill, by backend. Raises InputError where nothing was predicted."""
    phases = {
        phase: [one for one in predictions if one.phase == phase and not one.skipped] for phase in ("decode", "prefill")
    }
    shown = {phase: found for phase, found in phases.items() if found}
    if not shown:
        raise InputError("nothing to plot: none of the runs could be predicted")
    with styled():
        made, axes = figure((5.0 * len(shown), 5.0), columns=len(shown))
        for ax, (phase, found) in zip(axes, shown.items(), strict=True):
            _accuracy(ax, phase, found)
    return made


def save_accuracy(report: Report, path: str | Path) -> None:
    """Write the picture of a validation's runs, without the suspicious ones, as PNG, SVG or PDF."""
    save(accuracy_figure(report.judged), path)


def _accuracy(ax: Axes, phase: str, predictions: Sequence[Prediction]) -> None:
    predicted_against_measured(
        [one.measured for one in predictions],
        [one.predicted for one in predictions],
        [one.run.backend or "backend not stated" for one in predictions],
        ax,
    )
    ax.set_title(phase.capitalize())


def _wide(series: int) -> tuple[float, float]:
    width, height = WIDE
    return (width + BESIDE_INCHES if series > 1 else width), height


def _share_legend(made: Figure, left: Axes, right: Axes, names: Sequence[str]) -> None:
    """One legend for both panels: beside them for several series; for a single one its name is the figure's title."""
    if len(names) == 1:
        made.suptitle(names[0], x=0.01, ha="left", fontsize=10)
        no_legend(right)
        return
    no_legend(left)
    no_legend(right)
    legend(right, entries=LEGEND_INSIDE + 1)
