"""Roofs: one time out of several bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.roofline import ceiling_seconds, combined, share_of

TIMES = st.lists(st.just(0.0) | st.floats(1e-9, 1e3), min_size=1, max_size=4)


@given(TIMES)
def test_the_time_lies_between_perfect_overlap_and_none(times: list[float]) -> None:
    time = combined(times)
    assert max(times) * (1 - 1e-12) <= time <= sum(times) * (1 + 1e-12)


@given(TIMES)
def test_more_of_any_bound_never_saves_time(times: list[float]) -> None:
    longer = [times[0] + 1.0, *times[1:]]
    assert combined(longer) >= combined(times)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=4))
def test_shares_add_up_to_one_and_are_the_relative_slopes(times: list[float]) -> None:
    shares = [share_of(time, combined(times)) for time in times]
    assert sum(shares) == pytest.approx(1)
    step = 1e-6
    for i, share in enumerate(shares):
        nudged = [time * (1 + step) if i == j else time for j, time in enumerate(times)]
        assert (combined(nudged) / combined(times) - 1) / step == pytest.approx(share, abs=1e-3)


def test_no_work_takes_no_time() -> None:
    assert combined([0.0, 0.0]) == 0
    assert share_of(0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("size", "bandwidth", "compute", "seconds"), [(8e9, 1e12, 0.0, 8e-3), (8e9, 1e12, 0.1, 0.1), (0.0, 1e12, 0.0, 0.0)]
)
def test_ceiling(size: float, bandwidth: float, compute: float, seconds: float) -> None:
    assert ceiling_seconds(size, bandwidth, compute) == pytest.approx(seconds)


def test_arrays_keep_their_shape() -> None:
    memory, compute = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    assert combined([memory, compute]).shape == (3,)  # type: ignore[union-attr]
    assert ceiling_seconds(memory, 1.0, compute).tolist() == [3.0, 2.0, 3.0]  # type: ignore[union-attr]
