"""The roofs of every operation of a phase on a device, and the efficiency factors that stretch each of them.

Prediction and the fit of the factors are built on this one list, so that what is predicted is what was fitted.
Imports `operations`, `product_roofs`, `attention_roofs`, `run_machine` and `roof_groups`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from .architecture import Attention, CompressedAttention, LatentAttention, Model, MoeFfn
from .attention_roofs import attention_group
from .frozen_dataclass import dataclass
from .operations import Array, Operation, PhaseOperations
from .product_roofs import REFERENCE_UNITS, product_groups
from .roof_groups import RoofGroup
from .roofline import Factor, Roof
from .run_machine import Conditions, RunMachine, run_machine
from .system import Device

HOST_PASSES_PER_S: Final = 1e3  # what the `host` factors of engines around llama.cpp are relative to
LAUNCHES_PER_S: Final = 1e6  # `launch` is in microseconds


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
    machine = run_machine(device, conditions)
    groups: list[RoofGroup] = []
    for operation in phase.operations:
        if operation.kind in ("dense", "experts", "output"):
            groups += product_groups(operation, machine)
        elif operation.kind == "attention":
            groups.append(attention_group(operation, phase, machine))
        elif operation.kind == "scan":
            groups.append(_scan_group(operation, phase, machine))
    groups.append(_activation_group(phase, machine))
    groups.append(_launch_group(phase, machine, traits))
    if conditions.engine != "llama.cpp":
        host = Roof("launch", "host", phase.passes, HOST_PASSES_PER_S, (Factor(f"host.{conditions.engine}"),))
        groups.append(RoofGroup(f"{conditions.engine} itself", "host", (host,)))
    return tuple(groups)


def _scan_group(operation: Operation, phase: PhaseOperations, machine: RunMachine) -> RoofGroup:
    factors = (
        Factor(f"scan.{machine.backend}.{phase.phase}"),
        Factor(f"scan_generation.{machine.scope}.{phase.phase}"),
    )
    roofs = (
        Roof("memory", "bandwidth", operation.bytes, machine.bandwidth, (Factor("memory"),)),
        Roof("compute", "fp32", operation.flops, machine.vector_flop_per_s, factors),
    )
    return RoofGroup(operation.name, "scan", roofs, operation)


def _activation_group(phase: PhaseOperations, machine: RunMachine) -> RoofGroup:
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


def _launch_group(phase: PhaseOperations, machine: RunMachine, traits: ModelTraits) -> RoofGroup:
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
