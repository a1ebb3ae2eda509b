"""How long prompts and outputs are: fixed, log-normal, or as traced; samples for simulation, points for formulas.

Imports `errors` and `units`. Lengths are whole tokens, at least one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .units import parse, parse_tokens

Tokens = NDArray[np.int64]
Values = NDArray[np.float64]

# A log-normal stands as this many parts of equal width in its logarithm, from -5 to 6 standard deviations.
_EDGES: Final = (-math.inf, *np.linspace(-5.0, 6.0, 47).tolist(), math.inf)
TRACE_POINTS: Final = 512
MOST_CV: Final = 100.0  # beyond, a log-normal says nothing about whole tokens
MOST_SIGMA: Final = 5.0

_EXAMPLES: Final = "'512', 'mean=512,cv=1' or 'median=300,p95=2k'"


class LengthDistribution(Protocol):
    """A length in tokens, as a random number."""

    def sample(self, generator: np.random.Generator, count: int) -> Tokens:
        """`count` independent lengths."""

    def points(self) -> tuple[Values, Values]:
        """(lengths, probabilities) that stand for the distribution."""


class RequestLengths(Protocol):
    """Prompt and output lengths of requests, together."""

    def sample(self, generator: np.random.Generator, count: int) -> tuple[Tokens, Tokens]:
        """(prompts, outputs) of `count` independent requests."""

    def points(self) -> tuple[Values, Values, Values]:
        """(prompts, outputs, probabilities) of requests that stand for all."""


@dataclass(frozen=True)
class FixedLength:
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InputError(f"length: must be at least 1 token, got {self.tokens}")

    def sample(self, generator: np.random.Generator, count: int) -> Tokens:
        """`count` times the same."""
        return np.full(count, self.tokens, np.int64)

    def points(self) -> tuple[Values, Values]:
        """The one length."""
        return np.array([float(self.tokens)]), np.ones(1)


@dataclass(frozen=True)
class LogNormalLength:
    """Log-normal, rounded to whole tokens: `median` tokens, `sigma` the standard deviation of the logarithm."""

    median: float
    sigma: float
    most: int | None = None  # longer ones are cut, as a context or output limit does

    def __post_init__(self) -> None:
        if not (self.median >= 1 and math.isfinite(self.median)):
            raise InputError(f"length: the median must be at least 1 token, got {self.median:g}")
        if not 0 <= self.sigma <= MOST_SIGMA:
            raise InputError(
                f"length: the spread of the logarithm must be from 0 to {MOST_SIGMA:g}, got {self.sigma:g}"
            )

    @classmethod
    def from_mean(cls, mean: float, cv: float, most: int | None = None) -> LogNormalLength:
        """By the mean and the coefficient of variation (standard deviation / mean)."""
        if not (mean >= 1 and 0 <= cv <= MOST_CV):
            raise InputError(
                f"length: needs a mean of at least 1 and a cv from 0 to {MOST_CV:g}, got {mean:g} and {cv:g}"
            )
        variance = math.log1p(cv**2)
        return cls(mean * math.exp(-variance / 2), math.sqrt(variance), most)

    @classmethod
    def from_percentiles(cls, median: float, p95: float, most: int | None = None) -> LogNormalLength:
        """By the median and the 95th percentile."""
        if not p95 >= median > 0:
            raise InputError(f"length: the 95th percentile {p95:g} must not be below the median {median:g}")
        return cls(median, math.log(p95 / median) / NormalDist().inv_cdf(0.95), most)

    def sample(self, generator: np.random.Generator, count: int) -> Tokens:
        """`count` independent lengths."""
        return self._whole(generator.lognormal(math.log(self.median), self.sigma, count)).astype(np.int64)

    def points(self) -> tuple[Values, Values]:
        """Parts of the distribution, each as its mean and its probability."""
        if self.sigma == 0:
            return self._whole(np.array([self.median])), np.ones(1)
        shares = np.diff([_normal_cdf(edge) for edge in _EDGES])
        masses = np.diff([_normal_cdf(edge - self.sigma) for edge in _EDGES])
        kept = shares > 0
        means = self.median * math.exp(self.sigma**2 / 2) * masses[kept] / shares[kept]
        return self._whole(means), shares[kept] / shares.sum()

    def _whole(self, values: Values) -> Values:
        return np.clip(np.rint(values), 1, self.most)


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


@dataclass(frozen=True)
class IndependentLengths:
    """Prompt and output lengths that know nothing of each other."""

    prompt: LengthDistribution
    output: LengthDistribution

    def sample(self, generator: np.random.Generator, count: int) -> tuple[Tokens, Tokens]:
        """(prompts, outputs) of `count` independent requests."""
        return self.prompt.sample(generator, count), self.output.sample(generator, count)

    def points(self) -> tuple[Values, Values, Values]:
        """Every combination of the two distributions' points."""
        (prompts, first), (outputs, second) = self.prompt.points(), self.output.points()
        grid = np.meshgrid(prompts, outputs, indexing="ij")
        return grid[0].ravel(), grid[1].ravel(), np.outer(first, second).ravel()


@dataclass(frozen=True)
class TracedLengths:
    """Pairs of lengths as they were recorded; sampling draws pairs with replacement."""

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.prompts or len(self.prompts) != len(self.outputs):
            raise InputError("lengths: needs as many prompts as outputs, and at least one pair")
        if min(self.prompts) < 1 or min(self.outputs) < 1:
            raise InputError("lengths: prompts and outputs must have at least 1 token")

    def sample(self, generator: np.random.Generator, count: int) -> tuple[Tokens, Tokens]:
        """`count` pairs, drawn with replacement."""
        rows = generator.integers(0, len(self.prompts), count)
        return np.array(self.prompts, np.int64)[rows], np.array(self.outputs, np.int64)[rows]

    def points(self) -> tuple[Values, Values, Values]:
        """All pairs, or evenly spaced ones by prompt length where there are many."""
        prompts, outputs = np.array(self.prompts, float), np.array(self.outputs, float)
        if len(prompts) > TRACE_POINTS:
            order = np.lexsort((outputs, prompts))
            chosen = order[((np.arange(TRACE_POINTS) + 0.5) * len(order) / TRACE_POINTS).astype(int)]
            prompts, outputs = prompts[chosen], outputs[chosen]
        return prompts, outputs, np.full(len(prompts), 1 / len(prompts))


def parse_length(text: str | int, what: str, most: int | None = None) -> LengthDistribution:
    """A length as people write it: "512", "mean=512,cv=1" or "median=300,p95=2k". Raises InputError, naming `what`."""
    if isinstance(text, int) or "=" not in text:
        return FixedLength(parse_tokens(text, what))
    parts = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    if set(parts) == {"mean", "cv"}:
        cv = parse(parts["cv"], "tokens", f"{what}, cv")
        return LogNormalLength.from_mean(parse(parts["mean"], "tokens", f"{what}, mean"), cv, most)
    if set(parts) == {"median", "p95"}:
        median, p95 = (parse(parts[name], "tokens", f"{what}, {name}") for name in ("median", "p95"))
        return LogNormalLength.from_percentiles(median, p95, most)
    raise InputError(f"{what}: cannot read {text!r}; write {_EXAMPLES}")
