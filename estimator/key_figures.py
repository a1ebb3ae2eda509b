"""The few figures by which machines, models and settings are compared: does it fit, TTFT, tokens/s of one and of all.

Imports the engine and `request`. They are the figures of `estimate`, without its derivation, in two calls of the
engine: fast enough to ask for a whole catalog. A test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .estimation import TOKENISATION_TOKENS_PER_S, Interval
from .memory import MemoryPlan, memory_plan
from .multi_device import decode_on, prefill_on
from .request_times import RequestTimes
from .step_times import prompt_s

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request


@dataclass(frozen=True)
class KeyFigures:
    """Of one instance. Rates are of one sequence unless they say "aggregate"; times in seconds."""

    memory: MemoryPlan
    prompt_tokens: int
    prefill_s: float
    prefill_tokens_per_s: float
    ttft_s: float  # of a request to an idle machine
    busy_ttft_s: float  # while all other sequences decode
    occupied_tokens: int  # positions that each sequence holds when decode is timed
    parallel: int
    tokens_per_s: float
    interval_80: Interval  # of tokens_per_s
    aggregate_tokens_per_s: float

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None: memory unknown."""
        return self.memory.fits

    @property
    def step_s(self) -> float:
        """One decode step of all sequences."""
        return 1 / self.tokens_per_s


def key_figures(
    request: Request,
    efficiency: Efficiency | None = None,
    occupied: int | None = None,
    memory: MemoryPlan | None = None,
) -> KeyFigures:
    """The figures of a request's first prompt; `occupied`: by default the context of a sequence is full.

    `memory`: its plan, where it is known already.
    """
    plan = memory or memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
    parallel, prompt = request.workload.parallel, request.prompts[0]
    held = request.room - 1 if occupied is None else min(occupied, request.room - 1)
    steps = decode_on(request, np.array([held + 1.0, prompt + 1.0]), efficiency)
    low, high = steps.interval_tokens_per_s(0.80)
    prefill = prefill_on(request, np.array([float(prompt)]), efficiency)
    prefill_s, first_step_s = float(prefill.seconds[0]), float(steps.seconds[1])
    before_s = request.queue_s + _tokenisation_s(request, prompt)
    busy_s = prefill_s if parallel == 1 else _busy_prefill_s(request, prompt, efficiency)
    rate = float(steps.tokens_per_s[0])
    return KeyFigures(
        memory=plan,
        prompt_tokens=prompt,
        prefill_s=prefill_s,
        prefill_tokens_per_s=float(prefill.tokens_per_s[0]),
        ttft_s=before_s + prefill_s + first_step_s,
        busy_ttft_s=before_s + busy_s + first_step_s,
        occupied_tokens=held,
        parallel=parallel,
        tokens_per_s=rate / parallel,
        interval_80=(float(low[0]) / parallel, float(high[0]) / parallel),
        aggregate_tokens_per_s=rate,
    )


def _tokenisation_s(request: Request, prompt: int) -> float:
    return (prompt - min(request.workload.cached_prefix, prompt - 1)) / TOKENISATION_TOKENS_PER_S


def _busy_prefill_s(request: Request, prompt: int, efficiency: Efficiency | None) -> float:
    """The prompt in steps that it shares with all other sequences, which hold as much as it does."""
    w = request.workload
    others = w.parallel - 1
    chunk = max(min(w.batch, w.context) - others, 1)
    cached = min(w.cached_prefix, prompt - 1)
    times = RequestTimes(request, efficiency)
    return float(np.asarray(prompt_s(times, prompt, chunk, cached, others, float(prompt), w.kv_unified)))
