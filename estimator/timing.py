"""How long a phase takes: its operations under the roofs of a device, stretched by the efficiency factors.

Positions, prompts and numbers of sequences broadcast as numpy arrays.
Imports `phase_roofs`, `operations`, `efficiency` and `roofline`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .architecture import Model
from .cache_reads import Phase
from .compute_paths import attention_path, matrix_paths, vector_path
from .efficiency import Efficiency, FactorValues, MachineFactors, shipped
from .frozen_dataclass import dataclass
from .inventory import Inventory, inventory
from .operations import Array, Operation, OperationKind, PhaseOperations, decode_operations, prefill_operations
from .phase_roofs import model_traits, phase_roofs
from .quantization import Weights
from .roof_groups import RoofGroup
from .roofline import Factor, Resource, Roof, ceiling_seconds, combined, share_of
from .run_machine import Conditions
from .system import Device

BLOCK: Final = 256  # points
_BOUNDS: Final = np.array(["memory", "compute", "launch"])


@dataclass(frozen=True)
class FactorUse:
    """One factor of one roof: its value as a multiple of the time, its uncertainty, and where it comes from."""

    name: str
    multiple: float
    log_sd: float
    origin: str


class RoofTime(NamedTuple):
    """A roof with its time as estimated; `roof.seconds` is that at the datasheet's rate."""

    roof: Roof
    seconds: Array
    operation_seconds: Array  # of all roofs together


class OperationTime(NamedTuple):
    """An operation's row of the explanation."""

    group: RoofGroup
    roofs: tuple[RoofTime, ...]
    seconds: Array

    @property
    def name(self) -> str:
        """What is done."""
        return self.group.name

    @property
    def kind(self) -> str:
        """Kind of operation."""
        return self.group.kind

    @property
    def flops(self) -> Array:
        """FLOPs of the operation."""
        return self.group.flops

    @property
    def bytes(self) -> Array:
        """Bytes that it moves."""
        return self.group.bytes

    @property
    def bound(self) -> RoofTime:
        """The roof that takes longest (for arrays: on average)."""
        return max(self.roofs, key=lambda one: float(np.mean(one.seconds)))

    @property
    def factor(self) -> Array:
        """Time over the time of the binding roof at its datasheet rate."""
        return self.seconds / np.maximum(self.bound.roof.seconds, 1e-300)


