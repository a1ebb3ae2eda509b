"""The chain against textbook queues, and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_times import LinearTimes

from llmcalc.errors import InputError
from llmcalc.lengths import FixedLength, IndependentLengths, LogNormalLength
from llmcalc.serving import Server, Slo
from llmcalc.serving_chain import occupancy
from llmcalc.serving_theory import predict, service_profile

TIMES = LinearTimes()
LENGTHS = IndependentLengths(LogNormalLength.from_mean(600, 1), LogNormalLength.from_mean(200, 0.8))
loads = st.floats(0.01, 0.98)


def erlang_c(servers: int, offered: float) -> float:
    """Probability of waiting in M/M/k."""
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@given(loads, st.integers(1, 40))
def test_equal_servers_are_erlang_c(load: float, servers: int) -> None:
    rate, service_s = load * servers, 1.0
    state = occupancy(rate, np.arange(1, servers + 1) / service_s)
    wait = erlang_c(servers, rate * service_s)
    assert state.wait_probability == pytest.approx(wait, rel=1e-9)
    assert state.waiting == pytest.approx(wait * load / (1 - load), rel=1e-9)
    assert state.served == pytest.approx(rate * service_s, rel=1e-9)


@given(loads, st.integers(1, 200))
def test_one_rate_for_any_number_is_processor_sharing(load: float, slots: int) -> None:
    state = occupancy(load, np.ones(slots))
    assert state.utilisation == pytest.approx(load)
    assert state.served + state.waiting == pytest.approx(load / (1 - load), rel=1e-6)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("load", [0.2, 0.7, 0.95])
def test_one_slot_is_pollaczek_khinchine(cv: float, load: float) -> None:
    prefill_only = LinearTimes(prompt_pass_s=1e-12, prompt_token_s=1e-3)
    lengths = IndependentLengths(LogNormalLength.from_mean(1000, cv), FixedLength(1))
    profile = service_profile(lengths, Server(slots=1), prefill_only)
    report = predict(profile, load * profile.capacity_per_s)
    mean_s = 1 / profile.capacity_per_s
    assert report.queue_s.mean == pytest.approx(load / (1 - load) * mean_s * (1 + cv**2) / 2, rel=0.03)
    assert report.utilisation == pytest.approx(load)
    assert math.isnan(report.tpot_s.mean)


def test_an_idle_server_is_the_single_stream() -> None:
    lengths = IndependentLengths(FixedLength(700), FixedLength(101))
    report = predict(service_profile(lengths, Server(slots=8), TIMES), 1e-6)
    prefill = TIMES.prefill_s(700, 0)
    assert report.ttft_s.mean == pytest.approx(prefill, rel=1e-4)
    assert report.tpot_s.mean == pytest.approx(TIMES.decode_s(1, 700 + 50.5), rel=1e-4)
    assert report.end_to_end_s.p99 == pytest.approx(prefill + 100 * report.tpot_s.mean, rel=1e-3)
    assert report.user_tokens_per_s == pytest.approx(1 / report.tpot_s.mean)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 0.9), st.floats(1.02, 1.09), st.sampled_from([1, 2, 8, 32]))
def test_load_makes_nothing_better(load: float, more: float, slots: int) -> None:
    profile = service_profile(LENGTHS, Server(slots=slots), TIMES)
    slo = Slo(ttft_s=1, tpot_s=0.02)
    light, heavy = (predict(profile, load * f * profile.capacity_per_s, slo) for f in (1, more))
    assert heavy.ttft_s.mean > light.ttft_s.mean
    assert heavy.ttft_s.p95 >= light.ttft_s.p95 * 0.98  # distributions stand on a few hundred values
    assert heavy.in_system > light.in_system
    assert heavy.utilisation > light.utilisation
    assert heavy.aggregate_tokens_per_s > light.aggregate_tokens_per_s
    assert heavy.tpot_s.mean >= light.tpot_s.mean * (1 - 1e-9)
    assert heavy.slo_share <= light.slo_share + 5e-3  # type: ignore[operator]


@given(st.floats(1e-3, 0.05), st.floats(0, 2e-3), st.integers(2, 64))
def test_capacity_grows_with_slots_while_steps_grow_less_than_their_batch(
    pass_s: float, token_s: float, slots: int
) -> None:
    times = LinearTimes(pass_s=pass_s, token_s=token_s, prompt_token_s=1e-5)
    lengths = IndependentLengths(FixedLength(100), FixedLength(200))
    few, many = (service_profile(lengths, Server(slots=n), times).capacity_per_s for n in (slots - 1, slots))
    assert many > few


@settings(max_examples=25, deadline=None)
@given(loads)
def test_reports_obey_little(load: float) -> None:
    profile = service_profile(LENGTHS, Server(slots=6), TIMES)
    report = predict(profile, load * profile.capacity_per_s)
    assert report.in_system == pytest.approx(report.arrival_rate_per_s * report.end_to_end_s.mean)
    assert report.waiting == pytest.approx(report.arrival_rate_per_s * report.queue_s.mean)
    for time in (report.ttft_s, report.tpot_s, report.itl_s, report.end_to_end_s):
        assert time.p50 <= time.p95 <= time.p99


def test_cache_limits_slots() -> None:
    free = service_profile(LENGTHS, Server(slots=32), TIMES)
    tight = service_profile(LENGTHS, Server(slots=32, kv_cells=8192), TIMES)
    assert (free.slots, tight.slots) == (32, 10)  # a mean request has 800 tokens
    assert tight.capacity_per_s < free.capacity_per_s
    assert "10 mean requests" in tight.notes[0]


def test_a_cached_system_prompt_raises_capacity() -> None:
    plain, cached = (service_profile(LENGTHS, Server(cached_prefix=n), TIMES).capacity_per_s for n in (0, 300))
    assert cached > plain


def test_tokens_wait_for_prompts_of_others() -> None:
    report = predict(service_profile(LENGTHS, Server(slots=32), TIMES), 4.0)
    chunk = TIMES.prefill_s(600, 0)
    assert report.itl_s.p50 < 0.01 < chunk < report.itl_s.p99


@pytest.mark.parametrize("load", [0.0, 1.0, 1.5])
def test_rates_without_steady_state_are_refused(load: float) -> None:
    profile = service_profile(LENGTHS, Server(), TIMES)
    with pytest.raises(InputError, match="below the capacity of"):
        predict(profile, load * profile.capacity_per_s)


def test_a_cache_too_small_for_a_request_is_refused() -> None:
    with pytest.raises(InputError, match="hold no mean request of 800 tokens"):
        service_profile(LENGTHS, Server(kv_cells=512), TIMES)


def erlang_service(load: float, prefill_s: float, output_s: float, slots: int) -> float:
    """Mean wait in the chain when every request has a prefill and an output."""
    decoded = np.arange(1, slots + 1) / output_s
    rate = load / (prefill_s + 1 / decoded[-1])
    return occupancy(rate, decoded, prefill_s, 3).waiting / rate


@given(loads, st.floats(0.01, 2.0))
def test_one_slot_with_prompts_is_pollaczek_khinchine(load: float, prefill_s: float) -> None:
    # Service is an Erlang-3 prefill and an exponential output.
    mean, variance = prefill_s + 1.0, prefill_s**2 / 3 + 1.0
    wait = load / (1 - load) * (mean**2 + variance) / 2 / mean
    assert erlang_service(load, prefill_s, 1.0, 1) == pytest.approx(wait, rel=1e-6)


@given(loads, st.integers(1, 24))
def test_prompts_of_no_length_change_nothing(load: float, slots: int) -> None:
    decoded = np.arange(1, slots + 1) / 1.0
    rate = load * slots
    plain, short = occupancy(rate, decoded), occupancy(rate * (1 - 1e-9), decoded, 1e-9, 2)
    assert short.wait_probability == pytest.approx(plain.wait_probability, rel=1e-4)
    assert short.waiting == pytest.approx(plain.waiting, rel=1e-4)
    probabilities = np.concatenate((short.decoding + short.prefilling, [short.wait_probability]))
    assert probabilities.sum() == pytest.approx(1.0)


def brute_force(rate: float, decoded: np.ndarray, prefill_s: float, levels: int = 80) -> tuple[float, float]:
    """(probability that all slots are taken, mean waiting) of the chain with exponential prefills, written out."""
    slots = len(decoded)
    states = [(i, k) for i in range(levels + 1) for k in range(min(i, slots) + 1)]
    index = {state: at for at, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))

    def move(source: tuple[int, int], target: tuple[int, int], speed: float) -> None:
        generator[index[source], index[target]] += speed
        generator[index[source], index[source]] -= speed

    for i, k in states:
        if i < levels:
            move((i, k), (i + 1, k + (i < slots)), rate)
        if k:
            move((i, k), (i, k - 1), 1 / prefill_s)
        elif i:
            move((i, 0), (i - 1, int(i > slots)), decoded[min(i, slots) - 1])
    generator[:, 0] = 1
    steady = np.linalg.solve(generator.T, np.eye(len(states))[0])
    requests = np.array([i for i, _ in states])
    return float(steady[requests >= slots].sum()), float(steady @ np.maximum(requests - slots, 0))


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 0.7), st.integers(1, 6), st.floats(0.05, 1.0), st.floats(0.0, 1.0))
def test_the_chain_is_its_generator_written_out(load: float, slots: int, prefill_s: float, batching: float) -> None:
    decoded = np.arange(1.0, slots + 1) ** batching
    rate = load / (prefill_s + 1 / decoded[-1])
    state = occupancy(rate, decoded, prefill_s)
    full, waiting = brute_force(rate, decoded, prefill_s)
    assert state.wait_probability == pytest.approx(full, rel=1e-6)
    assert state.waiting == pytest.approx(waiting, rel=1e-4)
