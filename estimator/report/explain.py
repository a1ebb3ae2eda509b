"""`--explain`: every operation of prefill and decode with its roof, its factor, its time; where factors are from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..units import GB
from .layout import Style, columns, duration, rate

if TYPE_CHECKING:
    from ..estimation import Estimate
    from ..multi_device import SystemTime
    from ..offload_timing import PlacedTime
    from ..timing import FactorUse, OperationTime, PhaseTime

COLUMNS = ("operation", "GFLOP", "GB", "roof", "× roof", "time", "share")


def explanation(e: Estimate, style: Style) -> list[str]:
    """Both phases at the everyday point, operations in the order they run, then the factors."""
    everyday = min(1, len(e.decode) - 1)
    phases = (
        (f"Prefill of {e.prefill[0].prompt_tokens:,} tokens, operation by operation", e.prefill_time, 0),
        (f"Decode at {e.decode[everyday].occupied_tokens:,} tokens in the cache", e.decode_time, everyday),
    )
    lines: list[str] = []
    for heading, time, point in phases:
        for device, part in zip(time.devices, time.parts, strict=True):
            where = f", on {device.name}" if e.request.placement is not None else ""
            lines += ([""] if lines else []) + [style.heading(heading + where), *operation_table(part, point)]
        lines += _transfers(time, point)
    lines += ["", style.heading("Efficiency factors, as multiples of the datasheet's time"), *_factor_lines(e)]
    return lines


def _transfers(time: SystemTime | PlacedTime, point: int) -> list[str]:
    """What crosses between the places of a spread model."""
    rows = [
        (one.name, _gbyte(_at(one.bytes, point)), duration(_at(one.seconds, point)))
        for one in getattr(time, "transfers", ())
        if _at(one.seconds, point) > 0
    ]
    return ["", *columns([("between them", "GB", "time"), *rows], "<>>")] if rows else []


def operation_table(time: PhaseTime, point: int) -> list[str]:
    """`operation_rows` as aligned lines."""
    return columns(operation_rows(time, point), "<>><>>>")


def operation_rows(time: PhaseTime, point: int) -> list[tuple[str, ...]]:
    """A row an operation at one point of the phase's arrays, and the sum; times of different rows add up."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    total = _at(time.seconds, point)
    for operation in time.operations:
        seconds = _at(operation.seconds, point)
        if seconds > 0:
            rows.append(_row(operation, point, seconds, total))
    rows.append(
        ("sum", _gflop(_at(time.flops, point)), _gbyte(_sum_bytes(time, point)), "", "", duration(total), "100 %")
    )
    return rows


def _row(operation: OperationTime, point: int, seconds: float, total: float) -> tuple[str, ...]:
    bound = max(operation.roofs, key=lambda one: _at(one.seconds, point))
    datasheet = _at(bound.roof.seconds, point)
    return (
        operation.name,
        _gflop(_at(operation.flops, point)),
        _gbyte(_at(operation.bytes, point)),
        bound.roof.path,
        f"{seconds / datasheet:.2f}" if datasheet else "",
        duration(seconds),
        f"{seconds / total:.1%}".replace("%", " %"),
    )


def _sum_bytes(time: PhaseTime, point: int) -> float:
    return sum(_at(operation.bytes, point) for operation in time.operations)


def _factor_lines(e: Estimate) -> list[str]:
    """`factor_rows` as aligned lines."""
    return columns(factor_rows(e), "<>><")


def factor_rows(e: Estimate) -> list[tuple[str, ...]]:
    """Each factor once: its value, its uncertainty in log space, and the runs it was fitted on."""
    uses: dict[str, FactorUse] = {}
    for time in (*e.prefill_time.parts, *e.decode_time.parts):
        for operation in time.operations:
            for one in operation.roofs:
                for use in time.factors(one.roof):
                    uses.setdefault(use.name, use)
    rows: list[tuple[str, ...]] = [("factor", "value", "± (log)", "from")]
    return rows + [(u.name, f"{u.multiple:.3g}", f"{u.log_sd:.2f}", u.origin) for u in uses.values()]


def _at(value: Any, point: int) -> float:
    array = np.asarray(value, float)
    return float(array if array.ndim == 0 else array[min(point, array.size - 1)])


def _gflop(flops: float) -> str:
    return rate(flops / 1e9) if flops else ""


def _gbyte(n_bytes: float) -> str:
    return rate(n_bytes / GB) if n_bytes else ""
