"""A detected machine, and what was measured on it, as a page for the terminal and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..detection.machine import DetectedGpu, Machine
from ..errors import InputError
from ..units import GB, gib
from .layout import Style, columns, paragraph, rate

if TYPE_CHECKING:  # numpy is only needed to measure
    from ..detection.measure import CpuRoofs, Kernel, Share

SCHEMA = "llmcalc.detect/1"
KERNELS: Final[tuple[Kernel, ...]] = ("read", "copy", "triad")


def machine_page(machine: Machine, style: Style) -> list[str]:
    """What was found, which entries of the catalog that is, what it would be estimated as, and what is in doubt."""
    lines = [style.paint(machine.board or "This machine", "bold"), style.paint(machine.os, "dim"), ""]
    lines += columns([*_gpu_rows(machine), *_host_rows(machine)], "<<<")
    lines += ["", *_system_lines(machine, style)]
    if machine.problems:
        lines += ["", style.heading("Not seen, not mapped, or assumed")]
        lines += [line for text in machine.problems for line in paragraph(text, style.width, "  · ", "    ")]
    return lines


def _gpu_rows(machine: Machine) -> list[tuple[str, str, str]]:
    if not machine.gpus:
        return [("GPU", "none was found", "")]
    several = len(machine.gpus) > 1
    return [
        (f"GPU {i}" if several else "GPU", _gpu_text(gpu), _entry(gpu.device.id if gpu.device else None))
        for i, gpu in enumerate(machine.gpus)
    ]


def _gpu_text(gpu: DetectedGpu) -> str:
    report = gpu.report
    own = f"{gib(report.memory_bytes)}" if report.memory_bytes else ""
    memory = f"{own} of the host's memory set aside" if own and gpu.integrated else own
    units = f"{report.units} {'GPU cores' if report.vendor == 'apple' else 'CUs'}" if report.units else ""
    link = report.link.name if report.link and not gpu.integrated else ""
    return ", ".join(text for text in (gpu.name, units, memory, link) if text)


def _host_rows(machine: Machine) -> list[tuple[str, str, str]]:
    report = machine.cpu.report
    counts = [(report.sockets if (report.sockets or 1) > 1 else None, "sockets"), (report.cores, "cores"),
              (report.threads, "threads")]  # fmt: skip
    cpu = ", ".join([machine.cpu.name or "unknown", *(f"{count} {what}" for count, what in counts if count)])
    device = machine.cpu.device
    entry = "" if device is None and machine.cpu.reason is None else _entry(device.id if device else None)
    return [("CPU", cpu, entry), ("memory", _memory_text(machine), "")]


def _memory_text(machine: Machine) -> str:
    memory = machine.memory
    parts = [gib(memory.total_bytes) if memory.total_bytes else "unknown size", memory.kind or ""]
    if memory.channels is not None:
        parts.append(f"{memory.channels:g} channel{'' if memory.channels == 1 else 's'}")
    if memory.transfers_per_s is not None:
        parts.append(f"{memory.transfers_per_s / 1e6:,.0f} MT/s")
    if memory.bandwidth_bytes_per_s is not None:
        parts.append(f"{memory.bandwidth_bytes_per_s / GB:,.1f} GB/s")
    return ", ".join(part for part in parts if part)


def _entry(id: str | None) -> str:
    return f"→ {id}" if id else "→ no entry"


def _system_lines(machine: Machine, style: Style) -> list[str]:
    try:
        system = machine.to_system()
    except InputError:
        return paragraph("`--gpu auto` finds nothing to estimate with, for the reasons below.", style.width, "", "")
    rows = [
        (
            device.id,
            gib(device.memory_bytes) if device.memory_bytes else "",
            f"{device.bandwidth_bytes_per_s / GB:,.4g} GB/s",
        )
        for device in system.devices
    ]
    return [style.heading("`--gpu auto` estimates with"), *columns(rows, "<>>")]


def roofs_page(roofs: CpuRoofs, shares: Sequence[Share], style: Style) -> list[str]:
    """Bandwidths by number of threads, matrix rates, and their shares of what the figures promise."""
    threads = sorted({each.threads for each in roofs.bandwidths})
    measured = {(each.kernel, each.threads): each.bytes_per_s / GB for each in roofs.bandwidths}
    matrix = {each.threads: each.flop_per_s / 1e9 for each in roofs.matrix_rates}
    rows: list[tuple[str, ...]] = [("threads", *KERNELS, "FP32 product")]
    for n in threads:
        known = (measured.get((kernel, n)) for kernel in KERNELS)
        cells = (f"{rate(value)} GB/s" if value else "" for value in known)
        rows.append((str(n), *cells, f"{rate(matrix[n])} GFLOPS" if n in matrix else ""))
    lines = [
        "",
        style.heading("Measured on the CPU", f"three arrays of {gib(roofs.array_bytes)}"),
        *columns(rows, ">>>>>"),
    ]
    if shares:
        lines += [
            "",
            style.heading("Share of what the figures promise"),
            *columns(list(map(_share_row, shares)), "<>><"),
        ]
    if not roofs.matrix_rates:
        lines += [
            "",
            *paragraph("No matrix product could be measured: numpy did not run in a process of its own.", style.width),
        ]
    if roofs.load_before is not None and roofs.load_before > 0.5:
        busy = f"The machine was busy (load {roofs.load_before:.1f}): an idle one gives more."
        lines += ["", *paragraph(busy, style.width)]
    return lines


def _share_row(share: Share) -> tuple[str, str, str, str]:
    unit = "GB/s" if "bandwidth" in share.what else "GFLOPS"
    of = f"of {rate(share.promised / 1e9)} {unit}: {share.source}"
    return share.what, f"{rate(share.measured / 1e9)} {unit}", f"{share.share:.0%}", of


def machine_data(machine: Machine) -> dict[str, Any]:
    """The machine as plain data; figures are SI, what is unknown is null."""
    report, memory = machine.cpu.report, machine.memory
    return {
        "schema": SCHEMA,
        "os": machine.os,
        "board": machine.board,
        "gpus": [_gpu_data(gpu) for gpu in machine.gpus],
        "cpu": {
            "id": machine.cpu.device.id if machine.cpu.device else None,
            "name": machine.cpu.name,
            "sockets": report.sockets,
            "cores": report.cores,
            "threads": report.threads,
        },
        "memory": {
            "total_bytes": memory.total_bytes,
            "type": memory.kind,
            "modules": len(memory.modules) or None,
            "channels": memory.channels,
            "transfers_per_s": memory.transfers_per_s,
            "bandwidth_bytes_per_s": memory.bandwidth_bytes_per_s,
        },
        "auto": _auto_data(machine),
        "problems": list(machine.problems),
    }


def _gpu_data(gpu: DetectedGpu) -> dict[str, Any]:
    report = gpu.report
    return {
        "id": gpu.device.id if gpu.device else None,
        "name": gpu.name,
        "vendor": report.vendor,
        "integrated": gpu.integrated,
        "memory_bytes": report.memory_bytes,
        "units": report.units,
        "bus": report.bus,
        "link": report.link.name if report.link else None,
        "link_bytes_per_s": report.link.bandwidth_bytes_per_s if report.link else None,
        "power_limit_watts": report.power_limit_watts,
        "seen_by": list(dict.fromkeys(report.sources)),
    }


def _auto_data(machine: Machine) -> dict[str, Any] | None:
    """The devices that `--gpu auto` takes; None where it cannot be used."""
    try:
        system = machine.to_system()
    except InputError:
        return None
    devices = [
        {"id": each.id, "memory_bytes": each.memory_bytes, "bandwidth_bytes_per_s": each.bandwidth_bytes_per_s}
        for each in system.devices
    ]
    return {"devices": devices, "cpu": system.host.cpu.id if system.host.cpu else None}


def roofs_data(roofs: CpuRoofs, shares: Sequence[Share]) -> dict[str, Any]:
    """What was measured as plain data."""
    return {
        "array_bytes": roofs.array_bytes,
        "load_before": roofs.load_before,
        "bandwidth": [
            {"kernel": each.kernel, "threads": each.threads, "bytes_per_s": each.bytes_per_s}
            for each in roofs.bandwidths
        ],
        "fp32_product": [{"threads": each.threads, "flop_per_s": each.flop_per_s} for each in roofs.matrix_rates],
        "shares": [
            {"what": each.what, "measured": each.measured, "promised": each.promised, "share": each.share,
             "source": each.source}
            for each in shares
        ],
    }  # fmt: skip
