"""Weighted values that add and mix, and the waits of M/G/1 whose distribution is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.serving_distributions import Spread, TokenTime, compound_wait, mixture, smallest_residual_s

times = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)
EXPONENTIAL = Spread.of(-np.log1p(-(np.arange(4000) + 0.5) / 4000))


@given(times, times)
def test_means_add_and_mix(a: list[float], b: list[float]) -> None:
    first, second = Spread.of(a), Spread.of(b)
    assert first.plus(second, 16).mean == pytest.approx(np.mean(a) + np.mean(b))
    assert mixture([(0.3, first), (0.7, second)]).mean == pytest.approx(0.3 * np.mean(a) + 0.7 * np.mean(b))
    assert first.times(3).mean == pytest.approx(3 * np.mean(a))


def test_fewer_values_keep_mean_and_tail() -> None:
    fewer = EXPONENTIAL.condensed(200)
    assert len(fewer.values) <= 200
    assert fewer.mean == pytest.approx(EXPONENTIAL.mean)
    assert fewer.percentiles().p99 == pytest.approx(EXPONENTIAL.percentiles().p99, rel=0.02)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_exponential_service_waits_exponentially(load: float) -> None:
    # M/M/1: who waits, waits an exponential time of mean 1 / (1 - load).
    wait = compound_wait(EXPONENTIAL, load)
    assert wait.mean == pytest.approx(1 / (1 - load), rel=0.03)
    for share in (0.5, 0.95, 0.99):
        assert wait.below(-math.log(1 - share) / (1 - load)) == pytest.approx(share, abs=0.01)


@given(st.floats(0.05, 0.95), st.lists(st.floats(0.5, 2), min_size=1, max_size=5))
def test_mean_wait_is_pollaczek_khinchine(load: float, services: list[float]) -> None:
    one = Spread.of(services)
    expected = one.second_moment / 2 / one.mean / (1 - load)
    assert compound_wait(one, load).mean == pytest.approx(expected, rel=0.02)


def test_constant_service_at_low_load_waits_evenly() -> None:
    wait = compound_wait(Spread.of([2.0]), 0.01)
    assert [wait.below(t) for t in (0.5, 1.0, 1.5)] == pytest.approx([0.25, 0.5, 0.75], abs=0.02)


@given(st.integers(1, 30))
def test_first_of_several_residuals(together: int) -> None:
    assert smallest_residual_s(Spread.of([1.0]), together) == pytest.approx(1 / (together + 1), rel=0.01)
    assert smallest_residual_s(EXPONENTIAL, together) == pytest.approx(1 / together, rel=0.05)


def test_time_per_token_has_the_mean_and_spread_it_is_made_of() -> None:
    shape, scale = np.array([[0.0], [4.0]]), np.array([[0.0], [0.5]])
    one = TokenTime(np.array([[0.25], [0.75]]), np.array([[1.0], [1.0]]), shape, scale)
    values, weights = one.spread()
    assert weights.sum() == pytest.approx(1.0)
    assert (values * weights).sum() == pytest.approx(one.mean_s) == pytest.approx(1 + 0.75 * 2)
    assert values[0] == pytest.approx(1.0)
    assert values[1].std() == pytest.approx(math.sqrt(4) * 0.5, rel=0.1)
