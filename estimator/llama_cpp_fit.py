"""What llama.cpp's own --fit would choose: it fills memory, and does not ask how fast the result is.

After llama.cpp b11434, common/fit.cpp, for a context that is given. Whole layers from the back; of mixtures of experts
first all layers without their experts, then experts from the front, and a part of one more layer. The host's memory
counts as endless.
Imports `fit_placements` and `placement_settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .fit_placements import Proposal, Task
from .placement import slot_count
from .placement_settings import PlacementSettings
from .units import MIB

TARGET_BYTES: Final = 1024 * MIB  # --fit-target: what stays free on every device
EXPERTS: Final = r"blk\.({})\.ffn_(up|down|gate_up|gate)_(ch|)exps"  # llama.cpp has one such rule a layer
# The parts of one more layer that stay on the device, most first: what the rule takes away.
PARTS: Final = (
    r"blk\.{}\.ffn_down.*",
    r"blk\.{}\.ffn_(gate|gate_up|down).*",
    r"blk\.{}\.ffn_(gate|up|gate_up|down).*",
)


def llama_cpp_fit(task: Task) -> Proposal:
    """The placement of --fit with its memory plan."""
    whole = task.propose(PlacementSettings())
    if _within(whole, range(task.gpus)):
        return whole
    counts = _fill(task)
    if not task.routed or not _within(task.propose(PlacementSettings(cpu_moe=True)), range(task.gpus)):
        return task.propose(_settings(task, counts))
    return _convert(task, counts)


def _within(proposal: Proposal, devices: range) -> bool:
    """Whether --fit-target stays free on some devices."""
    parts = [proposal.plan.devices[i] for i in devices]
    return all(part.capacity_bytes is None or part.total_bytes + TARGET_BYTES <= part.capacity_bytes for part in parts)


def _fill(task: Task) -> list[int]:
    """Layers of each device, filled from the last device to the first; of MoE models without experts."""
    counts: list[int] = [0] * task.gpus
    for device in reversed(range(task.gpus)):
        left = slot_count(task.model) - sum(counts)

        def fits(layers: int, device: int = device) -> bool:
            tried = [*counts[:device], layers, *counts[device + 1 :]]
            return _within(task.propose(_settings(task, tried)), range(device, device + 1))

        counts[device] = _largest(fits, left)
    return counts


def _settings(task: Task, counts: list[int]) -> PlacementSettings:
    """Counts of layers as flags. Of MoE models every device has one layer with its experts: the first of its own, where
    the output layer was meant (which cannot be without experts)."""
    total = sum(counts)
    split = tuple(float(count) for count in counts) if task.gpus > 1 and total else ()
    rules = []
    first = slot_count(task.model) - total
    for device, count in enumerate(counts):
        start = first + (1 if device == task.gpus - 1 else 0)
        without = range(start, min(first + count, task.model.n_layers))
        if task.routed and without:
            rules.append(_experts_of(without))
        first += count
    return PlacementSettings(ngl=total, tensor_split=split, overrides=(_joined(rules),) if rules else ())


def _experts_of(layers: range) -> str:
    return EXPERTS.format("|".join(map(str, layers)))


def _convert(task: Task, counts: list[int]) -> Proposal:
    """The layers on the devices, with experts from the front as far as they fit, then a part of one more layer.

    Of several devices all layers are taken, by memory, where llama.cpp fills one after the other.
    """
    layers = task.model.n_layers
    ngl = counts[0] if task.gpus == 1 and counts[0] < slot_count(task.model) else None
    first = 0 if ngl is None else slot_count(task.model) - ngl

    def tail(whole: int, part: str | None = None) -> PlacementSettings:
        start = first + whole
        rules = [part.format(start)] if part else []
        rest = range(start + len(rules), layers)
        rules += [_experts_of(rest)] if rest else []
        return PlacementSettings(ngl=ngl, overrides=(_joined(rules),) if rules else ())

    def fits(whole: int) -> bool:
        return _within(task.propose(tail(whole)), range(task.gpus))

    whole = _largest(fits, layers - first)
    for part in PARTS if first + whole < layers else ():
        more = task.propose(tail(whole, part))
        if _within(more, range(task.gpus)):
            return more
    return task.propose(tail(whole))


def _joined(rules: list[str]) -> str:
    return ",".join(f"{rule}=CPU" for rule in rules)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    if fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
