"""Seconds of one pass of the model, as serving, sessions and speculation need them, and how passes combine.

Imports `errors` alone: whoever predicts times gives an object with the two methods of `StepTimes`. Times broadcast over
numpy arrays; `StepTable` is their scalar copy for event simulations, which ask millions of times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

Array = float | NDArray[np.float64]

DECODE_GRID = 65  # occupied positions per row of a table
CACHED_GRID = 33


class StepTimes(Protocol):
    """What a machine takes for one pass over the model."""

    def decode_s(self, parallel: Array, occupied: Array) -> Array:
        """One decode step of `parallel` ≥ 1 sequences, a token each, every one attending `occupied` ≥ 1 positions."""

    def prefill_s(self, tokens: Array, cached: Array) -> Array:
        """Prefill of `tokens` ≥ 1 prompt tokens of one sequence behind `cached` ones, in as many passes as it needs."""


def batch_s(times: StepTimes, columns: Array, sequences: Array, occupied: Array) -> Array:
    """One pass over `columns` tokens that belong to `sequences` caches of `occupied` positions each.

    Weights, experts and FLOPs follow the columns, the cache is read once a sequence: what verifying a draft costs. With
    one column a sequence it is a decode step.
    """
    cache = times.decode_s(sequences, occupied) - times.decode_s(sequences, 1.0)
    return times.decode_s(columns, 1.0) + cache


def mixed_s(
    times: StepTimes, tokens: Array, cached: Array, parallel: Array, occupied: Array, shared_pass: bool = True
) -> Array:
    """One step in which `parallel` ≥ 0 sequences decode a token each while `tokens` prompt tokens are prefilled.

    With a unified cache the decoding sequences ride in the prompt's micro-batches and add their columns and their cache
    reads; with a stream a sequence they get a micro-batch of their own (llama.cpp b11434, src/llama-kv-cache.cpp:
    init_batch; src/llama-batch.cpp: split_simple, split_equal). Never less than either part alone.
    """
    decoding = np.maximum(parallel, 1)
    busy = np.asarray(parallel) > 0
    decode = np.where(busy, times.decode_s(decoding, occupied), 0.0)
    if not shared_pass:
        return (times.prefill_s(tokens, cached) + decode)[()]
    cache = decode - np.where(busy, times.decode_s(decoding, 1.0), 0.0)
    together = times.prefill_s(tokens + np.asarray(parallel), cached) + cache
    return np.maximum(together, decode)[()]


def prompt_s(
    times: StepTimes,
    prompt: Array,
    chunk: Array,
    cached: Array = 0.0,
    parallel: Array = 0.0,
    occupied: Array = 1.0,
    shared_pass: bool = True,
) -> Array:
    """Seconds to read a prompt in chunks of at most `chunk` tokens, each sharing its step with `parallel` sequences."""
    shape = np.broadcast_shapes(*map(np.shape, (prompt, cached, chunk, parallel, occupied)))
    steps = list(chunks(np.broadcast_to(np.asarray(prompt, float), shape), chunk, cached))
    if not steps:
        return np.zeros(shape)[()]
    done = np.stack([np.broadcast_to(before, shape) for before, _ in steps])  # [steps, ...]
    tokens = np.stack([now for _, now in steps])
    seconds = mixed_s(times, np.maximum(tokens, 1.0), done, parallel, occupied, shared_pass)
    total: Array = np.where(tokens > 0, seconds, 0.0).sum(axis=0)[()]
    return total


def chunks(
    prompt: Array, chunk: Array, cached: Array = 0.0
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(tokens in the cache, tokens prefilled) of each step of a prompt; 0 prefilled where a shorter prompt is done."""
    done = np.asarray(cached, float)
    left = np.asarray(prompt, float) - done
    while np.any(left > 0):
        tokens = np.clip(left, 0.0, chunk)
        yield done, tokens
        done, left = done + tokens, left - tokens


