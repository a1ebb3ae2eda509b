"""Pareto fronts: which of several choices no other one beats in everything. Imports nothing of the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def on_front(costs: ArrayLike, tokens_per_s: ArrayLike) -> NDArray[np.bool_]:
    """[n] which machines no other one beats: none that costs no more is faster, and none as fast costs less."""
    return pareto_front(np.column_stack([np.asarray(costs, float), -np.asarray(tokens_per_s, float)]))


def pareto_front(costs: ArrayLike) -> NDArray[np.bool_]:
    """[n] whether no other row of `costs` [n, k] is at most as large in every column and smaller in one.

    Smaller is better: negate what should be large. Rows that are equal stay on the front together; a row with a NaN
    is never on it.
    """
    values = np.atleast_2d(np.asarray(costs, float))
    known = ~np.isnan(values).any(axis=1)
    front = known.copy()
    for i in np.flatnonzero(known):
        others = values[known]
        beaten = (others <= values[i]).all(axis=1) & (others < values[i]).any(axis=1)
        front[i] = not beaten.any()
    return np.asarray(front, np.bool_)
