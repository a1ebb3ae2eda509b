"""Phase times of a model that is spread over host memory and devices: each part on its own device, then the crossings.

A pass visits the places one after the other, so decode is their sum. Large batches take the host's weights to a device
(op-offload: llama.cpp b11434, ggml/src/ggml-backend.cpp and offload_op of the backends, batches of 32 and more), which
costs a copy of them in every micro-batch. Several devices with all layers are a pipeline over micro-batches; split
matrices (--split-mode tensor) work side by side and meet in all-reduces.
Imports `timing`, `placed_work`, `links` and `host`; `multi_device` loads it for what is spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .architecture import Model
from .efficiency import Efficiency, Gaussian, shipped
from .host import HostCpu, host_cpu
from .inventory import Inventory
from .kv_cache import F32_BYTES
from .links import ALL_REDUCE_S, TYPICAL_DISK_BYTES_PER_S, Crossing, LoadMode, crossing, weight_copies
from .operations import Operation, PhaseOperations, decode_operations, prefill_operations
from .placed_work import Station, host_copies, route, split_station, stations, with_host_weights
from .placement import HOST, Placement
from .quantization import Weights
from .rpc_traffic import Batch, decode_batch, entering_copies, input_bytes, logit_bytes, prefill_batch
from .run_machine import Conditions
from .system import Device, System
from .timing import PhaseTime, phase_time

Vector = NDArray[np.float64]
Build = Callable[[Model, Inventory], PhaseOperations]

OP_OFFLOAD_TOKENS: Final = 32  # GGML_OP_OFFLOAD_MIN_BATCH
OFFLOAD_BACKENDS: Final = frozenset({"CUDA", "ROCm", "Vulkan", "SYCL", "Metal"})
# Standard deviations of log time beyond the parts' own, such that the 80 % ranges hold about that many measured runs.
CROSSING_LOG_SD: Final = 0.3  # of copies and hand-overs
HOST_LOG_SD: Final = 0.2  # of the host's part beside a device: memory that is shared, pinned or not, or in few channels
PLACEMENT_LOG_SD: Final = 0.10  # of any model in several places
PIPELINE_LOG_SD: Final = 0.4  # of the share of the time that a pipeline saves
# Experts alone on the CPU run without the handicap of MoE models that run there whole: three machines with stated hosts
# (hardware/measurements/public_runs.csv, class offload) read them at 80 to 90 % of the memory's bandwidth.
HYBRID_EXPERTS: Final = Gaussian(0.0, 0.25)
# Share of the time that a pipeline of devices does not overlap: ten machines of 2 to 8 GPUs lose 0.05 to 1 (70B models
# most), all of them with builds of early 2024.
PIPELINE_LOSS: Final = 0.15
ALL_REDUCES: Final = 2  # a layer, after attention and after the feed-forward


@dataclass(frozen=True)
class Machine:
    """A system with the settings that decide how a placed model runs on it."""

    system: System
    backend: str
    conditions: Conditions
    load_mode: LoadMode = "auto"
    threads: float | None = None

    @property
    def host(self) -> HostCpu:
        """The CPU for what lies in host memory."""
        return host_cpu(self.system)

    def device(self, index: int) -> Device:
        """A device of the system, or the host's CPU."""
        return self.host.device if index == HOST else self.system.devices[index]

    def conditions_of(self, index: int) -> Conditions:
        """Conditions on a device: those of the CPU backend on the host, and of its own one on a remote device."""
        if index == HOST:
            return replace(self.conditions, backend="CPU", threads=self.threads)
        device = self.system.devices[index]
        if index >= self.system.remote or self.backend in device.backends or not device.backends:
            return self.conditions
        return replace(self.conditions, backend=device.default_backend)

    @property
    def offloads_to(self) -> int | None:
        """The device that large batches take host weights to: the first local one; None if none does."""
        local = range(self.system.remote, len(self.system.devices))
        gpus = [i for i in local if not self.system.devices[i].is_cpu]
        return gpus[0] if gpus and self.backend in OFFLOAD_BACKENDS else None


@dataclass(frozen=True)
class Transfer:
    """Time of crossings of one kind in a phase."""

    name: str
    bytes: Vector
    seconds: Vector
    ceiling_seconds: Vector
    resource: Literal["link", "memory"] = "link"


