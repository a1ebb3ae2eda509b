"""Layers on devices by llama.cpp's slot rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import published

from llmcalc.errors import InputError
from llmcalc.placement import HOST, dense_ffn_rule, expert_rule, on_host, place, slot_count, with_rules


def test_the_last_slots_are_offloaded_first() -> None:
    model = published("llama3-8b")
    assert place(model, 1).slots == (HOST,) * 32 + (0,)  # the output layer alone
    assert place(model, 32).slots == (HOST,) + (0,) * 32
    assert place(model).slots == place(model, 33).slots == place(model, 99).slots == (0,) * 33
    assert on_host(model).slots == (HOST,) * 33


@pytest.mark.parametrize(("split", "first"), [((3, 1), 25), ((1, 1), 17), ((0, 1), 0), ((1, 0), 33)])
def test_devices_take_layers_in_proportion(split: tuple[float, ...], first: int) -> None:
    slots = place(published("llama3-8b"), split=split).slots  # layers 0-24 | 25-31 and output, as recorded
    assert slots == (0,) * first + (1,) * (33 - first)


@given(st.integers(0, 60), st.lists(st.floats(0.1, 100), min_size=1, max_size=8))
def test_slots_are_ordered_and_counted(gpu_layers: int, split: list[float]) -> None:
    model = published("qwen3-8b")
    slots = place(model, gpu_layers, split).slots
    assert len(slots) == slot_count(model) == 37
    assert sum(slot != HOST for slot in slots) == min(gpu_layers, 37)
    assert list(slots) == sorted(slots)
    assert max(slots) < len(split)


def test_pipelining_needs_everything_offloaded() -> None:
    model = published("llama3-8b")
    assert place(model, split=(1, 1)).pipelined
    assert not place(model, 32, (1, 1)).pipelined
    assert not place(model).pipelined


@pytest.mark.parametrize("split", [(), (0, 0), (-1, 2)])
def test_impossible_splits_are_refused(split: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="split"):
        place(published("llama3-8b"), split=split)


def test_negative_layers_are_refused() -> None:
    with pytest.raises(InputError, match="gpu_layers"):
        place(published("llama3-8b"), -1)


def test_the_first_rule_that_matches_wins() -> None:
    model = published("llama3-8b")
    placed = with_rules(model, place(model), [(r"blk\.3\.ffn_up", 1), (r"ffn_up", HOST)])
    assert placed.tensor_device("blk.3.ffn_up.weight", 3) == 1
    assert placed.tensor_device("blk.4.ffn_up.weight", 4) == HOST
    assert placed.tensor_device("blk.4.ffn_down.weight", 4) == 0
    assert placed.devices == (0, 1)
    assert not placed.is_plain


def test_patterns_search_anywhere_in_the_name() -> None:
    model = published("llama3-8b")
    placed = with_rules(model, place(model), [(r"\.1\.", HOST)])
    assert {name for name, _ in placed.moved} == {name for name, _ in placed.moved if name.startswith("blk.1.")}
    assert placed.moved


@given(st.integers(1, 48))
def test_one_rule_for_several_layers_is_llama_cpps_one_a_layer(layers: int) -> None:
    model = published("qwen3-30b-a3b")
    pattern = expert_rule()[0]
    one_each = [(rf"blk\.{i}{pattern}", HOST) for i in range(layers)]
    assert with_rules(model, place(model), [expert_rule(layers)]) == with_rules(model, place(model), one_each)


def test_experts_leave_their_layer_and_nothing_else_does() -> None:
    model = published("qwen3-30b-a3b")
    placed = with_rules(model, place(model), [expert_rule(10)])
    assert [placed.expert_device(i) for i in range(48)] == [HOST] * 10 + [0] * 38
    assert placed.slots == (0,) * 49
    assert placed.cache_device(0) == 0
    assert not with_rules(model, place(model, split=(1, 1)), [expert_rule(10)]).pipelined


def test_dense_feed_forwards_leave_but_shared_experts_stay() -> None:
    model = published("deepseek-v2-lite")  # one dense layer, then experts with shared ones
    moved = {name for name, _ in with_rules(model, place(model), [dense_ffn_rule(27)]).moved}
    assert moved == {f"blk.0.ffn_{part}.weight" for part in ("gate", "up", "down")}


@pytest.mark.parametrize(("pattern", "message"), [("ffn_(", "no regular expression"), ("ffn_xyz", "matches no tensor")])
def test_bad_rules_are_refused(pattern: str, message: str) -> None:
    model = published("llama3-8b")
    with pytest.raises(InputError, match=message):
        with_rules(model, place(model), [(pattern, HOST)])


def test_a_rule_that_changes_nothing_still_ends_the_pipeline() -> None:
    model = published("llama3-8b")
    placed = with_rules(model, place(model, split=(1, 1)), [(r"blk\.0\.ffn", 0)])
    assert not placed.moved
    assert not placed.pipelined
