"""llama.cpp's placement options: what they mean, what they contradict, how they are written."""

from __future__ import annotations

from typing import Any

import pytest
from published_models import published

from llmcalc.errors import InputError
from llmcalc.placement import HOST, place
from llmcalc.placement_settings import PlacementSettings, placement_notes, placement_of, settings
from llmcalc.system import Device, System


def gpu(memory: float = 24e9, name: str = "gpu") -> Device:
    return Device(name, name, "nvidia", "gpu", "desktop", "Ada Lovelace", 1e12, memory_bytes=memory)


ONE, TWO = System((gpu(),)), System((gpu(24e9), gpu(12e9, "small")))
CPU_ONLY = System((Device("cpu", "CPU", "amd", "cpu", "desktop", "Zen 4", 8e10),))


def test_nothing_asked_is_everything_on_the_gpus_by_memory() -> None:
    model = published("llama3-8b")
    assert placement_of(PlacementSettings(), model, TWO, "CUDA") == place(model, split=(24e9, 12e9))
    assert settings().is_default


def test_the_main_gpu_alone() -> None:
    asked = PlacementSettings(split_mode="none", main_gpu=1, ngl=20)
    placement = placement_of(asked, published("llama3-8b"), TWO, "CUDA")
    assert placement.devices == (1,)
    assert placement.slots.count(HOST) == 13


def test_missing_shares_are_zero() -> None:
    placement = placement_of(PlacementSettings(tensor_split=(1.0,)), published("llama3-8b"), TWO, "CUDA")
    assert placement.devices == (0,)


@pytest.mark.parametrize("where", ["CPU", "cpu", "Host"])
def test_host_has_names(where: str) -> None:
    model = published("llama3-8b")
    placement = placement_of(PlacementSettings(overrides=(f"ffn_up={where}",)), model, ONE, "CUDA")
    assert placement.moved_to("blk.0.ffn_up.weight") == HOST


@pytest.mark.parametrize("where", ["CUDA1", "Vulkan1", "GPU1", "1"])
def test_devices_have_names(where: str) -> None:
    model = published("llama3-8b")
    placement = placement_of(PlacementSettings(overrides=(f"blk.0.ffn={where},ffn_up=CPU",)), model, TWO, "CUDA")
    assert placement.moved_to("blk.0.ffn_up.weight") == 1
    assert placement.moved_to("blk.1.ffn_up.weight") == HOST


@pytest.mark.parametrize(
    ("system", "given", "message"),
    [
        (ONE, {"ngl": -1}, "--ngl: must not be negative"),
        (ONE, {"n_cpu_moe": -3}, "--n-cpu-moe: must not be negative"),
        (ONE, {"n_cpu_moe": 4}, "has no experts"),
        (ONE, {"tensor_split": (1.0, 2.0)}, "2 shares .1,2. for 1 GPUs"),
        (TWO, {"tensor_split": (0.0, 0.0)}, "not all 0"),
        (TWO, {"tensor_split": (-1.0, 2.0)}, "not negative"),
        (TWO, {"tensor_split": (1.0, 1.0), "split_mode": "none"}, "contradict"),
        (TWO, {"main_gpu": 2}, "there is no GPU 2"),
        (TWO, {"split_mode": "columns"}, "none of layer, row, tensor, none"),
        (TWO, {"load_mode": "fast"}, "none of auto"),
        (TWO, {"split_mode": "tensor", "ngl": 10}, "whole models on GPUs only"),
        (TWO, {"split_mode": "tensor", "kv_offload": False}, "whole models on GPUs only"),
        (ONE, {"overrides": ("ffn_up",)}, "not of the form REGEX=DEVICE"),
        (ONE, {"overrides": ("ffn_up=CUDA3",)}, "'CUDA3' is no device here; known: CPU, GPU0"),
        (ONE, {"overrides": ("ffn_(=CPU",)}, "no regular expression"),
        (ONE, {"overrides": ("nothing=CPU",)}, "matches no tensor of llama3-8b"),
        (CPU_ONLY, {"ngl": 5}, "there is no GPU"),
    ],
)
def test_what_cannot_be_meant_is_said(system: System, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement_of(PlacementSettings(**given), published("llama3-8b"), system, "CUDA")


def test_experts_can_only_be_moved_one_way() -> None:
    with pytest.raises(InputError, match="contradict"):
        placement_of(PlacementSettings(cpu_moe=True, n_cpu_moe=3), published("qwen3-30b-a3b"), ONE, "CUDA")


def test_mla_is_not_split() -> None:
    with pytest.raises(InputError, match="does not split deepseek2"):
        placement_of(PlacementSettings(split_mode="tensor"), published("deepseek-v2-lite"), TWO, "CUDA")


def test_shares_of_split_matrices() -> None:
    placement = placement_of(PlacementSettings(split_mode="tensor"), published("llama3-8b"), TWO, "CUDA")
    assert placement.split == pytest.approx((2 / 3, 1 / 3))


def test_flags_are_llama_cpps() -> None:
    asked = PlacementSettings(
        ngl=20, n_cpu_moe=4, overrides=("a=CPU,b=CPU",), tensor_split=(3, 1), main_gpu=1, kv_offload=False,
        op_offload=False, load_mode="none", split_mode="row",
    )  # fmt: skip
    assert " ".join(asked.flags()) == (
        '-ngl 20 --n-cpu-moe 4 -ts 3,1 -sm row -mg 1 --no-kv-offload --no-op-offload -lm none -ot "a=CPU,b=CPU"'
    )
    assert " ".join(asked.bench_flags(48)) == (
        '-ngl 20 -ncmoe 4 -ts 3/1 -sm row -mg 1 -nkvo 1 -nopo 1 -lm none -ot "a=CPU;b=CPU"'
    )
    assert PlacementSettings(cpu_moe=True).bench_flags(48) == ("-ncmoe 48",)
    assert PlacementSettings().flags() == ()


def test_notes_name_what_surprises() -> None:
    row = placement_notes(PlacementSettings(split_mode="row"), "CUDA")
    assert any("no row split for CUDA" in note for note in row)
    assert not placement_notes(PlacementSettings(split_mode="row"), "SYCL")
    (note,) = placement_notes(PlacementSettings(tensor_split=(0.6, 0.2)), "CUDA")
    assert "75%, 25%" in note
    assert not placement_notes(PlacementSettings(tensor_split=(3.0, 1.0)), "CUDA")