@dataclass(frozen=True)
class PlacedTime:
    """One phase at several points, in parts: `parts` are the devices' own times, in the order of `places`."""

    seconds: Vector
    tokens: Vector
    parts: tuple[PhaseTime, ...]
    places: tuple[int, ...]  # HOST or an index of the system's devices
    devices: tuple[Device, ...]
    transfers: tuple[Transfer, ...]
    host_log_sd: float = 0.0
    _overlap: Vector = field(default_factory=lambda: np.ones(1), repr=False)  # time over the sum of the parts

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the time that each part takes, on average."""
        times = [float(np.mean(np.asarray(part.seconds, float))) for part in self.parts]
        total = sum(times) + sum(float(np.mean(one.seconds)) for one in self.transfers)
        return tuple(time / total for time in times)

    @property
    def main(self) -> PhaseTime:
        """The part that takes longest."""
        return self.parts[int(np.argmax(self.shares))]

    @property
    def main_device(self) -> Device:
        """Its device."""
        return self.devices[int(np.argmax(self.shares))]

    @property
    def ceiling_seconds(self) -> Vector:
        """What the datasheets of devices and links would allow."""
        parts = sum(np.asarray(part.ceiling_seconds, float) for part in self.parts)
        return self._overlap * (parts + sum(one.ceiling_seconds for one in self.transfers))

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
        """What most of the time goes to: memory (a disk that is read as such too), compute, launch, or link (copies
        between memories)."""
        spent: dict[str, Any] = {"memory": 0.0, "compute": 0.0, "launch": 0.0, "link": 0.0}
        for part in self.parts:
            for resource, seconds in part.seconds_by_resource.items():
                name = "compute" if resource == "power" else resource
                spent[name] = spent[name] + seconds
        for one in self.transfers:
            spent[one.resource] = spent[one.resource] + one.seconds
        times = [np.broadcast_to(np.asarray(value, float), self.seconds.shape) for value in spent.values()]
        return np.asarray(np.array(list(spent))[np.argmax(times, axis=0)])

    @property
    def intensity(self) -> Vector:
        """FLOP a byte of weights and cache."""
        flops = sum(np.asarray(part.flops, float) for part in self.parts)
        size = sum(np.asarray(part.required_bytes, float) for part in self.parts)
        return np.broadcast_to(np.asarray(flops / size), self.seconds.shape)

    @property
    def log_sd(self) -> Vector:
        """Standard deviation of log time: parts on equal devices err together, others and crossings on their own."""
        total = self.seconds / self._overlap
        together: dict[tuple[str, bool], Any] = {}
        for place, device, part in zip(self.places, self.devices, self.parts, strict=True):
            extra = math.hypot(self.host_log_sd, HOST_LOG_SD) if place == HOST else 0.0
            weight = np.asarray(part.seconds, float) / total
            key = (device.id, place == HOST)
            together[key] = together.get(key, 0.0) + weight * np.hypot(np.asarray(part.log_sd, float), extra)
        moved = sum((one.seconds for one in self.transfers), np.zeros(self.seconds.shape))
        variance = PLACEMENT_LOG_SD**2 + np.square(CROSSING_LOG_SD * moved / total)
        variance = variance + np.square(PIPELINE_LOG_SD * (1 - self._overlap))
        return np.asarray(np.sqrt(variance + sum(np.square(sd) for sd in together.values())))

    def interval_tokens_per_s(self, level: float) -> tuple[Vector, Vector]:
        """Rates between which a share `level` of runs is expected, the slower end first, none above the ceiling."""
        part = self.main
        stretch = np.exp(part.quantile(level) * self.log_sd)
        fast = np.minimum(self.tokens_per_s * stretch, np.maximum(self.ceiling_tokens_per_s, self.tokens_per_s))
        return self.tokens_per_s / stretch, fast


@dataclass(frozen=True)
class Run:
    """A model placed on a machine: what the two phases below are timed for."""

    model: Model
    weights: Weights
    placement: Placement
    machine: Machine
    scale: float = 1.0  # bytes of the file over those of `weights`

    def stations(self) -> tuple[Station, ...]:
        """Who does what, with the file's true size."""
        found = stations(self.model, self.weights, self.placement)
        if self.placement.split:
            split = self.placement.split
            found = (*(split_station(self.model, self.weights, i, share) for i, share in enumerate(split) if share),)
        if self.scale == 1.0:
            return found
        return tuple(replace(one, weights=one.weights.scaled(one.weights.file_bytes * self.scale)) for one in found)


