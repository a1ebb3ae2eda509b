"""A request on the roofline: the roofs of its device by datasheet and as reached, and the phases as points under them.

A point's intensity is FLOP a byte of weights and cache that must be read or written, its height the FLOP/s that the
estimate reaches, so that the vertical gap to the roof is what the efficiency factors cost. Where several devices share
the work, the roofline is that of the busiest in decode. Imports `multi_device` and `speed_curves`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .compute_paths import attention_path, matrix_paths
from .inventory import inventory
from .multi_device import SystemTime, decode_on, prefill_on
from .roofline import combined
from .speed_curves import everyday_tokens, request_of, series_names
from .timing import OperationTime, PhaseTime

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .estimation import Estimate
    from .offload_timing import PlacedTime
    from .request import Request
    from .system import Device

Vector = NDArray[np.float64]
PointKind = Literal["prefill", "decode", "batched", "operation", "measured"]

BATCHES: Final = (2, 4, 8, 16, 32, 64)
LEAST_SHARE: Final = 0.02  # of prefill time: compute paths below are not drawn
PROMPT_OF_ROOFS: Final = 512.0  # a full micro-batch, at which the reached peaks are taken

PATH_NAMES: Final = {
    "fp64": "FP64", "fp32": "FP32", "fp16": "FP16", "fp16_matrix": "FP16 matrix", "bf16_matrix": "BF16 matrix",
    "fp16_matrix_fp16_accumulate": "FP16 matrix (FP16 sums)", "tf32_matrix": "TF32 matrix", "fp8_matrix": "FP8 matrix",
    "int8_matrix": "INT8 matrix", "int8_dot": "INT8 dot", "int4_matrix": "INT4 matrix", "fp4_matrix": "FP4 matrix",
    "bf16_cpu": "BF16 SIMD", "int8_cpu": "INT8 SIMD",
}  # fmt: skip


@dataclass(frozen=True)
class ComputeRoof:
    """The peak of one compute path: by datasheet, and as the operations on it reach it in a full micro-batch."""

    path: str
    flop_per_s: float
    reached_flop_per_s: float

    @property
    def name(self) -> str:
        """The path in words."""
        return PATH_NAMES.get(self.path, self.path)


@dataclass(frozen=True)
class RooflinePoint:
    """A phase, an operation or a measured run. `tokens_per_s`: of all sequences; None for operations."""

    kind: PointKind
    label: str
    intensity: float  # FLOP/byte
    flop_per_s: float
    tokens_per_s: float | None = None


@dataclass(frozen=True)
class RooflineView:
    """Everything that a roofline shows of one request."""

    name: str
    device: str
    bandwidth_bytes_per_s: float
    reached_bandwidth_bytes_per_s: float  # by matrix-vector products while they read weights
    roofs: tuple[ComputeRoof, ...]  # the highest first
    points: tuple[RooflinePoint, ...]
    operations: tuple[RooflinePoint, ...]
    whole: bool = True  # False: other devices share the work, and points are the part of this one

    @property
    def peak_flop_per_s(self) -> float:
        """The highest roof."""
        return self.roofs[0].flop_per_s

    def ridge(self, roof: ComputeRoof) -> float:
        """Intensity (FLOP/byte) at which memory and `roof` bound alike, by datasheet."""
        return roof.flop_per_s / self.bandwidth_bytes_per_s

    def reached_ridge(self, roof: ComputeRoof) -> float:
        """The same with what is reached of both."""
        return roof.reached_flop_per_s / self.reached_bandwidth_bytes_per_s


def roofline_view(
    source: Request | Estimate, efficiency: Efficiency | None = None, name: str | None = None
) -> RooflineView:
    """Roofs and points of a request: prefill of its prompts, decode at an empty and a full cache, batched decode."""
    request = request_of(source)
    efficiency = efficiency or request.efficiency
    everyday = everyday_tokens(request)
    batches = np.array(BATCHES, float)
    prefill = prefill_on(request, np.array(request.prompts, float), efficiency)
    decode = decode_on(request, np.array([0.0, request.room - 1.0]) + 1, efficiency)
    batched = decode_on(request, np.full(batches.shape, everyday + 1.0), efficiency, batches)
    full = prefill_on(request, np.array([PROMPT_OF_ROOFS]), efficiency, np.zeros(1))
    device = _device(decode, full)
    step = _part(decode, device) or decode.main
    many = _part(batched, device) or batched.main  # stands in for prefill where that runs on other devices
    alone = "" if request.workload.parallel == 1 else f" of {request.workload.parallel}"
    full_part, prompts = _part(full, device) or many, _part(prefill, device) or many
    return RooflineView(
        name=name or series_names([request])[0],
        device=device.name,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        reached_bandwidth_bytes_per_s=_reached_bandwidth(step, device.bandwidth_bytes_per_s),
        roofs=_compute_roofs(full_part, prompts, _peaks(request, device)),
        points=(
            *_phase_points("prefill", [f"prefill of {n:,}" for n in request.prompts], prefill, device),
            *_phase_points(
                "decode", [f"decode{alone}, empty", f"decode{alone}, {request.room:,} tokens"], decode, device
            ),
            *_phase_points("batched", [f"{n} sequences" for n in BATCHES], batched, device),
        ),
        operations=(*_operation_points(_part(full, device), "prefill"), *_operation_points(step, "decode")),
        whole=len(decode.devices) == 1,
    )


def _device(decode: SystemTime | PlacedTime, prefill: SystemTime | PlacedTime) -> Device:
    """The device that decode spends most time on, of those that both phases use; of decode's if none is in both."""
    ranked = sorted(zip(decode.shares, decode.devices, strict=True), key=lambda pair: -pair[0])
    return next((one for _, one in ranked if one in prefill.devices), decode.main_device)


