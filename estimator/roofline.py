"""Roofs: what bounds the time of an operation, and the one place where several bounds make one time.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009. A hard maximum would say that memory and arithmetic overlap perfectly; the root of the sum of squares
lets the lesser bound still cost something where both are close, and fits measured runs better.
Imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = float | NDArray[np.float64]
Resource = Literal["memory", "compute", "power", "launch"]


class Factor(NamedTuple):
    """An efficiency factor by name: it multiplies a time by exp(power × its value)."""

    name: str
    power: float = 1.0


class Roof(NamedTuple):
    """One bound on an operation: an amount of work at the datasheet's rate, and the factors that stretch its time.

    `saturation`: factors whose exponential is the number of columns at which a matrix kernel reaches half its rate; a
    product of `columns` columns takes 1 + that / columns times as long.
    """

    resource: Resource
    path: str  # the peak, or "bandwidth", "power", "launches"
    amount: Array  # FLOP, bytes, joules, launches …
    rate: float  # of it a second
    factors: tuple[Factor, ...] = ()
    saturation: tuple[Factor, ...] = ()
    columns: Array = 1.0

    @property
    def seconds(self) -> Array:
        """Time at the datasheet's rate."""
        return self.amount / self.rate


def combined(times: Sequence[Array]) -> Array:
    """Time of an operation under several bounds: their maximum, smoothed."""
    if len(times) == 1:
        return times[0]
    total = times[0] * times[0]
    for time in times[1:]:
        total = total + time * time
    return np.sqrt(total)


def share_of(time: Array, combined_time: Array) -> Array:
    """How much of a relative change of one bound reaches the combined time; over all bounds they add up to 1."""
    return np.square(time / np.maximum(combined_time, 1e-300))


def ceiling_seconds(required_bytes: Array, bandwidth_bytes_per_s: float, compute_seconds: Array = 0.0) -> Array:
    """The least time that the datasheet allows: memory and arithmetic overlap perfectly and nothing is lost."""
    return np.maximum(required_bytes / bandwidth_bytes_per_s, compute_seconds)
