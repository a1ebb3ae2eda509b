"""What an estimate rests on, in sentences: the roofs, how much of them is reached, and where the factors are from.

Imports `multi_device`, `timing` and `units`; loads `placed_basis` for models in several places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .multi_device import SystemTime
from .timing import PhaseTime, RoofTime
from .units import GB

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .offload_timing import PlacedTime
    from .request import Request
    from .system import Device


def basis_lines(
    request: Request,
    prefill: SystemTime | PlacedTime,
    decode: SystemTime | PlacedTime,
    points: int,
    efficiency: Efficiency,
) -> tuple[str, ...]:
    """Roof, share reached and source, for prefill and decode, of the device that takes the most time.

    Of `decode`, the first `points` count, from an empty to a full cache.
    """
    device = decode.main_device
    lines = [] if request.placement is None else _placed_lines(prefill, decode, points)
    lines += [_decode_line(device.bandwidth_bytes_per_s, decode.main, points)]
    lines += [_prefill_line(prefill.main_device, prefill.main)]
    lines.append(_factors_line(decode.main, efficiency))
    derived = "derived from units and clock" if device.derived_peaks else "published"
    where = f"; {', '.join(device.sources[:3])}" if device.sources else ""
    if device.id != "assumed-host":
        lines.append(f"Datasheet of {device.name}: peaks {derived}{where}.")
    return tuple(lines)


def _placed_lines(prefill: SystemTime | PlacedTime, decode: SystemTime | PlacedTime, points: int) -> list[str]:
    from .placed_basis import time_by_place

    return [time_by_place("Prefill", prefill, 0), time_by_place("Decode", decode, points - 1)]


def _decode_line(bandwidth: float, time: PhaseTime, points: int) -> str:
    rates = np.atleast_1d(np.asarray(time.required_bytes / time.seconds, float))[:points]
    first, last = float(rates[0]), float(rates[-1])
    reached = (
        f"{first / GB:,.0f} GB/s" if rates.size == 1 else f"{first / GB:,.0f} (empty) to {last / GB:,.0f} GB/s (full)"
    )
    share = f"{first / bandwidth:.0%}" if rates.size == 1 else f"{first / bandwidth:.0%} to {last / bandwidth:.0%}"
    return f"Decode roof: memory at {bandwidth / GB:,.4g} GB/s, of which {reached} are reached, {share}."


def _prefill_line(device: Device, time: PhaseTime) -> str:
    roof = main_compute_roof(time)
    peak = device.peaks_flop_per_s.get(roof.roof.path) if roof else None
    if roof is None or peak is None:
        return "Prefill roof: no compute peak is known."
    flops = float(np.atleast_1d(np.asarray(time.flops, float))[0])
    seconds = float(np.atleast_1d(np.asarray(time.seconds, float))[0])
    return (
        f"Prefill roof: {roof.roof.path} at {peak / 1e12:,.4g} TFLOP/s, of which {flops / seconds / 1e12:,.3g} TFLOP/s "
        f"are reached, {flops / seconds / peak:.0%}."
    )


def main_compute_roof(time: PhaseTime) -> RoofTime | None:
    """The compute roof that most of the arithmetic is done under, at the phase's first point."""
    roofs = [one for operation in time.operations for one in operation.roofs if one.roof.resource == "compute"]
    return max(roofs, key=lambda one: float(np.atleast_1d(np.asarray(one.roof.amount, float))[0]), default=None)


def _factors_line(time: PhaseTime, efficiency: Efficiency) -> str:
    runs, devices = efficiency.provenance.get("runs"), efficiency.provenance.get("devices")
    fit = f" (fit of {runs:,} public runs on {devices} devices)" if runs and devices else ""
    return f"Efficiency factors: from {time.machine.origin}{fit}; --explain lists them."
