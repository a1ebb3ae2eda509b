"""Combined passes against their parts, and the table against the times it was made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_times import LinearTimes

from llmcalc.errors import InputError
from llmcalc.step_times import batch_s, chunks, mixed_s, prompt_s, tabulate, token_grid

TIMES = LinearTimes()
TABLE = tabulate(TIMES, parallel=16, longest=8192, batch=2048, ubatch=512)


@given(st.integers(1, 64), st.integers(1, 10_000))
def test_one_column_a_sequence_is_a_decode_step(parallel: int, occupied: int) -> None:
    assert batch_s(TIMES, parallel, parallel, occupied) == pytest.approx(TIMES.decode_s(parallel, occupied))


@given(st.integers(1, 2000), st.integers(0, 5000), st.integers(0, 16), st.integers(1, 8000), st.booleans())
def test_a_shared_step_costs_no_less_than_its_parts_and_no_more_than_both(
    tokens: int, cached: int, parallel: int, occupied: int, shared: bool
) -> None:
    both = mixed_s(TIMES, tokens, cached, parallel, occupied, shared)
    prefill = TIMES.prefill_s(tokens, cached)
    decode = TIMES.decode_s(parallel, occupied) if parallel else 0.0
    # Columns that the decoding sequences add may begin one more micro-batch.
    assert max(prefill, decode) <= both + 1e-12
    assert both <= prefill + decode + TIMES.prompt_pass_s + (TIMES.prompt_token_s + 1e-9 * cached) * parallel
    if not shared:
        assert both == pytest.approx(prefill + decode)


@given(st.integers(1, 9000), st.integers(0, 9000), st.integers(1, 4096))
def test_chunks_cover_a_prompt_once(prompt: int, cached: int, chunk: int) -> None:
    parts = [(float(done), float(now)) for done, now in chunks(prompt + cached, chunk, cached)]
    assert sum(now for _, now in parts) == prompt
    assert all(now <= chunk for _, now in parts)
    assert [done for done, _ in parts] == [cached + chunk * i for i in range(len(parts))]


def test_prompts_of_several_lengths_at_once() -> None:
    prompts = np.array([10.0, 2048.0, 5000.0])
    seconds = prompt_s(TIMES, prompts, 2048, 0.0, 3, 1000)
    assert seconds.shape == (3,)
    assert seconds == pytest.approx([prompt_s(TIMES, p, 2048, 0.0, 3, 1000) for p in prompts])


@given(st.integers(1, 16), st.floats(1, 8192), st.integers(1, 2032), st.floats(0, 8192))
def test_table_repeats_linear_times(parallel: int, occupied: float, tokens: int, cached: float) -> None:
    assert TABLE.decode_s(parallel, occupied) == pytest.approx(TIMES.decode_s(parallel, occupied))
    # Both sides of each whole micro-batch are in the grid, so that not even the jumps there are smoothed.
    assert TABLE.prefill_s(tokens, cached) == pytest.approx(TIMES.prefill_s(tokens, cached))
    assert TABLE.mixed_s(tokens, cached, parallel, occupied) == pytest.approx(
        mixed_s(TIMES, tokens, cached, parallel, occupied)
    )


def test_no_sequences_take_no_time() -> None:
    assert TABLE.decode_s(0, 1) == 0.0
    assert TABLE.mixed_s(100, 0, 0, 1) == TABLE.prefill_s(100, 0)


@given(st.integers(2, 5000), st.integers(1, 5000))
def test_grid_reaches_one_token_beyond_the_batch(batch: int, ubatch: int) -> None:
    grid = token_grid(batch, ubatch)
    assert grid[0] == 1
    assert grid[-1] == batch + 1
    assert grid == sorted(set(grid))


def test_impossible_times_are_refused() -> None:
    with pytest.raises(InputError, match="every decode time must be positive"):
        tabulate(LinearTimes(pass_s=-1.0), parallel=2, longest=100, batch=64, ubatch=64)
