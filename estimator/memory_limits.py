"""What still fits: the longest context, the most sequences, the best quantisation, each with the bytes left.

Imports `memory` and what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from .architecture import Model
from .errors import InputError
from .file_types import FileType
from .memory import MemoryPlan, memory_plan, with_workload
from .placement import Placement
from .quantization import Weights, weights
from .system import System
from .workload import CONTEXT_PADDING, Workload

MAX_PARALLEL: Final = 256  # LLAMA_MAX_SEQ (src/llama-cparams.h)
LONGEST_CONTEXT: Final = 1 << 24  # searched for models without a limit of their own


@dataclass(frozen=True)
class Limit:
    """The largest value that fits, 0 if none does, and its margin (of the smallest value if none fits)."""

    value: int
    margin_bytes: int


@dataclass(frozen=True)
class FittingWeights:
    """A file type with its plan."""

    file_type: str
    plan: MemoryPlan

    @property
    def margin_bytes(self) -> int:
        """Bytes left; negative: bytes too much."""
        return _margin(self.plan)


def max_context(
    model: Model,
    model_weights: Weights,
    workload: Workload,
    system: System,
    placement: Placement | None = None,
    limit: int | None = None,
) -> Limit:
    """The most tokens that -c can be, for all sequences together, with everything else as in `workload`.

    `limit`: the search's end; by default what the model was trained for, in every sequence. Raises InputError if the
    memory of the system is unknown.
    """
    streams = workload.streams
    end = limit if limit is not None else (model.max_context or LONGEST_CONTEXT) * streams
    step = CONTEXT_PADDING * streams
    plan = memory_plan(model, model_weights, replace(workload, context=step), system, placement)

    def margin(steps: int) -> int:
        return _margin(with_workload(plan, model, replace(workload, context=min(steps * step, end))))

    found = _largest(margin, -(-end // step))
    return replace(found, value=min(found.value * step, end))


def max_parallel(
    model: Model,
    model_weights: Weights,
    workload: Workload,
    system: System,
    placement: Placement | None = None,
    limit: int = MAX_PARALLEL,
) -> Limit:
    """The most sequences that can run beside each other, each with the context of one sequence of `workload`.

    Raises InputError if the memory of the system is unknown.
    """
    each = workload.cells_per_sequence if not workload.kv_unified else -(-workload.context // workload.parallel)
    plan = memory_plan(model, model_weights, workload, system, placement)

    def margin(parallel: int) -> int:
        return _margin(with_workload(plan, model, replace(workload, parallel=parallel, context=each * parallel)))

    return _largest(margin, limit)


def fitting_weights(
    model: Model,
    file_types: Iterable[str | FileType],
    workload: Workload,
    system: System,
    placement: Placement | None = None,
) -> tuple[FittingWeights, ...]:
    """Every file type that llama-quantize can make of the model, the largest first, with its plan."""
    plans = []
    for file_type in file_types:
        try:
            made = weights(model, file_type)
        except InputError:  # llama-quantize refuses this type for this model
            continue
        name = file_type if isinstance(file_type, str) else file_type.name
        plans.append(FittingWeights(name, memory_plan(model, made, workload, system, placement)))
    return tuple(sorted(plans, key=lambda fitting: -fitting.plan.weights_bytes))


def best_file_type(
    model: Model,
    file_types: Iterable[str | FileType],
    workload: Workload,
    system: System,
    placement: Placement | None = None,
) -> FittingWeights | None:
    """The largest file type that fits; None if none does."""
    plans = fitting_weights(model, file_types, workload, system, placement)
    return next((fitting for fitting in plans if fitting.margin_bytes >= 0), None)


def _margin(plan: MemoryPlan) -> int:
    if plan.margin_bytes is None:
        raise InputError("memory: the capacity of the devices is unknown; say how much memory they have")
    return plan.margin_bytes


def _largest(margin: Callable[[int], int], end: int) -> Limit:
    """The largest count in 1 … end whose margin is not negative, by bisection."""
    low, low_margin = 0, margin(1)
    if low_margin < 0:
        return Limit(0, low_margin)
    high = end + 1
    while high - low > 1:
        middle = (low + high) // 2
        middle_margin = margin(middle)
        if middle_margin >= 0:
            low, low_margin = middle, middle_margin
        else:
            high = middle
    return Limit(low, low_margin)
