"""Sweeps by look-up give the figures of the time model, point by point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import llmcalc
from llmcalc.distinct import SHORT, decode_seconds, over_distinct, prefill_seconds

DEVICE = llmcalc.find_device("rtx4090")
MODEL = llmcalc.find_model("gemma3-4b")
FILE = llmcalc.weights(MODEL, "q4")
POINTS = np.random.default_rng(1).integers(1, 900, 4 * SHORT).astype(float)


def test_decode_over_context_and_parallel() -> None:
    at = (MODEL, FILE, DEVICE, "CUDA")
    expected = llmcalc.decode_time(*at, occupied=POINTS).seconds
    assert np.array_equal(decode_seconds(*at, occupied=POINTS), expected)
    expected = llmcalc.decode_time(*at, occupied=512.0, parallel=POINTS).seconds
    assert np.array_equal(decode_seconds(*at, occupied=512.0, parallel=POINTS), expected)
    assert decode_seconds(*at, occupied=512.0) == llmcalc.decode_time(*at, occupied=512.0).seconds


def test_prefill_over_prompt_and_cache() -> None:
    at = (MODEL, FILE, DEVICE, "CUDA")
    expected = llmcalc.prefill_time(*at, prompt=POINTS).seconds
    assert np.allclose(prefill_seconds(*at, prompt=POINTS), expected, rtol=1e-14)
    expected = llmcalc.prefill_time(*at, prompt=64.0, cached=POINTS).seconds
    assert np.allclose(prefill_seconds(*at, prompt=64.0, cached=POINTS), expected, rtol=1e-14)


@pytest.mark.parametrize("scale", [1, 0.5, 10**6])
def test_fractions_and_wide_ranges_are_evaluated_as_they_are(scale: float) -> None:
    square: Callable[[np.ndarray], np.ndarray] = np.square
    assert np.array_equal(over_distinct(square, POINTS * scale), np.square(POINTS * scale))


def test_distinct_values_are_evaluated_once() -> None:
    seen: list[int] = []

    def evaluate(values: np.ndarray) -> np.ndarray:
        seen.append(values.size)
        return values

    over_distinct(evaluate, POINTS)
    assert sum(seen) == POINTS.max() - POINTS.min() + 1


def test_one_array_at_a_time() -> None:
    with pytest.raises(ValueError, match="only one argument may be an array"):
        decode_seconds(MODEL, FILE, DEVICE, "CUDA", occupied=POINTS, parallel=POINTS)
