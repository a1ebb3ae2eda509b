"""Layers on devices by llama.cpp's slot rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import published

from llmcalc.errors import InputError
from llmcalc.placement import HOST, on_host, place, slot_count


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
