"""Length distributions: samples and points have the moments they were asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import InputError
from llmcalc.lengths import (
    TRACE_POINTS,
    FixedLength,
    IndependentLengths,
    LogNormalLength,
    TracedLengths,
    parse_length,
)


@given(st.floats(50, 20_000), st.floats(0, 3))
def test_points_have_mean_and_spread(mean: float, cv: float) -> None:
    values, shares = LogNormalLength.from_mean(mean, cv).points()
    assert shares.sum() == pytest.approx(1)
    found = shares @ values
    assert found == pytest.approx(mean, rel=0.01)
    assert np.sqrt(shares @ (values - found) ** 2) == pytest.approx(cv * mean, rel=0.02, abs=0.01 * mean)


def test_samples_follow_the_points() -> None:
    length = LogNormalLength.from_percentiles(300, 2000)
    sample = length.sample(np.random.default_rng(0), 200_000)
    assert np.quantile(sample, [0.5, 0.95]) == pytest.approx([300, 2000], rel=0.02)
    values, shares = length.points()
    assert sample.mean() == pytest.approx(shares @ values, rel=0.02)
    assert sample.min() >= 1


def test_longest_cuts() -> None:
    length = LogNormalLength.from_mean(1000, 2, most=4096)
    assert length.sample(np.random.default_rng(0), 10_000).max() == 4096
    assert length.points()[0].max() == 4096


def test_independent_points_are_all_pairs() -> None:
    lengths = IndependentLengths(LogNormalLength.from_mean(500, 1), LogNormalLength.from_mean(200, 0.5))
    prompts, outputs, shares = lengths.points()
    assert shares.sum() == pytest.approx(1)
    assert shares @ (prompts * outputs) == pytest.approx((shares @ prompts) * (shares @ outputs))


def test_traced_pairs_stay_together() -> None:
    lengths = TracedLengths((10, 20, 30), (1, 2, 3))
    prompts, outputs = lengths.sample(np.random.default_rng(0), 1000)
    assert (prompts == 10 * outputs).all()
    assert set(outputs) == {1, 2, 3}


def test_long_traces_are_thinned_evenly() -> None:
    prompts = np.random.default_rng(0).lognormal(6, 1, 20_000).astype(int) + 1
    chosen, outputs, shares = TracedLengths(tuple(prompts.tolist()), tuple((2 * prompts).tolist())).points()
    assert len(chosen) == TRACE_POINTS
    assert (outputs == 2 * chosen).all()
    assert shares @ chosen == pytest.approx(prompts.mean(), rel=0.02)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", FixedLength(512)),
        ("2k", FixedLength(2048)),
        (7, FixedLength(7)),
        ("mean=512, cv=1", LogNormalLength.from_mean(512, 1)),
        ("median=300,p95=2k", LogNormalLength.from_percentiles(300, 2048)),
    ],
)
def test_written_lengths(text: str | int, expected: object) -> None:
    assert parse_length(text, "prompt") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "long",
        "mean=512",
        "mean=512,cv=-1",
        "mean=512,cv=1,p95=3",
        "median=300,p95=200",
        "mean=0,cv=1",
        "mean=5,cv=1e300",
        "median=1,p95=1e300",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_length(text, "prompt")
