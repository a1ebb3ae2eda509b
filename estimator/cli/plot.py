"""`llmcalc plot KIND`: pictures of estimates, and a text version of most of them for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .device_filters import device_filters, filtered_devices
from .option_groups import apply_options
from .options import catalog_option, figures_of, request_of, run_options
from .parameter_types import BYTES, RATE, SOME_TOKENS, TOKENS
from .plot_output import FILE, deliver, output_of, output_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..calibration.measured_points import MeasuredPoint
    from ..calibration.runs import Run
    from ..report.terminal_charts import Chart
    from ..request import Request

F = TypeVar("F", bound=Callable[..., Any])
COSTS = ("price", "watts", "bandwidth", "memory")  # those of `speed_front`


@click.group(name="plot")
def command() -> None:
    """Pictures of an estimate, as PNG, SVG or PDF by the file's ending.

    Without -o all but memory and accuracy are drawn as text. --model and --quant may be repeated, each a
    series; --compare makes every --gpu (and the --cpu) a machine of its own instead of one machine with several.

    \b
    Examples:
      llmcalc plot roofline --gpu rtx4090 --model llama3-8b -o roofline.svg
      llmcalc plot context --compare --gpu rtx4090 --gpu m2-ultra-76 --model llama3.1-8b --ctx 64k -o context.png
      llmcalc plot memory --gpu rtx3090 --model gemma3-27b --quant q4 --quant q6 -o memory.pdf
      llmcalc plot pareto --model llama3-70b --quant q4 --against watts -o front.svg
      llmcalc plot accuracy runs.csv -o accuracy.png
    """


def _series_options(function: F) -> F:
    """What is plotted: the options of `estimate`, --model and --quant repeatable."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--model", "-m", multiple=True, required=True, metavar="NAME|FILE",
            help="Catalog name, .gguf file or config.json; repeatable.",
        ),
        click.option("--quant", "-q", multiple=True, metavar="TYPE", help="File type; repeatable."),
        run_options,
        click.option("--compare", is_flag=True, help="Every --gpu, and the --cpu, is a machine of its own."),
        output_options,
        click.option("--ascii", is_flag=True, help="Text in plain ASCII."),
    ]  # fmt: skip
    return apply_options(options, function)


_measured_option = click.option(
    "--measured", multiple=True, type=FILE, metavar="FILE",
    help="Runs of llama-bench or in CSV to put beside the estimate; repeatable.",
)  # fmt: skip


@command.command()
@_series_options
@_measured_option
@click.option("--operations", is_flag=True, help="Show the single operations of each phase too.")
def roofline(operations: bool, **given: Any) -> None:
    """FLOP/s against FLOP/byte: roofs and ridge points, with prefill, decode and batched decode under them."""
    from ..roofline_view import RooflinePoint, roofline_view
    from ..speed_curves import series_names

    requests = _requests(given)
    out = output_of(given)
    views = [roofline_view(one, None, name) for one, name in zip(requests, series_names(requests), strict=True)]
    if given["measured"] and not all(view.whole for view in views):
        raise InputError("--measured: a roofline shows one device's part of the work, but runs measure all devices")
    measured = [
        RooflinePoint("measured", "measured", point.intensity, point.flop_per_s, point.tokens_per_s)
        for point in _measured(given["measured"], requests)
    ]

    def figure() -> Figure:
        from ..plots import roofline_figure

        return roofline_figure(views, operations=operations, measured=measured)

    def text() -> Chart:
        from ..report.terminal_charts import roofline_chart

        return roofline_chart(views)

    deliver(out, figure, text)


@command.command()
@_series_options
@_measured_option
def context(**given: Any) -> None:
    """Decode speed, and that of reading 512 more tokens, against the context that is occupied."""
    from ..speed_curves import DEPTH_CHUNK, decode_curve, prefill_depth_curve, series_names

    requests = _requests(given)
    out = output_of(given)
    names = series_names(requests)
    decode = [decode_curve(one, None, name) for one, name in zip(requests, names, strict=True)]
    prefill = [prefill_depth_curve(one, None, name) for one, name in zip(requests, names, strict=True)]
    points = _measured(given["measured"], requests)
    alone = requests[0].workload.parallel

    def figure() -> Figure:
        from ..plots import context_figure

        return context_figure(
            decode,
            prefill,
            measured_decode=[
                (p.tokens, p.tokens_per_s / alone) for p in points if p.prompt == 0 and p.parallel == alone
            ],
            measured_prefill=[(p.tokens, p.tokens_per_s) for p in points if p.prompt == DEPTH_CHUNK],
        )

    def text() -> Chart:
        from ..report.terminal_charts import speed_chart

        return speed_chart(decode, _titled("Decode", names), "occupied context (tokens)")

    deliver(out, figure, text)


