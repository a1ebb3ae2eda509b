"""`llmcalc detect`: what this machine is, and its CPU's roofs measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from .options import json_option
from .output import echo_page, page_style

if TYPE_CHECKING:
    from ..detection.machine import Machine
    from ..detection.measure import CpuRoofs, Share


@click.command(name="detect")
@click.option("--measure", is_flag=True, help="Measure bandwidth and FP32 rate of the CPU, which takes up to a minute.")
@json_option
def command(measure: bool, as_json: bool) -> None:
    """Find GPUs, CPU and memory of this machine, and the catalog entries that they are.

    Asks the tools that are installed (nvidia-smi, amd-smi, rocm-smi, xpu-smi, vulkaninfo, system_profiler, PowerShell
    …) and says what it could not see. Nothing is sent anywhere.

    \b
    Examples:
      llmcalc detect
      llmcalc detect --measure
      sudo llmcalc detect          shows memory modules where only root may read them
    """
    from ..detection.machine import detect_machine
    from ..report.machine import machine_data, machine_page, roofs_data, roofs_page

    machine = detect_machine()
    if not as_json:
        echo_page(machine_page(machine, page_style()))
    measured = _measure(machine) if measure else None
    if as_json:
        data = machine_data(machine) | ({"measured": roofs_data(*measured)} if measured else {})
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif measured:
        echo_page(roofs_page(*measured, page_style()))


def _measure(machine: Machine) -> tuple[CpuRoofs, tuple[Share, ...]]:
    from ..detection.measure import array_bytes, compare, measure_cpu, usable_cores

    size = array_bytes(machine.cache_bytes, machine.available_bytes)
    roofs = measure_cpu(usable_cores(machine.cpu.report.cores), size, progress=_progress)
    if sys.stderr.isatty():
        click.echo("\r" + " " * 60 + "\r", err=True, nl=False)
    return roofs, compare(roofs, machine)


def _progress(what: str, share: float) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{f'measuring {what} … {share:.0%}':<60}", err=True, nl=False)
