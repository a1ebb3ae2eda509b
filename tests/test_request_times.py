"""Step times of real requests: the same figures as the estimate, and serving that starts from them."""

from __future__ import annotations

import numpy as np
import pytest

from llmcalc.estimation import estimate_request
from llmcalc.lengths import FixedLength, IndependentLengths, LogNormalLength
from llmcalc.request import Request, resolve
from llmcalc.request_times import RequestTimes
from llmcalc.serving import server_of
from llmcalc.serving_simulation import poisson_requests, simulate
from llmcalc.serving_theory import predict, service_profile


def request(**given: object) -> Request:
    return resolve(**{"model": "llama3.1-8b", "gpu": "rtx4090", "ctx": 32768, "kv_unified": True, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("gpus", ["rtx4090", ["rtx4090", "rtx3090"]])
def test_steps_are_those_of_the_estimate(gpus: object) -> None:
    asked = request(gpu=gpus, parallel=4, prompt=1000, cached_prefix=200)
    times, whole = RequestTimes(asked), estimate_request(asked)
    for point in whole.decode:
        assert times.decode_s(4, point.occupied_tokens + 1) == pytest.approx(point.tpot_s)
    assert times.prefill_s(800, 200) == pytest.approx(whole.prefill[0].seconds)


def test_steps_broadcast() -> None:
    times = RequestTimes(request())
    grid = times.decode_s(np.arange(1.0, 5.0)[:, None], np.array([100.0, 4000.0]))
    assert np.shape(grid) == (4, 2)
    assert grid[2, 1] == pytest.approx(times.decode_s(3, 4000))  # type: ignore[index]
    assert np.shape(times.prefill_s(np.array([10.0, 600.0]), 0.0)) == (2,)


def test_an_idle_server_gives_the_single_stream_estimate() -> None:
    asked = request(prompt=700, output=101, parallel=4)
    lengths = IndependentLengths(FixedLength(700), FixedLength(101))
    single = estimate_request(request(prompt=700, output=101)).latency
    server = server_of(asked.workload)
    report = predict(service_profile(lengths, server, RequestTimes(asked)), 1e-4)
    run = simulate(poisson_requests(1e-4, lengths, 20), server, RequestTimes(asked)).report()
    for one in (report, run):
        assert one.ttft_s.mean == pytest.approx(single.prefill_s, rel=0.01)
        assert one.tpot_s.mean == pytest.approx(single.itl_s, rel=0.02)


def test_theory_and_simulation_agree_on_a_real_machine() -> None:
    asked = request(parallel=4)
    lengths = IndependentLengths(LogNormalLength.from_mean(1000, 1), LogNormalLength.from_mean(300, 0.8))
    server, times = server_of(asked.workload), RequestTimes(asked)
    profile = service_profile(lengths, server, times)
    rate = profile.capacity_per_s / 2
    theory, run = predict(profile, rate), simulate(poisson_requests(rate, lengths, 5000), server, times).report()
    assert run.aggregate_tokens_per_s == pytest.approx(theory.aggregate_tokens_per_s, rel=0.1)
    for time in ("ttft_s", "tpot_s", "end_to_end_s"):
        assert getattr(run, time).mean == pytest.approx(getattr(theory, time).mean, rel=0.1), time


@pytest.mark.parametrize("model", ["llama3.1-8b", "qwen3-30b-a3b"])
def test_aggregate_rate_grows_with_the_batch(model: str) -> None:
    sequences = np.arange(1.0, 33.0)
    rates = sequences / RequestTimes(request(model=model)).decode_s(sequences, 1000.0)
    assert (np.diff(rates[:8]) > 0).all()  # matrix-vector kernels
    assert (np.diff(rates[8:]) > 0).all()  # matrix-matrix kernels
