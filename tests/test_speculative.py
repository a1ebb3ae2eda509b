"""Expected tokens against the paper's sum, limits, and what a draft can and cannot gain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import InputError
from llmcalc.speculative import (
    ModelDrafter,
    NgramDrafter,
    ServerWork,
    acceptance_for,
    acceptance_of,
    best_draft_length,
    break_even_acceptance,
    expected_tokens,
    speculate,
    speedup_curve,
)
from llmcalc.step_times import Array

rates = st.floats(0.0, 1.0)
lengths = st.integers(0, 20)


@dataclass(frozen=True)
class Machine:
    """Decode step of `weights_s`, more by `token_s` a column and `cell_s` a position read."""

    weights_s: float = 0.020
    token_s: float = 0.0002
    cell_s: float = 1e-7

    def decode_s(self, parallel: Array, occupied: Array) -> Array:
        return self.weights_s + self.token_s * parallel + self.cell_s * parallel * occupied

    def prefill_s(self, tokens: Array, cached: Array) -> Array:
        raise AssertionError("speculation does not prefill")


DRAFT = ModelDrafter(Machine(weights_s=0.001, token_s=1e-5, cell_s=1e-8), memory_bytes=1e9)


@given(rates, lengths)
def test_expected_tokens_are_the_sum_of_chances(alpha: float, gamma: int) -> None:
    # The i-th token of the step comes if all i - 1 drafted ones before it were accepted.
    assert expected_tokens(alpha, gamma) == pytest.approx(sum(alpha**i for i in range(gamma + 1)), rel=1e-6)


@pytest.mark.parametrize(("alpha", "gamma", "tokens"), [(0.0, 5, 1), (1.0, 5, 6), (0.5, 1, 1.5), (0.8, 3, 2.952)])
def test_expected_tokens_known_values(alpha: float, gamma: int, tokens: float) -> None:
    assert expected_tokens(alpha, gamma) == pytest.approx(tokens)


def test_a_simulated_drafter_agrees() -> None:
    accepted = np.random.default_rng(1).random((200_000, 4)) < 0.7
    run = np.cumprod(accepted, axis=1).sum(axis=1)
    assert 1 + run.mean() == pytest.approx(expected_tokens(0.7, 4), rel=0.005)
    assert acceptance_of(run.sum() / accepted.size, 4) == pytest.approx(0.7, abs=0.005)


@given(rates, st.integers(1, 20))
def test_acceptance_is_recovered(alpha: float, gamma: int) -> None:
    tokens = expected_tokens(alpha, gamma)
    found = acceptance_for(tokens, gamma)
    assert expected_tokens(found, gamma) == pytest.approx(tokens, rel=1e-9)


def test_more_tokens_than_drafted_cannot_be() -> None:
    assert np.isnan(acceptance_for(4.5, 3))


@given(rates, st.integers(1, 64))
def test_no_draft_changes_nothing(alpha: float, parallel: int) -> None:
    plain = speculate(Machine(), DRAFT, acceptance=alpha, draft_length=0, parallel=parallel, occupied=3000)
    assert plain.speedup == pytest.approx(1.0, rel=1e-12)
    assert plain.aggregate_tokens_per_s == pytest.approx(parallel * plain.tokens_per_s)


@given(rates, rates, st.integers(1, 12))
def test_better_acceptance_is_never_slower(a: float, b: float, gamma: int) -> None:
    slow, fast = (speculate(Machine(), DRAFT, acceptance=x, draft_length=gamma).speedup for x in sorted((a, b)))
    assert fast >= slow - 1e-12


@given(rates, st.integers(1, 12), st.integers(1, 64))
def test_speedup_is_below_its_bounds(alpha: float, gamma: int, parallel: int) -> None:
    speed = speculate(Machine(), DRAFT, acceptance=alpha, draft_length=gamma, parallel=parallel).speedup
    assert 0 < speed < expected_tokens(alpha, gamma) <= gamma + 1


@given(st.integers(1, 12), st.floats(1e-4, 0.02), st.integers(1, 32), st.floats(0.01, 0.4))
def test_break_even_divides_gain_from_loss(gamma: int, draft_s: float, parallel: int, apart: float) -> None:
    drafter = ModelDrafter(Machine(weights_s=draft_s))
    even = break_even_acceptance(Machine(), drafter, draft_length=gamma, parallel=parallel)
    if np.isnan(even):
        assert speculate(Machine(), drafter, acceptance=1.0, draft_length=gamma, parallel=parallel).speedup < 1
        return
    above, below = min(even + apart, 1.0), max(even - apart, 0.0)
    assert speculate(Machine(), drafter, acceptance=above, draft_length=gamma, parallel=parallel).speedup >= 1 - 1e-9
    assert speculate(Machine(), drafter, acceptance=below, draft_length=gamma, parallel=parallel).speedup <= 1 + 1e-9


def test_a_draft_as_slow_as_the_model_never_pays() -> None:
    same = ModelDrafter(Machine())
    assert np.isnan(break_even_acceptance(Machine(), same, draft_length=4))
    assert (best_draft_length(Machine(), same, acceptance=np.linspace(0, 1, 11)) == 0).all()


def test_best_length_grows_with_acceptance_and_is_the_curve_s_peak() -> None:
    alphas = np.linspace(0, 0.99, 34)
    best = best_draft_length(Machine(), DRAFT, acceptance=alphas, longest=16)
    assert best[0] == 0
    assert (np.diff(best) >= 0).all()
    curve = speedup_curve(Machine(), DRAFT, acceptance=float(alphas[20]), longest=16)
    assert best[20] == np.argmax(curve.speedup)


def test_verification_reads_the_cache_once_a_sequence() -> None:
    machine = Machine(cell_s=1e-6)
    step = speculate(machine, DRAFT, acceptance=0.5, draft_length=3, parallel=2, occupied=10_000)
    assert step.verify_s == pytest.approx(0.020 + 8 * (0.0002 + 1e-6) + 2 * 1e-6 * 9_999)


def test_a_loaded_server_gains_less() -> None:
    speed = speculate(Machine(), DRAFT, acceptance=0.8, draft_length=4, parallel=np.array([1, 8, 32, 128])).speedup
    assert (np.diff(speed) < 0).all()
    assert speed[-1] < 1 < speed[0]


def test_lookup_without_hits_changes_nothing_and_its_break_even_ignores_them() -> None:
    never, often = NgramDrafter(coverage=0.0), NgramDrafter(coverage=0.5)
    assert speculate(Machine(), never, acceptance=0.9, draft_length=8).speedup == pytest.approx(1)
    always = NgramDrafter(coverage=1.0)
    gain = speculate(Machine(), often, acceptance=0.9, draft_length=8)
    assert 1 < gain.speedup < speculate(Machine(), always, acceptance=0.9, draft_length=8).speedup
    assert break_even_acceptance(Machine(), often, draft_length=8) == break_even_acceptance(
        Machine(), always, draft_length=8
    )


def test_acceptance_and_length_broadcast() -> None:
    grid = speculate(Machine(), DRAFT, acceptance=np.linspace(0, 1, 5)[:, None], draft_length=np.arange(7))
    assert grid.speedup.shape == (5, 7)
    one = speculate(Machine(), DRAFT, acceptance=0.75, draft_length=4)
    assert grid.speedup[3, 4] == one.speedup


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: expected_tokens(1.2, 3), "acceptance: must be a rate"),
        (lambda: expected_tokens(float("nan"), 3), "acceptance"),
        (lambda: expected_tokens(0.5, -1), "draft length"),
        (lambda: acceptance_of(0.5, 0), "draft length at least 1"),
        (lambda: NgramDrafter(coverage=2), "coverage"),
    ],
)
def test_nonsense_is_refused(call: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()  # type: ignore[operator]


MODEL = Machine()
WORK = ServerWork(sample_s=1e-3, row_s=1e-4)


@given(st.floats(0, 1), st.integers(1, 16), st.integers(1, 8))
def test_sampling_every_token_shrinks_gains_and_losses(alpha: float, gamma: int, parallel: int) -> None:
    where = {"acceptance": alpha, "draft_length": gamma, "parallel": parallel, "occupied": 500}
    bare, sampled = speculate(MODEL, DRAFT, **where), speculate(MODEL, DRAFT, work=ServerWork(1e-3), **where)
    assert abs(math.log(sampled.speedup)) <= abs(math.log(bare.speedup)) + 1e-9
    assert sampled.step_s == pytest.approx(bare.step_s + parallel * bare.tokens_per_step * 1e-3)
    assert sampled.plain_step_s == pytest.approx(bare.plain_step_s + parallel * 1e-3)


@given(st.integers(1, 16), st.sampled_from([ServerWork(), WORK, ServerWork(1e-3, 1e-4, 2e-3)]))
def test_break_even_is_where_the_speed_up_is_one(gamma: int, work: ServerWork) -> None:
    alpha = break_even_acceptance(MODEL, DRAFT, draft_length=gamma, work=work)
    if math.isnan(alpha):
        assert speculate(MODEL, DRAFT, acceptance=1.0, draft_length=gamma, work=work).speedup < 1
    elif alpha > 1e-6:
        assert speculate(MODEL, DRAFT, acceptance=alpha, draft_length=gamma, work=work).speedup == pytest.approx(1)


def test_a_state_that_cannot_be_rolled_back_costs_saving_and_a_second_pass() -> None:
    drafter = NgramDrafter(1.0)
    saved = ServerWork(checkpoint_s=2e-3)
    sure = [speculate(MODEL, drafter, acceptance=1.0, draft_length=4, work=work) for work in (ServerWork(), saved)]
    assert sure[1].step_s == pytest.approx(sure[0].step_s + 2e-3)
    assert sure[1].tokens_per_step == sure[0].tokens_per_step == 5
    never = [speculate(MODEL, drafter, acceptance=0.0, draft_length=4, work=work) for work in (ServerWork(), saved)]
    assert never[1].tokens_per_step == 2  # the second pass yields one too
    assert never[1].step_s == pytest.approx(2 * (never[0].step_s + 2e-3) + 2e-3)