def decode_placed(run: Run, occupied: Vector, parallel: Vector, efficiency: Efficiency | None = None) -> PlacedTime:
    """A decode step of `parallel` sequences that each attend `occupied` positions, the new token's included."""
    cache = run.machine.conditions.cache_types
    build = partial(_decode, occupied=occupied, parallel=parallel, cache=cache)
    return _timed(run, build, decode_batch(occupied, parallel), efficiency)


def prefill_placed(
    run: Run, fresh: Vector, cached: Vector, ubatch: float, efficiency: Efficiency | None = None
) -> PlacedTime:
    """Prefill of `fresh` new tokens behind `cached` ones, in micro-batches of `ubatch`."""
    cache = run.machine.conditions.cache_types
    build = partial(_prefill, prompt=fresh, cached=cached, ubatch=ubatch, cache=cache)
    return _timed(run, build, prefill_batch(fresh, cached, ubatch), efficiency)


def weights_ceiling_seconds(run: Run) -> float:
    """Time to read the weights of one token once, each from its own memory; split matrices are read side by side."""
    build = partial(_decode, occupied=1.0, parallel=1.0)
    times = []
    for station in run.stations():
        size = sum(float(np.asarray(one.weight_bytes)) for one in station.operations(build).operations)
        times.append(size / run.machine.device(station.device).bandwidth_bytes_per_s)
    return max(times) if run.placement.split else sum(times)


def _decode(model: Model, weights: Inventory, **given: Any) -> PhaseOperations:
    return decode_operations(model, weights, **given)


def _prefill(model: Model, weights: Inventory, **given: Any) -> PhaseOperations:
    return prefill_operations(model, weights, **given)


def _timed(run: Run, build: Build, batch: Batch, efficiency: Efficiency | None) -> PlacedTime:
    """The phase with host weights computed on the host, or taken to a device where the micro-batch is large."""
    if run.placement.split:
        return _side_by_side(run, build, batch, efficiency)
    large = batch.width >= OP_OFFLOAD_TOKENS
    target = run.machine.offloads_to if run.placement.op_offload and run.stations()[-1].works else None
    if target is None or not large.any():
        return _in_turn(run, run.stations(), build, batch, None, efficiency)
    moved = _in_turn(run, with_host_weights(run.stations(), target, run.placement), build, batch, target, efficiency)
    if large.all():
        return moved
    return _choose(large, moved, _in_turn(run, run.stations(), build, batch, None, efficiency))


def _in_turn(
    run: Run,
    each: Sequence[Station],
    build: Build,
    batch: Batch,
    target: int | None,
    efficiency: Efficiency | None,
) -> PlacedTime:
    """One place after the other; `target`: the device that the host's weights are copied to."""
    working = [station for station in each if station.works] or list(each[:1])
    parts = [_part(run, station, build, efficiency) for station in working]
    transfers = [*_hand_overs(run, batch, target), *_remote_inputs(run, batch), *_disk_reads(run, build, batch.passes)]
    if target is not None:
        transfers.append(_weight_copies(run, build, batch.passes, target))
    overlap = np.ones(batch.tokens.shape)
    if run.placement.pipelined:
        overlap = _pipeline_overlap([_seconds(part) for part in parts], batch.passes)
    elif target is None and run.placement.host_feeds_devices:
        own = [place == HOST for place in (station.device for station in working)]
        stages = [
            sum(_seconds(part) for part, mine in zip(parts, own, strict=True) if mine is on) for on in (True, False)
        ]
        overlap = _pipeline_overlap(stages, batch.passes)
    return _placed_time(run, working, parts, transfers, batch.tokens, overlap)


def _seconds(part: PhaseTime) -> Vector:
    return np.asarray(part.seconds, float)


def _part(run: Run, station: Station, build: Build, efficiency: Efficiency | None) -> PhaseTime:
    machine = run.machine
    phase = station.operations(build)
    device, conditions = machine.device(station.device), machine.conditions_of(station.device)
    factors = _hybrid(efficiency or shipped()) if _guest(run, station) else efficiency
    return phase_time(phase, run.model, device, conditions, factors)