@dataclass(frozen=True, eq=False)
class PhaseTime:
    """Time of a phase: a decode step of all sequences, or the prefill of a prompt. Arrays keep their shape."""

    phase: Phase
    seconds: Array
    operations: tuple[OperationTime, ...]
    machine: MachineFactors
    _work: PhaseOperations = field(repr=False)
    _device: Device = field(repr=False)
    _conditions: Conditions = field(repr=False)
    _values: FactorValues = field(repr=False)
    _sd_of_runs: float = field(repr=False)
    _quantile: Callable[[str, float, str], float] = field(repr=False)

    @property
    def tokens(self) -> Array:
        """Tokens of the phase: one of each sequence in a decode step, all of a prompt."""
        return self._work.tokens

    @cached_property
    def flops(self) -> Array:
        """FLOPs of the phase."""
        return self._work.flops

    @cached_property
    def required_bytes(self) -> Array:
        """Bytes of weights and cache that cannot be avoided."""
        return self._work.required_bytes

    @cached_property
    def ceiling_seconds(self) -> Array:
        """The least time that the datasheet allows."""
        bandwidth = self._device.bandwidth_bytes_per_s * self._conditions.sockets
        compute = _compute_seconds(self._work, self._device, self._conditions)
        return ceiling_seconds(self.required_bytes, bandwidth, compute)

    @property
    def tokens_per_s(self) -> Array:
        """Tokens of all sequences a second."""
        return self.tokens / self.seconds

    @property
    def ceiling_tokens_per_s(self) -> Array:
        """The rate that the datasheet would allow."""
        return self.tokens / self.ceiling_seconds

    @property
    def intensity(self) -> Array:
        """FLOP a byte of weights and cache."""
        return self.flops / self.required_bytes

    @cached_property
    def log_sd(self) -> Array:
        """Standard deviation of log time of a run: uncertain factors, by how much each matters, and its own noise."""
        rows, gradients = self._gradients()
        scaled = gradients * np.array([self._values[name].sd for name in rows])[:, np.newaxis]
        variance = self._sd_of_runs**2 + np.einsum("fp,fp->p", scaled, scaled)
        for (first, second), covariance in self.machine.covariances.items():
            if first in rows and second in rows:
                variance += 2 * covariance * gradients[rows[first]] * gradients[rows[second]]
        log_sd: Array = np.sqrt(variance).reshape(np.shape(self.seconds))[()]
        return log_sd

    def _gradients(self) -> tuple[Mapping[str, int], NDArray[np.float64]]:
        """Relative change of the time with each factor, (factors, points), and the factors' rows by name."""
        shares = self._shares
        sets, weights = [one.roof.factors for one in self._roofs], [*shares]
        for one, share in zip(self._roofs, shares, strict=True):
            if one.roof.saturation:
                missing = self._values.multiple(one.roof.saturation) / one.roof.columns
                sets.append(one.roof.saturation)
                weights.append(share * missing / (1 + missing))
        powers = _powers(tuple(sets))
        return powers.rows, powers.change(np.array(weights).reshape(len(weights), -1))

    @cached_property
    def _roofs(self) -> tuple[RoofTime, ...]:
        return tuple(one for operation in self.operations for one in operation.roofs)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """How much of a relative change of each roof reaches the time of the phase, (roofs, *points)."""
        shares = np.empty((len(self._roofs), *np.shape(self.seconds)))
        row = 0
        for operation in self.operations:
            part = operation.seconds / self.seconds
            for one in operation.roofs:
                shares[row] = part * share_of(one.seconds, one.operation_seconds)
                row += 1
        return shares

    def quantile(self, level: float) -> float:
        """Standard deviations on either side that hold a share `level` of runs."""
        return self._quantile(self.phase, level, self._conditions.backend)

    def interval(self, level: float) -> tuple[Array, Array]:
        """Seconds between which a share `level` (0.80, 0.95) of runs is expected, none above the ceiling."""
        stretch = np.exp(self.quantile(level) * self.log_sd)
        fast = np.minimum(np.maximum(self.seconds / stretch, self.ceiling_seconds), self.seconds)
        return fast, self.seconds * stretch

    def interval_tokens_per_s(self, level: float) -> tuple[Array, Array]:
        """The same as a rate, the slower end first."""
        fast, slow = self.interval(level)
        return self.tokens / slow, self.tokens / fast

    @property
    def seconds_by_resource(self) -> dict[Resource, Array]:
        """Time put down to what bounds it: memory, compute, power, launch."""
        return {resource: share * self.seconds for resource, share in self._share_by_resource().items()}

    def _share_by_resource(self) -> dict[Resource, NDArray[np.float64]]:
        totals: dict[Resource, NDArray[np.float64]] = {}
        for one, share in zip(self._roofs, self._shares, strict=True):
            resource = one.roof.resource
            totals[resource] = totals[resource] + share if resource in totals else share
        return totals

    @property
    def bound(self) -> str | NDArray[np.str_]:
        """What most of the time goes to: "memory", "compute" (also where power limits it) or "launch"."""
        shares, none = self._share_by_resource(), np.zeros(np.shape(self.seconds))
        compute = shares.get("compute", none) + shares.get("power", none)
        largest = np.argmax(np.array([shares.get("memory", none), compute, shares.get("launch", none)]), axis=0)
        names = _BOUNDS[largest]
        return str(names) if np.ndim(names) == 0 else names

    def factors(self, roof: Roof) -> tuple[FactorUse, ...]:
        """The factors of one roof of this estimate, for its explanation."""
        return tuple(
            FactorUse(
                factor.name,
                math.exp(factor.power * self._values[factor.name].mean),
                abs(factor.power) * self._values[factor.name].sd,
                self._values.origin(factor.name),
            )
            for factor in roof.factors
        )


def decode_time(
    model: Model,
    weights: Weights | Inventory,
    device: Device,
    backend: str,
    *,
    occupied: Array,
    parallel: Array = 1,
    efficiency: Efficiency | None = None,
    **conditions: Any,
) -> PhaseTime:
    """One decode step of `parallel` sequences that each attend `occupied` positions, the new token's included.

    `conditions` are those of `Conditions`: era, engine, flash_attention, kv_type_k, kv_type_v, threads, sockets. Raises
    InputError where the device lacks a figure that is needed.
    """
    settings = Conditions(backend, **conditions)
    phase = decode_operations(
        model,
        _inventory(model, weights),
        occupied=occupied,
        parallel=parallel,
        cache=settings.cache_types,
    )
    return phase_time(phase, model, device, settings, efficiency)


def prefill_time(
    model: Model,
    weights: Weights | Inventory,
    device: Device,
    backend: str,
    *,
    prompt: Array,
    cached: Array = 0,
    ubatch: Array = 512,
    efficiency: Efficiency | None = None,
    **conditions: Any,
) -> PhaseTime:
    """Prefill of `prompt` new tokens behind `cached` ones, in micro-batches of `ubatch`.

    `conditions` as in `decode_time`.
    """
    settings = Conditions(backend, **conditions)
    phase = prefill_operations(
        model,
        _inventory(model, weights),
        prompt=prompt,
        cached=cached,
        ubatch=ubatch,
        cache=settings.cache_types,
    )
    return phase_time(phase, model, device, settings, efficiency)


def phase_time(
    phase: PhaseOperations, model: Model, device: Device, conditions: Conditions, efficiency: Efficiency | None = None
) -> PhaseTime:
    """Time of a phase whose operations are known."""
    factors = efficiency or shipped()
    values = factors.values(conditions.backend, device)
    groups = phase_roofs(phase, device, conditions, model_traits(model))
    times = tuple(time for group in groups for time in _operation_times(group, values))
    seconds: Array = 0.0
    for one in times:
        seconds = seconds + one.seconds
    return PhaseTime(
        phase=phase.phase,
        seconds=seconds,
        operations=times,
        machine=factors.machine(conditions.backend, device),
        _work=phase,
        _device=device,
        _conditions=conditions,
        _values=values,
        _sd_of_runs=factors.sd_of_runs(phase.phase, conditions.backend),
        _quantile=factors.quantile,
    )


