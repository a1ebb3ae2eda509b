"""What the commands that read runs share: the device that stands in for what runs say, reading, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .option_groups import apply_options
from .parameter_types import BANDWIDTH, BYTES, CORES, PEAK

if TYPE_CHECKING:
    from ..calibration.machine_runs import Given, MachineRuns
    from ..calibration.readers import ReadResult
    from ..system import Device

F = TypeVar("F", bound=Callable[..., Any])
MOST_LINES = 12  # of problems on stderr; the rest are counted


def device_overrides(command: F) -> F:
    """--gpu, --cpu and the figures that override or define the device that the runs were measured on."""
    return apply_options(
        [
            click.option("--gpu", metavar="NAME", help="The GPU, where the runs do not say it; auto: this machine's."),
            click.option("--cpu", metavar="NAME", help="The CPU of runs on the CPU; auto: this machine's."),
            click.option("--cores", type=CORES, metavar="N", help="Cores of the CPU that are there, as in a VM  [all]"),
            click.option("--memory", type=BYTES, metavar="SIZE", help="Device memory, overriding the catalog."),
            click.option("--bandwidth", type=BANDWIDTH, metavar="RATE", help='Memory bandwidth, such as "1.2 TB/s".'),
            click.option("--fp32", type=PEAK, metavar="PEAK", help="FP32 peak, such as 40TFLOPS."),
            click.option("--fp16", type=PEAK, metavar="PEAK", help="FP16 matrix peak, dense, FP32 accumulation."),
            click.option("--int8", type=PEAK, metavar="PEAK", help="INT8 matrix peak, dense."),
        ],
        command,
    )


def runs_options(command: F) -> F:
    """FILE…, and what holds where the runs in them do not say it: the model, its quantisation and the device."""
    return apply_options(
        [
            click.argument("files", nargs=-1, required=True, metavar="FILE…"),
            click.option("--model", "-m", metavar="NAME|FILE", help="The model, where the runs do not say it."),
            click.option("--quant", "-q", metavar="TYPE", help="The quantisation, where the runs do not say it."),
            device_overrides,
        ],
        command,
    )


def given_of(given: Mapping[str, Any]) -> Given:
    """What the options say instead of the runs. Raises InputError for a name that means nothing."""
    from ..calibration.machine_runs import Given

    folders: tuple[Path, ...] = given["catalog"]
    gpu, cpu = _gpu(given, folders), _cpu(given, folders)
    if gpu is None and cpu is None and any(_figures(given).values()):
        raise InputError("figures such as --bandwidth and --cores go with a device; name it with --gpu or --cpu")
    return Given(gpu, cpu, given["model"], given["quant"], folders)


def _figures(given: Mapping[str, Any]) -> dict[str, Any]:
    from .options import figures_of

    return figures_of(given)


def _gpu(given: Mapping[str, Any], folders: tuple[Path, ...]) -> Device | None:
    from ..request import AUTO, GPU_KINDS, resolve_device

    name = given["gpu"]
    if name is None:
        return None
    if name == AUTO:
        from ..detection.machine import auto_system

        return auto_system().devices[0]
    figures = {key: value for key, value in _figures(given).items() if not (given["cpu"] and key == "cores")}
    return resolve_device(name, (*GPU_KINDS, "cpu") if figures.get("cores") else GPU_KINDS, figures, folders)


def _cpu(given: Mapping[str, Any], folders: tuple[Path, ...]) -> Device | None:
    from ..request import AUTO, resolve_device

    name = given["cpu"]
    if name is None:
        return None
    if name == AUTO:
        from ..detection.machine import detect_machine

        found = detect_machine().host_cpu
        if found is None:
            raise InputError("--cpu auto: this CPU is not in the catalog; `llmcalc detect` says what was seen")
        return found
    figures = {"cores": given["cores"]} if given["gpu"] else _figures(given)
    return resolve_device(name, ("cpu", "soc"), figures, folders)


def read_machine_runs(files: Sequence[str], given: Given) -> tuple[ReadResult, MachineRuns]:
    """Runs of files, folders or stdin, resolved; raises InputError for what cannot be opened."""
    from ..calibration.machine_runs import machine_runs
    from ..calibration.readers import read_runs

    read = read_runs([Path(name) for name in files])
    return read, machine_runs(read.runs, given)


def print_problems(read: ReadResult, runs: MachineRuns) -> None:
    """Say on stderr which lines could not be read and which runs could not be used, with the reason."""
    lines = [str(problem) for problem in read.problems]
    counted = Counter(each.reason for each in runs.skipped)
    first = {each.reason: each.run for each in reversed(runs.skipped)}
    for reason, count in counted.items():
        where = first[reason].origin
        lines.append(f"{where}: {reason}" if count == 1 else f"{count} runs, the first at {where}: {reason}")
    for line in lines[:MOST_LINES]:
        click.echo(line, err=True)
    if len(lines) > MOST_LINES:
        click.echo(f"… and {len(lines) - MOST_LINES} more problems; --json lists all", err=True)