@command.command()
@_series_options
@_measured_option
def prefill(**given: Any) -> None:
    """Prefill speed and time against the length of the prompt."""
    from ..speed_curves import prefill_curve, series_names

    requests = _requests(given)
    out = output_of(given)
    names = series_names(requests)
    curves = [prefill_curve(one, None, name) for one, name in zip(requests, names, strict=True)]
    points = [p for p in _measured(given["measured"], requests) if p.prompt and not p.tokens]

    def figure() -> Figure:
        from ..plots import prefill_figure

        return prefill_figure(curves, measured=[(float(p.prompt), p.tokens_per_s) for p in points])

    def text() -> Chart:
        from ..report.terminal_charts import speed_chart

        return speed_chart(curves, _titled("Prefill", names), "prompt (tokens)", log=True)

    deliver(out, figure, text)


@command.command()
@_series_options
def memory(**given: Any) -> None:
    """Memory against the configured context, part by part, with the device's capacity; a panel a series."""
    from ..memory_stack import memory_stack
    from ..speed_curves import series_names

    requests = _requests(given)
    out = output_of(given)
    stacks = [memory_stack(one, name) for one, name in zip(requests, series_names(requests), strict=True)]

    def figure() -> Figure:
        from ..plots import memory_figure

        return memory_figure(stacks)

    deliver(out, figure, None)


@command.command()
@_series_options
@click.option(
    "--most", type=click.IntRange(2, 256), default=64, show_default=True, metavar="N", help="Sequences shown."
)
def batch(most: int, **given: Any) -> None:
    """Decode throughput and latency against the number of sequences at once."""
    from ..speed_curves import batch_curve, series_names

    requests = _requests(given)
    out = output_of(given)
    named = zip(requests, series_names(requests), strict=True)
    curves = [batch_curve(one, None, name, most) for one, name in named]

    def figure() -> Figure:
        from ..plots import batch_figure

        return batch_figure(curves)

    def text() -> Chart:
        from ..report.terminal_charts import batch_chart

        return batch_chart(curves)

    deliver(out, figure, text)


@command.command()
@_series_options
def layers(**given: Any) -> None:
    """Decode speed against the layers on the GPU (-ngl), the others on the CPU that --cpu names."""
    from ..speed_curves import layers_curve, series_names

    requests = _requests(given)
    out = output_of(given)
    curves = [layers_curve(one, None, name) for one, name in zip(requests, series_names(requests), strict=True)]

    def figure() -> Figure:
        from ..plots import layers_figure

        return layers_figure(curves)

    def text() -> Chart:
        from ..report.terminal_charts import layers_chart

        return layers_chart(curves)

    deliver(out, figure, text)


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--gpu", "--cpu", "device", metavar="NAME", help="The device, where the runs do not say it.")
@click.option("--model", metavar="NAME", help="The model, where the runs do not say it.")
@click.option("--quant", metavar="TYPE", help="The quantisation, where the runs do not say it.")
@catalog_option
@output_options
def accuracy(
    files: tuple[str, ...], device: str | None, model: str | None, quant: str | None, catalog: tuple[Path, ...],
    **given: Any,
) -> None:  # fmt: skip
    """Predicted against measured, for the runs in FILE: CSV of this project, or what llama-bench prints; - is stdin."""
    out = output_of(given)
    from ..calibration.resolved import validate_resolved

    runs = _read([Path(name) for name in files])
    report = validate_resolved(runs, gpu=device, model=model, quant=quant, folders=catalog)

    def figure() -> Figure:
        from ..plots import accuracy_figure

        return accuracy_figure(report.judged)

    deliver(out, figure, None)


