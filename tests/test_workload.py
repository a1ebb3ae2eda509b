"""Configured context and its cells, and the workloads that make no sense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import InputError
from llmcalc.workload import CONTEXT_PADDING, Workload


@pytest.mark.parametrize(
    ("context", "parallel", "unified", "cells"),
    [
        (32768, 1, False, 32768),
        (1000, 1, False, 1024),
        (8192, 4, False, 2048),
        (8192, 4, True, 8192),
        (1, 3, False, 256),
    ],
)
def test_cells_of_a_sequence(context: int, parallel: int, unified: bool, cells: int) -> None:
    assert Workload(context=context, parallel=parallel, kv_unified=unified).cells_per_sequence == cells


@given(st.integers(1, 10**6), st.integers(1, 64), st.booleans())
def test_cells_cover_the_context_in_whole_pads(context: int, parallel: int, unified: bool) -> None:
    workload = Workload(context=context, parallel=parallel, kv_unified=unified)
    assert workload.cells_per_sequence % CONTEXT_PADDING == 0
    assert workload.cells_per_sequence * workload.streams > context - parallel


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"context": 0}, "context: must be from 1 to"),
        ({"context": 2**31}, "context: must be from 1 to 2,147,483,647, got 2,147,483,648"),
        ({"output": -1}, "output: must be from 0"),
        ({"parallel": 257}, "parallel: must be from 1 to 256"),
        ({"kv_type_k": "Q9"}, "no KV cache type"),
        ({"prompt": 10, "cached_prefix": 11}, "cannot be cached"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Workload(**settings)  # type: ignore[arg-type]
