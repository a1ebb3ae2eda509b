"""The roofs of every operation of a phase on a device, and the efficiency factors that stretch each of them.

Prediction and the fit of the factors are built on this one list, so that what is predicted is what was fitted.
Imports `operations`, `compute_paths`, `vector_limits` and `roofline`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .architecture import Attention, CompressedAttention, LatentAttention, Model, MoeFfn
from .build_eras import built_since, years_of
from .cache_reads import CacheTypes, Phase, bytes_per_value
from .compute_paths import AMD_TILES_ERA, ComputePath, attention_path, has_integer_dot, matrix_paths, vector_path
from .cpu_kernels import (
    FLOAT_TILES_ERA,
    TILE_COLUMNS,
    Kernel,
    flop_per_cycle,
    half_step,
    is_arm,
    is_interleaved,
    kernel,
    score_cycles,
)
from .errors import InputError
from .frozen_dataclass import dataclass
from .ggml_types import FLOAT_TYPES
from .operations import Array, Operation, OperationKind, PhaseOperations
from .roofline import Factor, Roof
from .system import Device
from .vector_limits import extra_column, multiplies_on_matrix_units, outpaced, vector_tokens

Inside = NDArray[np.float64] | None  # where a group's kernels run
# AMD's former open-source driver, with half the shared memory of others; NVIDIA's without VK_NV_cooperative_matrix2.
VulkanVariant = Literal["amdvlk", "coopmat1"]

# Every phase asks for the paths of the same few tensor types on the same device.
_vector_path: Final = lru_cache(maxsize=1024)(vector_path)
_matrix_paths: Final = lru_cache(maxsize=1024)(matrix_paths)
_vector_tokens: Final = lru_cache(maxsize=1024)(vector_tokens)
_extra_column: Final = lru_cache(maxsize=1024)(extra_column)

REFERENCE_UNITS: Final = 40.0  # multiprocessors for which `launch` and `saturation` hold
CORE_BYTES_PER_S: Final = 20e9  # what one core draws from memory, which `core_memory` is relative to
F16_ROUND_TRIP: Final = 4.0  # bytes a weight to write it out as F16 and read it back
TYPICAL_BASE_TO_BOOST: Final = 0.75  # clock of CPUs whose base clock is not known
REFERENCE_CPU_BANDWIDTH: Final = 80e9  # bytes/s, two channels; CPUs use wider memories less well
HOST_PASSES_PER_S: Final = 1e3  # what the `host` factors of engines around llama.cpp are relative to
CORE_CACHE_BYTES: Final = 2**21  # second-level caches of today's cores have 1 to 2 MiB
# A head's rows of K and V lie a cell apart. Where a loop takes several steps along a row, prefetchers follow cells of
# up to 1 KiB; from 2 KiB on (K and V together) the rows arrive at the latency of memory, whose waits overlap within a
# cell (hardware/measurements/cpu-epyc-2core/strides.csv; 100 to 120 ns in runs of models with heads of 128 values).
PREFETCHED_CELL_BYTES: Final = 2048
ROW_LATENCY_S: Final = 100e-9
# Kernels that gather what an indexer selects came in autumn 2026, after all measured builds (ggml_flash_attn_ext_set_
# n_kv_max); those of AMD under ROCm and of CPUs do not, Metal's are for decode.
GATHERING_ERA: Final = "2027H1"
_GATHERING: Final[dict[str, tuple[Phase, ...]]] = {
    "CUDA": ("decode", "prefill"), "Vulkan": ("decode", "prefill"), "Metal": ("decode",),
}  # fmt: skip
LAUNCHES_PER_S: Final = 1e6  # `launch` is in microseconds
PICOJOULE: Final = 1e-12  # the energy factors' unit


@dataclass(frozen=True)
class Conditions:
    """What decides the kernels beside device and model. `era`: half-year of the build, None for the newest known."""

    backend: str
    era: str | None = None
    engine: str = "llama.cpp"  # or "ollama", "llamafile": they do work of their own for every token
    flash_attention: bool = True
    kv_type_k: str = "F16"
    kv_type_v: str = "F16"
    threads: float | None = None  # CPU backend; None: one a core
    weak_host: bool = False  # a small computer, or few PCIe lanes, behind a GPU: launches are slow
    sockets: float = 1.0  # CPU backend: equal processors that share the work
    vulkan: VulkanVariant | None = None  # drivers that offer less than the usual one

    @cached_property
    def years(self) -> float:
        """Age of the build in years after the reference."""
        return years_of(self.era)

    @property
    def cache_types(self) -> CacheTypes:
        """How attention finds its cache."""
        gathers = _GATHERING.get(self.backend, ()) if built_since(GATHERING_ERA, self.era) else ()
        return CacheTypes(self.kv_type_k, self.kv_type_v, self.flash_attention, gathers)

    def attention_kind(self, wide_heads: bool) -> str:
        """Which family of attention kernels runs."""
        kind = "flash" if self.flash_attention else "plain"
        return kind + ("_wide" if wide_heads else "") + ("" if self.kv_type_k in FLOAT_TYPES else "_quantised")


class RoofGroup(NamedTuple):
    """The roofs of one operation, which overlap; different groups follow one another."""

    name: str
    kind: str
    roofs: tuple[Roof, ...]
    operation: Operation | None = None  # None: bytes that no single operation moves
    size: Array = 0.0  # those bytes
    inside: Inside = None  # 1 where the kernels of this group run, 0 elsewhere; None: everywhere
    then: RoofGroup | None = None  # what the same kernels need besides
    instead: RoofGroup | None = None  # the tokens one after the other, where even that is faster

    @property
    def flops(self) -> Array:
        """FLOPs of the operation."""
        return 0.0 if self.operation is None else self.masked(self.operation.flops)

    @property
    def bytes(self) -> Array:
        """Bytes that the operation moves."""
        return self.masked(self.size if self.operation is None else self.operation.bytes)

    def masked(self, values: Array) -> Array:
        """`values` where the kernels of this group run, 0 elsewhere."""
        return values if self.inside is None else values * self.inside


@dataclass(frozen=True, eq=False)
class _Machine:
    """A device as one run uses it; `_machine` gives one object for equal ones, so that it may be a cheap key."""

    device: Device
    conditions: Conditions

    @property
    def backend(self) -> str:
        return self.conditions.backend

    @cached_property
    def scope(self) -> str:
        return f"{self.backend}/{self.device.generation or 'unknown'}"

    @property
    def cores(self) -> float:
        if self.device.cores is None:
            raise InputError(f"{self.device.id}: its number of cores is not known; add it to the device's YAML entry")
        return self.device.cores * self.conditions.sockets

    @property
    def threads(self) -> float:
        return min(self.conditions.threads or self.cores, self.cores)

    @cached_property
    def bandwidth(self) -> float:
        return self.device.bandwidth_bytes_per_s * (self.conditions.sockets if self.backend == "CPU" else 1.0)

    @cached_property
    def capacity(self) -> float:
        """Share of the peaks that the threads have; with all cores busy, clocks fall towards the base clock."""
        if self.backend != "CPU":
            return 1.0
        busy = self.threads / self.cores
        return busy * self.conditions.sockets * math.pow(self._base_to_boost, busy / 2)

    @property
    def _base_to_boost(self) -> float:
        """Clock that a CPU keeps under any load, relative to its highest."""
        device = self.device
        base, boost = device.base_clock_peaks_flop_per_s.get("fp32"), device.peaks_flop_per_s.get("fp32")
        if not (base and boost):  # processors with two kinds of cores have no single figure
            base, boost = device.base_hertz, device.boost_hertz
        return base / boost if base and boost else TYPICAL_BASE_TO_BOOST

    @cached_property
    def vector_flop_per_s(self) -> float:
        """FP32 rate of the vector units, as far as the threads have them."""
        peaks = self.device.peaks_flop_per_s
        rate = peaks.get("fp32", peaks.get("fp16"))
        if rate is None:
            raise InputError(f"{self.device.id}: no vector peak is known (fp32 or fp16); add one to its YAML entry")
        return rate * self.capacity

    @property
    def waiting(self) -> Factor:
        """CPU threads wait for the slowest of them after every operation."""
        return Factor("cpu_threads", math.log(self.threads))

    @property
    def cycles_per_s(self) -> float:
        """Clock cycles of all threads."""
        return self.vector_flop_per_s / flop_per_cycle(self.device)

    def vector_tokens(self, operation: Operation) -> float:
        """Most tokens of a pass that a matrix-vector kernel takes."""
        experts, era = operation.kind == "experts", self.conditions.era
        return _vector_tokens(self.device, self.backend, operation.tensor_type, experts=experts, era=era)

    def cpu_kernel(self, kind: OperationKind, tensor_type: str) -> Kernel:
        """What multiplies many columns on the CPU."""
        return kernel(self.device, tensor_type, experts=kind == "experts", era=self.conditions.era)

    def interleaved(self, tensor_type: str) -> bool:
        """Whether the CPU's kernels, those of single columns too, work on several rows of weights at once."""
        return is_interleaved(self.device, tensor_type, self.conditions.era)

    @property
    def instruction_set(self) -> str:
        """Whose kernels a CPU runs."""
        return "arm" if is_arm(self.device) else "x86"

    def unpack_type(self, tensor_type: str) -> str:
        """Name of the factor for unpacking a type."""
        return f"unpack_type.{self.instruction_set if self.backend == 'CPU' else 'gpu'}.{tensor_type}"

    def years(self, family: str) -> Factor:
        return Factor(f"{family}.{self.backend}", self.conditions.years)


