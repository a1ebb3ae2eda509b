"""What llama.cpp's own --fit would choose: it fills memory, and does not ask how fast the result is.

After llama.cpp b11434, common/fit.cpp, for a context that is given. Whole layers from the back; of mixtures of experts
first all layers without their experts, then experts from the front, and a part of one more layer. The host's memory
counts as endless.
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
    return _convert(task)


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
    total = sum(counts)
    split = tuple(float(count) for count in counts) if task.gpus > 1 and total else ()
    return PlacementSettings(ngl=total, tensor_split=split, cpu_moe=task.routed)


def _convert(task: Task) -> Proposal:
    """All layers on the devices, and experts from the front as far as they fit, then a part of one more layer."""
    layers = slot_count(task.model) - 1
    every = range(task.gpus)

    def tail(whole: int, part: str | None = None) -> PlacementSettings:
        rules = [part.format(whole)] if part else []
        rest = "|".join(map(str, range(whole + len(rules), layers)))
        rules += [EXPERTS.format(rest)] if rest else []
        return PlacementSettings(overrides=(_joined(rules),)) if rules else PlacementSettings()

    def fits(whole: int) -> bool:
        return _within(task.propose(tail(whole)), every)

    whole = _largest(fits, layers)
    for part in PARTS if whole < layers else ():
        more = task.propose(tail(whole, part))
        if _within(more, every):
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