@dataclass(frozen=True)
class StepTable:
    """Step times on a grid, linear between its points; scalars only, a microsecond a question."""

    occupied_step: float
    decode_rows: tuple[tuple[float, ...], ...]  # [parallel - 1][occupied]
    token_grid: tuple[float, ...]
    cached_step: float
    prefill_rows: tuple[tuple[float, ...], ...]  # [tokens][cached]
    shared_pass: bool

    def decode_s(self, parallel: int, occupied: float) -> float:
        """One decode step; none for no sequences."""
        return _along(self.decode_rows[parallel - 1], (occupied - 1.0) / self.occupied_step) if parallel else 0.0

    def prefill_s(self, tokens: float, cached: float) -> float:
        """Prefill of the tokens of one step."""
        grid, at = self.token_grid, cached / self.cached_step
        upper = min(max(bisect_right(grid, tokens), 1), len(grid) - 1)
        low, high = grid[upper - 1], grid[upper]
        first, second = _along(self.prefill_rows[upper - 1], at), _along(self.prefill_rows[upper], at)
        return first + (second - first) * (tokens - low) / (high - low)

    def mixed_s(self, tokens: int, cached: float, parallel: int, occupied: float) -> float:
        """One step shared by prefill and decode, as in `mixed_s`."""
        if not parallel:
            return self.prefill_s(tokens, cached)
        decode = self.decode_s(parallel, occupied)
        if not self.shared_pass:
            return self.prefill_s(tokens, cached) + decode
        cache = decode - self.decode_s(parallel, 1.0)
        return max(self.prefill_s(tokens + parallel, cached) + cache, decode)


def tabulate(
    times: StepTimes, *, parallel: int, longest: int, batch: int, ubatch: int, shared_pass: bool = True
) -> StepTable:
    """`times` on a grid for up to `parallel` sequences of up to `longest` positions and steps of up to `batch` tokens.

    Raises InputError if a time is not a positive finite number.
    """
    occupied = np.linspace(1.0, max(longest, 2), DECODE_GRID)
    cached = np.linspace(0.0, max(longest, 1), CACHED_GRID)
    tokens = np.array(token_grid(batch, ubatch))
    decode = _checked(
        times.decode_s(np.arange(1.0, parallel + 1)[:, None], occupied), "decode", (parallel, DECODE_GRID)
    )
    prefill = _checked(times.prefill_s(tokens[:, None], cached), "prefill", (len(tokens), CACHED_GRID))
    return StepTable(
        occupied_step=float(occupied[1] - occupied[0]),
        decode_rows=tuple(map(tuple, decode.tolist())),
        token_grid=tuple(tokens.tolist()),
        cached_step=float(cached[1]),
        prefill_rows=tuple(map(tuple, prefill.tolist())),
        shared_pass=shared_pass,
    )


def token_grid(batch: int, ubatch: int) -> list[float]:
    """Token counts where prefill times bend: small ones, and both sides of every whole micro-batch."""
    powers = [2**i for i in range(batch.bit_length())]
    halves = [3 * 2**i for i in range(batch.bit_length())]
    edges = [edge + after for edge in range(ubatch, batch + 1, ubatch) for after in (0, 1)]
    steps = range(0, batch + 1, max(batch // 32, 1))
    return sorted(float(n) for n in {*powers, *halves, *edges, *steps, batch, batch + 1} if 1 <= n <= batch + 1)


def _checked(values: Array, phase: str, shape: tuple[int, int]) -> NDArray[np.float64]:
    table = np.broadcast_to(np.asarray(values, float), shape)
    if not (np.isfinite(table).all() and (table > 0).all()):
        raise InputError(f"step times: every {phase} time must be positive and finite")
    return table


def _along(row: Sequence[float], at: float) -> float:
    """Linear between the points of a row, continued straight beyond its ends."""
    i = min(max(int(at), 0), len(row) - 2)
    return row[i] + (row[i + 1] - row[i]) * (at - i)