_machine: Final = lru_cache(maxsize=64)(_Machine)


@dataclass(frozen=True)
class ModelTraits:
    """What makes a model's small kernels slower than their number says."""

    experts: bool
    recurrent: bool


@lru_cache(maxsize=256)
def model_traits(model: Model) -> ModelTraits:
    """Whether any layer routes to experts, and whether any is recurrent."""
    cached = (Attention, LatentAttention, CompressedAttention)
    return ModelTraits(
        any(isinstance(layer.ffn, MoeFfn) for layer in model.layers),
        any(not isinstance(mixer, cached) for layer in model.layers for mixer in layer.mixers),
    )


def phase_roofs(
    phase: PhaseOperations, device: Device, conditions: Conditions, traits: ModelTraits
) -> tuple[RoofGroup, ...]:
    """Roofs and factors of every operation of a phase. Raises InputError if the device lacks a figure for it."""
    machine = _machine(device, conditions)
    groups: list[RoofGroup] = []
    for operation in phase.operations:
        if operation.kind in ("dense", "experts", "output"):
            groups += _product_groups(operation, machine)
        elif operation.kind == "attention":
            groups.append(_attention_group(operation, phase, machine))
        elif operation.kind == "scan":
            groups.append(_scan_group(operation, phase, machine))
    groups.append(_activation_group(phase, machine))
    groups.append(_launch_group(phase, machine, traits))
    if conditions.engine != "llama.cpp":
        host = Roof("launch", "host", phase.passes, HOST_PASSES_PER_S, (Factor(f"host.{conditions.engine}"),))
        groups.append(RoofGroup(f"{conditions.engine} itself", "host", (host,)))
    return tuple(groups)


