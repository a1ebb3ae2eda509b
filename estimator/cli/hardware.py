"""`llmcalc hardware list|show`: the device catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import catalog_option, json_option
from .output import echo_page, page_style

if TYPE_CHECKING:
    from ..system import Device


@click.group(name="hardware")
def command() -> None:
    """Devices of the catalog."""


@command.command(name="list")
@click.option("--vendor", metavar="NAME", help="nvidia, amd, intel, apple, …")
@click.option("--kind", metavar="KIND", help="gpu, apu, apple, soc or cpu.")
@click.option("--search", metavar="TEXT", help="Part of the id, name or architecture.")
@click.option("--min-memory", metavar="SIZE", help="At least this much memory, such as 24GiB.")
@click.option("--min-bandwidth", metavar="RATE", help="At least this bandwidth, such as 500GB/s.")
@catalog_option
@json_option
def list_command(
    vendor: str | None,
    kind: str | None,
    search: str | None,
    min_memory: str | None,
    min_bandwidth: str | None,
    catalog: tuple[Path, ...],
    as_json: bool,
) -> None:
    """List devices, one a line.

    \b
    Examples:
      llmcalc hardware list --vendor apple
      llmcalc hardware list --kind gpu --min-memory 24GiB --min-bandwidth 900GB/s
    """
    from ..describe import describe_device
    from ..device_catalog import list_devices
    from ..units import parse

    memory = parse(min_memory, "bytes", "--min-memory") if min_memory else 0.0
    bandwidth = parse(min_bandwidth, "bytes_per_s", "--min-bandwidth") if min_bandwidth else 0.0
    chosen = [
        device
        for device in list_devices(catalog)
        if (vendor is None or device.vendor.casefold() == vendor.casefold())
        and (kind is None or device.kind == kind.casefold())
        and (search is None or search.casefold() in f"{device.id} {device.name} {device.architecture}".casefold())
        and (device.memory_bytes or 0.0) >= memory
        and device.bandwidth_bytes_per_s >= bandwidth
    ]
    if as_json:
        click.echo(json.dumps([describe_device(device) for device in chosen], indent=1, ensure_ascii=False))
    else:
        echo_page(_table(chosen))


def _table(devices: list[Device]) -> list[str]:
    from ..report.layout import columns

    rows: list[tuple[str, ...]] = [("id", "memory", "GB/s", "fp16 TFLOPS", "int8 TOPS", "architecture")]
    rows += [_row(device) for device in devices]
    return [*columns(rows, "<>>>><", indent=0), f"{len(devices)} devices"]


def _row(device: Device) -> tuple[str, ...]:
    from ..units import GB, GIB

    peaks = device.peaks_flop_per_s
    fp16 = peaks.get("fp16_matrix") or peaks.get("fp16") or peaks.get("bf16_cpu")
    int8 = peaks.get("int8_matrix") or peaks.get("int8_dot") or peaks.get("int8_cpu")
    memory = f"{device.memory_bytes / GIB:.4g} GiB" if device.memory_bytes else ""
    return (
        device.id,
        memory,
        f"{device.bandwidth_bytes_per_s / GB:,.4g}",
        f"{fp16 / 1e12:.4g}" if fp16 else "",
        f"{int8 / 1e12:.4g}" if int8 else "",
        device.architecture,
    )


@command.command()
@click.argument("name")
@click.option("--sources", is_flag=True, help="Say where the figures are from.")
@catalog_option
@json_option
def show(name: str, sources: bool, catalog: tuple[Path, ...], as_json: bool) -> None:
    """Show one device: every figure that is known of it.

    \b
    Examples:
      llmcalc hardware show rtx4090 --sources
      llmcalc hardware show "Apple M2 Ultra"
    """
    from ..describe import describe_device
    from ..device_catalog import find_device

    device = find_device(name, None, catalog)
    if as_json:
        click.echo(json.dumps(describe_device(device, sources), indent=2, ensure_ascii=False))
        return
    from ..report.catalog import device_page

    echo_page(device_page(device, sources, page_style()))
