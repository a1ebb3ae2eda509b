"""The simulator against textbook queues, its own bookkeeping, and theory at moderate load."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_times import LinearTimes

from llmcalc.errors import InputError
from llmcalc.lengths import FixedLength, IndependentLengths, LogNormalLength, RequestLengths, TracedLengths
from llmcalc.serving import Server, Slo
from llmcalc.serving_simulation import Requests, Simulation, Users, poisson_requests, simulate, traced_requests
from llmcalc.serving_theory import predict, service_profile
from llmcalc.traces import Trace

TIMES = LinearTimes()
PREFILL_ONLY = LinearTimes(prompt_pass_s=1e-9, prompt_token_s=1e-3)
STEADY_STEP = LinearTimes(pass_s=0.01, token_s=0, cell_s=0, prompt_pass_s=1e-9, prompt_token_s=1e-9)
SHARED_STEP = LinearTimes(pass_s=1e-9, token_s=0.01, cell_s=0, prompt_pass_s=1e-9, prompt_token_s=1e-9)
FIXED = IndependentLengths(FixedLength(512), FixedLength(256))
LENGTHS = IndependentLengths(LogNormalLength.from_mean(600, 1), LogNormalLength.from_mean(200, 0.8))


def geometric(mean: float, count: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).geometric(1 / mean, count)


def requests(rate: float, prompts: np.ndarray, outputs: np.ndarray) -> Requests:
    arrivals = np.random.default_rng(7).exponential(1 / rate, len(prompts)).cumsum()
    return Requests(arrivals, prompts, outputs)


def waits(run: Simulation) -> float:
    return float((run.started_s - run.arrivals_s)[len(run.prompts) // 10 :].mean())


@pytest.mark.parametrize(("name", "cv2"), [("M/D/1", 0.0), ("M/M/1", 1.0), ("M/G/1", 0.25)])
@pytest.mark.parametrize("load", [0.3, 0.6])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(name: str, cv2: float, load: float) -> None:
    count = 60_000
    prompts = {
        "M/D/1": np.full(count, 1000),
        "M/M/1": geometric(1000, count),
        "M/G/1": LogNormalLength.from_mean(1000, 0.5).sample(np.random.default_rng(5), count),
    }[name]
    run = simulate(requests(load, prompts, np.ones(count, np.int64)), Server(slots=1), PREFILL_ONLY)
    assert waits(run) == pytest.approx(load / (1 - load) * (1 + cv2) / 2, rel=0.06)
    assert run.report().utilisation == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (8, 0.8)])
def test_steps_of_constant_time_are_parallel_servers(servers: int, load: float) -> None:
    # Erlang's formula for M/M/k: each slot serves one request at a time, 10 ms a token.
    count, mean = 60_000, 100
    run = simulate(
        requests(load * servers / (mean * 0.01), np.ones(count, np.int64), geometric(mean, count)),
        Server(slots=servers),
        STEADY_STEP,
    )
    offered = load * servers
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    expected = last / (sum(terms) + last) * mean * 0.01 / (servers * (1 - load))
    half_a_step = 0.005
    assert waits(run) == pytest.approx(expected + half_a_step, rel=0.1)


@pytest.mark.parametrize("cv", [0.0, 1.5])
def test_steps_that_grow_with_the_batch_are_processor_sharing(cv: float) -> None:
    # In processor sharing the mean stay does not depend on the spread of lengths.
    count, load, mean = 30_000, 0.6, 50
    outputs = LogNormalLength.from_mean(mean, cv).sample(np.random.default_rng(2), count)
    run = simulate(
        requests(load / (mean * 0.01), np.ones(count, np.int64), outputs), Server(slots=200, batch=2048), SHARED_STEP
    )
    stay = (run.finished_s - run.arrivals_s)[count // 10 :].mean()
    assert stay == pytest.approx(mean * 0.01 / (1 - load), rel=0.08)


@pytest.mark.parametrize("lengths", [FIXED, LENGTHS], ids=["fixed", "log-normal"])
@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize("load", [0.2, 0.4, 0.6, 0.8])
def test_theory_and_simulation_agree(lengths: RequestLengths, slots: int, load: float) -> None:
    # Beyond 4 slots and half of the load, requests of one length bunch more than the chain knows.
    server = Server(slots=slots)
    profile = service_profile(lengths, server, TIMES)
    rate = load * profile.capacity_per_s
    theory = predict(profile, rate)
    run = simulate(poisson_requests(rate, lengths, 30_000, seed=6), server, TIMES).report()
    for figure in ("utilisation", "aggregate_tokens_per_s", "prompt_tokens_per_s", "user_tokens_per_s"):
        assert getattr(run, figure) == pytest.approx(getattr(theory, figure), rel=0.05), figure
    near = 0.1 if slots <= 4 or load < 0.5 else 0.25
    assert run.ttft_s.mean == pytest.approx(theory.ttft_s.mean, rel=near)
    for time in ("tpot_s", "end_to_end_s", "itl_s"):
        assert getattr(run, time).mean == pytest.approx(getattr(theory, time).mean, rel=0.1), time
    assert abs(run.queue_s.mean - theory.queue_s.mean) < near * run.ttft_s.mean
    for share in ("p50", "p95"):
        assert getattr(run.tpot_s, share) == pytest.approx(getattr(theory.tpot_s, share), rel=0.12), share
        assert getattr(run.ttft_s, share) == pytest.approx(getattr(theory.ttft_s, share), rel=near + 0.05), share


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 9),
    st.floats(0.2, 20),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([None, 4000, 40_000]),
    st.sampled_from([None, 3]),
)
def test_the_books_balance(
    slots: int, rate: float, seed: int, unified: bool, cells: int | None, users: int | None
) -> None:
    server = Server(slots=slots, kv_cells=cells, unified=unified, batch=512)
    asked = poisson_requests(rate, LENGTHS, 300, seed)
    run = simulate(asked, server, TIMES, None if users is None else Users(users, think_s=0.5))
    served = ~np.isnan(run.finished_s)
    # Every request is served, or its prompt fits in no slot.
    limit = server.slot_cells
    assert (served == (np.ones(300, bool) if limit is None else run.prompts < limit)).all()
    assert sorted(run.prompts) == sorted(asked.prompts)
    # In order: arrival, slot, first token, last token; first come, first served.
    assert (np.diff(run.arrivals_s) >= 0).all()
    assert (np.diff(run.started_s[served]) >= 0).all()
    assert (run.arrivals_s[served] <= run.started_s[served]).all()
    assert (run.started_s[served] < run.first_token_s[served]).all()
    assert (run.finished_s[served] >= run.first_token_s[served]).all()
    # Tokens: every output token but the first is a decode step of its sequence.
    assert run.itl_tokens.sum() == (run.outputs[served] - 1).sum()
    # Little's law: time integral of the requests in the system = sum of their stays.
    stays = (run.finished_s - run.arrivals_s)[served].sum()
    assert run.request_seconds == pytest.approx(stays, rel=1e-6)
    # Never more requests in slots than there are slots, nor more positions than cells.
    edges = np.concatenate((run.started_s[served], run.finished_s[served]))
    order = np.lexsort((np.repeat([1, 0], served.sum()), edges))
    in_slots = np.cumsum(np.repeat([1, -1], served.sum())[order])
    assert in_slots.max() <= slots
    if cells is not None:
        held = (run.prompts + run.outputs)[served]
        positions = np.cumsum(np.concatenate((held, -held))[order])
        assert positions.max() <= cells


def test_a_single_request_is_the_single_stream() -> None:
    run = simulate(Requests(np.zeros(1), np.array([3000]), np.array([101])), Server(), TIMES)
    prefill = TIMES.prefill_s(2048, 0) + TIMES.prefill_s(952, 2048)
    decode = sum(TIMES.decode_s(1, 3000 + i) for i in range(2, 102))
    assert run.first_token_s[0] == pytest.approx(prefill)
    assert run.finished_s[0] == pytest.approx(prefill + decode)


def test_tokens_wait_while_another_prompt_is_read() -> None:
    asked = Requests(np.array([0.0, 0.5]), np.array([100, 6000]), np.array([500, 1]))
    run = simulate(asked, Server(slots=2), TIMES)
    longest = run.itl_s[run.itl_s > 0.1]
    assert len(longest) == 3  # 6000 tokens in chunks of 2047
    assert longest.max() > TIMES.prefill_s(2047, 0)
    alone = simulate(asked, Server(slots=1), TIMES)
    assert alone.itl_s.max() < 0.01
    assert alone.first_token_s[1] > run.first_token_s[1]


@given(st.integers(1, 15))
@settings(max_examples=8, deadline=None)
def test_saturated_rate_grows_with_slots(slots: int) -> None:
    asked = Requests(np.zeros(200), np.full(200, 100), np.full(200, 50))
    few, many = (simulate(asked, Server(slots=n), TIMES).report() for n in (slots, slots + 1))
    assert many.aggregate_tokens_per_s > few.aggregate_tokens_per_s
    assert many.user_tokens_per_s < few.user_tokens_per_s


def test_users_wait_for_answers() -> None:
    lengths = IndependentLengths(FixedLength(200), FixedLength(50))
    run = simulate(poisson_requests(1, lengths, 400), Server(slots=8), TIMES, Users(5, think_s=1.0))
    report = run.report()
    # Users are either thinking or in the system (response time law of closed queueing networks).
    assert report.completed_per_s * (report.end_to_end_s.mean + 1.0) == pytest.approx(5, rel=0.1)
    assert report.in_system <= 5


def test_rejected_and_cut_requests_are_counted() -> None:
    asked = Requests(np.array([0.0, 1.0, 2.0]), np.array([5000, 900, 100]), np.array([10, 500, 10]))
    run = simulate(asked, Server(slots=2, kv_cells=2000, unified=False), TIMES)
    report = run.report(Slo(ttft_s=10), warm_up=0)
    assert (report.rejected, report.truncated) == (1, 1)
    assert run.outputs.tolist() == [10, 100, 10]
    assert report.slo_share == pytest.approx(2 / 3)


def test_one_seed_is_one_run_and_scales_with_the_rate() -> None:
    a, b = poisson_requests(1, LENGTHS, 500, 4), poisson_requests(2, LENGTHS, 500, 4)
    assert a.arrivals_s == pytest.approx(2 * b.arrivals_s)
    assert (a.prompts == b.prompts).all()
    first, second = (simulate(a, Server(), TIMES) for _ in range(2))
    assert (first.finished_s == second.finished_s).all()


def test_traces_replay_at_their_times() -> None:
    trace = Trace(TracedLengths((100, 200), (5, 6)), (0.0, 3.0))
    run = simulate(traced_requests(trace, speed=2), Server(), TIMES)
    assert run.arrivals_s.tolist() == [0.0, 1.5]
    with pytest.raises(InputError, match="no arrival times"):
        traced_requests(Trace(trace.lengths))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Requests(np.zeros(2), np.ones(1, np.int64), np.ones(2, np.int64)),
        lambda: Requests(np.array([1.0, 0.0]), np.ones(2, np.int64), np.ones(2, np.int64)),
        lambda: Requests(np.zeros(1), np.zeros(1, np.int64), np.ones(1, np.int64)),
        lambda: poisson_requests(0, LENGTHS, 5),
        lambda: Users(0),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