def _product_groups(operation: Operation, machine: _Machine) -> list[RoofGroup]:
    """Matrix products, split by the kernels that the tokens of a batch select, of experts too (ggml-cuda.cu,
    ggml_cuda_mul_mat_id)."""
    lower, groups = machine.vector_tokens(operation), []
    inside = _inside(operation, 0.0, lower)
    if inside is not _NOWHERE:
        groups.append(_vector_group(operation, machine, inside))
    paths = _matrix_paths(machine.device, machine.backend, operation.tensor_type, machine.conditions.era)
    choosing = operation
    if operation.kind == "experts" and any(one.path.dequantized for one in paths):
        choosing = _by_expert(operation, lower)
    for one in paths:
        inside = _inside(choosing, lower, one.columns)
        if inside is not _NOWHERE:
            groups.append(_matrix_group(operation, one.path, machine, inside))
        lower = one.columns
    return groups


def _by_expert(operation: Operation, lower: float) -> Operation:
    """Experts as BLAS sees them: one after the other, each with its own tokens, which choose its kernel."""
    batch, columns = np.asarray(operation.batch, float), np.asarray(operation.columns, float)
    return replace(operation, batch=np.where(batch > lower, np.maximum(columns, lower + 1), batch)[()])


def _vector_group(operation: Operation, machine: _Machine, inside: Inside) -> RoofGroup:
    return RoofGroup(operation.name, operation.kind, _vector_roofs(operation, machine), operation, inside=inside)


