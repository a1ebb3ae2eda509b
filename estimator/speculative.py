"""Speculative decoding: a drafter proposes tokens, the model verifies them in one pass, and keeps what it agrees with.

Imports `errors` and `step_times`. Everything broadcasts over acceptance rates and draft lengths. Expected tokens:
Leviathan, Kalman & Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023, eq. 1; there as here
each drafted token is taken to be accepted independently, with probability α. What llama-server does between passes (it
samples on the CPU, fetches logits, saves states that cannot be rolled back) is time too, with drafts and without.
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


@dataclass(frozen=True)
class ServerWork:
    """What the server does between passes, in seconds."""

    sample_s: float = 0.0  # choosing a token from the logits of a position
    row_s: float = 0.0  # fetching the logits of one more position
    checkpoint_s: float = 0.0  # saving or restoring a sequence's recurrent state; 0: it can be rolled back


class Drafter(Protocol):
    """What proposes tokens."""

    @property
    def rolls_back(self) -> bool:
        """Whether the model keeps copies of its recurrent state, to drop rejected tokens."""

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
    sample_s: float = 0.0  # choosing a drafted token on the CPU
    rolls_back: bool = False  # the model keeps copies of its recurrent state for it

    def draft_s(self, draft_length: Array, parallel: Array, occupied: Array) -> Array:
        """So many decode steps of the draft, one after another, and the pass to catch up."""
        gamma = np.asarray(draft_length, float)[()]
        drafting = gamma * (self.times.decode_s(parallel, occupied) + parallel * self.sample_s)
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
    rolls_back: bool = False

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
    verify_s: Array  # the pass and what surrounds it, but for sampling
    step_s: Array  # all, averaged over steps with and without a draft
    plain_step_s: Array  # with the sampling that it needs as well
    sample_s: Array  # of a token of every sequence
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
    work: ServerWork = ServerWork(),
) -> Speculation:
    """Decoding of `parallel` sequences at `occupied` positions with drafts of `draft_length` tokens.

    The model verifies γ + 1 tokens a sequence in one pass: weights are read once (of a mixture, all experts that these
    tokens reach), the cache once a sequence. Every token that is written is sampled, with drafts or without. A state
    that cannot be rolled back is saved before each draft; after a rejection it is restored, and one more pass reads
    what was accepted, which also yields a token (llama.cpp b11434, tools/server/server-context.cpp).
    """
    alpha, gamma = np.asarray(acceptance, float)[()], np.asarray(draft_length, float)[()]
    sequences, positions = np.asarray(parallel, float)[()], np.asarray(occupied, float)[()]
    plain = times.decode_s(sequences, positions)
    draft = drafter.draft_s(gamma, sequences, positions)
    passes = _passes(times, gamma, sequences, positions, work)
    again = _rejected(alpha, gamma, work)
    verify = np.where(gamma > 0, passes + again * (passes + sequences * work.checkpoint_s), plain)[()]
    share, sampling = drafter.coverage, sequences * work.sample_s
    tokens = 1 + share * (expected_tokens(alpha, gamma) + again - 1)
    return Speculation(
        acceptance=alpha,
        draft_length=gamma,
        parallel=sequences,
        tokens_per_step=tokens,
        draft_s=draft,
        verify_s=verify,
        step_s=share * (draft + verify) + (1 - share) * plain + tokens * sampling,
        plain_step_s=plain + sampling,
        sample_s=sampling,
        memory_bytes=drafter.memory_bytes,
    )


def _passes(times: StepTimes, gamma: Array, sequences: Array, positions: Array, work: ServerWork) -> Array:
    """Verifying γ + 1 tokens a sequence: the pass, the logits of γ more positions, and saving the state if need be."""
    around = sequences * np.where(gamma > 0, gamma * work.row_s + work.checkpoint_s, 0.0)
    return batch_s(times, sequences * (gamma + 1), sequences, positions) + around


def _rejected(alpha: Array, gamma: Array, work: ServerWork) -> Array:
    """Probability of a second pass: that a drafted token is rejected while the state cannot be rolled back."""
    if work.checkpoint_s <= 0:
        return 0.0
    return 1 - np.power(alpha, gamma)


def speedup_curve(
    times: StepTimes,
    drafter: Drafter,
    *,
    acceptance: float,
    longest: int = LONGEST_DRAFT,
    parallel: float = 1,
    occupied: float = 1,
    work: ServerWork = ServerWork(),
) -> Speculation:
    """Draft lengths from 0 to `longest`, along the last axis."""
    where = {"parallel": parallel, "occupied": occupied}
    return speculate(times, drafter, acceptance=acceptance, draft_length=np.arange(longest + 1.0), work=work, **where)


def best_draft_length(
    times: StepTimes,
    drafter: Drafter,
    *,
    acceptance: ArrayLike,
    longest: int = LONGEST_DRAFT,
    parallel: float = 1,
    occupied: float = 1,
    work: ServerWork = ServerWork(),
) -> NDArray[np.int64] | np.int64:
    """The draft length of the highest rate, for each acceptance; 0 where no draft pays."""
    alpha = np.asarray(acceptance, float)[..., None]
    where = {"parallel": parallel, "occupied": occupied}
    speed = speculate(times, drafter, acceptance=alpha, draft_length=np.arange(longest + 1.0), work=work, **where)
    best: NDArray[np.int64] = np.argmax(speed.speedup, axis=-1)
    return best


def break_even_acceptance(
    times: StepTimes,
    drafter: Drafter,
    *,
    draft_length: ArrayLike = DEFAULT_DRAFT_LENGTH,
    parallel: ArrayLike = 1,
    occupied: ArrayLike = 1,
    work: ServerWork = ServerWork(),
) -> Array:
    """The acceptance from which drafts of this length pay; NaN where they cannot.

    Coverage and sampling do not matter: steps without a draft cost nothing and gain nothing, every token is sampled.
    """
    gamma = np.asarray(draft_length, float)[()]
    sequences, positions = np.asarray(parallel, float)[()], np.asarray(occupied, float)[()]
    plain = np.asarray(times.decode_s(sequences, positions), float)
    draft = drafter.draft_s(gamma, sequences, positions)
    passes = _passes(times, gamma, sequences, positions, work)

    def pays(alpha: Array) -> NDArray[np.bool_]:
        again = _rejected(alpha, gamma, work)
        cost = draft + passes + again * (passes + sequences * work.checkpoint_s)
        return np.asarray((expected_tokens(alpha, gamma) + again) * plain >= cost * (1 - 1e-12))

    low, high = np.zeros(np.shape(draft + passes)), np.ones(np.shape(draft + passes))
    possible = pays(high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = pays(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(possible, high, np.nan)[()]
