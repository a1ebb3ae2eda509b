"""Who does what: nothing is lost or done twice, whatever the placement."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_models import published

from llmcalc.inventory import Inventory, inventory
from llmcalc.operations import PhaseOperations, decode_operations
from llmcalc.placed_work import route, split_station, stations, with_host_weights
from llmcalc.placement import HOST, Placement, expert_rule, on_host, place, with_rules
from llmcalc.quantization import Weights, weights


@cache
def made(name: str) -> Weights:
    return weights(published(name), "Q4_K_M")


def decode(model: object, file: Inventory) -> PhaseOperations:
    return decode_operations(model, file, occupied=1000.0)  # type: ignore[arg-type]


def totals(name: str, each: tuple[object, ...]) -> tuple[float, float, float]:
    phases = [station.operations(decode) for station in each]  # type: ignore[attr-defined]
    return (
        sum(float(one.weight_bytes) for phase in phases for one in phase.operations if one.kind != "elementwise"),
        sum(float(one.kv_read_bytes) for phase in phases for one in phase.operations),
        sum(float(one.flops) for phase in phases for one in phase.operations),
    )


PLACEMENTS = st.tuples(
    st.sampled_from(["llama3-8b", "qwen3-30b-a3b", "gemma3-4b", "deepseek-v2-lite", "qwen3-next-80b-a3b"]),
    st.integers(0, 60),
    st.integers(1, 3),
    st.integers(0, 30),
    st.booleans(),
)


def placed(name: str, ngl: int, devices: int, on_cpu: int, cache_on_host: bool) -> Placement:
    model = published(name)
    placement = place(model, ngl, (1.0,) * devices)
    if on_cpu and any(hasattr(layer.ffn, "experts") for layer in model.layers[:on_cpu]) and name != "deepseek-v2-lite":
        placement = with_rules(model, placement, [expert_rule(on_cpu)])
    return replace(placement, cache_on_host=cache_on_host)


@settings(max_examples=40, deadline=None)
@given(PLACEMENTS)
def test_the_parts_make_the_whole(case: tuple[str, int, int, int, bool]) -> None:
    name = case[0]
    model = published(name)
    whole = decode(model, inventory(model, made(name)))
    expected = (
        sum(float(one.weight_bytes) for one in whole.operations if one.kind != "elementwise"),
        sum(float(one.kv_read_bytes) for one in whole.operations),
        sum(float(one.flops) for one in whole.operations),
    )
    each = stations(model, made(name), placed(*case))
    assert totals(name, each) == pytest.approx(expected, rel=1e-9)
    assert totals(name, with_host_weights(each, 0, placed(*case))) == pytest.approx(expected, rel=1e-9)


def test_large_batches_leave_the_host_nothing_but_look_ups() -> None:
    model = published("llama3-8b")
    placement = place(model, 10)
    device, host = with_host_weights(stations(model, made("llama3-8b"), placement), 0, placement)
    assert (device.device, host.device) == (0, HOST)
    assert not host.works
    kept = replace(placement, cache_on_host=True)
    *_, host = with_host_weights(stations(model, made("llama3-8b"), kept), 0, kept)
    assert host.cached.n_layers == 32


def test_the_way_of_the_activations() -> None:
    model = published("qwen3-30b-a3b")
    assert route(model, on_host(model)) == (HOST,)
    assert route(model, place(model)) == (HOST, 0, HOST)
    assert route(model, place(model, split=(1, 1))) == (HOST, 0, 1, HOST)
    some = with_rules(model, place(model), [expert_rule(3)])
    assert route(model, some) == (HOST, 0) + (HOST, 0) * 3 + (HOST,)
    assert route(model, replace(place(model), cache_on_host=True)).count(HOST) == 48 + 2


def test_split_matrices_are_shares_of_all() -> None:
    model = published("llama3-8b")
    whole = inventory(model, made("llama3-8b"))
    part = split_station(model, made("llama3-8b"), 0, 0.25)
    assert sum(g.bytes for g in part.weights.matrices) == pytest.approx(0.25 * sum(g.bytes for g in whole.matrices))
    assert part.weights.vector_bytes == whole.vector_bytes