def _matrix_group(operation: Operation, path: ComputePath, machine: _Machine, inside: Inside) -> RoofGroup:
    roofs = _matrix_roofs(operation, path, machine)
    then = _dequantise_group(operation, machine, inside) if path.dequantized else None
    instead = None
    if machine.vector_tokens(operation) and not outpaced(operation.kind == "experts", machine.conditions.era):
        one_by_one = replace(
            operation,
            weight_bytes=operation.weight_bytes * operation.columns,
            weights=operation.weights * operation.columns,
            columns=1.0,
        )
        instead = _vector_group(one_by_one, machine, inside)
    return RoofGroup(operation.name, operation.kind, roofs, operation, inside=inside, then=then, instead=instead)


_NOWHERE: Final = np.zeros(0)


def _inside(operation: Operation, above: float, up_to: float) -> Inside:
    """Where an operation's batches lie in a range: None for everywhere, _NOWHERE, or a mask of ones and zeros."""
    least, most = operation.batch_range
    if above < least and most <= up_to:
        return None
    if most <= above or least > up_to:
        return _NOWHERE
    inside = (operation.batch > above) & (operation.batch <= up_to)
    return np.asarray(inside, float) if np.any(inside) else _NOWHERE


def _weight_roof(operation: Operation, machine: _Machine) -> Roof:
    factors = _weight_factors(operation.kind, machine)
    return Roof("memory", "bandwidth", operation.weight_bytes, machine.bandwidth, factors)


@lru_cache(maxsize=1024)
def _weight_factors(kind: OperationKind, machine: _Machine) -> tuple[Factor, ...]:
    factors = [Factor("memory"), machine.years("era_memory")]
    if machine.backend == "CPU":
        factors.append(Factor("wide_memory.CPU", math.log(machine.bandwidth / REFERENCE_CPU_BANDWIDTH)))
    if kind == "experts":
        factors.append(Factor(f"experts.{machine.backend}"))
    return tuple(factors)


def _vector_roofs(operation: Operation, machine: _Machine) -> tuple[Roof, ...]:
    """Matrix-vector products: read the weights, unpack them, within the power limit (CPU: within the cores' reach)."""
    path = _vector_path(machine.device, machine.backend, operation.tensor_type)
    roofs = [_weight_roof(operation, machine)]
    experts, era = operation.kind == "experts", machine.conditions.era
    extra = _extra_column(machine.device, machine.backend, operation.tensor_type, experts=experts, era=era)
    work = operation.weights * (1 + extra * (operation.columns - 1))
    rate = path.flop_per_s * machine.capacity
    roofs.append(
        Roof("compute", path.peak, work, rate, _unpack_factors(operation.kind, operation.tensor_type, machine))
    )
    if machine.backend == "CPU":
        reach = machine.threads * CORE_BYTES_PER_S
        roofs.append(Roof("memory", "bandwidth of the cores", operation.weight_bytes, reach, (Factor("core_memory"),)))
    elif machine.device.power_watts:
        factors = (Factor("unpack_energy"), Factor(machine.unpack_type(operation.tensor_type), 0.5))
        roofs.append(Roof("power", "power", operation.weights, machine.device.power_watts / PICOJOULE, factors))
    if multiplies_on_matrix_units(machine.backend, experts, era):
        roofs += _few_row_roofs(operation, machine)
    return tuple(roofs)


def _few_row_roofs(operation: Operation, machine: _Machine) -> list[Roof]:
    """What the matrix unit takes for more than one column, once the weights are unpacked."""
    flops = np.where(np.asarray(operation.columns) > 1, operation.flops, 0.0)
    if not np.any(flops):
        return []
    (one,) = _matrix_paths(machine.device, machine.backend, operation.tensor_type, machine.conditions.era)
    factors = _matrix_factors(operation.kind, operation.tensor_type, one.path, machine)
    return [Roof("compute", one.path.peak, flops if np.ndim(flops) else float(flops), one.path.flop_per_s, factors)]


