"""RPC against the real thing: bytes as counted on the wire, and rates of llama-bench over loopback (tests/data/rpc)."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from published_models import published

from llmcalc.device_catalog import find_device, with_cores
from llmcalc.offload_timing import Machine, PlacedTime, Run, decode_placed, prefill_placed
from llmcalc.placement import on_host, place
from llmcalc.quantization import Weights, weights
from llmcalc.rpc_traffic import decode_batch, input_bytes, prefill_batch
from llmcalc.run_machine import Conditions
from llmcalc.system import Host, Link, System

DATA = Path(__file__).parent / "data" / "rpc"
CORE = with_cores(find_device("epyc-9124"), 1)
QUANT = {"smollm2-135m": "Q4_1", "gemma3-270m": "Q4_K_M"}
ROUND_TRIP_S, BYTES_PER_S = 55e-6, 3.8e9  # of the loopback, as measured
MESSAGE_BYTES = 330  # a tensor's header; every copy has one
Row = dict[str, str]


def rows(name: str) -> list[Row]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def made(model: str) -> Weights:
    return weights(published(model), QUANT[model])


def placed(model: str, row: Row) -> Run:
    """The run of a row: servers named A and B, one core each, and the host with one more."""
    servers = int(row["servers"])
    devices = tuple(replace(CORE, name=name) for name in "AB"[:servers])
    latency = ROUND_TRIP_S + float(row.get("added_round_trip_us") or 0) * 1e-6
    network = Link("loopback", BYTES_PER_S, latency)
    system = System(devices, Host(CORE), remote=servers, network=network if servers else None)
    shares = tuple(float(share) for share in row["tensor_split"].split("/")) if row["tensor_split"] else (1.0,)
    placement = place(published(model), int(row["ngl"]), shares) if servers else on_host(published(model))
    return Run(published(model), made(model), placement, Machine(system, "CPU", Conditions("CPU"), threads=1))


def predicted(model: str, row: Row, cached: float = 0.0) -> PlacedTime:
    one = placed(model, row)
    if int(row.get("n_gen") or 0) or row.get("phase") == "decode":
        return decode_placed(one, np.array([20.0]), np.ones(1))
    ubatch = float(row["n_ubatch"])
    prompt = float(row.get("n_prompt") or ubatch)
    return prefill_placed(one, np.array([prompt]), np.array([cached]), min(ubatch, prompt))


@pytest.mark.parametrize("row", [pytest.param(row, id="-".join(list(row.values())[:7])) for row in rows("traffic.csv")])
def test_bytes_are_those_on_the_wire(row: Row) -> None:
    time = predicted(row["model"], row, cached=512.0)
    moved = {one.name: float(one.bytes[0]) for one in time.transfers}
    me = "AB"[int(row["server"])]
    into = sum(size for name, size in moved.items() if name.endswith((f"to {me}", f"inputs of {me}")))
    out = sum(size for name, size in moved.items() if name.startswith(f"activations, {me} to"))
    if row["phase"] == "decode":
        assert into == pytest.approx(int(row["bytes_in"]), abs=14 * MESSAGE_BYTES)
        assert out == pytest.approx(int(row["bytes_out"]), rel=0.01)
    else:
        assert into == pytest.approx(int(row["bytes_in"]), rel=0.03)


def test_what_goes_on_to_another_server_comes_back_to_the_client_first() -> None:
    row = next(row for row in rows("traffic.csv") if row["phase"] == "prefill" and int(row["bytes_out"]) > 1000)
    time = predicted(row["model"], row, cached=512.0)
    onward = next(one for one in time.transfers if one.name == "activations, A to B")
    assert float(onward.bytes[0]) == pytest.approx(int(row["bytes_out"]), rel=0.001)
    assert float(onward.seconds[0]) > 2 * float(onward.bytes[0]) / BYTES_PER_S


LOOPBACK = rows("loopback.csv")
LOCAL = {key: row for row in LOOPBACK if row["servers"] == "0" for key in [(row["n_gen"], row["n_ubatch"])]}


def measured_ratio(row: Row) -> float:
    """Time over that of the same model in one process."""
    return float(LOCAL[row["n_gen"], row["n_ubatch"]]["median_t_s"]) / float(row["median_t_s"])


def predicted_ratio(row: Row) -> float:
    """The same, where the machine's own speed is taken from the local run and only the crossings are predicted."""
    alone = LOCAL[row["n_gen"], row["n_ubatch"]]
    time = predicted("smollm2-135m", row)
    moved = sum(float(one.seconds[0]) for one in time.transfers)
    whole = float(time.seconds[0])
    parts = whole - moved * float(time._overlap[0])
    local = float(predicted("smollm2-135m", alone).seconds[0])
    tokens = float(time.tokens[0])
    return parts / local + moved * float(time._overlap[0]) * float(alone["median_t_s"]) / tokens


REMOTE = [row for row in LOOPBACK if row["servers"] != "0"]


@pytest.mark.parametrize("row", [pytest.param(row, id="-".join(row.values())) for row in REMOTE])
def test_rates_over_loopback(row: Row) -> None:
    """Within 30 %: the shared machine's own spread is about 20 %."""
    assert predicted_ratio(row) == pytest.approx(measured_ratio(row), rel=0.30)


def test_the_median_of_all_settings_is_within_a_tenth() -> None:
    assert np.median([predicted_ratio(row) / measured_ratio(row) for row in REMOTE]) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("decode", [True, False])
def test_settings_come_in_the_measured_order(decode: bool) -> None:
    """Of pairs of one test whose medians differ by more than the machine's noise."""
    chosen = [row for row in REMOTE if (row["n_gen"] != "0") is decode]
    right = pairs = 0
    for first, second in combinations(chosen, 2):
        measured = np.log(measured_ratio(first) / measured_ratio(second))
        if first["n_ubatch"] != second["n_ubatch"] or abs(measured) < 0.2:
            continue
        pairs += 1
        right += bool(measured * np.log(predicted_ratio(first) / predicted_ratio(second)) > 0)
    assert pairs >= 10 or not decode
    assert right >= 0.8 * pairs


def test_masks_grow_with_depth_and_stop_at_the_window() -> None:
    llama, gemma = published("smollm2-135m"), published("gemma3-270m")
    shallow, deep = (prefill_batch(np.array([512.0]), np.array([depth]), 512.0) for depth in (0.0, 31 * 1024.0))
    assert input_bytes(llama, deep, True) > 20 * input_bytes(llama, shallow, True)
    windows = replace(gemma, layers=tuple(layer for layer in gemma.layers if layer.mixers[0].window))  # type: ignore[union-attr]
    assert input_bytes(windows, deep, True) < 2 * input_bytes(windows, shallow, True)
    assert input_bytes(llama, deep, False) > 1.9 * input_bytes(llama, deep, True)


def test_decode_sends_no_graphs() -> None:
    model = published("smollm2-135m")
    assert float(input_bytes(model, decode_batch(np.array([200.0]), np.ones(1)), True)[0]) == 256 * 2
