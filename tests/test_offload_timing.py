"""Times of models in several places: the sum of their parts, op-offload, copies, pipelines, split matrices, ranges."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_models import published

from llmcalc.device_catalog import find_device
from llmcalc.offload_timing import (
    OP_OFFLOAD_TOKENS,
    Machine,
    PlacedTime,
    Run,
    decode_placed,
    missing_share,
    prefill_placed,
    weights_ceiling_seconds,
)
from llmcalc.placement import HOST, Placement, expert_rule, on_host, place, with_rules
from llmcalc.quantization import Weights, weights
from llmcalc.run_machine import Conditions
from llmcalc.surroundings import surrounded
from llmcalc.system import Host, System
from llmcalc.timing import decode_time, prefill_time
from llmcalc.units import GIB

CARD, CPU = find_device("rtx3090"), find_device("ryzen-9-9900x")
MACHINE = Machine(System((CARD,), Host(CPU)), "CUDA", Conditions("CUDA"))
PAIR = Machine(System((CARD, CARD), Host(CPU)), "CUDA", Conditions("CUDA"))


@cache
def made(name: str) -> Weights:
    return weights(published(name), "Q4_K_M")


def run(name: str, placement: Placement, machine: Machine = MACHINE) -> Run:
    return Run(published(name), made(name), placement, machine)


def decode(one: Run, occupied: float = 512.0, parallel: float = 1.0) -> PlacedTime:
    return decode_placed(one, np.array([occupied]), np.array([parallel]))


def prefill(one: Run, tokens: float = 512.0, ubatch: float = 512.0) -> PlacedTime:
    return prefill_placed(one, np.array([tokens]), np.zeros(1), ubatch)


def test_one_device_takes_what_it_takes_alone_and_two_hand_overs() -> None:
    model = published("llama3-8b")
    alone = float(decode_time(model, made("llama3-8b"), CARD, "CUDA", occupied=512.0).seconds)
    placed = decode(run("llama3-8b", place(model)))
    assert float(placed.seconds[0]) == pytest.approx(alone + sum(float(t.seconds[0]) for t in placed.transfers))
    assert 0 < float(placed.seconds[0]) - alone < 1e-4


def test_everything_on_the_host_takes_what_the_cpu_takes() -> None:
    model = published("llama3-8b")
    alone = float(decode_time(model, made("llama3-8b"), CPU, "CPU", occupied=512.0).seconds)
    assert float(decode(run("llama3-8b", on_host(model))).seconds[0]) == pytest.approx(alone)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 32), st.sampled_from([0.0, 1.0]))
def test_the_time_is_the_sum_of_its_parts(ngl: int, large: float) -> None:
    one = run("llama3-8b", place(published("llama3-8b"), ngl))
    time = prefill(one) if large else decode(one)
    parts = sum(float(np.ravel(part.seconds)[0]) for part in time.parts)
    assert float(time.seconds[0]) == pytest.approx(parts + sum(float(t.seconds[0]) for t in time.transfers))
    assert float(time.ceiling_seconds[0]) < float(time.seconds[0])


def test_every_layer_on_the_gpu_helps() -> None:
    model = published("llama3-8b")
    times = [float(decode(run("llama3-8b", place(model, ngl))).seconds[0]) for ngl in range(34)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 5 * times[-1]


def test_fewer_experts_on_the_host_help() -> None:
    model = published("qwen3-30b-a3b")
    times = [
        float(decode(run("qwen3-30b-a3b", with_rules(model, place(model), [expert_rule(n)]))).seconds[0])
        for n in (48, 24, 1)
    ]
    assert times == sorted(times, reverse=True)


def test_large_batches_take_host_weights_to_the_gpu() -> None:
    one = run("llama3-8b", place(published("llama3-8b"), 10))
    small, large = prefill(one, OP_OFFLOAD_TOKENS - 1), prefill(one, OP_OFFLOAD_TOKENS)
    assert HOST in small.places
    assert large.places == (0,)
    assert not any(t.name.startswith("weights") for t in small.transfers)
    copied = next(t for t in large.transfers if t.name.startswith("weights"))
    host = one.stations()[-1].weights.matrices
    assert float(copied.bytes[0]) == pytest.approx(sum(g.bytes for g in host), rel=0.01)


def test_points_on_both_sides_of_the_threshold() -> None:
    one = run("llama3-8b", place(published("llama3-8b"), 10))
    both = prefill_placed(one, np.array([16.0, 512.0]), np.zeros(2), 512.0)
    assert float(both.seconds[0]) == pytest.approx(float(prefill(one, 16.0).seconds[0]))
    assert float(both.seconds[1]) == pytest.approx(float(prefill(one, 512.0).seconds[0]))


def test_without_op_offload_the_cpu_computes() -> None:
    placement = replace(place(published("llama3-8b"), 10), op_offload=False)
    time = prefill(run("llama3-8b", placement))
    assert HOST in time.places
    assert float(time.seconds[0]) > float(prefill(run("llama3-8b", place(published("llama3-8b"), 10))).seconds[0])


def test_rpc_devices_take_no_host_weights() -> None:
    machine = replace(MACHINE, system=surrounded(MACHINE.system, remote=1))
    assert machine.offloads_to is None
    assert HOST in prefill(run("llama3-8b", place(published("llama3-8b"), 10), machine)).places


def test_larger_micro_batches_copy_less_often() -> None:
    one = run(
        "qwen3-30b-a3b", with_rules(published("qwen3-30b-a3b"), place(published("qwen3-30b-a3b")), [expert_rule()])
    )
    narrow, wide = prefill(one, 4096.0, 512.0), prefill(one, 4096.0, 2048.0)
    copied = [
        next(float(t.bytes[0]) for t in time.transfers if t.name.startswith("weights")) for time in (narrow, wide)
    ]
    assert copied[0] == pytest.approx(4 * copied[1], rel=0.01)
    assert float(wide.seconds[0]) < 0.6 * float(narrow.seconds[0])


def test_only_the_experts_that_are_used_are_copied() -> None:
    model = published("qwen3-30b-a3b")
    one = run("qwen3-30b-a3b", with_rules(model, place(model), [expert_rule()]))
    few, many = prefill(one, 32.0), prefill(one, 512.0)
    few_bytes, all_bytes = (float(t.transfers[-1].bytes[0]) for t in (few, many))
    assert few_bytes == pytest.approx(all_bytes * (1 - (1 - 8 / 128) ** 32), rel=0.01)


def test_pinned_memory_shortens_prefill_alone() -> None:
    placement = place(published("llama3-8b"), 10)
    pinned = replace(MACHINE, load_mode="none")
    assert prefill(run("llama3-8b", placement, pinned)).seconds[0] < prefill(run("llama3-8b", placement)).seconds[0]
    assert decode(run("llama3-8b", placement, pinned)).seconds[0] == decode(run("llama3-8b", placement)).seconds[0]


def test_the_cache_on_the_host_is_read_there() -> None:
    model = published("llama3-8b")
    kept = replace(place(model), cache_on_host=True)
    time = decode(run("llama3-8b", kept), 8192.0)
    host = time.parts[time.places.index(HOST)]
    assert {o.kind for o in host.operations if float(np.mean(o.seconds)) > 1e-4} >= {"attention"}
    assert time.seconds[0] > decode(run("llama3-8b", place(model)), 8192.0).seconds[0]


def test_a_layer_split_is_serial_in_decode_and_overlaps_in_prefill() -> None:
    model = published("llama3-8b")
    one, two = run("llama3-8b", place(model)), run("llama3-8b", place(model, split=(1, 1)), PAIR)
    assert float(decode(two).seconds[0]) == pytest.approx(float(decode(one).seconds[0]), rel=0.02)
    assert float(prefill(two).seconds[0]) == pytest.approx(float(prefill(one).seconds[0]), rel=0.02)
    assert float(prefill(two, 8192.0).seconds[0]) < 0.75 * float(prefill(one, 8192.0).seconds[0])


def test_split_matrices_halve_the_reading_and_pay_all_reduces() -> None:
    model = published("llama3-70b")
    split = replace(place(model), split=(0.5, 0.5))
    layers = decode(run("llama3-70b", place(model, split=(1, 1)), PAIR))
    both = decode(run("llama3-70b", split, PAIR))
    assert 0.5 < float(both.seconds[0]) / float(layers.seconds[0]) < 0.8
    assert any(t.name.startswith("all-reduces") for t in both.transfers)
    assert weights_ceiling_seconds(run("llama3-70b", split, PAIR)) == pytest.approx(
        0.5 * weights_ceiling_seconds(run("llama3-70b", place(model, split=(1, 1)), PAIR)), rel=0.02
    )


def test_a_slow_network_shows() -> None:
    model = published("llama3-8b")
    placement = place(model, split=(1, 1))
    near = replace(PAIR, system=surrounded(PAIR.system, remote=1, network="10GbE", latency="50us"))
    far = replace(PAIR, system=surrounded(PAIR.system, remote=1, network="1GbE", latency="5ms"))
    assert (
        decode(run("llama3-8b", placement, far)).seconds[0]
        > decode(run("llama3-8b", placement, near)).seconds[0] + 4e-3
    )


def test_weights_beyond_the_memory_come_from_disk() -> None:
    model = published("llama3-70b")
    small = replace(MACHINE, system=replace(MACHINE.system, host=Host(CPU, 32 * GIB, disk_bytes_per_s=3e9)))
    one = run("llama3-70b", on_host(model), small)
    assert 0 < missing_share(one) < 1
    read = next(t for t in decode(one).transfers if t.name == "weights read from disk")
    assert float(read.seconds[0]) == pytest.approx(float(read.bytes[0]) / 3e9)
    assert decode(one).seconds[0] > 2 * decode(run("llama3-70b", on_host(model))).seconds[0]
    assert missing_share(run("llama3-8b", on_host(published("llama3-8b")), small)) == 0


def test_an_unknown_host_widens_the_range() -> None:
    placement = place(published("llama3-8b"), 10)
    unknown = replace(MACHINE, system=System((CARD,)))
    known_sd, unknown_sd = (decode(run("llama3-8b", placement, m)).log_sd[0] for m in (MACHINE, unknown))
    assert unknown_sd > known_sd + 0.1
    low, high = decode(run("llama3-8b", placement, unknown)).interval_tokens_per_s(0.8)
    assert low[0] < decode(run("llama3-8b", placement, unknown)).tokens_per_s[0] < high[0]


def test_what_bounds_it() -> None:
    model = published("qwen3-30b-a3b")
    one = run("qwen3-30b-a3b", with_rules(model, place(model), [expert_rule()]))
    assert prefill(one).bound[0] == "link"
    assert decode(one).bound[0] == "memory"
    assert decode(one).main_device == CPU


def test_the_files_true_size_scales_the_bytes() -> None:
    one = run("llama3-8b", place(published("llama3-8b"), 10))
    heavier = replace(one, scale=1.2)
    assert 1.1 < float(decode(heavier).seconds[0]) / float(decode(one).seconds[0]) < 1.21


def test_op_offload_beats_the_cpu_by_far() -> None:
    model = published("llama3-8b")
    on_cpu = float(prefill_time(model, made("llama3-8b"), CPU, "CPU", prompt=512.0).seconds)
    assert float(prefill(run("llama3-8b", place(model, 0))).seconds[0]) < on_cpu / 3