@lru_cache(maxsize=1024)
def _unpack_factors(kind: OperationKind, tensor_type: str, machine: _Machine) -> tuple[Factor, ...]:
    factors = [Factor("unpack"), *_type_factors(tensor_type, machine), machine.years("era_unpack")]
    if kind == "experts":
        factors.append(Factor(f"experts.{machine.backend}"))
    if machine.backend == "CPU":
        factors.append(machine.waiting)
        if machine.instruction_set == "arm":
            factors.append(Factor("cpu_unpack.arm"))
        if machine.interleaved(tensor_type):
            factors.append(Factor("cpu_interleaved"))
    if machine.backend in ("CUDA", "ROCm") and not has_integer_dot(machine.device):
        factors.append(Factor("no_integer_dot"))
    return tuple(factors)


def _type_factors(tensor_type: str, machine: _Machine) -> tuple[Factor, ...]:
    factor = Factor(machine.unpack_type(tensor_type))
    if machine.backend == "CPU":
        return (factor,)
    return factor, Factor(f"unpack_backend_type.{machine.backend}.{tensor_type}")


def _matrix_roofs(operation: Operation, path: ComputePath, machine: _Machine) -> tuple[Roof, ...]:
    """Matrix products: the unit with its scaling of block sums, the weights' bytes, the power limit."""
    rate = 1 / (1 / (path.flop_per_s * machine.capacity) + path.scaling / machine.vector_flop_per_s)
    compute = Roof(
        "compute",
        path.peak,
        _computed_flops(operation, machine),
        rate,
        _matrix_factors(operation.kind, operation.tensor_type, path, machine),
        _saturation(operation.kind, operation.tensor_type, machine),
        operation.columns,
    )
    roofs = [_weight_roof(operation, machine), compute]
    if machine.device.power_watts and machine.backend != "CPU":
        factors = (Factor("matrix_energy"), machine.years("era_matrix"))
        roofs.append(Roof("power", "power", operation.flops, machine.device.power_watts / PICOJOULE, factors))
    return tuple(roofs)


def _computed_flops(operation: Operation, machine: _Machine) -> Array:
    """FLOPs of a product, and of the rest of a CPU's last tile."""
    if machine.backend != "CPU" or machine.cpu_kernel(operation.kind, operation.tensor_type) != "tiled":
        return operation.flops
    columns = np.asarray(operation.columns, float)
    return operation.flops * np.asarray(np.ceil(columns / TILE_COLUMNS) * TILE_COLUMNS / columns, float)


@lru_cache(maxsize=1024)
def _saturation(kind: OperationKind, tensor_type: str, machine: _Machine) -> tuple[Factor, ...]:
    """More multiprocessors need more columns before all are busy; a CPU's kernels unpack weights for all columns."""
    if machine.backend == "CPU" and kind != "experts":
        return (Factor(f"saturation.CPU.{machine.cpu_kernel(kind, tensor_type)}"),)
    factor = Factor(f"saturation.{machine.backend}.{'experts' if kind == 'experts' else 'dense'}")
    if machine.backend == "CPU" or not machine.device.units:
        return (factor,)
    return factor, Factor(f"saturation_units.{machine.backend}", math.log(machine.device.units / REFERENCE_UNITS))


@lru_cache(maxsize=1024)
def _matrix_factors(kind: OperationKind, tensor_type: str, path: ComputePath, machine: _Machine) -> tuple[Factor, ...]:
    backend = machine.backend
    factors = [Factor("matrix"), machine.years("era_matrix"), *_matrix_type_factors(kind, tensor_type, path, machine)]
    if backend == "CPU":
        factors.append(machine.waiting)
    if path.unit != "int8_matrix" or backend == "Vulkan":
        factors.append(Factor(f"matrix_generation_unit.{machine.scope}.{path.unit}"))
    if kind == "experts":
        factors.append(Factor(f"experts_matrix.{backend}"))
    return tuple(factors)