def _part(time: SystemTime | PlacedTime, device: Device) -> PhaseTime | None:
    """The part of a phase that runs on `device`, if one does."""
    return next((part for part, one in zip(time.parts, time.devices, strict=True) if one == device), None)


def _phase_points(
    kind: PointKind, labels: Iterable[str], time: SystemTime | PlacedTime, device: Device
) -> list[RooflinePoint]:
    """Work and time of the device's own part; the rate is that of the whole machine."""
    part, shape = _part(time, device), time.seconds.shape
    if part is None:
        return []
    rates = np.broadcast_to(np.asarray(part.flops / part.seconds, float), shape)
    intensities = np.broadcast_to(np.asarray(part.intensity, float), shape)
    return [
        RooflinePoint(kind, label, float(intensities[i]), float(rates[i]), float(time.tokens_per_s[i]))
        for i, label in enumerate(labels)
    ]


def _operation_points(time: PhaseTime | None, phase: str) -> list[RooflinePoint]:
    points = []
    for one in time.operations if time else ():
        flops, n_bytes, seconds = _last(one.flops), _last(one.bytes), _last(one.seconds)
        if flops > 0 and n_bytes > 0 and seconds > 0:
            points.append(RooflinePoint("operation", f"{phase}: {one.name}", flops / n_bytes, flops / seconds))
    return points


def _reached_bandwidth(time: PhaseTime, bandwidth: float) -> float:
    """Bytes of weights over the time that reading them takes, in a decode step with an empty cache.

    On CPUs what the cores can draw from memory counts too.
    """
    datasheet = reached = 0.0
    for one in time.operations:
        if one.kind in ("dense", "experts", "output"):
            reading = [roof for roof in one.roofs if roof.roof.resource == "memory"]
            datasheet += _first(reading[0].roof.seconds)
            reached += _first(combined([roof.seconds for roof in reading]))
    return bandwidth * datasheet / reached


def _peaks(request: Request, device: Device) -> dict[str, float]:
    """FLOP/s of each compute path, as the request's tensor types run on it.

    Mostly the device's peaks; CPUs without dot-product instructions multiply 8-bit integers faster than the FP32 peak
    that the path is named by.
    """
    types = {group.tensor_type for group in inventory(request.model, request.weights).matrices}
    backend = "CPU" if device.is_cpu else request.backend  # a CPU beside GPUs has its own
    paths = [one.path for name in types for one in matrix_paths(device, backend, name)]
    peaks = dict(device.peaks_flop_per_s)
    for path in (*paths, attention_path(device, backend)):
        peaks[path.peak] = max(peaks.get(path.peak, 0.0), path.flop_per_s)
    return peaks


def _compute_roofs(full: PhaseTime, prompts: PhaseTime, peaks: Mapping[str, float]) -> tuple[ComputeRoof, ...]:
    """A roof for each compute path that any of the prompts spends time on, as a full micro-batch reaches it.

    Power limits count as part of the path.
    """
    shares = {path: _share(group, prompts) for path, group in _by_path(prompts, peaks).items()}
    least = min(LEAST_SHARE, max(shares.values(), default=0.0))
    roofs = [
        ComputeRoof(path, peaks[path], sum(_last(one.flops) for one in group) / sum(map(_busy_seconds, group)))
        for path, group in _by_path(full, peaks).items()
        if shares.get(path, 0.0) >= least
    ]
    return tuple(sorted(roofs, key=lambda roof: -roof.flop_per_s))


def _by_path(time: PhaseTime, peaks: Mapping[str, float]) -> dict[str, list[OperationTime]]:
    """The operations by the compute path that bounds them, without the output head, which has a single column."""
    groups: dict[str, list[OperationTime]] = {}
    for one in time.operations:
        path = next((roof.roof.path for roof in one.roofs if roof.roof.resource == "compute"), None)
        if path is not None and path in peaks and one.kind != "output" and _last(one.flops) > 0:
            groups.setdefault(path, []).append(one)
    return groups


def _share(group: Iterable[OperationTime], time: PhaseTime) -> float:
    """Share of the phase's time, at the point where it is largest."""
    return float(np.max(sum((np.asarray(one.seconds, float) for one in group), np.zeros(1)) / time.seconds))


def _busy_seconds(operation: OperationTime) -> float:
    return _last(combined([one.seconds for one in operation.roofs if one.roof.resource in ("compute", "power")]))


def _first(value: object) -> float:
    return float(np.ravel(np.asarray(value, float))[0])


def _last(value: object) -> float:
    return float(np.ravel(np.asarray(value, float))[-1])
