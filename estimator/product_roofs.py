"""The roofs of matrix products: which kernels the tokens of a batch select, and what bounds each of them.

Imports `compute_paths`, `cpu_kernels`, `vector_limits`, `run_machine` and `roof_groups`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from .build_eras import built_since
from .compute_paths import AMD_TILES_ERA, ComputePath, has_integer_dot, matrix_paths, vector_path
from .cpu_kernels import FLOAT_TILES_ERA, TILE_COLUMNS
from .ggml_types import F16_ROUND_TRIP, FLOAT_TYPES
from .operations import Array, Operation, OperationKind
from .roof_groups import Inside, RoofGroup
from .roofline import Factor, Roof
from .run_machine import RunMachine
from .vector_limits import extra_column, multiplies_on_matrix_units, outpaced

# Every phase asks for the paths of the same few tensor types on the same device.
_vector_path: Final = lru_cache(maxsize=1024)(vector_path)
_matrix_paths: Final = lru_cache(maxsize=1024)(matrix_paths)
_extra_column: Final = lru_cache(maxsize=1024)(extra_column)

REFERENCE_UNITS: Final = 40.0  # multiprocessors for which `launch` and `saturation` hold
CORE_BYTES_PER_S: Final = 20e9  # what one core draws from memory, which `core_memory` is relative to
REFERENCE_CPU_BANDWIDTH: Final = 80e9  # bytes/s, two channels; CPUs use wider memories less well
PICOJOULE: Final = 1e-12  # the energy factors' unit


def product_groups(operation: Operation, machine: RunMachine) -> list[RoofGroup]:
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


def _vector_group(operation: Operation, machine: RunMachine, inside: Inside) -> RoofGroup:
    return RoofGroup(operation.name, operation.kind, _vector_roofs(operation, machine), operation, inside=inside)


def _matrix_group(operation: Operation, path: ComputePath, machine: RunMachine, inside: Inside) -> RoofGroup:
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


def _weight_roof(operation: Operation, machine: RunMachine) -> Roof:
    factors = _weight_factors(operation.kind, machine)
    return Roof("memory", "bandwidth", operation.weight_bytes, machine.bandwidth, factors)


@lru_cache(maxsize=1024)
def _weight_factors(kind: OperationKind, machine: RunMachine) -> tuple[Factor, ...]:
    factors = [Factor("memory"), machine.years("era_memory")]
    if machine.backend == "CPU":
        factors.append(Factor("wide_memory.CPU", math.log(machine.bandwidth / REFERENCE_CPU_BANDWIDTH)))
    if kind == "experts":
        factors.append(Factor(f"experts.{machine.backend}"))
    return tuple(factors)


def _vector_roofs(operation: Operation, machine: RunMachine) -> tuple[Roof, ...]:
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


def _few_row_roofs(operation: Operation, machine: RunMachine) -> list[Roof]:
    """What the matrix unit takes for more than one column, once the weights are unpacked."""
    flops = np.where(np.asarray(operation.columns) > 1, operation.flops, 0.0)
    if not np.any(flops):
        return []
    (one,) = _matrix_paths(machine.device, machine.backend, operation.tensor_type, machine.conditions.era)
    factors = _matrix_factors(operation.kind, operation.tensor_type, one.path, machine)
    return [Roof("compute", one.path.peak, flops if np.ndim(flops) else float(flops), one.path.flop_per_s, factors)]


@lru_cache(maxsize=1024)
def _unpack_factors(kind: OperationKind, tensor_type: str, machine: RunMachine) -> tuple[Factor, ...]:
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


def _type_factors(tensor_type: str, machine: RunMachine) -> tuple[Factor, ...]:
    factor = Factor(machine.unpack_type(tensor_type))
    if machine.backend == "CPU":
        return (factor,)
    return factor, Factor(f"unpack_backend_type.{machine.backend}.{tensor_type}")


def _matrix_roofs(operation: Operation, path: ComputePath, machine: RunMachine) -> tuple[Roof, ...]:
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


def _computed_flops(operation: Operation, machine: RunMachine) -> Array:
    """FLOPs of a product, and of the rest of a CPU's last tile."""
    if machine.backend != "CPU" or machine.cpu_kernel(operation.kind, operation.tensor_type) != "tiled":
        return operation.flops
    columns = np.asarray(operation.columns, float)
    return operation.flops * np.asarray(np.ceil(columns / TILE_COLUMNS) * TILE_COLUMNS / columns, float)


@lru_cache(maxsize=1024)
def _saturation(kind: OperationKind, tensor_type: str, machine: RunMachine) -> tuple[Factor, ...]:
    """More multiprocessors need more columns before all are busy; a CPU's kernels unpack weights for all columns."""
    if machine.backend == "CPU" and kind != "experts":
        return (Factor(f"saturation.CPU.{machine.cpu_kernel(kind, tensor_type)}"),)
    factor = Factor(f"saturation.{machine.backend}.{'experts' if kind == 'experts' else 'dense'}")
    if machine.backend == "CPU" or not machine.device.units:
        return (factor,)
    return factor, Factor(f"saturation_units.{machine.backend}", math.log(machine.device.units / REFERENCE_UNITS))


@lru_cache(maxsize=1024)
def _matrix_factors(
    kind: OperationKind, tensor_type: str, path: ComputePath, machine: RunMachine
) -> tuple[Factor, ...]:
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
    kind: OperationKind, tensor_type: str, path: ComputePath, machine: RunMachine
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


def _vulkan_factors(kind: OperationKind, path: ComputePath, machine: RunMachine) -> Iterator[Factor]:
    """What poorer drivers and tiles of old builds cost cooperative matrices."""
    if machine.backend != "Vulkan":
        return
    old_tiles = machine.device.vendor == "amd" and not built_since(AMD_TILES_ERA, machine.conditions.era)
    if old_tiles and path.unit == "fp16_matrix":
        yield Factor("coopmat_tiles.amd")
    if machine.conditions.vulkan:
        yield Factor(f"vulkan_matrix.{machine.conditions.vulkan}.{'experts' if kind == 'experts' else 'dense'}")


def _dequantise_group(operation: Operation, machine: RunMachine, inside: Inside) -> RoofGroup:
    size = operation.weights * F16_ROUND_TRIP
    roof = Roof("memory", "bandwidth", size, machine.bandwidth, (Factor("memory"),))
    name = f"write {operation.tensor_type} out as F16"
    return RoofGroup(name, operation.kind, (roof,), size=size, inside=inside)