def _matrix_type_factors(
    kind: OperationKind, tensor_type: str, path: ComputePath, machine: _Machine
) -> tuple[Factor, ...]:
    """What a unit and a tensor type cost: by arithmetic and backend, on CPUs by kernel and instruction set."""
    if machine.backend == "CPU":
        kernel: str = machine.cpu_kernel(kind, tensor_type)
        if tensor_type in FLOAT_TYPES:
            kernel = "float" if built_since(FLOAT_TILES_ERA, machine.conditions.era) else "float_2024"
        tiles = f"{machine.instruction_set}.{kernel}"
        return Factor(f"cpu_tiles.{tiles}"), Factor(f"cpu_tiles_type.{tiles}.{tensor_type}")
    arithmetic = "integer" if path.scaling else "float"
    return (
        Factor(f"matrix_unit.{machine.backend}.{path.unit}"),
        Factor(f"matrix_type.{arithmetic}.{tensor_type}"),
        Factor(f"matrix_backend_type.{machine.backend}.{tensor_type}"),
        *_vulkan_factors(kind, path, machine),
    )


def _vulkan_factors(kind: OperationKind, path: ComputePath, machine: _Machine) -> Iterator[Factor]:
    """What poorer drivers and tiles of old builds cost cooperative matrices."""
    if machine.backend != "Vulkan":
        return
    old_tiles = machine.device.vendor == "amd" and not built_since(AMD_TILES_ERA, machine.conditions.era)
    if old_tiles and path.unit == "fp16_matrix":
        yield Factor("coopmat_tiles.amd")
    if machine.conditions.vulkan:
        yield Factor(f"vulkan_matrix.{machine.conditions.vulkan}.{'experts' if kind == 'experts' else 'dense'}")


def _dequantise_group(operation: Operation, machine: _Machine, inside: Inside) -> RoofGroup:
    size = operation.weights * F16_ROUND_TRIP
    roof = Roof("memory", "bandwidth", size, machine.bandwidth, (Factor("memory"),))
    name = f"write {operation.tensor_type} out as F16"
    return RoofGroup(name, operation.kind, (roof,), size=size, inside=inside)


def _attention_group(operation: Operation, phase: PhaseOperations, machine: _Machine) -> RoofGroup:
    roofs = _decode_attention if phase.phase == "decode" else _prompt_attention
    return RoofGroup(operation.name, "attention", roofs(operation, machine), operation)


def _decode_attention(operation: Operation, machine: _Machine) -> tuple[Roof, ...]:
    """One query a sequence: the cache is read once, by kernels that do their arithmetic on the vector units."""
    kind = machine.conditions.attention_kind(operation.wide_heads)
    read = (
        Factor("attention_read"),
        Factor(f"attention_read_kind.{machine.backend}.{kind}"),
        Factor(f"attention_read_generation.{machine.scope}.{kind}"),
        *_sharing(operation, machine),
    )
    compute = (
        Factor(f"attention_vector.{machine.backend}.{kind}"),
        Factor(f"attention_vector_generation.{machine.scope}"),
    )
    if machine.backend == "CPU" and machine.conditions.flash_attention:
        cycles = score_cycles(machine.device, operation.value_dim) * operation.scores * operation.unmasked
        cycles = (
            cycles + _rows_awaited(operation, machine.device) * ROW_LATENCY_S * machine.cycles_per_s / machine.threads
        )
        return (
            Roof("memory", "bandwidth", _reread_bytes(operation), machine.bandwidth, read),
            Roof("compute", "cycles", cycles, machine.cycles_per_s, compute),
        )
    return (
        Roof("memory", "bandwidth", operation.bytes * _conversion(operation, machine), machine.bandwidth, read),
        Roof("compute", "fp32", operation.flops, machine.vector_flop_per_s, compute),
    )


def _sharing(operation: Operation, machine: _Machine) -> tuple[Factor, ...]:
    """Query heads of one head of the cache: kernels that do not gather them read it for each, mostly from caches."""
    if machine.backend == "CPU" or operation.sharers <= 1:
        return ()
    return (Factor(f"attention_sharers.{machine.backend}", math.log(operation.sharers)),)


def _conversion(operation: Operation, machine: _Machine) -> float:
    """What CUDA's kernels move, relative to the cache: no kernel of heads beyond 256 values reads a quantised cache, so
    that all of it is first written out as F16, in every step (ggml-cuda/fattn.cu and fattn-common.cuh, need_f16_K)."""
    fused = machine.conditions.flash_attention and machine.backend in ("CUDA", "ROCm")
    types = machine.conditions.kv_type_k, machine.conditions.kv_type_v
    if not (fused and operation.wide_heads) or all(name in FLOAT_TYPES for name in types):
        return 1.0
    moved = sum(bytes_per_value(name) + (0.0 if name in FLOAT_TYPES else F16_ROUND_TRIP) for name in types)
    return moved / sum(map(bytes_per_value, types))


