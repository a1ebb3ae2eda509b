"""What theory and simulation share: settings, percentiles, the search for the largest rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_times import LinearTimes

from llmcalc.errors import InputError
from llmcalc.lengths import FixedLength, IndependentLengths, LogNormalLength
from llmcalc.serving import Server, ServingReport, Slo, largest_rate, percentiles, server_of
from llmcalc.serving_simulation import poisson_requests, simulate, step_table
from llmcalc.serving_theory import predict, service_profile
from llmcalc.workload import Workload

TIMES = LinearTimes()
LENGTHS = IndependentLengths(LogNormalLength.from_mean(600, 1), LogNormalLength.from_mean(200, 0.8))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.lists(st.integers(1, 5), min_size=30, max_size=30))
def test_weights_are_repetitions(values: list[int], counts: list[int]) -> None:
    weights = counts[: len(values)]
    weighted, repeated = percentiles(values, weights), percentiles(np.repeat(values, weights))
    assert weighted.mean == pytest.approx(repeated.mean)
    assert (weighted.p50, weighted.p95, weighted.p99) == (repeated.p50, repeated.p95, repeated.p99)


def test_nothing_measured_is_nan() -> None:
    assert math.isnan(percentiles([]).p99)


def test_server_of_a_workload() -> None:
    shared = server_of(Workload(context=32768, parallel=4, kv_unified=True))
    assert (shared.slots, shared.kv_cells, shared.slot_cells) == (4, 32768, 32768)
    apart = server_of(Workload(context=32768, parallel=4))
    assert (apart.kv_cells, apart.slot_cells) == (32768, 8192)
    assert server_of(Workload(context=300, parallel=1)).batch == 300


@pytest.mark.parametrize("slo", [Slo(ttft_s=1.5), Slo(tpot_s=0.012), Slo(ttft_s=1.0, tpot_s=0.015, share=0.9)])
def test_largest_rate_is_the_edge_in_theory(slo: Slo) -> None:
    profile = service_profile(LENGTHS, Server(slots=8), TIMES)
    best = largest_rate(lambda rate: predict(profile, rate, slo), profile.capacity_per_s * 0.999)
    assert best is not None
    assert best.meets_slo
    assert best.goodput_per_s == pytest.approx(best.arrival_rate_per_s * best.slo_share)
    assert not predict(profile, best.arrival_rate_per_s * 1.05, slo).meets_slo


def test_largest_rate_by_simulation_is_near_theory() -> None:
    slo, server = Slo(ttft_s=1.5, share=0.9), Server(slots=4)
    profile, table = service_profile(LENGTHS, server, TIMES), step_table(server, TIMES, 20_000)

    def simulated(rate: float) -> ServingReport:
        return simulate(poisson_requests(rate, LENGTHS, 4000), server, table).report(slo)

    top = profile.capacity_per_s * 0.999
    found, predicted = largest_rate(simulated, top), largest_rate(lambda r: predict(profile, r, slo), top)
    assert found is not None
    assert predicted is not None
    assert found.arrival_rate_per_s == pytest.approx(predicted.arrival_rate_per_s, rel=0.1)


def test_an_objective_that_no_rate_meets() -> None:
    profile = service_profile(IndependentLengths(FixedLength(5000), FixedLength(10)), Server(), TIMES)
    assert largest_rate(lambda rate: predict(profile, rate, Slo(ttft_s=0.5)), profile.capacity_per_s) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Server(slots=0), "slots: must be at least 1"),
        (lambda: Server(slots=8, batch=8), "leave no room for prompts"),
        (lambda: Server(kv_cells=1), "kv_cells"),
        (lambda: Slo(ttft_s=0), "above 0 s"),
        (lambda: Slo(share=0), "share of requests"),
    ],
)
def test_nonsense_is_refused(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()  # type: ignore[operator]


def test_a_report_without_objective_has_no_verdict() -> None:
    report = predict(service_profile(LENGTHS, Server(), TIMES), 0.1)
    assert report.goodput_per_s is None
    with pytest.raises(InputError, match="no objective"):
        _ = report.meets_slo
