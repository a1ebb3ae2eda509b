"""What lies where: weights, KV cache, state and buffers of every device and the host, and what still fits.

The split is the one that llama.cpp prints itself (llama-fit-params --fit-print): model, context, compute for each
device and for the host. Placement rules of llama.cpp b11434: src/llama-model.cpp, src/llama-model-loader.cpp.
Imports `placement`, `kv_cache`, `compute_buffers` and `quantization`; knows no rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final

from .architecture import Model
from .compute_buffers import compute_bytes, output_bytes
from .errors import InputError
from .frozen_dataclass import dataclass
from .graphs.allocator import ALIGNMENT
from .kv_cache import CacheBytes, cached_layers, sum_layers
from .placement import HOST, Placement, on_host, place
from .quantization import QuantizedTensor, Weights
from .system import Device, System
from .tensors import FINAL_NORM
from .units import GIB
from .workload import Count, Workload, padded

HOST_NAME: Final = "Host"

# Assumptions about what is not the model's to use. llama.cpp's own --fit leaves 1 GiB of every device free.
DEVICE_RESERVE_BYTES: Final = int(0.5 * GIB)  # driver context and kernels, 0.3 to 0.6 GiB by experience; no source
HOST_RESERVE_BYTES: Final = int(2 * GIB)  # operating system and other programs; an assumption
# Apple's default limit of wired memory, as reported by Metal (recommendedMaxWorkingSetSize): about three quarters of
# memory, two thirds on machines with less than 36 GB; iogpu.wired_limit_mb raises it.
APPLE_WIRED_SHARE: Final = 0.75
APPLE_WIRED_SHARE_SMALL: Final = 2 / 3
APPLE_SMALL_BYTES: Final = 36e9

# Create the output matrix before the embedding that it is tied to (src/models), so that even the CPU gets two copies.
TWICE_LOADED_ARCHITECTURES: Final = frozenset({"gemma3n", "gemma4"})
FIRST_LAYER_TENSORS: Final = frozenset({"token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm"})
INPUT_TENSORS: Final = frozenset({"token_embd", "per_layer_token_embd", "position_embd", "token_types"})


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on one device, or on the host, in llama.cpp's own split. Unknown capacities are None."""

    device: str
    model_bytes: int
    context_bytes: int
    compute_bytes: int
    output_bytes: int = 0  # logits, always on the host
    capacity_bytes: int | None = None
    usable_bytes: int | None = None  # capacity less the reserve
    shared_bytes: int = 0  # what the host keeps in the same memory (unified memory)

    @property
    def total_bytes(self) -> int:
        """Everything that llama.cpp allocates there."""
        return self.model_bytes + self.context_bytes + self.compute_bytes + self.output_bytes

    @property
    def margin_bytes(self) -> int | None:
        """Usable bytes left; negative: bytes too much; None: capacity unknown."""
        return None if self.usable_bytes is None else self.usable_bytes - self.total_bytes - self.shared_bytes

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None: capacity unknown."""
        return None if self.margin_bytes is None else self.margin_bytes >= 0

    def to_dict(self) -> dict[str, Any]:
        """The part of the JSON contract that is about one device."""
        names = ("model", "context", "compute", "output", "capacity", "usable", "margin")
        return {"device": self.device} | {f"{name}_bytes": getattr(self, f"{name}_bytes") for name in names}


@dataclass(frozen=True)
class Extra:
    """Memory outside llama.cpp's own figures, with a range: an assumption, not in any total."""

    name: str
    low_bytes: int
    high_bytes: int
    why: str