@command.command()
@click.option("--model", "-m", required=True, metavar="NAME|FILE", help="Catalog name, .gguf file or config.json.")
@click.option("--quant", "-q", metavar="TYPE", help="File type: q4 (= Q4_K_M), q8, …")
@click.option("--ctx", "-c", type=SOME_TOKENS, default=8192, metavar="N", help="Context to reserve  [8k]")
@click.option("--occupied", type=TOKENS, metavar="N", help="Positions in the cache when tokens/s count  [all of ctx]")
@click.option(
    "--against", type=click.Choice(COSTS), default="price", show_default=True, help="What the speed is set against."
)
@click.option("--gpu", multiple=True, metavar="NAME", help="A device to show; repeatable  [all that fit the filters]")
@click.option(
    "--max-devices",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    metavar="N",
    help="Most of one kind together, where one does not do.",
)
@click.option("--min-tps", type=RATE, default=0.0, metavar="RATE", help="Least tokens/s.")
@click.option("--ram", type=BYTES, metavar="SIZE", help="Host memory: lets CPUs and APUs be considered.")
@device_filters
@catalog_option
@output_options
@click.option("--ascii", is_flag=True, help="Text in plain ASCII.")
def pareto(against: Any, **given: Any) -> None:
    """Decode speed of devices against price, watts, bandwidth or memory, and which no other one beats in both."""
    from ..planner import Goals, plan
    from ..speed_front import speed_front

    out = output_of(given)
    answer = plan(
        model=given["model"], quant=given["quant"], ctx=given["ctx"], occupied=given["occupied"], ram=given["ram"],
        devices=filtered_devices(given), most=given["max_devices"], goals=Goals(given["min_tps"]),
        catalog=given["catalog"],
    )  # fmt: skip
    front = speed_front(answer, against)
    if front.left_out:
        click.echo(f"{front.left_out} devices are left out: their {against} is unknown", err=True)

    def figure() -> Figure:
        from ..plots import front_figure

        return front_figure(front)

    def text() -> Chart:
        from ..report.terminal_charts import front_chart

        return front_chart(front)

    deliver(out, figure, text)


def _requests(given: dict[str, Any]) -> list[Request]:
    """A request for every machine, model and quantisation that was named."""
    return [
        request_of(given | machine | {"model": model, "quant": quant})
        for machine in _machines(given)
        for model in given["model"]
        for quant in given["quant"] or (None,)
    ]


def _machines(given: dict[str, Any]) -> list[dict[str, Any]]:
    """What changes from machine to machine: nothing, or with --compare the device."""
    if not given["compare"]:
        return [{}]
    alone: list[dict[str, Any]] = [{"gpu": (gpu,), "cpu": None} for gpu in given["gpu"]]
    if given["cpu"] is not None:
        alone.append({"gpu": (), "cpu": given["cpu"]})
    if len(alone) > 1 and any(value is not None for value in figures_of(given).values()):
        raise InputError("figures such as --memory and --bandwidth go with one device; put several into a --catalog")
    return alone or [{}]


def _measured(files: Sequence[Path], requests: Sequence[Request]) -> list[MeasuredPoint]:
    """Points of the runs in `files` that fit a request; what was left out is said on stderr."""
    if not files:
        return []
    from ..calibration.measured_points import measured_points

    runs = _read(files)
    found = [measured_points(runs, request) for request in requests]
    points = [point for one in found for point in one.points]
    if not points:
        reasons = ", ".join(f"{count} {reason}" for reason, count in found[0].skipped.items())
        raise InputError(f"--measured: none of the {len(runs)} runs is of this machine and model ({reasons})")
    left = len(runs) - len(points)
    if left > 0:
        click.echo(f"{left} of {len(runs)} measured runs are of other machines, models or settings", err=True)
    return points


def _read(files: Sequence[Path]) -> Sequence[Run]:
    """The runs of all files. Raises InputError where there are none."""
    from ..calibration.readers import read_runs

    result = read_runs(list(files))
    if not result.runs:
        reason = f": {result.problems[0].reason}" if result.problems else ""
        raise InputError(f"no runs in {', '.join(map(str, files))}{reason}")
    return result.runs


def _titled(title: str, names: Sequence[str]) -> str:
    return f"{title}: {names[0]}" if len(names) == 1 else title
