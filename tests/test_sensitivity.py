"""What would change an estimate: each effect is that of estimating again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmcalc.estimation import estimate
from llmcalc.request import resolve
from llmcalc.sensitivity import Effect, sensitivities


def effects(**given: object) -> dict[str, Effect]:
    return {one.change: one for one in sensitivities(resolve(**given))}  # type: ignore[arg-type]


def test_bandwidth_moves_decode_and_compute_moves_prefill() -> None:
    found = effects(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="32k")
    faster, stronger = found["+10 % memory bandwidth"], found["+10 % compute"]
    assert 0.05 < faster.decode <= 0.10
    assert faster.decode > stronger.decode >= 0
    assert stronger.prefill > 0.005
    device = replace(faster.base.memory.accelerators[0])
    more = replace(device, bandwidth_bytes_per_s=device.bandwidth_bytes_per_s * 1.1)
    base, changed = (estimate(gpu=one, model="llama3-8b", quant="q4", ctx="32k") for one in (device, more))
    assert faster.decode == pytest.approx(changed.decode[-1].tokens_per_s / base.decode[-1].tokens_per_s - 1)
    assert faster.ttft == pytest.approx(changed.latency.ttft_s / base.latency.ttft_s - 1)


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ("q8_0 KV cache", {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}),
        ("Q5_K_M quantisation", {"quant": "q5"}),
        ("Q3_K_M quantisation", {"quant": "q3"}),
        ("half the context (16,384)", {"ctx": "16k"}),
        ("ubatch 1,024", {"ubatch": 1024}),
        ("no flash attention", {"flash_attention": False}),
        ("one more GeForce RTX 3090", {"gpu": ["rtx3090", "rtx3090"]}),
    ],
)
def test_settings_are_estimated_again(change: str, given: dict[str, object]) -> None:
    usual: dict[str, object] = {"gpu": "rtx3090", "model": "llama3-8b", "quant": "q4", "ctx": "32k"}
    one = effects(**usual)[change]
    e = estimate(**(usual | given))  # type: ignore[arg-type]
    assert one.changed.tokens_per_s == pytest.approx(e.decode[-1].tokens_per_s)
    assert one.changed.prefill_tokens_per_s == pytest.approx(e.prefill[0].tokens_per_s)
    assert one.changed.memory.margin_bytes == e.memory.margin_bytes


def test_twice_the_sequences_share() -> None:
    found = effects(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="8k")
    doubled = found["2 sequences"]
    assert doubled.decode < 0 < doubled.aggregate
    assert doubled.aggregate == pytest.approx(2 * (1 + doubled.decode) - 1)


def test_one_layer_more_on_the_gpu() -> None:
    from llmcalc.placement_settings import PlacementSettings

    found = effects(
        gpu="rtx3090", cpu="ryzen-9-7950x", model="llama3-70b", quant="q4", settings=PlacementSettings(ngl=40)
    )
    more, less = found["one layer more on the GPU"], found["one layer less on the GPU"]
    assert 0.005 < more.decode < 0.06
    assert less.decode < 0
    assert more.device_bytes > 0 > less.device_bytes


def test_impossible_changes_are_left_out() -> None:
    apple = effects(gpu="m2-ultra-76", model="llama3-8b", quant="f16", ctx=1024, prompt=512)
    assert not any(name.startswith("one more") for name in apple)
    assert not any("half the context" in name or "ubatch" in name for name in apple)
    assert "Q8_0 quantisation" in apple
    quantised = effects(gpu="rtx4090", model="llama3-8b", kv_type_k="q8_0", kv_type_v="q8_0")
    assert "q8_0 KV cache" not in quantised
