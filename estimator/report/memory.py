"""A MemoryReport as a page for the terminal: the table llama.cpp prints, in MiB, and the limits around it."""

from __future__ import annotations

from ..memory import DeviceMemory
from ..memory_limits import Limit
from ..memory_summary import MemoryReport
from ..units import MIB, gib
from .layout import Style, columns, paragraph


def memory_page(report: MemoryReport, style: Style) -> list[str]:
    """The page as lines."""
    w = report.workload
    what = f"{report.model.name} · {report.quantisation} · context {w.context:,}"
    sequences = f" · {w.parallel} sequences of {w.cells_per_sequence:,}" if w.parallel > 1 else ""
    lines = [style.paint(what + sequences, "bold"), "", *_table(report), "", *_totals(report, style)]
    limits = _limits(report, style)
    if limits:
        lines += ["", style.heading("The most that fits"), *limits]
    if report.plan.extras:
        lines += ["", style.heading("Outside llama.cpp's own figures")]
        for extra in report.plan.extras:
            size = f"{extra.low_bytes / MIB:,.0f}–{extra.high_bytes / MIB:,.0f} MiB"
            lines += paragraph(f"{extra.name}: {size}. {extra.why}", style.width, "  · ", "    ")
    return lines


def _table(report: MemoryReport) -> list[str]:
    rows: list[tuple[str, ...]] = [("MiB", "model", "context", "compute", "output", "total", "usable", "left")]
    rows += [_row(part) for part in report.plan.devices]
    return columns(rows, "<>>>>>>>", indent=2)


def _row(part: DeviceMemory) -> tuple[str, ...]:
    sizes = (part.model_bytes, part.context_bytes, part.compute_bytes, part.output_bytes, part.total_bytes)
    return (part.device, *map(_mib, sizes), _mib(part.usable_bytes), _mib(part.margin_bytes))


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:,.{1 if abs(size) < 100 * MIB else 0}f}"


def _totals(report: MemoryReport, style: Style) -> list[str]:
    about = "about " if report.weights.metadata_estimated else ""
    rows = [
        (
            "file to download",
            f"{about}{gib(report.weights.file_bytes)}",
            f"{report.weights.bits_per_weight:.2f} bits per weight",
        ),
        ("verdict", *_verdict(report, style)),
    ]
    return columns(rows, "<<<")


def _verdict(report: MemoryReport, style: Style) -> tuple[str, str]:
    margin = report.plan.margin_bytes
    if margin is None:
        return ("", "no device's memory is known: name one with --gpu, or give --memory")
    if margin >= 0:
        return (style.paint("fits", "green", "bold"), f"{gib(margin)} to spare")
    return (style.paint("does not fit", "red", "bold"), f"{gib(-margin)} too much")


def _limits(report: MemoryReport, style: Style) -> list[str]:
    rows = []
    if report.max_context is not None:
        trained = report.max_context.value == (report.model.max_context or 0) * report.workload.streams
        unit = "tokens, all it was trained for" if trained else "tokens"
        rows.append(("context", _limit(report.max_context, unit), _left(report.max_context.margin_bytes)))
    if report.max_parallel is not None:
        each = f"sequences of {report.workload.cells_per_sequence:,} tokens"
        rows.append(("parallel", _limit(report.max_parallel, each), _left(report.max_parallel.margin_bytes)))
    if report.best is not None:
        rows.append(("quantisation", report.best.file_type, _left(report.best.margin_bytes)))
    elif report.plan.margin_bytes is not None and report.plan.margin_bytes < 0:
        rows.append(("quantisation", "none at this context", ""))
    return columns(rows, "<<<") if rows else []


def _limit(limit: Limit, unit: str) -> str:
    return f"{limit.value:,} {unit}" if limit.value else "none"


def _left(margin: int) -> str:
    return f"{gib(margin)} left" if margin >= 0 else f"{gib(-margin)} too much even at the least"