def _guest(run: Run, station: Station) -> bool:
    """Whether the host does work beside devices that hold layers."""
    return station.device == HOST and bool(run.placement.devices)


def _hybrid(efficiency: Efficiency) -> Efficiency:
    return replace(efficiency, corrections={**efficiency.corrections, "experts.CPU": HYBRID_EXPERTS})


def _pipeline_overlap(stage_seconds: Sequence[Any], passes: Vector) -> Vector:
    """Micro-batches follow each other through the devices: the slowest stage sets the pace, the others only fill, and a
    part of the time does not overlap."""
    stages = [np.broadcast_to(np.asarray(seconds, float), passes.shape) / passes for seconds in stage_seconds]
    total = np.sum(stages, axis=0)
    ideal = (total + (passes - 1) * np.max(stages, axis=0)) / (total * passes)
    return np.asarray(PIPELINE_LOSS + (1 - PIPELINE_LOSS) * ideal, float)


def _hand_overs(run: Run, batch: Batch, target: int | None) -> list[Transfer]:
    """Activations on their way from place to place, and the logits back. Where `target` does the host's work, the host
    is passed by."""
    visited = route(run.model, run.placement)
    if target is not None:
        stays = run.placement.cache_on_host
        visited = (HOST, *(target if place == HOST and not stays else place for place in visited[1:-1]), HOST)
    hops = [pair for pair in pairwise(visited) if pair[0] != pair[1]]
    entry = entering_copies(run.placement.slots[0] == HOST and target is None)
    sizes: dict[tuple[int, int], list[Any]] = {}
    for i, pair in enumerate(hops):
        wide = (entry if i == 0 else 1) * run.model.hidden * F32_BYTES * batch.tokens
        last = i == len(hops) - 1 and pair[1] == HOST != run.placement.output
        sizes.setdefault(pair, []).append(logit_bytes(run.model, batch) if last else wide)
    return [_hand_over(run, pair, found, batch.passes) for pair, found in sizes.items()]


def _hand_over(run: Run, pair: tuple[int, int], sizes: Sequence[Any], passes: Vector) -> Transfer:
    way = crossing(*pair, run.machine.system, run.machine.backend)
    size = np.asarray(sum(sizes), float)
    names = ["host" if i == HOST else run.machine.device(i).name for i in pair]
    seconds = len(sizes) * way.handover_s * passes + size / way.bytes_per_s
    return Transfer(f"activations, {names[0]} to {names[1]}", size, seconds, size / way.bytes_per_s)


def _remote_inputs(run: Run, batch: Batch) -> list[Transfer]:
    """Masks and graphs for the devices of other computers, on the way in with the activations."""
    found = []
    for station in run.stations():
        if HOST < station.device < run.machine.system.remote:
            way = crossing(HOST, station.device, run.machine.system, run.machine.backend)
            size = input_bytes(station.layers, batch, run.machine.conditions.flash_attention)
            seconds = size / way.bytes_per_s
            found.append(Transfer(f"inputs of {run.machine.device(station.device).name}", size, seconds, seconds))
    return found


def _weight_copies(run: Run, build: Build, passes: Vector, target: int) -> Transfer:
    """The host's weights, of experts only those that the micro-batch uses, once a micro-batch."""
    machine = run.machine
    way: Crossing = weight_copies(machine.device(target), machine.system, machine.backend, machine.load_mode)
    host = run.stations()[-1]
    size = np.broadcast_to(np.asarray(host_copies(host, build), float), passes.shape)
    return Transfer(f"weights over {way.name}", size, size / way.bytes_per_s, size / way.bytes_per_s)


def _disk_reads(run: Run, build: Build, passes: Vector) -> list[Transfer]:
    """What of the mapped file does not stay in memory. A pass over all weights of a file that is larger than the memory
    evicts what comes next, and reads all of it anew; experts picked at random miss in proportion."""
    missing = missing_share(run)
    if not missing:
        return []
    host = run.stations()[-1]
    size: Any = np.zeros(passes.shape)
    for one in host.operations(build).operations:
        touched = one.weight_bytes / passes
        whole = sum(group.bytes * group.experts for group in host.weights.matrices)
        size = size + one.weight_bytes * (1.0 if one.kind == "dense" else np.maximum(missing, touched / whole))
    rate = run.machine.system.host.disk_bytes_per_s or TYPICAL_DISK_BYTES_PER_S
    return [Transfer("weights read from disk", size, size / rate, size / rate, "memory")]


