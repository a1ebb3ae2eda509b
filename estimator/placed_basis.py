"""What an estimate of a spread model rests on, in sentences: where the time goes, and what was assumed of the machine.

Imports `offload_timing`; `basis` and `estimation` load it only for models in several places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .links import TYPICAL_DISK_BYTES_PER_S, weight_copies
from .memory import MemoryPlan
from .multi_device import SystemTime, placed_run
from .offload_timing import OP_OFFLOAD_TOKENS, PlacedTime, missing_share
from .placement import HOST
from .placement_settings import placement_notes
from .surroundings import TYPICAL_NETWORK
from .units import GB, gib

if TYPE_CHECKING:
    from .request import Request


def time_by_place(phase: str, time: SystemTime | PlacedTime, point: int) -> str:
    """The share of every device, the host and the crossings at one point."""
    assert isinstance(time, PlacedTime)
    pieces = [
        (f"{device.name}{' (host)' if place == HOST else ''}", _at(part.seconds, point))
        for place, device, part in zip(time.places, time.devices, time.parts, strict=True)
    ]
    copies = [(one.name, _at(one.seconds, point)) for one in time.transfers if one.name.startswith("weights")]
    moves = sum(_at(one.seconds, point) for one in time.transfers if not one.name.startswith("weights"))
    pieces += [*copies, ("activations between them", moves)]
    total = sum(seconds for _, seconds in pieces)
    shown = ", ".join(f"{seconds / total:.0%} {name}" for name, seconds in pieces if seconds > 0.005 * total)
    return f"{phase} time: {shown}."


def _at(value: object, point: int) -> float:
    array = np.atleast_1d(np.asarray(value, float))
    return float(array[min(point, array.size - 1)])


def placed_notes(request: Request, plan: MemoryPlan) -> list[str]:
    """Assumptions and warnings about a spread model."""
    assert request.placement is not None
    run = placed_run(request)
    notes = placement_notes(request.settings, request.backend) if request.settings else []
    on_host = run.stations()[-1].works and not request.placement.split
    if on_host:
        notes += _host_notes(request)
    if request.system.remote and request.system.network is None:
        notes.append(f"The network to the RPC devices is assumed: {TYPICAL_NETWORK.name}; say it with --network.")
    return notes + _short_memory(plan)


def _host_notes(request: Request) -> list[str]:
    run = placed_run(request)
    machine = run.machine
    note = machine.host.note
    notes = [note] if note else []
    target = machine.offloads_to
    assert request.placement is not None
    if target is not None and request.placement.op_offload:
        device = machine.device(target)
        way = weight_copies(device, machine.system, machine.backend, machine.load_mode)
        notes.append(
            f"Batches of {OP_OFFLOAD_TOKENS} tokens and more copy the host's weights to {device.name} "
            f"({way.name}{', assumed' if way.assumed else ''}) for every micro-batch; a larger --ubatch copies them "
            f"less often."
        )
    missing = missing_share(run)
    if missing:
        rate = machine.system.host.disk_bytes_per_s
        said = f"{(rate or TYPICAL_DISK_BYTES_PER_S) / GB:.3g} GB/s" + ("" if rate else ", assumed (--disk)")
        notes.append(f"{missing:.0%} of the host's weights do not fit its memory: they are read from disk at {said}.")
    return notes


def is_read_from_disk(request: Request) -> bool:
    """Whether the speeds count that the host has too little memory for its weights."""
    return request.placement is not None and missing_share(placed_run(request)) > 0


def _short_memory(plan: MemoryPlan) -> list[str]:
    return [
        f"{part.device} lacks {gib(-part.margin_bytes)} for its share."
        for part in plan.devices
        if part.margin_bytes is not None and part.margin_bytes < 0
    ]