def _inventory(model: Model, weights: Weights | Inventory) -> Inventory:
    return weights if isinstance(weights, Inventory) else inventory(model, weights)


def _operation_times(group: RoofGroup, values: FactorValues) -> tuple[OperationTime, ...]:
    """Times of a group with what belongs to it, or of the tokens one after the other, each where it is faster."""
    own = [_operation_time(one, values) for one in (group, group.then) if one is not None]
    if group.instead is None:
        return tuple(own)
    other = _operation_time(group.instead, values)
    spent = own[0].seconds if len(own) == 1 else own[0].seconds + own[1].seconds
    taken = np.asarray((other.seconds < spent) & (other.seconds > 0), float)
    if not np.any(taken):
        return tuple(own)
    if np.all(taken):
        return (other,)
    return (*(_masked(one, 1 - taken) for one in own), _masked(other, taken))


def _masked(time: OperationTime, where: NDArray[np.float64]) -> OperationTime:
    inside = where if time.group.inside is None else time.group.inside * where
    return OperationTime(time.group._replace(inside=inside), time.roofs, time.seconds * where)


def _operation_time(group: RoofGroup, values: FactorValues) -> OperationTime:
    times = [_stretched(roof, values) for roof in group.roofs]
    seconds = combined(times)
    for number, roof in enumerate(group.roofs):
        if roof.path == "bandwidth" and np.count_nonzero(seconds < roof.seconds):
            times[number] = _at_datasheet_rate(roof, times[number], seconds)
            seconds = combined(times)
    roofs = tuple(RoofTime(roof, time, seconds) for roof, time in zip(group.roofs, times, strict=True))
    return OperationTime(group, roofs, group.masked(seconds))


def _stretched(roof: Roof, values: FactorValues) -> Array:
    """The roof's time under its factors."""
    scale = values.multiple(roof.factors) / roof.rate
    if roof.saturation:
        return roof.amount * (scale + values.multiple(roof.saturation) * scale / roof.columns)
    return roof.amount * scale


def _at_datasheet_rate(roof: Roof, time: Array, seconds: Array) -> Array:
    """A memory roof's `time`, lengthened where its operation's `seconds` would beat the datasheet's bandwidth."""
    longer: Array = np.sqrt(np.square(time) + np.maximum(np.square(roof.seconds) - np.square(seconds), 0.0))
    return longer


class _Powers(NamedTuple):
    """The power of each factor in each set that has it, one factor after the other."""

    rows: Mapping[str, int]  # of the factors
    begins: NDArray[np.intp]  # of each factor
    sets: NDArray[np.intp]
    powers: NDArray[np.float64]  # (…, 1)

    def change(self, by_set: NDArray[np.float64]) -> NDArray[np.float64]:
        """(factors, points) from (sets, points): of each factor, the sum over its sets.

        Block by block, which stay in the processor's cache; a matrix product would start threads of BLAS.
        """
        changes = np.empty((len(self.rows), by_set.shape[1]))
        for at in range(0, by_set.shape[1], BLOCK):
            block = by_set[:, at : at + BLOCK][self.sets] * self.powers
            np.add.reduceat(block, self.begins, axis=0, out=changes[:, at : at + BLOCK])
        return changes


@lru_cache(maxsize=256)
def _powers(sets: tuple[tuple[Factor, ...], ...]) -> _Powers:
    found: dict[str, list[tuple[int, float]]] = {}
    for number, factors in enumerate(sets):
        for name, power in factors:
            found.setdefault(name, []).append((number, power))
    pairs = [pair for one in found.values() for pair in one]
    begins = np.cumsum([0, *map(len, found.values())])[:-1]
    numbers, powers = (np.array(column) for column in zip(*pairs, strict=True))
    return _Powers({name: row for row, name in enumerate(found)}, begins, numbers, powers[:, np.newaxis])


def _compute_seconds(phase: PhaseOperations, device: Device, conditions: Conditions) -> Array:
    """All FLOPs at the peaks of the units that do them, whatever the number of columns."""
    return sum((_flop_seconds(op, device, conditions) for op in phase.operations), 0.0) / conditions.sockets


def _flop_seconds(operation: Operation, device: Device, conditions: Conditions) -> Array:
    if operation.kind == "elementwise":
        return 0.0
    return operation.flops / _peak(operation.kind, operation.tensor_type, device, conditions.backend)


@lru_cache(maxsize=1024)
def _peak(kind: OperationKind, tensor_type: str, device: Device, backend: str) -> float:
    """FLOP/s of the fastest unit for such operations."""
    if kind == "attention":
        return attention_path(device, backend).flop_per_s
    if kind == "scan":
        return vector_path(device, backend).flop_per_s
    return max(one.path.flop_per_s for one in matrix_paths(device, backend, tensor_type))