@dataclass(frozen=True)
class MemoryPlan:
    """Devices in order, the host last. Bytes are exact for llama.cpp b11434, but for `extras`."""

    devices: tuple[DeviceMemory, ...]
    placement: Placement
    weights_bytes: int  # of the file: sum of its tensors, llama-bench's model size
    cache: CacheBytes
    accelerators: tuple[Device, ...] = ()
    extras: tuple[Extra, ...] = ()
    host_copy_bytes: int = 0  # on the GPU that large batches take host weights to; not in its compute bytes

    @property
    def host(self) -> DeviceMemory:
        """The CPU's part."""
        return self.devices[-1]

    @property
    def kv_cache_bytes(self) -> int:
        """K, V and indexer keys of all layers."""
        return int(self.cache.kv)

    @property
    def recurrent_state_bytes(self) -> int:
        """Recurrent, convolution and compressor state of all layers."""
        return int(self.cache.state)

    @cached_property
    def compute_bytes(self) -> int:
        """Compute buffers of all devices."""
        return sum(part.compute_bytes for part in self.devices)

    @property
    def output_bytes(self) -> int:
        """The logits' buffer."""
        return self.host.output_bytes

    @cached_property
    def loaded_bytes(self) -> int:
        """Weights in memory: a tied embedding counts on the host and again where the output matrix is, MTP not."""
        return sum(part.model_bytes for part in self.devices)

    @property
    def total_bytes(self) -> int:
        """Everything, devices and host together."""
        return sum(part.total_bytes for part in self.devices)

    @cached_property
    def used(self) -> tuple[DeviceMemory, ...]:
        """The parts that the verdict is about: devices with layers, or the host alone."""
        return tuple(self.devices[i] for i in self.placement.devices) or (self.host,)

    @property
    def device_bytes(self) -> int:
        """Bytes in the memories that the verdict is about."""
        return sum(part.total_bytes + part.shared_bytes for part in self.used)

    @property
    def capacity_bytes(self) -> int | None:
        """Memory of the devices that hold layers."""
        return _sum_known([part.capacity_bytes for part in self.used])

    @property
    def usable_bytes(self) -> int | None:
        """The same, less reserves."""
        return _sum_known([part.usable_bytes for part in self.used])

    @property
    def margin_bytes(self) -> int | None:
        """The smallest margin of any device or the host; None if none is known."""
        return min((part.margin_bytes for part in self.devices if part.margin_bytes is not None), default=None)

    @property
    def fits(self) -> bool | None:
        """Whether every part of known capacity fits; None if no capacity is known."""
        return None if self.margin_bytes is None else self.margin_bytes >= 0

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of memory: bytes by kind and by device, and the verdict.

        total = loaded + kv_cache + recurrent_state + compute + output; loaded is weights where no tensor is kept twice.
        """
        parts = ("weights", "loaded", "kv_cache", "recurrent_state", "compute", "output")
        kinds = (*parts, "total", "capacity", "usable", "margin")
        sizes = {f"{kind}_bytes": getattr(self, f"{kind}_bytes") for kind in kinds}
        return sizes | {"fits": self.fits, "devices": [part.to_dict() for part in self.devices]}

    @property
    def share(self) -> float | None:
        """Used share of the usable memory, of the fullest device."""
        shares = [(p.total_bytes + p.shared_bytes) / p.usable_bytes for p in self.used if p.usable_bytes]
        return max(shares, default=None)


def memory_plan(
    model: Model,
    model_weights: Weights,
    workload: Workload,
    system: System | None = None,
    placement: Placement | None = None,
) -> MemoryPlan:
    """Bytes of every device and the host.

    `placement`: by default everything on the system's GPUs, in proportion to their memory, or on the CPU if it has
    none. Raises InputError for settings that llama.cpp refuses and for placements on devices that do not exist.
    """
    machine = system or System(())
    where = placement or default_placement(model, machine)
    if where.split:
        return _split_plan(model, model_weights, workload, machine, where)
    accelerators = _accelerators(machine)
    highest = max(where.devices, default=HOST)
    if system is not None and highest >= len(accelerators):
        raise InputError(f"placement: uses device {highest}, but the system has {len(accelerators)} GPUs")
    loaded = model_bytes(model, model_weights, where)
    names = [device.id for device in accelerators] + [f"device {i}" for i in range(len(accelerators), highest + 1)]
    capacities = [*map(usable_memory, accelerators), *[(None, None)] * (len(names) - len(accelerators))]
    parts = [
        DeviceMemory(name, loaded.get(i, 0), 0, 0, 0, *capacity)
        for i, (name, capacity) in enumerate(zip(names, capacities, strict=True))
    ]
    parts.append(DeviceMemory(HOST_NAME, loaded.get(HOST, 0), 0, 0, 0, *_host_capacity(machine)))
    copy = host_copy_bytes(model, model_weights, where) if accelerators else 0
    empty = MemoryPlan(tuple(parts), where, model_weights.bytes, CacheBytes(), accelerators, host_copy_bytes=copy)
    return with_workload(empty, model, workload)


def host_copy_bytes(model: Model, model_weights: Weights, placement: Placement) -> int:
    """The largest weight tensor on the host: a device holds a copy of one at a time while a large batch runs there.

    In the compute buffer of CUDA, ROCm, Vulkan and SYCL, but not of the devices that the other figures are checked on.
    """
    if not placement.op_offload or placement.is_plain:
        return 0
    on_host = (
        quantized.bytes
        for quantized in model_weights.tensors
        if 0 <= quantized.tensor.layer < model.n_layers
        and placement.tensor_device(quantized.tensor.name, quantized.tensor.layer) == HOST
    )
    return max(on_host, default=0)


def _split_plan(
    model: Model, model_weights: Weights, workload: Workload, system: System, placement: Placement
) -> MemoryPlan:
    """Split matrices (--split-mode tensor): weights and caches by share, buffers for the whole stream on every device.

    llama.cpp accounts for all devices together here, so the bytes of one of them are an estimate.
    """
    whole = memory_plan(model, model_weights, workload, None, place(model))
    first, host = whole.devices[0], whole.host
    accelerators = _accelerators(system)
    parts = [
        DeviceMemory(
            device.id,
            int(first.model_bytes * share),
            int(first.context_bytes * share),
            first.compute_bytes,
            0,
            *usable_memory(device),
        )
        for device, share in zip(accelerators, placement.split, strict=True)
    ]
    capacity, usable = _host_capacity(system)
    parts.append(replace(host, capacity_bytes=capacity, usable_bytes=usable))
    return replace(whole, devices=tuple(parts), placement=placement, accelerators=accelerators)


def with_workload(plan: MemoryPlan, model: Model, workload: Workload) -> MemoryPlan:
    """The same weights in the same places, with the caches and buffers of another workload."""
    if plan.placement.split:
        return _split_again(plan, model, workload)
    context = context_by_device(model, plan.placement, workload)
    compute = compute_bytes(model, plan.placement, workload)
    sizes = [*range(len(plan.devices) - 1), HOST]
    parts = [
        replace(
            part,
            context_bytes=int(context.get(device, CacheBytes()).total),
            compute_bytes=int(compute.get(device, 0)),
            output_bytes=output_bytes(model, workload) if device == HOST else 0,
        )
        for device, part in zip(sizes, plan.devices, strict=True)
    ]
    if any(device.unified_memory for device in plan.accelerators):
        parts = _share_memory(parts)
    cache = sum(context.values(), CacheBytes())
    extras = _extras(model, plan, workload, compute)
    return replace(plan, devices=tuple(parts), cache=cache, extras=extras)


def _split_again(plan: MemoryPlan, model: Model, workload: Workload) -> MemoryPlan:
    whole = Placement((0,) * len(plan.placement.slots))
    cache = context_by_device(model, whole, workload)[0]
    compute = compute_bytes(model, whole, workload)
    parts = [
        replace(part, context_bytes=int(cache.total * share), compute_bytes=int(compute[0]))
        for part, share in zip(plan.devices, plan.placement.split, strict=False)
    ]
    host = replace(plan.host, compute_bytes=int(compute[HOST]), output_bytes=output_bytes(model, workload))
    return replace(plan, devices=(*parts, host), cache=cache)


@lru_cache(maxsize=256)
def default_placement(model: Model, system: System) -> Placement:
    """Everything on the GPUs, in proportion to their memory as llama.cpp splits by free memory; else on the CPU."""
    accelerators = _accelerators(system)
    if not accelerators:
        return on_host(model)
    split = [float(device.memory_bytes or 0) for device in accelerators]
    return place(model, split=split if all(split) else [1.0] * len(split))


@lru_cache(maxsize=256)
def model_bytes(model: Model, model_weights: Weights, placement: Placement) -> Mapping[int, int]:
    """Weight bytes by device, each tensor aligned: layers where the placement says, input embeddings on the host.

    A tied embedding counts again on the device of the output layer; on the host only where llama.cpp loads it twice.
    """
    result: dict[int, int] = {}
    for quantized in model_weights.tensors:
        for device in _tensor_devices(quantized, model, placement):
            result[device] = result.get(device, 0) + padded(quantized.bytes, ALIGNMENT)
    return MappingProxyType(result)


def _tensor_devices(quantized: QuantizedTensor, model: Model, placement: Placement) -> tuple[int, ...]:
    """Devices that hold a copy of the tensor; none for NextN layers, which plain decoding does not load."""
    tensor = quantized.tensor
    stem = tensor.name.removesuffix(".weight")
    if tensor.layer >= len(model.layers):
        return ()
    if tensor.layer >= 0:
        return (placement.tensor_device(tensor.name, tensor.layer),)
    moved = placement.moved_to(tensor.name)
    if moved is not None:
        return (moved,)
    if stem == "token_embd" and model.tied_embeddings:
        twice = placement.output != HOST or model.architecture in TWICE_LOADED_ARCHITECTURES
        return (HOST, placement.output) if twice else (HOST,)
    if stem in INPUT_TENSORS:
        return (HOST,)
    if stem.removesuffix(".bias") in FIRST_LAYER_TENSORS and stem != FINAL_NORM.get(model.architecture):
        return (placement.slots[0],)
    if stem.startswith(("rope_freqs", "rope_factors")):
        return tuple(sorted(set(placement.slots[: len(model.layers)])))
    return (placement.output,)


@lru_cache(maxsize=256)
def context_by_device(model: Model, placement: Placement, workload: Workload) -> Mapping[int, CacheBytes]:
    """KV cache and state by device."""
    layers = cached_layers(model)
    groups: dict[int, list[int]] = {}
    for i in range(len(layers)):
        groups.setdefault(placement.cache_device(i), []).append(i)
    return MappingProxyType(
        {device: sum_layers(model, (layers[i] for i in group), workload) for device, group in groups.items()}
    )


def usable_memory(device: Device) -> tuple[int | None, int | None]:
    """Capacity of a device, and how much of it may be used; (None, None) if unknown."""
    if device.memory_bytes is None:
        return None, None
    capacity = int(device.memory_bytes)
    if device.kind == "apple":
        small = capacity < APPLE_SMALL_BYTES
        return capacity, int(capacity * (APPLE_WIRED_SHARE_SMALL if small else APPLE_WIRED_SHARE))
    if device.unified_memory or device.is_cpu:
        return capacity, max(capacity - HOST_RESERVE_BYTES, 0)
    return capacity, max(capacity - DEVICE_RESERVE_BYTES, 0)


def _accelerators(system: System) -> tuple[Device, ...]:
    return tuple(device for device in system.devices if not device.is_cpu)


def _host_capacity(system: System) -> tuple[int | None, int | None]:
    """Host memory: as given, else that of a CPU among the devices."""
    capacity = system.host.memory_bytes
    if capacity is None:
        cpus = [device for device in system.devices if device.is_cpu]
        capacity = next((cpu.memory_bytes for cpu in cpus if cpu.memory_bytes is not None), None)
    if capacity is None:
        return None, None
    return int(capacity), max(int(capacity) - HOST_RESERVE_BYTES, 0)


def _share_memory(parts: Sequence[DeviceMemory]) -> list[DeviceMemory]:
    """Host and first device in one memory: the device's budget carries the host's part, which has none of its own."""
    first, *others, host = parts
    return [
        replace(first, shared_bytes=host.total_bytes),
        *others,
        replace(host, capacity_bytes=None, usable_bytes=None),
    ]


def _extras(model: Model, plan: MemoryPlan, workload: Workload, compute: Mapping[int, Count]) -> tuple[Extra, ...]:
    """What CUDA and ROCm need beside the figures that every backend has in common."""
    if not any(device.vendor.lower() in ("nvidia", "amd") for device in plan.accelerators):
        return ()
    context = Extra("driver context", int(0.3 * GIB), int(0.6 * GIB), "per device; by experience, within the reserve")
    if plan.host_copy_bytes:
        why = "one host weight at a time, for batches of 32 tokens and more; in the compute buffer of the first GPU"
        return context, Extra("copy of host weights", plan.host_copy_bytes, plan.host_copy_bytes, why)
    scratch = _attention_scratch(model, plan.placement, workload, compute)
    if not scratch:
        return (context,)
    why = "F16 copies of one layer's quantised cache for flash attention, in the compute buffer of CUDA and ROCm"
    return context, Extra("attention scratch", scratch, scratch, why)


def _attention_scratch(model: Model, placement: Placement, workload: Workload, plain: Mapping[int, Count]) -> int:
    """Growth of the compute buffer by those copies, on the device where it is largest."""
    if not workload.flash_attention or {workload.kv_type_k, workload.kv_type_v} <= {"F16", "F32"}:
        return 0
    scratch = compute_bytes(model, placement, workload, attention_scratch=True)
    return max((int(scratch[device] - plain[device]) for device in placement.devices), default=0)


def _sum_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