def missing_share(run: Run) -> float:
    """Share of the host's weights that its memory has no room for."""
    from .memory import HOST_RESERVE_BYTES

    memory = run.machine.system.host.memory_bytes
    matrices = run.stations()[-1].weights.matrices
    size = sum(group.bytes * group.experts for group in matrices)
    if memory is None or not size or run.placement.split:
        return 0.0
    return max(0.0, 1 - max(memory - HOST_RESERVE_BYTES, 0) / size)


def _placed_time(
    run: Run,
    working: Sequence[Station],
    parts: Sequence[PhaseTime],
    transfers: Sequence[Transfer],
    tokens: Vector,
    overlap: Vector,
) -> PlacedTime:
    total = sum(np.asarray(part.seconds, float) for part in parts) + sum(one.seconds for one in transfers)
    places = tuple(station.device for station in working)
    return PlacedTime(
        seconds=np.array(np.broadcast_to(total * overlap, tokens.shape)),
        tokens=tokens,
        parts=tuple(parts),
        places=places,
        devices=tuple(map(run.machine.device, places)),
        transfers=tuple(transfers),
        host_log_sd=run.machine.host.log_sd,
        _overlap=overlap,
    )


def _side_by_side(run: Run, build: Build, batch: Batch, efficiency: Efficiency | None) -> PlacedTime:
    """Split matrices: the slowest device sets the pace; attention is split by heads, small operations are repeated."""
    each = run.stations()
    parts = [
        _split_part(run, station, build, share, efficiency) for station, share in zip(each, _used(run), strict=True)
    ]
    slowest = np.max([np.broadcast_to(_seconds(part), batch.tokens.shape) for part in parts], axis=0)
    summed = sum(_seconds(part) for part in parts)
    reduces = _all_reduces(run, batch.tokens, batch.passes)
    total = summed + reduces.seconds
    return _placed_time(run, each, parts, [reduces], batch.tokens, (slowest + reduces.seconds) / total)


def _used(run: Run) -> list[float]:
    return [share for share in run.placement.split if share > 0]


def _split_part(run: Run, station: Station, build: Build, share: float, efficiency: Efficiency | None) -> PhaseTime:
    def split(model: Model, weights: Inventory) -> PhaseOperations:
        phase = build(model, weights)
        return replace(phase, operations=tuple(_by_heads(operation, share) for operation in phase.operations))

    return _part(run, station, split, efficiency)


def _by_heads(operation: Operation, share: float) -> Operation:
    """A device's share of the heads of attention; other operations are split elsewhere, or not at all."""
    if operation.kind not in ("attention", "scan"):
        return operation
    return replace(
        operation,
        flops=operation.flops * share,
        kv_read_bytes=operation.kv_read_bytes * share,
        kv_written_bytes=operation.kv_written_bytes * share,
        activation_bytes=operation.activation_bytes * share,
    )


def _all_reduces(run: Run, tokens: Vector, passes: Vector) -> Transfer:
    """Every device sends and receives 2 (n − 1) / n of the activations, two times a layer."""
    used = [i for i, share in enumerate(run.placement.split) if share > 0]
    way = crossing(used[0], used[-1], run.machine.system, run.machine.backend)
    count = ALL_REDUCES * run.model.n_layers
    size = count * 2 * (len(used) - 1) / len(used) * run.model.hidden * F32_BYTES * tokens
    handover = max(ALL_REDUCE_S, way.handover_s) * math.log2(len(used)) if len(used) > 1 else 0.0
    seconds = count * handover * passes + size / way.bytes_per_s
    return Transfer(f"all-reduces over {way.name}", size, seconds, size / way.bytes_per_s)


def _choose(where: NDArray[np.bool_], first: PlacedTime, second: PlacedTime) -> PlacedTime:
    """`first` at the points where `where` holds, else `second`; the parts are those of `first`."""
    return replace(
        first,
        seconds=np.where(where, first.seconds, second.seconds),
        _overlap=np.where(where, first._overlap, second.seconds / (first.seconds / first._overlap)),
    )
