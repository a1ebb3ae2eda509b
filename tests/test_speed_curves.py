"""The curves behind the charts, point by point against the estimate that they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmcalc.efficiency import Efficiency
from llmcalc.errors import InputError
from llmcalc.estimation import estimate_request
from llmcalc.memory import memory_plan
from llmcalc.memory_limits import max_parallel
from llmcalc.multi_device import decode_on, prefill_on
from llmcalc.placement_settings import PlacementSettings
from llmcalc.request import Request, resolve
from llmcalc.speed_curves import (
    batch_curve,
    context_grid,
    decode_curve,
    layers_curve,
    prefill_curve,
    prefill_depth_curve,
    sequence_grid,
    series_names,
)

PRIORS = Efficiency()


def request(**changes: object) -> Request:
    given: dict[str, object] = {"gpu": "rtx4090", "model": "llama3-8b", "quant": "q4", "ctx": "8k", "prompt": "2k"}
    return resolve(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("parallel", [1, 2])
def test_decode_curve_ends_where_the_estimate_does(parallel: int) -> None:
    asked = request(parallel=parallel)
    curve, e = decode_curve(asked, PRIORS), estimate_request(asked, PRIORS)
    for point, at in ((e.decode[0], 0), (e.decode[-1], -1)):
        assert curve.tokens[at] == point.occupied_tokens
        assert curve.tokens_per_s[at] == pytest.approx(point.tokens_per_s)
        assert (curve.low_80[at], curve.high_80[at]) == pytest.approx(point.interval_80)
        assert (curve.low_95[at], curve.high_95[at]) == pytest.approx(point.interval_95)
        assert curve.ceiling_tokens_per_s[at] == pytest.approx(point.ceiling_tokens_per_s)


def test_an_estimate_stands_for_its_request() -> None:
    asked = request()
    curves = decode_curve(asked, PRIORS), decode_curve(estimate_request(asked, PRIORS), PRIORS)
    assert np.array_equal(curves[0].tokens_per_s, curves[1].tokens_per_s)


def test_prefill_curve_is_prefill_of_whole_prompts_without_a_cached_prefix() -> None:
    asked = request(cached_prefix=512)
    curve = prefill_curve(asked, PRIORS)
    whole = prefill_on(asked, curve.tokens, PRIORS, np.zeros_like(curve.tokens))
    assert (curve.tokens[0], curve.tokens[-1]) == (16, 8192)
    assert np.allclose(curve.tokens_per_s, curve.tokens / whole.seconds)


def test_prefill_at_depth_counts_the_new_tokens_alone() -> None:
    asked = request()
    curve = prefill_depth_curve(asked, PRIORS)
    behind = prefill_on(asked, np.array([4096.0 + 512]), PRIORS, np.array([4096.0]))
    assert np.interp(4096, curve.tokens, curve.tokens_per_s) == pytest.approx(512 / behind.seconds[0], rel=0.01)
    assert curve.tokens[-1] == 8192 - 512 - 1


def test_batch_curve_shares_its_first_point_with_single_decode() -> None:
    asked = request()
    curve, e = batch_curve(asked, PRIORS, most=32, occupied=4095), decode_curve(asked, PRIORS)
    assert curve.tokens_per_s[0] == pytest.approx(np.interp(4095, e.tokens, e.tokens_per_s), rel=0.01)
    assert np.allclose(curve.tpot_s, curve.parallel / curve.tokens_per_s)
    assert np.all(curve.tpot_low_80 < curve.tpot_s)
    assert np.all(curve.tpot_s < curve.tpot_high_80)


def test_batch_curve_says_how_many_sequences_fit() -> None:
    asked = request()
    most = max_parallel(asked.model, asked.weights, asked.workload, asked.system).value
    assert batch_curve(asked, PRIORS).most_that_fit == most
    assert batch_curve(request(gpu=None, cpu="ryzen-9-7950x"), PRIORS).most_that_fit is None


def test_layers_curve_is_decode_with_each_ngl() -> None:
    asked = request(model="llama3-70b", gpu="rtx3090", cpu="ryzen-9-7950x", ram="128GiB")
    curve = layers_curve(asked, PRIORS)
    assert np.array_equal(curve.layers, np.arange(82))
    placed = replace(asked, settings=PlacementSettings(ngl=30))
    time = decode_on(placed, np.array([curve.occupied_tokens + 1.0]), PRIORS)
    assert curve.tokens_per_s[30] == pytest.approx(float(time.tokens_per_s[0]))
    assert np.all((curve.low_80 < curve.tokens_per_s) & (curve.tokens_per_s < curve.high_80))
    assert np.all(np.diff(curve.tokens_per_s) > 0)
    assert curve.most_that_fit is not None
    for ngl, fits in ((curve.most_that_fit, True), (curve.most_that_fit + 1, False)):
        one = replace(asked, settings=PlacementSettings(ngl=ngl))
        plan = memory_plan(one.model, one.weights, one.workload, one.system, one.placement)
        assert plan.devices[0].fits is fits


def test_layers_need_a_gpu() -> None:
    with pytest.raises(InputError, match="--gpu"):
        layers_curve(request(gpu=None, cpu="ryzen-9-7950x"), PRIORS)


@pytest.mark.parametrize("room", [1, 2, 100, 256, 2048, 8192, 131072, 1_000_000])
def test_context_grid_goes_from_empty_to_full(room: int) -> None:
    grid = context_grid(room, 65)
    assert grid[0] == 0
    assert grid[-1] == room - 1
    assert np.all(np.diff(grid) > 0)
    assert len(grid) <= 66


@pytest.mark.parametrize("most", [1, 2, 17, 64, 256])
def test_sequence_grid_is_whole_and_reaches_its_end(most: int) -> None:
    grid = sequence_grid(most)
    assert (grid[0], grid[-1]) == (1, most)
    assert np.array_equal(grid, np.unique(np.rint(grid)))


def test_names_say_what_differs() -> None:
    one, other = request(), request(gpu="rtx3090")
    assert series_names([one]) == ["Llama 3 8B · Q4_K_M · GeForce RTX 4090"]
    assert series_names([one, other]) == ["GeForce RTX 4090", "GeForce RTX 3090"]
    assert series_names([one, request(quant="q8")]) == ["Q4_K_M", "Q8_0"]
    assert series_names([one, request(gpu="rtx3090", quant="q8")]) == [
        "Q4_K_M · GeForce RTX 4090",
        "Q8_0 · GeForce RTX 3090",
    ]
    assert series_names([one, request(backend="Vulkan")]) == ["CUDA", "Vulkan"]
