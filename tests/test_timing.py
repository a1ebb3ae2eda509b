"""Times of phases: bounds, intervals, broadcasting, and an explanation that adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmcalc.device_catalog import find_device
from llmcalc.errors import InputError
from llmcalc.inventory import Inventory, inventory
from llmcalc.model_catalog import find_model
from llmcalc.quantization import weights
from llmcalc.timing import PhaseTime, decode_time, prefill_time

MODELS = {name: find_model(name) for name in ("llama3-8b", "qwen3-30b-a3b", "gemma3-12b", "qwen3-next-80b-a3b")}
FILES: dict[str, Inventory] = {name: inventory(model, weights(model, "Q4_K_M")) for name, model in MODELS.items()}


def decode(device: str = "geforce-rtx-4090", backend: str = "CUDA", model: str = "llama3-8b", **more: Any) -> PhaseTime:
    more = {"occupied": 1024, **more}
    return decode_time(MODELS[model], FILES[model], find_device(device), backend, **more)


def prefill(
    device: str = "geforce-rtx-4090", backend: str = "CUDA", model: str = "llama3-8b", **more: Any
) -> PhaseTime:
    more = {"prompt": 1024, **more}
    return prefill_time(MODELS[model], FILES[model], find_device(device), backend, **more)


@pytest.mark.parametrize(
    ("device", "backend"),
    [("geforce-rtx-4090", "CUDA"), ("geforce-rtx-4090", "Vulkan"), ("radeon-rx-7900-xtx", "ROCm"),
     ("apple-m2-ultra-76c", "Metal"), ("ryzen-9-7950x", "CPU"), ("arc-b580", "Vulkan"), ("tesla-p40", "CUDA")],
)  # fmt: skip
@pytest.mark.parametrize("model", list(MODELS))
def test_no_estimate_beats_the_datasheet(device: str, backend: str, model: str) -> None:
    for time in (decode(device, backend, model), prefill(device, backend, model)):
        assert time.seconds > time.ceiling_seconds > 0
        assert time.tokens_per_s < time.ceiling_tokens_per_s


def test_the_decode_ceiling_is_bandwidth_over_the_bytes_that_must_be_read() -> None:
    time = decode(occupied=4096)
    assert time.ceiling_seconds == pytest.approx(time.required_bytes / 1008e9)
    assert time.bound == "memory"
    assert prefill(prompt=4096).bound == "compute"


def test_small_models_on_fast_devices_wait_for_launches() -> None:
    model = find_model("smollm2-135m")
    time = decode_time(model, weights(model, "Q8_0"), find_device("geforce-rtx-5090"), "CUDA", occupied=128)
    assert time.bound == "launch"


@pytest.mark.parametrize("model", list(MODELS))
def test_time_grows_with_depth_batch_and_prompt(model: str) -> None:
    depths = decode(model=model, occupied=np.array([256, 4096, 32768, 131072])).seconds
    batches = decode(model=model, parallel=np.array([1, 2, 4, 8])).seconds
    prompts = prefill(model=model, prompt=np.array([64, 512, 4096, 32768])).seconds
    for seconds in (depths, batches, prompts):
        assert np.all(np.diff(seconds) > 0)


def test_parallel_sequences_share_the_reading_of_weights() -> None:
    one, eight = (float(decode(parallel=b).tokens_per_s) for b in (1, 8))
    assert 2 * one < eight < 8 * one


def test_older_builds_are_slower() -> None:
    old, new = (float(prefill(era=era).tokens_per_s) for era in ("2024H1", "2026H2"))
    assert old < new


def test_engines_around_llama_cpp_take_time_of_their_own() -> None:
    assert decode(engine="ollama").seconds > decode().seconds


def test_fewer_threads_are_slower_and_more_than_the_cores_are_no_faster() -> None:
    one, four, all_cores, too_many = (
        float(decode("ryzen-9-7950x", "CPU", threads=threads).seconds) for threads in (1, 4, None, 999)
    )
    assert one > four > all_cores
    assert too_many == all_cores


@pytest.mark.parametrize("model", list(MODELS))
def test_arrays_give_what_scalars_give(model: str) -> None:
    occupied, parallel = np.array([1, 300, 5000, 70_000]), np.array([1, 8, 9, 64])
    together = decode(model=model, occupied=occupied, parallel=parallel)
    prompts = np.array([3, 9, 700, 40_000])
    prompt_times = prefill(model=model, prompt=prompts, cached=occupied)
    for i in range(4):
        pairs = [
            (together, decode(model=model, occupied=int(occupied[i]), parallel=int(parallel[i]))),
            (prompt_times, prefill(model=model, prompt=int(prompts[i]), cached=int(occupied[i]))),
        ]
        for many, one in pairs:
            assert many.seconds[i] == pytest.approx(one.seconds)  # type: ignore[index]
            assert many.ceiling_seconds[i] == pytest.approx(one.ceiling_seconds)  # type: ignore[index]
            assert many.log_sd[i] == pytest.approx(one.log_sd)  # type: ignore[index]
            assert np.asarray(many.bound)[i] == one.bound


def test_the_operations_add_up_to_the_time() -> None:
    for time in (decode(model="qwen3-next-80b-a3b"), prefill(model="qwen3-30b-a3b"), prefill(era="2024H1")):
        assert sum(one.seconds for one in time.operations) == pytest.approx(time.seconds)
        assert sum(time.seconds_by_resource.values()) == pytest.approx(time.seconds)


def test_every_roofs_time_can_be_recomputed_from_its_factors() -> None:
    time = decode(model="qwen3-30b-a3b", parallel=4)
    for operation in time.operations:
        for one in operation.roofs:
            assert not one.roof.saturation  # four columns: matrix-vector kernels
            stretch = np.prod([use.multiple for use in time.factors(one.roof)])
            assert one.seconds == pytest.approx(one.roof.seconds * stretch)


def test_factors_that_no_run_told_of_say_so() -> None:
    """Vulkan's int8 matrices came after all measured builds."""
    model = find_model("llama2-7b")
    time = prefill_time(model, weights(model, "Q4_0"), find_device("radeon-8060s"), "Vulkan", prompt=512)
    uses = [use for operation in time.operations for one in operation.roofs for use in time.factors(one.roof)]
    origin = {use.name: use.origin for use in uses}
    assert origin["matrix_unit.Vulkan.int8_matrix"] == "no runs: prior alone"
    assert origin["matrix_type.integer.Q4_0"] == "all runs"
    assert origin["memory"] == "runs of radeon-8060s on Vulkan"


