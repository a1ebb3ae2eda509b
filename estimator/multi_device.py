"""Phase times of a whole machine: one device, or several with the layers split between them.

A layer split is serial for one decode step, which visits the devices in turn, and a pipeline over the micro-batches of
a prompt. Imports `timing`; `estimate` uses this for every request, so that one device is no special case there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .inventory import inventory
from .memory import default_placement
from .operations import decode_operations
from .placement import HOST
from .timing import PhaseTime, decode_time, prefill_time

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SystemTime:
    """One phase at several points. `parts`: the time that each device would need for the whole model."""

    seconds: Vector
    ceiling_seconds: Vector
    tokens: Vector
    parts: tuple[PhaseTime, ...]
    shares: tuple[float, ...]  # of the layers, by device

    @property
    def main(self) -> PhaseTime:
        """The part of the device with the most layers."""
        return self.parts[int(np.argmax(self.shares))]

    @property
    def tokens_per_s(self) -> Vector:
        """Tokens of all sequences a second."""
        return self.tokens / self.seconds

    @property
    def ceiling_tokens_per_s(self) -> Vector:
        """What the datasheets would allow."""
        return self.tokens / self.ceiling_seconds

    @property
    def bound(self) -> NDArray[np.str_]:
        """memory, compute or launch at each point, of the main device."""
        return np.broadcast_to(np.asarray(self.main.bound), self.seconds.shape)

    @property
    def intensity(self) -> Vector:
        """FLOP a byte of weights and cache."""
        return np.broadcast_to(np.asarray(self.main.intensity, float), self.seconds.shape)

    def interval_tokens_per_s(self, level: float) -> tuple[Vector, Vector]:
        """Rates between which a share `level` of runs is expected, the slower end first."""
        slower = [np.log(part.interval(level)[1] / part.seconds) for part in self.parts]
        stretch = np.exp(_weighted(slower, self.shares, self.seconds.shape))
        return self.tokens_per_s / stretch, self.tokens_per_s * stretch


def decode_on(
    request: Request, occupied: Vector, efficiency: Efficiency | None = None, parallel: Vector | None = None
) -> SystemTime:
    """A decode step at each of `occupied` positions (the new token's included).

    `parallel`: sequences at each point, instead of the workload's.
    """
    sequences = np.full(occupied.shape, float(request.workload.parallel)) if parallel is None else parallel
    parts = [
        decode_time(
            request.model,
            request.weights,
            device,
            request.backend,
            occupied=occupied,
            parallel=sequences,
            efficiency=efficiency or request.efficiency,
            **_conditions(request),
        )
        for device in request.devices
    ]
    return _serial(parts, layer_shares(request), occupied.shape)


def prefill_on(
    request: Request, prompts: Vector, efficiency: Efficiency | None = None, cached: Vector | None = None
) -> SystemTime:
    """Prefill of each of `prompts`, less what is cached of it (at least the last token is always read again).

    `cached`: tokens of each prompt that are cached, instead of the workload's.
    """
    w = request.workload
    cached = np.minimum(float(w.cached_prefix) if cached is None else cached, prompts - 1)
    parts = [
        prefill_time(
            request.model,
            request.weights,
            device,
            request.backend,
            prompt=prompts - cached,
            cached=cached,
            ubatch=float(min(w.ubatch, w.batch)),
            efficiency=efficiency or request.efficiency,
            **_conditions(request),
        )
        for device in request.devices
    ]
    passes = np.ceil((prompts - cached) / min(w.ubatch, w.batch))
    return _pipelined(parts, layer_shares(request), passes)


def layer_shares(request: Request) -> tuple[float, ...]:
    """Share of the layers (the output layer counts as one) on each device, by llama.cpp's split."""
    if len(request.devices) == 1:
        return (1.0,)
    slots = [slot for slot in default_placement(request.model, request.system).slots if slot != HOST]
    return tuple(slots.count(i) / len(slots) for i in range(len(request.devices)))


def weights_ceiling_tokens_per_s(request: Request) -> float:
    """The bare decode ceiling of one sequence: bandwidth over the bytes of weights that one token reads."""
    phase = decode_operations(request.model, inventory(request.model, request.weights), occupied=1.0)
    weight_bytes = float(sum(np.asarray(operation.weight_bytes, float) for operation in phase.operations))
    shares = layer_shares(request)
    seconds = sum(
        share * weight_bytes / device.bandwidth_bytes_per_s
        for share, device in zip(shares, request.devices, strict=True)
    )
    return 1.0 / seconds


def _conditions(request: Request) -> dict[str, Any]:
    w = request.workload
    return {
        "flash_attention": w.flash_attention,
        "kv_type_k": w.kv_type_k,
        "kv_type_v": w.kv_type_v,
        "threads": request.threads,
    }


def _serial(parts: Sequence[PhaseTime], shares: Sequence[float], shape: tuple[int, ...]) -> SystemTime:
    """One device after the other, each with its share of the layers."""
    seconds = _weighted([part.seconds for part in parts], shares, shape)
    return _system_time(seconds, parts, shares, shape)


def _pipelined(parts: Sequence[PhaseTime], shares: Sequence[float], passes: Vector) -> SystemTime:
    """Micro-batches follow each other through the devices: the slowest stage sets the pace, the rest only fills."""
    stages = [share * np.broadcast_to(np.asarray(part.seconds, float), passes.shape) / passes
              for part, share in zip(parts, shares, strict=True)]  # fmt: skip
    seconds = sum(stages) + (passes - 1) * np.max(stages, axis=0)
    return _system_time(np.asarray(seconds, float), parts, shares, passes.shape)


def _system_time(
    seconds: Vector, parts: Sequence[PhaseTime], shares: Sequence[float], shape: tuple[int, ...]
) -> SystemTime:
    return SystemTime(
        seconds=seconds,
        ceiling_seconds=_weighted([part.ceiling_seconds for part in parts], shares, shape),
        tokens=np.broadcast_to(np.asarray(parts[0].tokens, float), shape),
        parts=tuple(parts),
        shares=tuple(shares),
    )


def _weighted(values: Sequence[Any], shares: Sequence[float], shape: tuple[int, ...]) -> Vector:
    total = sum(share * np.asarray(value, float) for value, share in zip(values, shares, strict=True))
    return np.array(np.broadcast_to(np.asarray(total, float), shape))
