"""Pareto fronts against their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.pareto import pareto_front

points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20)


def beats(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


@given(points)
def test_nothing_beats_the_front_and_the_front_beats_the_rest(costs: list[tuple[int, int]]) -> None:
    front = pareto_front(costs)
    for i, one in enumerate(costs):
        assert front[i] == (not any(beats(other, one) for other in costs))
    assert front.any()


def test_unknown_costs_are_never_on_the_front() -> None:
    assert pareto_front([(1.0, np.nan), (2.0, 2.0), (np.nan, 0.0)]).tolist() == [False, True, False]