def _reread_bytes(operation: Operation) -> Array:
    """Bytes that a CPU's flash attention draws from memory: every query head walks its part of the cache by itself, and
    what of that exceeds a core's own cache is read again (ggml/src/ggml-cpu/ops.cpp)."""
    return operation.bytes * operation.unmasked * _readings(operation)


def _readings(operation: Operation) -> Array:
    """How often a head's rows are drawn from beyond a core's own cache."""
    held = operation.head_bytes * operation.unmasked
    return 1 + (operation.sharers - 1) * np.maximum(held - CORE_CACHE_BYTES, 0.0) / np.maximum(held, 1.0)


def _rows_awaited(operation: Operation, device: Device) -> Array:
    """Rows of K and V that no prefetcher has brought when a CPU's flash attention comes to them."""
    if operation.cell_bytes < PREFETCHED_CELL_BYTES or operation.value_dim <= half_step(device):
        return 0.0
    return operation.scores * operation.unmasked / operation.sharers * _readings(operation)


def _prompt_attention(operation: Operation, machine: _Machine) -> tuple[Roof, ...]:
    kind, path = (
        machine.conditions.attention_kind(operation.wide_heads),
        attention_path(machine.device, machine.backend, machine.conditions.era),
    )
    factors = (
        Factor("attention_compute"),
        Factor(f"attention_kind.{machine.backend}.{kind}"),
        Factor(f"attention_generation.{machine.scope}.{kind}"),
        machine.years("era_attention"),
        *((Factor(f"vulkan_attention.{machine.conditions.vulkan}.{kind}"),) if machine.conditions.vulkan else ()),
    )
    return (
        Roof("memory", "bandwidth", operation.bytes, machine.bandwidth, (Factor("memory"),)),
        Roof("compute", path.peak, operation.flops, path.flop_per_s * machine.capacity, factors),
    )


def _scan_group(operation: Operation, phase: PhaseOperations, machine: _Machine) -> RoofGroup:
    factors = (
        Factor(f"scan.{machine.backend}.{phase.phase}"),
        Factor(f"scan_generation.{machine.scope}.{phase.phase}"),
    )
    roofs = (
        Roof("memory", "bandwidth", operation.bytes, machine.bandwidth, (Factor("memory"),)),
        Roof("compute", "fp32", operation.flops, machine.vector_flop_per_s, factors),
    )
    return RoofGroup(operation.name, "scan", roofs, operation)


def _activation_group(phase: PhaseOperations, machine: _Machine) -> RoofGroup:
    """Inputs and outputs of all products, and everything elementwise."""
    size: Array = 0.0
    for operation in phase.operations:
        if operation.kind != "attention":
            size = size + operation.activation_bytes
        if operation.kind == "elementwise":
            size = size + operation.weight_bytes
    factors = (Factor("activation"), machine.years("era_activation"))
    roof = Roof("memory", "bandwidth", size, machine.bandwidth, factors)
    return RoofGroup("activations", "elementwise", (roof,), size=size)


def _launch_group(phase: PhaseOperations, machine: _Machine, traits: ModelTraits) -> RoofGroup:
    backend = machine.backend
    factors = [Factor("launch"), machine.years("era_launch")]
    if backend != "CPU" and machine.device.units:
        factors.append(Factor(f"launch_units.{backend}", math.log(machine.device.units / REFERENCE_UNITS)))
    if machine.conditions.weak_host:
        factors.append(Factor(f"launch_weak_host.{machine.device.vendor}"))  # what its driver does there
    if phase.phase == "prefill":
        factors.append(Factor(f"launch_prefill.{backend}"))
    if traits.experts:
        factors.append(Factor(f"launch_experts.{backend}"))
    if traits.recurrent:
        factors.append(Factor(f"launch_recurrent.{backend}"))
    roof = Roof("launch", "launches", phase.launches, LAUNCHES_PER_S, tuple(factors))
    return RoofGroup("kernel launches", "launch", (roof,))