def test_intervals_hold_the_estimate_and_nest() -> None:
    time = decode()
    low_80, high_80 = time.interval(0.8)
    low_95, high_95 = time.interval(0.95)
    assert low_95 < low_80 < time.seconds < high_80 < high_95
    slow, fast = time.interval_tokens_per_s(0.8)
    assert slow == pytest.approx(1 / high_80) and fast == pytest.approx(1 / low_80)


def test_a_device_nobody_measured_has_a_wider_interval() -> None:
    seen, unseen = decode("geforce-rtx-4090"), decode("rtx-5880-ada")
    assert seen.machine.measured and not unseen.machine.measured
    assert unseen.log_sd > seen.log_sd


def test_the_width_is_the_slope_by_each_factor_times_its_uncertainty() -> None:
    time = decode("rtx-5880-ada")
    by_hand = 0.0
    names = {factor.name for one in time.operations for r in one.roofs for factor in r.roof.factors}
    for name in names:
        step = 1e-4
        nudged = 0.0
        for operation in time.operations:
            squares = 0.0
            for one in operation.roofs:
                power = sum(factor.power for factor in one.roof.factors if factor.name == name)
                squares += float(one.seconds * np.exp(power * step)) ** 2
            nudged += squares**0.5
        slope = float(np.log(nudged / time.seconds)) / step
        by_hand += (slope * time._values[name].sd) ** 2
    assert time.log_sd == pytest.approx((by_hand + time._sd_of_runs**2) ** 0.5, rel=1e-3)


def test_a_missing_figure_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match="CPU cores are not known"):
        decode("apple-m2-max-30c", "CPU")


@pytest.mark.parametrize(
    ("model", "backend", "grows"),
    [
        ("gemma4-e4b", "CUDA", True),  # heads of 512 values
        ("deepseek-r1", "CUDA", True),  # MLA
        ("llama3-8b", "CUDA", False),
        ("gemma4-e4b", "Vulkan", False),
    ],
)
def test_cuda_converts_a_quantised_cache_of_wide_heads(model: str, backend: str, grows: bool) -> None:
    """It reads 34 bytes for 32 values of Q8_0, writes 64 of F16 and reads those."""
    found = find_model(model)
    file = inventory(found, weights(found, "Q4_0"))

    def read(kv_type: str) -> float:
        more = {"kv_type_k": kv_type, "kv_type_v": kv_type}
        time = decode_time(found, file, find_device("geforce-rtx-4090"), backend, occupied=65536, **more)
        return sum(
            float(np.max(one.roof.amount))
            for operation in time.operations
            if operation.kind == "attention"
            for one in operation.roofs
            if one.roof.path == "bandwidth"
        )

    assert read("Q8_0") / read("F16") == pytest.approx((34 + 128) / 64 if grows else 34 / 64, rel=0.02)


def test_query_heads_that_share_a_head_of_the_cache_slow_its_reading() -> None:
    names = {}
    for model in ("llama2-7b", "llama3-8b"):
        found = find_model(model)
        time = decode_time(found, weights(found, "Q4_0"), find_device("apple-m2-max-38c"), "Metal", occupied=4096)
        roofs = [one.roof for operation in time.operations if operation.kind == "attention" for one in operation.roofs]
        names[model] = {factor.name: factor.power for roof in roofs for factor in roof.factors}
    assert "attention_sharers.Metal" not in names["llama2-7b"]
    assert names["llama3-8b"]["attention_sharers.Metal"] == pytest.approx(np.log(4))
