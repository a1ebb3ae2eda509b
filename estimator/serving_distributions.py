"""Distributions of times under load, as queueing theory gives them: waits, and time per token.

Imports `serving`. Quantiles are found by bisection on the distribution function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .serving import Percentiles

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Wait:
    """A wait that is nothing with some probability and else exponential, behind a constant delay."""

    probability: float
    mean_s: float  # of all requests, without the delay
    delay_s: float = 0.0

    def then(self, other: Wait) -> Wait:
        """Both waits, one after the other: their means add, none is left if neither is."""
        return Wait(1 - (1 - self.probability) * (1 - other.probability), self.mean_s + other.mean_s, self.delay_s)

    def later(self, seconds: float) -> Wait:
        """The same wait and a constant delay."""
        return Wait(self.probability, self.mean_s, self.delay_s + seconds)

    def below(self, seconds: Values) -> Values:
        """Probability that the wait is not above `seconds`."""
        left = np.asarray(seconds, float) - self.delay_s
        if self.mean_s <= 0:
            return np.where(left >= -1e-12, 1.0, 0.0)
        scale = self.mean_s / self.probability
        return np.where(left >= -1e-12, 1 - self.probability * np.exp(-np.maximum(left, 0.0) / scale), 0.0)

    def percentiles(self, after: Values, shares: Values) -> Percentiles:
        """Of the wait plus one of the times `after`, which occur with probabilities `shares`."""
        mean = self.mean_s + self.delay_s + float(shares @ after)
        longest = float(after.max()) + self.delay_s + 50 * self.mean_s / max(self.probability, 1e-12)

        def below(seconds: float) -> float:
            return float(shares @ self.below(seconds - after))

        return Percentiles(mean, *(_quantile(below, share, longest) for share in (0.5, 0.95, 0.99)))


@dataclass(frozen=True)
class TokenTime:
    """TPOT over requests. Arrays [slots, outputs]: a decode step, and prefills of others as a gamma variable.

    While a request writes o tokens, each of the b - 1 others starts anew (o - 1)/(mean o - 1) times on average; that
    sum of random prefills has the mean and variance of a compound Poisson variable.
    """

    weights: Values
    step_s: Values
    shape: Values  # 0 where there are no others
    scale_s: Values

    @property
    def mean_s(self) -> float:
        """Mean over requests."""
        return float((self.weights * (self.step_s + self.shape * self.scale_s)).sum())

    def below(self, seconds: float) -> float:
        """Share of requests whose TPOT is not above `seconds`."""
        from scipy.special import gammainc

        left = seconds * (1 + 1e-9) - self.step_s
        scaled = np.divide(
            np.maximum(left, 0.0), self.scale_s, out=np.full(self.shape.shape, np.inf), where=self.scale_s > 0
        )
        inside = np.where(self.scale_s > 0, gammainc(np.maximum(self.shape, 1e-9), scaled), 1.0)
        return float((self.weights * np.where(left >= 0, inside, 0.0)).sum())

    def percentiles(self) -> Percentiles:
        """Mean and percentiles over requests."""
        longest = float((self.step_s + (self.shape + 20 + 10 * np.sqrt(self.shape)) * self.scale_s).max())
        return Percentiles(self.mean_s, *(_quantile(self.below, share, longest) for share in (0.5, 0.95, 0.99)))


def condensed(values: Values, weights: Values, parts: int = 24) -> tuple[Values, Values]:
    """At most `parts` values that stand for weighted ones, with their probabilities."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    part = np.minimum((np.cumsum(weights) / weights.sum() * parts * (1 - 1e-9)).astype(int), parts - 1)
    sums, totals = np.bincount(part, weights * values), np.bincount(part, weights)
    kept = totals > 0
    return sums[kept] / totals[kept], totals[kept] / totals.sum()


def _quantile(below: Callable[[float], float], share: float, longest: float) -> float:
    """The smallest value that is not exceeded with probability `share`; 0 if none is."""
    low, high = 0.0, longest
    if below(0.0) >= share:
        return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if below(middle) >= share else (middle, high)
    return high
