"""Speculative decoding: a drafter proposes tokens, the model verifies them in one pass, and keeps what it agrees with.

Imports `errors` and `step_times`. Everything broadcasts over acceptance rates and draft lengths. Expected tokens:
Leviathan, Kalman & Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023, eq. 1; there as here
each drafted token is taken to be accepted independently, with probability α.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError
from .step_times import Array, StepTimes, batch_s

DEFAULT_DRAFT_LENGTH: Final = 3  # llama.cpp b11434, common/common.h: common_params_speculative_draft.n_max
LONGEST_DRAFT: Final = 16
BISECTIONS: Final = 50


class Drafter(Protocol):
    """What proposes tokens."""

    @property
    def memory_bytes(self) -> float:
        """Weights, cache and buffers that it needs beside the model."""

    @property
    def coverage(self) -> float:
        """Share of steps in which it has anything to propose."""

    def draft_s(self, draft_length: Array, parallel: Array, occupied: Array) -> Array:
        """Drafting `draft_length` tokens for each of `parallel` sequences of `occupied` positions."""


@dataclass(frozen=True)
class ModelDrafter:
    """A smaller model, or the NextN/MTP layers of the model itself: one decode step of its own a token.

    Before it drafts, it reads what the model has verified, in one pass without output head (llama.cpp b11434,
    common/speculative.cpp, process): `catch_up` has the times of that.
    """

    times: StepTimes
    catch_up: StepTimes | None = None
    memory_bytes: float = 0.0
    coverage: float = 1.0

    def draft_s(self, draft_length: Array, parallel: Array, occupied: Array) -> Array:
        """So many decode steps of the draft, one after another, and the pass to catch up."""
        gamma = np.asarray(draft_length, float)[()]
        drafting = gamma * self.times.decode_s(parallel, occupied)
        if self.catch_up is None:
            return drafting
        reading = batch_s(self.catch_up, parallel * (gamma + 1), parallel, occupied)
        return drafting + np.where(gamma > 0, reading, 0.0)[()]


@dataclass(frozen=True)
class NgramDrafter:
    """Look-up of what followed the last tokens earlier in the text: free, but it often finds nothing."""

    coverage: float
    lookup_s: float = 0.0  # a step
    memory_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.coverage <= 1:
            raise InputError(f"coverage: must be a share from 0 to 1, got {self.coverage:g}")

    def draft_s(self, draft_length: Array, parallel: Array, occupied: Array) -> Array:
        """The look-up, whatever the length."""
        return np.where(np.asarray(draft_length) > 0, self.lookup_s, 0.0)[()]


@dataclass(frozen=True)
class Speculation:
    """Decoding with drafts, beside decoding without. Arrays by acceptance and draft length."""

    acceptance: Array
    draft_length: Array
    parallel: Array
    tokens_per_step: Array  # of one sequence, the model's own token included
    draft_s: Array
    verify_s: Array
    step_s: Array  # both, averaged over steps with and without a draft
    plain_step_s: Array
    memory_bytes: float

    @property
    def tpot_s(self) -> Array:
        """Mean time for a token of one sequence."""
        return self.step_s / self.tokens_per_step

    @property
    def tokens_per_s(self) -> Array:
        """Of one sequence."""
        return self.tokens_per_step / self.step_s

    @property
    def aggregate_tokens_per_s(self) -> Array:
        """Of all sequences together."""
        return self.parallel * self.tokens_per_s

    @property
    def speedup(self) -> Array:
        """Rate over the rate without drafts."""
        return self.plain_step_s / self.tpot_s


def expected_tokens(acceptance: ArrayLike, draft_length: ArrayLike) -> Array:
    """Tokens of one verification: (1 − α^(γ+1)) / (1 − α), from 1 (nothing accepted) to γ + 1 (everything)."""
    alpha, gamma = np.asarray(acceptance, float), np.asarray(draft_length, float)
    if np.any((alpha < 0) | (alpha > 1)) or np.any(np.isnan(alpha)):
        raise InputError("acceptance: must be a rate from 0 to 1")
    if np.any(gamma < 0):
        raise InputError("draft length: must be at least 0")
    certain = alpha > 1 - 1e-9
    safe = np.where(certain, 0.5, alpha)
    return np.where(certain, gamma + 1.0, -np.expm1((gamma + 1) * np.log(np.maximum(safe, 1e-300))) / (1 - safe))[()]


def acceptance_of(accepted_share: ArrayLike, draft_length: ArrayLike) -> Array:
    """α for a measured share of drafted tokens that were accepted, such as llama-server's "draft acceptance".

    That share counts tokens behind a rejected one as drafted, so it is below α: 1 + share × γ tokens come of a step.
    """
    share, gamma = np.broadcast_arrays(np.asarray(accepted_share, float), np.asarray(draft_length, float))
    if np.any((share < 0) | (share > 1)) or np.any(gamma < 1):
        raise InputError("acceptance: the accepted share must be from 0 to 1, the draft length at least 1")
    return acceptance_for(1 + share * gamma, gamma)


def acceptance_for(tokens_per_step: ArrayLike, draft_length: ArrayLike) -> Array:
    """α at which a step yields so many tokens, such as a measured mean length; NaN above γ + 1, which none reaches."""
    wanted, gamma = np.broadcast_arrays(np.asarray(tokens_per_step, float), np.asarray(draft_length, float))
    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = expected_tokens(middle, gamma) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(wanted <= gamma + 1 + 1e-12, high, np.nan)[()]


def speculate(
    times: StepTimes,
    drafter: Drafter,
    *,
    acceptance: ArrayLike,
    draft_length: ArrayLike = DEFAULT_DRAFT_LENGTH,
    parallel: ArrayLike = 1,
    occupied: ArrayLike = 1,
) -> Speculation:
    """Decoding of `parallel` sequences at `occupied` positions with drafts of `draft_length` tokens.

    The model verifies γ + 1 tokens a sequence in one pass: weights are read once (of a mixture, all experts that these
    tokens reach), the cache once a sequence.
    """
    alpha, gamma = np.asarray(acceptance, float)[()], np.asarray(draft_length, float)[()]
    sequences, positions = np.asarray(parallel, float)[()], np.asarray(occupied, float)[()]
    plain = times.decode_s(sequences, positions)
    draft = drafter.draft_s(gamma, sequences, positions)
    verify = np.where(gamma > 0, batch_s(times, sequences * (gamma + 1), sequences, positions), plain)[()]
    share = drafter.coverage
    return Speculation(
        acceptance=alpha,
        draft_length=gamma,
        parallel=sequences,
        tokens_per_step=1 + share * (expected_tokens(alpha, gamma) - 1),
        draft_s=draft,
        verify_s=verify,
        step_s=share * (draft + verify) + (1 - share) * plain,
        plain_step_s=plain,
        memory_bytes=drafter.memory_bytes,
    )


def speedup_curve(
    times: StepTimes,
    drafter: Drafter,
    *,
    acceptance: float,
    longest: int = LONGEST_DRAFT,
    parallel: float = 1,
    occupied: float = 1,
) -> Speculation:
    """Draft lengths from 0 to `longest`, along the last axis."""
    lengths = np.arange(longest + 1.0)
    return speculate(times, drafter, acceptance=acceptance, draft_length=lengths, parallel=parallel, occupied=occupied)


def best_draft_length(
    times: StepTimes,
    drafter: Drafter,
    *,
    acceptance: ArrayLike,
    longest: int = LONGEST_DRAFT,
    parallel: float = 1,
    occupied: float = 1,
) -> NDArray[np.int64] | np.int64:
    """The draft length of the highest rate, for each acceptance; 0 where no draft pays."""
    alpha = np.asarray(acceptance, float)[..., None]
    lengths = np.arange(longest + 1.0)
    speed = speculate(times, drafter, acceptance=alpha, draft_length=lengths, parallel=parallel, occupied=occupied)
    best: NDArray[np.int64] = np.argmax(speed.speedup, axis=-1)
    return best


def break_even_acceptance(
    times: StepTimes,
    drafter: Drafter,
    *,
    draft_length: ArrayLike = DEFAULT_DRAFT_LENGTH,
    parallel: ArrayLike = 1,
    occupied: ArrayLike = 1,
) -> Array:
    """The acceptance from which drafts of this length pay; NaN where they cannot.

    Coverage does not matter: steps without a draft cost nothing and gain nothing.
    """
    one = speculate(times, drafter, acceptance=1.0, draft_length=draft_length, parallel=parallel, occupied=occupied)
    return acceptance_for((one.draft_s + one.verify_s) / one.plain_step_s, one.draft_length)
