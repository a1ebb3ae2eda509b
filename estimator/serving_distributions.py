"""Distributions of times under load: weighted values that add and mix, waits in queues, and time per token.

Imports `serving`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .serving import Percentiles, percentiles

Values = NDArray[np.float64]

PARTS: Final = 400  # values that stand for a distribution
TAIL: Final = 0.1  # of the weight, in which half of the parts lie
GRID: Final = 1 << 14  # cells of a wait's distribution function
HORIZON: Final = 60  # its length in mean waits


@dataclass(frozen=True)
class Spread:
    """A random time as weighted values."""

    values: Values
    weights: Values  # add up to 1

    @classmethod
    def of(cls, values: ArrayLike, weights: ArrayLike | None = None) -> Spread:
        """Of values in any shape, equally likely or weighted."""
        array = np.asarray(values, float)
        shares = np.ones(array.shape) if weights is None else np.broadcast_to(np.asarray(weights, float), array.shape)
        kept = shares.ravel() > 0
        return cls(array.ravel()[kept], shares.ravel()[kept] / shares.sum())

    @classmethod
    def uniform(cls, longest: float, parts: int = 8) -> Spread:
        """Anything up to `longest`."""
        return cls.of((np.arange(parts) + 0.5) / parts * longest)

    @cached_property
    def mean(self) -> float:
        """Expectation."""
        return float(self.weights @ self.values)

    @property
    def second_moment(self) -> float:
        """Expectation of the square."""
        return float(self.weights @ self.values**2)

    def plus(self, other: Spread, parts: int = PARTS) -> Spread:
        """The sum of two independent times."""
        values = np.add.outer(self.values, other.values)
        return Spread(values.ravel(), np.multiply.outer(self.weights, other.weights).ravel()).condensed(parts)

    def times(self, factor: float) -> Spread:
        """Stretched."""
        return Spread(self.values * factor, self.weights)

    def condensed(self, parts: int = PARTS) -> Spread:
        """At most `parts` values of the same mean, half of them for the tail."""
        if len(self.values) <= parts:
            return self
        order = np.argsort(self.values)
        values, weights = self.values[order], self.weights[order]
        edges = np.concatenate(
            (np.linspace(0, 1 - TAIL, parts // 2 + 1)[1:], 1 - np.geomspace(TAIL, 1e-6, parts - parts // 2)[1:])
        )
        part = np.searchsorted(edges, np.cumsum(weights) - weights / 2)
        sums = np.asarray(np.bincount(part, weights * values), float)
        totals = np.asarray(np.bincount(part, weights), float)
        kept = totals > 0
        return Spread(sums[kept] / totals[kept], totals[kept])

    def below(self, seconds: float) -> float:
        """Probability of at most `seconds`."""
        return float(self.weights[self.values <= seconds * (1 + 1e-9)].sum())

    def percentiles(self) -> Percentiles:
        """Mean and percentiles."""
        return percentiles(self.values, self.weights)


def mixture(parts: Iterable[tuple[float, Spread]]) -> Spread:
    """One of several times, with these probabilities."""
    kept = [(share, spread) for share, spread in parts if share > 0]
    total = sum(share for share, _ in kept)
    values = np.concatenate([spread.values for _, spread in kept])
    return Spread(values, np.concatenate([spread.weights * (share / total) for share, spread in kept]))


def compound_wait(service: Spread, load: float) -> Spread:
    """The wait of those who have to wait in M/G/1: a geometric number of residual service times, one after another.

    That is Pollaczek and Khinchine's formula for the whole distribution (Cooper 1981, "Introduction to Queueing
    Theory", 2nd ed., section 5.8); sums by Fourier transform of the distribution on a grid.
    """
    work = service.condensed(64)
    residual_s = work.second_moment / 2 / work.mean
    step = max(HORIZON * residual_s / (1 - load), 2 * float(work.values.max())) / GRID
    edges = np.arange(GRID + 1) * step
    reached = np.minimum(work.values[:, None], edges).T @ work.weights / work.mean
    inside = np.diff(reached)
    lattice = inside / 2
    lattice[1:] += inside[:-1] / 2  # half to either end of a cell keeps the mean
    transform = np.fft.rfft(lattice)
    pmf = np.fft.irfft((1 - load) * transform / (1 - load * transform), GRID)
    return Spread.of(edges[:-1], np.maximum(pmf, 0.0)).condensed()


def smallest_residual_s(service: Spread, together: int) -> float:
    """Mean time to the first end of `together` services that run independently since long: ∫ (1 − F_e)^n dt."""
    work = service.condensed(64)
    step = float(work.values.max()) / 2048
    middles = (np.arange(2048) + 0.5) * step
    left = 1 - np.minimum(work.values[:, None], middles).T @ work.weights / work.mean
    return float((np.maximum(left, 0.0) ** together).sum() * step)


@dataclass(frozen=True)
class TokenTime:
    """TPOT over requests. Arrays [slots, outputs]: a decode step, and prefills of others as a gamma variable.

    While a request writes o tokens, each of the b - 1 others starts anew (o - 1)/(mean o - 1) times on average; that
    sum of random prefills has the mean and variance of a compound variable.
    """

    weights: Values
    step_s: Values
    shape: Values  # 0 where there are no others
    scale_s: Values

    @property
    def mean_s(self) -> float:
        """Mean over requests."""
        return float((self.weights * (self.step_s + self.shape * self.scale_s)).sum())

    def spread(self, quantiles: int = 24) -> tuple[Values, Values]:
        """[slots, outputs, quantiles] equally likely times per token of each, and their probabilities."""
        from scipy.special import gammaincinv

        levels = (np.arange(quantiles) + 0.5) / quantiles
        shape = np.maximum(self.shape, 1e-6)[..., None]
        added = np.where(self.shape[..., None] > 0, gammaincinv(shape, levels), 0.0)
        mean = added.mean(axis=-1, keepdims=True)
        added = added * np.divide(self.shape[..., None], mean, out=np.zeros_like(mean), where=mean > 0)
        values = self.step_s[..., None] + added * self.scale_s[..., None]
        return values, np.broadcast_to(self.weights[..., None] / quantiles, values.shape)
