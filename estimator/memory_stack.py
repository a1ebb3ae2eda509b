"""Memory against configured context: what lies on the devices that hold layers, part by part, and where it ends.

Imports `memory` and `memory_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from .memory import MemoryPlan, memory_plan, with_workload
from .memory_limits import max_context
from .speed_curves import request_of, series_names
from .workload import CONTEXT_PADDING

if TYPE_CHECKING:
    from .estimation import Estimate
    from .request import Request

Vector = NDArray[np.float64]
PARTS: Final = (
    "weights", "KV cache", "recurrent state", "compute and output buffers", "host's part of the same memory"
)  # fmt: skip
POINTS: Final = 65
DEFAULT_LIMIT: Final = 32768  # shown of models without a limit of their own
ROOM_BEYOND: Final = 1.5  # shown beyond the longest context that fits


@dataclass(frozen=True)
class MemoryStack:
    """Bytes over configured contexts, summed over the devices that hold layers. Shapes of the parts: [n]."""

    name: str
    context: Vector
    parts: Mapping[str, Vector]  # in the order they are stacked; they add up to what the plan counts
    capacity_bytes: int | None
    usable_bytes: int | None  # capacity less what is kept for driver and system
    max_context: int | None  # the longest that fits, of those shown; 0: none does; None: memory unknown
    trained_context: int | None  # of all sequences together


def memory_stack(source: Request | Estimate, name: str | None = None, points: int = POINTS) -> MemoryStack:
    """The stack from the shortest context to what the model was trained for, or somewhat beyond what fits."""
    request = request_of(source)
    workload = replace(request.workload, prompt=1, cached_prefix=0)
    plan = memory_plan(request.model, request.weights, workload, request.system, request.placement)
    end = _longest(request)
    limit = None
    if plan.margin_bytes is not None:
        limit = max_context(request.model, request.weights, workload, request.system, request.placement, end).value
    contexts = _contexts(request, end if not limit else min(end, int(limit * ROOM_BEYOND)), points)
    plans = [with_workload(plan, request.model, replace(workload, context=int(n))) for n in contexts]
    return MemoryStack(
        name=name or series_names([request])[0],
        context=contexts,
        parts=_stacked([_parts(one) for one in plans]),
        capacity_bytes=plan.capacity_bytes,
        usable_bytes=plan.usable_bytes,
        max_context=limit,
        trained_context=request.model.max_context and request.model.max_context * workload.streams,
    )


def _longest(request: Request) -> int:
    """What the model was trained for in every sequence, or what was asked for if that is more."""
    w = request.workload
    return max((request.model.max_context or DEFAULT_LIMIT) * w.streams, w.context)


def _contexts(request: Request, end: int, points: int) -> Vector:
    w = request.workload
    step = CONTEXT_PADDING * w.streams
    blocks = np.maximum(np.rint(np.linspace(0, max(end, w.context), points) / step), 1)
    return np.unique(blocks * step)


def _parts(plan: MemoryPlan) -> dict[str, float]:
    used = plan.used
    context = sum(part.context_bytes for part in used)
    state = min(plan.recurrent_state_bytes, context)
    sizes = (
        sum(part.model_bytes for part in used),
        context - state,
        state,
        sum(part.compute_bytes + part.output_bytes for part in used),
        sum(part.shared_bytes for part in used),
    )
    return dict(zip(PARTS, sizes, strict=True))


def _stacked(rows: list[dict[str, float]]) -> dict[str, Vector]:
    stacked = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    return {name: sizes for name, sizes in stacked.items() if sizes.any()}
