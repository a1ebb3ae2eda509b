"""Placements worth trying on a system: all on the GPUs, as much as fits of it, experts on the host, the CPU alone.

Imports `memory` and `placement_settings`; `fit_search` times what this proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from .architecture import Model, MoeFfn
from .errors import InputError
from .memory import MemoryPlan, memory_plan
from .placement import slot_count
from .placement_settings import PlacementSettings, placement_of
from .quantization import Weights
from .system import System
from .workload import Workload

NOTHING: Final = PlacementSettings()


@dataclass(frozen=True)
class Proposal:
    """Settings with their memory plan."""

    settings: PlacementSettings
    plan: MemoryPlan

    @property
    def fits(self) -> bool:
        """Whether every part of known capacity fits, with the copy that large batches make of host weights."""
        margin = self.plan.margin_bytes
        return margin is None or margin >= self.plan.host_copy_bytes


@dataclass(frozen=True)
class Task:
    """A model, its weights and settings of the context, to be placed on a system."""

    model: Model
    weights: Weights
    workload: Workload
    system: System
    backend: str

    @property
    def gpus(self) -> int:
        """GPUs of the system."""
        return sum(not device.is_cpu for device in self.system.devices)

    @property
    def routed(self) -> bool:
        """Whether the model has experts."""
        return any(isinstance(layer.ffn, MoeFfn) for layer in self.model.layers)

    def propose(self, settings: PlacementSettings) -> Proposal:
        """The plan of some settings."""
        placement = placement_of(settings, self.model, self.system, self.backend)
        return Proposal(settings, memory_plan(self.model, self.weights, self.workload, self.system, placement))


def proposals(task: Task) -> list[Proposal]:
    """Everything worth timing that fits; if nothing does, what needs the least."""
    found = [proposal for proposal in _all(task) if proposal is not None]
    fitting = [proposal for proposal in found if proposal.fits]
    if fitting:
        return _distinct(fitting)
    return [max(found, key=_margin)]


def _margin(proposal: Proposal) -> int:
    return proposal.plan.margin_bytes or 0


def _all(task: Task) -> Iterator[Proposal | None]:
    if not task.gpus:
        yield task.propose(NOTHING)
        return
    for split in _splits(task):
        whole = task.propose(split)
        yield whole
        if whole.fits:
            continue
        yield _most_layers(task, split)
        yield _fewest_on_host(task, split)
    yield task.propose(PlacementSettings(ngl=0))


def _splits(task: Task) -> list[PlacementSettings]:
    """Ways to use several GPUs: all by memory, the fastest alone, the fastest filled first, matrices split."""
    if task.gpus == 1:
        return [NOTHING]
    devices = [device for device in task.system.devices if not device.is_cpu]
    fastest = max(range(len(devices)), key=lambda i: devices[i].bandwidth_bytes_per_s)
    ways = [NOTHING, PlacementSettings(split_mode="none", main_gpu=fastest), *_filled(task, fastest)]
    alike = len({device.id for device in devices}) == 1 and not task.system.remote
    if alike:
        ways.append(PlacementSettings(split_mode="tensor"))
    return [way for way in ways if _allowed(task, way)]


def _allowed(task: Task, settings: PlacementSettings) -> bool:
    try:
        placement_of(settings, task.model, task.system, task.backend)
    except InputError:
        return False
    return True


def _filled(task: Task, fastest: int) -> list[PlacementSettings]:
    """As many layers as fit on the fastest GPU, the rest spread over the others by their memory."""
    devices = [device for device in task.system.devices if not device.is_cpu]
    if len({device.id for device in devices}) == 1:
        return []
    others = sum(float(device.memory_bytes or 0) for i, device in enumerate(devices) if i != fastest) or 1.0

    def settings(share: int) -> PlacementSettings:
        rest = 100 - share
        shares = [
            float(share) if i == fastest else rest * float(device.memory_bytes or 0) / others
            for i, device in enumerate(devices)
        ]
        return PlacementSettings(tensor_split=tuple(round(value, 1) for value in shares))

    def fits(share: int) -> bool:
        margin = task.propose(settings(share)).plan.devices[fastest].margin_bytes
        return margin is None or margin >= 0

    most = _largest(fits, 0, 100)
    return [settings(most)] if most else []


def _most_layers(task: Task, split: PlacementSettings) -> Proposal | None:
    """The largest -ngl that fits."""
    if split.split_mode == "tensor":
        return None
    most = _largest(lambda ngl: task.propose(replace(split, ngl=ngl)).fits, 0, slot_count(task.model))
    return task.propose(replace(split, ngl=most)) if most else None


def _fewest_on_host(task: Task, split: PlacementSettings) -> Proposal | None:
    """The smallest --n-cpu-moe (dense models: --n-cpu-ffn) that fits with all layers on the GPUs, or all experts on the
    host and as many layers as fit."""
    if split.split_mode == "tensor":
        return None
    layers = slot_count(task.model) - 1

    def settings(on_host: int) -> PlacementSettings:
        return replace(split, n_cpu_moe=on_host) if task.routed else replace(split, n_cpu_ffn=on_host)

    def fits(on_gpus: int) -> bool:
        return task.propose(settings(layers - on_gpus)).fits

    if fits(0):
        return task.propose(settings(layers - _largest(fits, 0, layers)))
    return _most_layers(task, replace(split, cpu_moe=True)) if task.routed else None


def _largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest value up to `high` that fits, by bisection; `low` if none above it does."""
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _distinct(found: list[Proposal]) -> list[Proposal]:
    return list({proposal.settings: proposal for proposal in found}.values())
