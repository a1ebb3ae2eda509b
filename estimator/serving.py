"""Serving under load: the server, the objectives, and what theory and simulation both report.

Imports `errors` and `workload`. `serving_theory` answers in milliseconds, `serving_simulation` step by step; both give
a `ServingReport`. Rates are of one user or of all together and say which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError
from .workload import Workload

SEARCH_TOLERANCE: Final = 0.005  # of the largest arrival rate, relative


@dataclass(frozen=True)
class Server:
    """One instance of llama-server: how many sequences it decodes together, and what their cache may hold."""

    slots: int = 4  # -np
    kv_cells: int | None = None  # positions for all slots together; None: as many as are asked for
    batch: int = 2048  # -b: tokens of one step, prompt and decode together
    ubatch: int = 512  # -ub
    unified: bool = True  # -kvu, the server's default; False: each slot has its own part of the cells
    cached_prefix: int = 0  # tokens at the start of every prompt that each slot already holds, such as a system prompt

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InputError(f"slots: must be at least 1, got {self.slots}")
        if self.batch <= self.slots:
            raise InputError(f"batch: {self.batch} tokens leave no room for prompts beside {self.slots} slots")
        if self.ubatch < 1 or self.cached_prefix < 0:
            raise InputError("ubatch must be at least 1, cached_prefix at least 0")
        if self.kv_cells is not None and self.kv_cells < 2 * (1 if self.unified else self.slots):
            raise InputError(f"kv_cells: {self.kv_cells} cannot hold a prompt and an output")

    @property
    def slot_cells(self) -> int | None:
        """Positions that one request may fill: all when unified, else a slot's part."""
        return self.kv_cells if self.kv_cells is None or self.unified else self.kv_cells // self.slots


def server_of(workload: Workload) -> Server:
    """The server that a workload's settings describe."""
    return Server(
        slots=workload.parallel,
        kv_cells=workload.cells_per_sequence * workload.streams,
        batch=min(workload.batch, workload.context),
        ubatch=int(workload.ubatch_tokens(workload.context)),
        unified=workload.kv_unified,
        cached_prefix=workload.cached_prefix,
    )


@dataclass(frozen=True)
class Slo:
    """What users must get: `share` of the requests have TTFT and TPOT within these seconds."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    share: float = 0.95

    def __post_init__(self) -> None:
        if not (self.ttft_s > 0 and self.tpot_s > 0):
            raise InputError("objective: TTFT and TPOT must be above 0 s")
        if not 0 < self.share <= 1:
            raise InputError(f"objective: the share of requests must be in (0, 1], got {self.share:g}")


@dataclass(frozen=True)
class Percentiles:
    """Mean and percentiles of a time, in seconds; NaN where nothing was measured."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class ServingReport:
    """A server under load. Times are seconds of a request (of a token for TPOT and ITL)."""

    method: Literal["theory", "simulation"]
    arrival_rate_per_s: float
    completed_per_s: float
    utilisation: float  # share of the time in which the server works
    in_system: float  # mean requests waiting or served
    waiting: float  # mean requests without a slot
    queue_s: Percentiles  # arrival to slot
    ttft_s: Percentiles
    tpot_s: Percentiles  # of a request: its mean time between tokens
    itl_s: Percentiles  # of a token: steps that prefill others are longer
    end_to_end_s: Percentiles
    aggregate_tokens_per_s: float  # output, all users together
    prompt_tokens_per_s: float  # prefilled, all users together
    capacity_per_s: float | None = None  # requests per second beyond which the queue grows; theory only
    slo: Slo | None = None
    slo_share: float | None = None  # requests that meet the objective
    rejected: int = 0  # prompts that no slot can hold
    truncated: int = 0  # outputs cut at the slot's end
    ttft_error: float | None = None  # standard error of the mean TTFT, relative; simulation only
    notes: tuple[str, ...] = ()

    @property
    def user_tokens_per_s(self) -> float:
        """Output rate that one user sees after the first token."""
        return 1 / self.tpot_s.mean

    @property
    def goodput_per_s(self) -> float | None:
        """Requests a second that meet the objective; None without one."""
        return None if self.slo_share is None else self.completed_per_s * self.slo_share

    @property
    def meets_slo(self) -> bool:
        """Whether enough requests meet the objective. Raises InputError without one."""
        if self.slo is None or self.slo_share is None:
            raise InputError("no objective was given: name the largest TTFT and TPOT")
        return self.slo_share >= self.slo.share


def batch_error(values: ArrayLike, batches: int = 10) -> float | None:
    """Relative standard error of the mean of values that depend on their neighbours, from the means of batches of them.

    Method of batch means (Law & Kelton, "Simulation Modeling and Analysis"). None for fewer than two values a batch.
    """
    array = np.asarray(values, float)
    if len(array) < 2 * batches or array.mean() == 0:
        return None
    means = np.array([part.mean() for part in np.array_split(array, batches)])
    return float(means.std(ddof=1) / math.sqrt(batches) / array.mean())


def percentiles(values: ArrayLike, weights: ArrayLike | None = None) -> Percentiles:
    """Mean and percentiles of values, each counting `weights` times; NaN for none."""
    array = np.asarray(values, float)
    counts = np.ones(array.shape) if weights is None else np.asarray(weights, float)
    if counts.sum() <= 0:
        return Percentiles(math.nan, math.nan, math.nan, math.nan)
    mean = float(np.average(array, weights=counts))
    return Percentiles(mean, *weighted_quantiles(array, counts, (0.5, 0.95, 0.99)))


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], shares: tuple[float, ...]
) -> tuple[float, ...]:
    """The smallest values that at least these shares of the weight do not exceed."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    at = np.searchsorted(cumulative, np.array(shares) * cumulative[-1] * (1 - 1e-12))
    return tuple(float(value) for value in values[order][np.minimum(at, len(values) - 1)])


def largest_rate(report_at: Callable[[float], ServingReport], upper_per_s: float) -> ServingReport | None:
    """The report of the largest arrival rate up to `upper_per_s` that still meets the objective, by bisection.

    `report_at`: the report of an arrival rate, with an objective. None where not even a nearly idle server meets it.
    """
    lowest = report_at(upper_per_s * SEARCH_TOLERANCE)
    if not lowest.meets_slo:
        return None
    best, low, high = lowest, lowest.arrival_rate_per_s, upper_per_s
    while high - low > SEARCH_TOLERANCE * high:
        report = report_at((low + high) / 2)
        if report.meets_slo:
            best, low = report, (low + high) / 2
        else:
            high = (low + high) / 2
    return best
