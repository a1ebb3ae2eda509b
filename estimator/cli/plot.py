"""`llmcalc plot KIND`: pictures of estimates, and a text version of most of them for terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .options import catalog_option, figures_of, request_of, run_options
from .output import echo_page, page_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..calibration.measured_points import MeasuredPoint
    from ..calibration.runs import Run
    from ..report.terminal_charts import Chart
    from ..request import Request

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Output:
    """Where a picture goes: a file, a window, or the terminal as text."""

    path: Path | None
    show: bool
    ascii: bool


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
      llmcalc plot accuracy runs.csv -o accuracy.png
    """


def _output_options(function: F) -> F:
    options = [
        click.option("--out", "-o", type=FILE, metavar="FILE", help="Picture to write: .png, .svg or .pdf."),
        click.option("--show", is_flag=True, help="Open a window with the picture."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


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
        _output_options,
        click.option("--ascii", is_flag=True, help="Text in plain ASCII."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


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
    out = _output(given)
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

    _deliver(out, figure, text)


@command.command()
@_series_options
@_measured_option
def context(**given: Any) -> None:
    """Decode speed, and that of reading 512 more tokens, against the context that is occupied."""
    from ..speed_curves import DEPTH_CHUNK, decode_curve, prefill_depth_curve, series_names

    requests = _requests(given)
    out = _output(given)
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

    _deliver(out, figure, text)


@command.command()
@_series_options
@_measured_option
def prefill(**given: Any) -> None:
    """Prefill speed and time against the length of the prompt."""
    from ..speed_curves import prefill_curve, series_names

    requests = _requests(given)
    out = _output(given)
    names = series_names(requests)
    curves = [prefill_curve(one, None, name) for one, name in zip(requests, names, strict=True)]
    points = [p for p in _measured(given["measured"], requests) if p.prompt and not p.tokens]

    def figure() -> Figure:
        from ..plots import prefill_figure

        return prefill_figure(curves, measured=[(float(p.prompt), p.tokens_per_s) for p in points])

    def text() -> Chart:
        from ..report.terminal_charts import speed_chart

        return speed_chart(curves, _titled("Prefill", names), "prompt (tokens)", log=True)

    _deliver(out, figure, text)


@command.command()
@_series_options
def memory(**given: Any) -> None:
    """Memory against the configured context, part by part, with the device's capacity; a panel a series."""
    from ..memory_stack import memory_stack
    from ..speed_curves import series_names

    requests = _requests(given)
    out = _output(given)
    stacks = [memory_stack(one, name) for one, name in zip(requests, series_names(requests), strict=True)]

    def figure() -> Figure:
        from ..plots import memory_figure

        return memory_figure(stacks)

    _deliver(out, figure, None)


@command.command()
@_series_options
@click.option(
    "--most", type=click.IntRange(2, 256), default=64, show_default=True, metavar="N", help="Sequences shown."
)
def batch(most: int, **given: Any) -> None:
    """Decode throughput and latency against the number of sequences at once."""
    from ..speed_curves import batch_curve, series_names

    requests = _requests(given)
    out = _output(given)
    named = zip(requests, series_names(requests), strict=True)
    curves = [batch_curve(one, None, name, most) for one, name in named]

    def figure() -> Figure:
        from ..plots import batch_figure

        return batch_figure(curves)

    def text() -> Chart:
        from ..report.terminal_charts import batch_chart

        return batch_chart(curves)

    _deliver(out, figure, text)


@command.command()
@_series_options
def layers(**given: Any) -> None:
    """Decode speed against the layers on the GPU (-ngl), the others on the CPU that --cpu names."""
    from ..speed_curves import layers_curve, series_names

    requests = _requests(given)
    out = _output(given)
    curves = [layers_curve(one, None, name) for one, name in zip(requests, series_names(requests), strict=True)]

    def figure() -> Figure:
        from ..plots import layers_figure

        return layers_figure(curves)

    def text() -> Chart:
        from ..report.terminal_charts import layers_chart

        return layers_chart(curves)

    _deliver(out, figure, text)


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--gpu", "--cpu", "device", metavar="NAME", help="The device, where the runs do not say it.")
@click.option("--model", metavar="NAME", help="The model, where the runs do not say it.")
@click.option("--quant", metavar="TYPE", help="The quantisation, where the runs do not say it.")
@catalog_option
@_output_options
def accuracy(
    files: tuple[str, ...], device: str | None, model: str | None, quant: str | None, catalog: tuple[Path, ...],
    **given: Any,
) -> None:  # fmt: skip
    """Predicted against measured, for the runs in FILE: CSV of this project, or what llama-bench prints; - is stdin."""
    out = _output(given)
    from ..calibration.resolved import validate_resolved

    runs = _read([Path(name) for name in files])
    report = validate_resolved(runs, gpu=device, model=model, quant=quant, folders=catalog)

    def figure() -> Figure:
        from ..plots import accuracy_figure

        return accuracy_figure(report.judged)

    _deliver(out, figure, None)


def _output(given: dict[str, Any]) -> Output:
    """The place of output, checked before anything is computed."""
    out = Output(given["out"], given["show"], given.get("ascii", False))
    if out.path is not None:
        from ..plots import picture_format

        picture_format(out.path)
    return out


def _deliver(out: Output, figure: Callable[[], Figure], text: Callable[[], Chart] | None) -> None:
    """Write the picture, show it, or print its text version."""
    if out.path is not None:
        from ..plots import save

        save(figure(), out.path)
    if out.show:
        from ..plots import show

        show(figure)
    if out.path is not None or out.show:
        return
    if text is None:
        raise InputError("this picture has no text version: write it with -o FILE (.png, .svg or .pdf) or use --show")
    from ..report.terminal_charts import render

    echo_page(render(text(), page_style(), out.ascii or not _braille()))


def _braille() -> bool:
    """Whether stdout takes Braille dots: an encoding that has them, and a terminal that is not a dumb one."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding.startswith("utf") and os.environ.get("TERM") != "dumb"


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
