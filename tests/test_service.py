"""A model on a machine as a service: what it says at the ends is what the estimate says, and in between adds up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from llmcalc.errors import InputError
from llmcalc.estimation import TOKENISATION_TOKENS_PER_S, estimate
from llmcalc.request import Request, resolve
from llmcalc.service import LOADS, Load, Service, load_of, serve
from llmcalc.serving import Slo

PROMPT, OUTPUT = 700, 200


def request(slots: int = 4, **given: object) -> Request:
    usual = {"gpu": "rtx4090", "model": "llama3-8b", "quant": "q4", "output": 1, "kv_unified": True}
    return resolve(**(usual | {"ctx": 8192 * slots, "parallel": slots} | given))  # type: ignore[arg-type]


def test_one_slot_that_is_hardly_used_is_the_single_stream_estimate() -> None:
    e = estimate(gpu="rtx4090", model="llama3-8b", quant="q4", ctx=8192, prompt=PROMPT, output=OUTPUT)
    load = load_of(PROMPT, OUTPUT, rate_per_s=1e-3)
    service = serve(request(1), load, simulated=200)
    for report in (service.theory, service.simulation):
        assert report is not None
        first_s = e.latency.prefill_s  # the first token comes of the prompt's own pass
        assert report.ttft_s.p50 == pytest.approx(first_s, rel=0.02)
        assert report.tpot_s.p50 == pytest.approx(e.latency.itl_s, rel=0.01)
        whole = e.latency.end_to_end_s - PROMPT / TOKENISATION_TOKENS_PER_S - e.latency.first_step_s
        assert report.end_to_end_s.p50 == pytest.approx(whole, rel=0.01)
        assert report.user_tokens_per_s == pytest.approx(1 / e.latency.itl_s, rel=0.01)


def test_all_slots_taken_decode_as_the_estimate_says() -> None:
    service = serve(request(8), load_of(PROMPT, OUTPUT))
    e = estimate(gpu="rtx4090", model="llama3-8b", quant="q4", ctx=8192 * 8, parallel=8, prompt=PROMPT, output=OUTPUT)
    everyday = e.decode[1]
    assert everyday.occupied_tokens == PROMPT + OUTPUT // 2
    # The estimate is for one occupancy, of which whole blocks of the cache are read; a server meets all of them.
    assert service.profile.decode_step_s[-1] == pytest.approx(everyday.tpot_s, rel=0.03)
    assert service.profile.parallel[-1] / service.profile.decode_step_s[-1] == pytest.approx(
        everyday.aggregate_tokens_per_s, rel=0.03
    )


def test_theory_and_simulation_agree_at_low_load() -> None:
    service = serve(request(4), load_of("mean=700,cv=0.8", "mean=200,cv=0.5", rate_per_s=0.5), simulated=3000, seed=3)
    assert service.theory is not None
    assert service.simulation is not None
    assert service.simulation.tpot_s.mean == pytest.approx(service.theory.tpot_s.mean, rel=0.1)
    assert service.simulation.utilisation == pytest.approx(service.theory.utilisation, rel=0.1)
    assert service.simulation.aggregate_tokens_per_s == pytest.approx(service.theory.aggregate_tokens_per_s, rel=0.1)


def test_it_says_where_the_simulation_is_to_be_trusted() -> None:
    apart = serve(request(16), load_of(512, 256, rate_per_s=3.6), simulated=40_000, seed=6)
    assert apart.deviations
    worst = apart.deviations[0]
    assert all(abs(one.relative) > 0.1 for one in apart.deviations)
    assert "trust the simulation" in " ".join(repr(apart).split())
    assert f"up to {abs(worst.relative):.0%}" in " ".join(repr(apart).split())
    assert apart.to_dict()["deviations"][0]["relative"] == worst.relative
    close = serve(request(1), load_of(512, 256, rate_per_s=0.2), simulated=20_000, seed=6)
    assert not close.deviations
    assert "agree within 10%" in " ".join(repr(close).split())


def test_the_largest_rate_is_checked_by_simulation() -> None:
    slo = Slo(ttft_s=1.0, share=0.9)
    service = serve(request(4), load_of(PROMPT, OUTPUT), slo=slo, simulated=5000)
    theory, simulation = service.checks[-1]
    assert theory is service.largest
    assert simulation.slo_share == pytest.approx(0.9, abs=0.05)
    assert service.checks[0][0] is service.loads[3]


def test_loads_are_shown_without_a_rate() -> None:
    service = serve(request(4), load_of(PROMPT, OUTPUT))
    assert [one.arrival_rate_per_s / service.capacity_per_s for one in service.loads] == pytest.approx(LOADS)
    waits = [one.ttft_s.p95 for one in service.loads]
    assert waits == sorted(waits)
    assert service.theory is service.simulation is None


def test_overload_is_said() -> None:
    service = serve(request(2), load_of(PROMPT, OUTPUT, rate_per_s=1000.0))
    assert service.overloaded
    assert service.theory is None
    assert "grows without end" in " ".join(repr(service).split())


def test_the_largest_rate_meets_the_objective() -> None:
    slo = Slo(ttft_s=1.0, tpot_s=0.02)
    service = serve(request(8), load_of(PROMPT, OUTPUT, rate_per_s=0.5), slo=slo)
    assert service.largest is not None
    best = service.largest.arrival_rate_per_s
    assert 0.5 < best < service.capacity_per_s
    at = serve(request(8), load_of(PROMPT, OUTPUT, rate_per_s=best), slo=slo).theory
    beyond = serve(request(8), load_of(PROMPT, OUTPUT, rate_per_s=best * 1.05), slo=slo).theory
    assert at is not None
    assert at.meets_slo
    assert beyond is None or not beyond.meets_slo
    assert "The largest rate" in repr(service)
    impossible = serve(request(8), load_of(PROMPT, OUTPUT), slo=Slo(tpot_s=1e-4))
    assert impossible.largest is None
    assert "Not even" in repr(impossible)


def test_users_wait_for_their_answers() -> None:
    service = serve(request(4), load_of(PROMPT, OUTPUT, users=3, think_s=5.0), simulated=600)
    report = service.simulation
    assert report is not None
    assert report.in_system <= 3
    each_s = report.end_to_end_s.mean + 5.0
    assert report.completed_per_s == pytest.approx(3 / each_s, rel=0.1)
    assert service.theory is None


def test_a_trace_brings_lengths_and_times(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"{i * 2.0},{300 + i},{50 + i}" for i in range(40)]
    path.write_text("arrival_s,prompt,output\n" + "\n".join(rows), encoding="utf-8")
    load = load_of(trace=path)
    assert load.rate_per_s == pytest.approx(0.5)
    service = serve(request(4), load, simulated=40)
    assert service.simulation is not None
    assert service.simulation.arrival_rate_per_s == pytest.approx(0.5)
    assert service.simulation.aggregate_tokens_per_s == pytest.approx(sum(range(50, 90)) / 79, rel=0.02)


def test_lengths_are_cut_at_the_cache() -> None:
    load = load_of("mean=5000,cv=2", 100, longest=8192)
    assert isinstance(load, Load)
    assert load.lengths.points()[0].max() <= 8192
    with pytest.raises(InputError, match="hold no mean request"):
        serve(request(1, ctx=512), load_of(2000, 100))


@pytest.fixture(scope="module")
def service() -> Service:
    return serve(request(4), load_of(PROMPT, OUTPUT, rate_per_s=1.0), slo=Slo(ttft_s=2.0), simulated=300)


def test_pages_and_data(service: Service) -> None:
    lines = repr(service).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("By theory") for line in lines)
    assert any(line.startswith("By simulation") for line in lines)
    data = json.loads(json.dumps(service.to_dict(), allow_nan=False))
    assert data["theory"]["goodput_per_s"] <= 1.0
    assert data["theory"]["slo"] == {"ttft_s": 2.0, "tpot_s": None, "share": 0.95}
    assert data["capacity_per_s"] == service.capacity_per_s
    assert math.isfinite(data["simulation"]["ttft_s"]["p99"])


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(InputError, match="at least 10 requests"):
        serve(request(2), load_of(PROMPT, OUTPUT, rate_per_s=0.5), simulated=3)
