"""The roofs of attention: of decode, which reads the cache, and of prompts, which multiply.

Imports `compute_paths`, `cpu_kernels`, `cache_reads`, `run_machine` and `roof_groups`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from .cache_reads import bytes_per_value
from .compute_paths import attention_path
from .cpu_kernels import half_step, score_cycles
from .ggml_types import F16_ROUND_TRIP, FLOAT_TYPES
from .operations import Array, Operation, PhaseOperations
from .roof_groups import RoofGroup
from .roofline import Factor, Roof
from .run_machine import RunMachine
from .system import Device

CORE_CACHE_BYTES: Final = 2**21  # second-level caches of today's cores have 1 to 2 MiB
# A head's rows of K and V lie a cell apart. Where a loop takes several steps along a row, prefetchers follow cells of
# up to 1 KiB; from 2 KiB on (K and V together) the rows arrive at the latency of memory, whose waits overlap within a
# cell (hardware/measurements/cpu-epyc-2core/strides.csv; 100 to 120 ns in runs of models with heads of 128 values).
PREFETCHED_CELL_BYTES: Final = 2048
ROW_LATENCY_S: Final = 100e-9


def attention_group(operation: Operation, phase: PhaseOperations, machine: RunMachine) -> RoofGroup:
    """The roofs of attention over one cache, in decode or in a prompt."""
    roofs = _decode_attention if phase.phase == "decode" else _prompt_attention
    return RoofGroup(operation.name, "attention", roofs(operation, machine), operation)


def _decode_attention(operation: Operation, machine: RunMachine) -> tuple[Roof, ...]:
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
        scored = score_cycles(machine.device, operation.value_dim) * operation.scores * operation.unmasked
        waited = _rows_awaited(operation, machine.device) * ROW_LATENCY_S * machine.cycles_per_s / machine.threads
        return (
            Roof("memory", "bandwidth", _reread_bytes(operation), machine.bandwidth, read),
            Roof("compute", "cycles", scored + waited, machine.cycles_per_s, compute),
        )
    return (
        Roof("memory", "bandwidth", operation.bytes * _conversion(operation, machine), machine.bandwidth, read),
        Roof("compute", "fp32", operation.flops, machine.vector_flop_per_s, compute),
    )


def _sharing(operation: Operation, machine: RunMachine) -> tuple[Factor, ...]:
    """Query heads of one head of the cache: kernels that do not gather them read it for each, mostly from caches."""
    if machine.backend == "CPU" or operation.sharers <= 1:
        return ()
    return (Factor(f"attention_sharers.{machine.backend}", math.log(operation.sharers)),)


def _conversion(operation: Operation, machine: RunMachine) -> float:
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


def _prompt_attention(operation: Operation, machine: RunMachine) -> tuple[Roof, ...]:
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
