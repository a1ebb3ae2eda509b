"""What a sweep knows of one point: bytes, prefill, first token, decode; columns of numbers over arrays of points.

Imports the engine (`multi_device`, `memory`) and `request`. The figures are those of `estimate`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .estimation import TOKENISATION_TOKENS_PER_S
from .memory import MemoryPlan, memory_plan, with_workload
from .multi_device import SystemTime, decode_on, prefill_on

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .offload_timing import PlacedTime
    from .request import Request
    from .workload import Workload

Values = NDArray[np.float64]
Counts = NDArray[np.int64]
Column = NDArray[Any]
Columns = dict[str, Column]

BLOCK: Final = 8192  # points that the engine takes at once: its arrays stay in the processor's cache

MEMORY_COLUMNS: Final = ("fits", "total_bytes", "margin_bytes")
PREFILL_COLUMNS: Final = (
    "prefill_s", "prefill_tokens_per_s", "prefill_low_80", "prefill_high_80", "prefill_bound",
)  # fmt: skip
FIRST_COLUMNS: Final = ("ttft_s",)
DECODE_COLUMNS: Final = (
    "decode_tokens_per_s", "decode_low_80", "decode_high_80", "aggregate_tokens_per_s", "decode_ceiling_tokens_per_s",
    "decode_bound",
)  # fmt: skip


def blockwise(evaluate: Callable[..., Columns], *arrays: Column) -> Columns:
    """`evaluate` over arrays of one length, a block at a time."""
    parts = [evaluate(*(array[at : at + BLOCK] for array in arrays)) for at in range(0, len(arrays[0]), BLOCK)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass
class MemoryColumns:
    """Bytes at configured contexts and numbers of sequences. Equal cases are planned once."""

    request: Request
    _weights: MemoryPlan = field(init=False)
    _known: dict[tuple[int, int, int], MemoryPlan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        r = self.request
        self._weights = memory_plan(r.model, r.weights, r.workload, r.system, r.placement)

    def __call__(self, context: Counts, parallel: Counts) -> Columns:
        """[points] whether it fits (NaN: memory unknown), bytes, and bytes left on the fullest part."""
        cases, inverse = np.unique(np.stack([context, parallel]), axis=1, return_inverse=True)
        plans = [self._plan(int(c), int(p)) for c, p in cases.T]
        margins = np.array([np.nan if plan.margin_bytes is None else plan.margin_bytes for plan in plans], float)
        fits = np.where(np.isnan(margins), np.nan, margins >= 0)  # 1, 0 or NaN
        totals = np.array([plan.total_bytes for plan in plans], np.int64)
        at = inverse.ravel()
        return {"fits": fits[at], "total_bytes": totals[at], "margin_bytes": margins[at]}

    def _plan(self, context: int, parallel: int) -> MemoryPlan:
        asked = replace(self.request.workload, context=context, parallel=parallel, prompt=1, cached_prefix=0)
        case = (asked.cells_per_sequence, int(asked.ubatch_tokens(context)), parallel)
        if case not in self._known:
            self._known[case] = with_workload(self._weights, self.request.model, asked)
        return self._known[case]


def prefill_columns(
    request: Request, efficiency: Efficiency | None, prompt: Values, cached: Values, intervals: bool = True
) -> Columns:
    """Reading a prompt of which `cached` tokens are cached already."""
    time = prefill_on(request, prompt, efficiency, cached)
    columns = {
        "prefill_s": time.seconds,
        "prefill_tokens_per_s": time.tokens_per_s,
        "prefill_bound": np.asarray(time.bound),
    }
    return columns | (_interval(time, "prefill", 1.0) if intervals else {})


def first_columns(
    request: Request, efficiency: Efficiency | None, prompt: Values, cached: Values, parallel: Values
) -> Columns:
    """TTFT without a queue: tokenisation, prefill, and the first decode step."""
    prefill = prefill_on(request, prompt, efficiency, cached).seconds
    step = decode_on(request, prompt + 1, efficiency, parallel).seconds
    return {"ttft_s": (prompt - np.minimum(cached, prompt - 1)) / TOKENISATION_TOKENS_PER_S + prefill + step}


def decode_columns(
    request: Request, efficiency: Efficiency | None, occupied: Values, parallel: Values, intervals: bool = True
) -> Columns:
    """Writing a token in each of `parallel` sequences that hold `occupied` positions: rates of one, and of all."""
    time = decode_on(request, occupied + 1, efficiency, parallel)
    columns = {
        "decode_tokens_per_s": time.tokens_per_s / parallel,
        "aggregate_tokens_per_s": time.tokens_per_s,
        "decode_ceiling_tokens_per_s": time.ceiling_tokens_per_s / parallel,
        "decode_bound": np.asarray(time.bound),
    }
    return columns | (_interval(time, "decode", parallel) if intervals else {})


def _interval(time: SystemTime | PlacedTime, phase: str, sequences: Values | float) -> Columns:
    low, high = time.interval_tokens_per_s(0.80)
    return {f"{phase}_low_80": low / sequences, f"{phase}_high_80": high / sequences}


def room_of(workload: Workload, context: Counts, parallel: Counts) -> Counts:
    """[points] tokens of context that one sequence has, as `request.sequence_room`."""
    return context if workload.kv_unified else np.maximum(context // parallel, 1)
