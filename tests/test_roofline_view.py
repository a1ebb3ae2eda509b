"""Rooflines against the estimate, the device's datasheet and the definition of a roof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmcalc.efficiency import Efficiency
from llmcalc.estimation import estimate_request
from llmcalc.placement_settings import PlacementSettings
from llmcalc.request import Request, resolve
from llmcalc.roofline_view import RooflineView, roofline_view

PRIORS = Efficiency()
CASES = {
    "dense": {"gpu": "rtx4090", "model": "llama3.1-8b", "quant": "q4", "ctx": "32k"},
    "experts": {"gpu": "m2-ultra-76", "model": "gpt-oss-120b", "ctx": "32k"},
    "cpu": {"cpu": "ryzen-9-7950x", "model": "qwen3-30b-a3b", "quant": "q4"},
    "old cpu": {"cpu": "core-i7-8700k", "model": "llama3.1-8b", "quant": "q4"},
    "two cards": {"gpu": ["rtx3090", "rtx3060"], "model": "llama3.1-8b", "quant": "q8"},
    "no matrix unit": {"gpu": "tesla-p40", "model": "llama3.1-8b", "quant": "q4"},
    "float weights": {"gpu": "rtx4090", "model": "llama3.1-8b", "quant": "f16"},
}


def view_of(case: str) -> tuple[Request, RooflineView]:
    asked = resolve(**CASES[case])  # type: ignore[arg-type]
    return asked, roofline_view(asked, PRIORS)


@pytest.mark.parametrize("case", CASES)
def test_points_are_those_of_the_estimate(case: str) -> None:
    asked, view = view_of(case)
    e = estimate_request(asked, PRIORS)
    prefill = [point for point in view.points if point.kind == "prefill"]
    decode = [point for point in view.points if point.kind == "decode"]
    ends = (e.decode[0], e.decode[-1])
    assert [p.tokens_per_s for p in prefill] == pytest.approx([p.tokens_per_s for p in e.prefill])
    assert [p.tokens_per_s for p in decode] == pytest.approx([d.aggregate_tokens_per_s for d in ends])
    if len(asked.devices) > 1:  # the estimate's intensities are those of the whole machine
        return
    assert [p.intensity for p in prefill] == pytest.approx([p.intensity_flop_per_byte for p in e.prefill])
    assert [p.intensity for p in decode] == pytest.approx([d.intensity_flop_per_byte for d in ends])


@pytest.mark.parametrize("case", CASES)
def test_points_lie_under_the_roof(case: str) -> None:
    _, view = view_of(case)
    for point in view.points:
        assert point.flop_per_s <= min(view.bandwidth_bytes_per_s * point.intensity, view.peak_flop_per_s) * 1.001


@pytest.mark.parametrize("case", CASES)
def test_roofs_are_the_datasheets_and_are_not_reached(case: str) -> None:
    asked, view = view_of(case)
    device = next(one for one in asked.devices if one.name == view.device)
    assert view.bandwidth_bytes_per_s == device.bandwidth_bytes_per_s
    assert view.reached_bandwidth_bytes_per_s < view.bandwidth_bytes_per_s
    assert view.roofs
    for roof in view.roofs:
        assert roof.flop_per_s >= device.peaks_flop_per_s[roof.path]
        assert roof.reached_flop_per_s < roof.flop_per_s
        assert view.ridge(roof) * view.bandwidth_bytes_per_s == pytest.approx(roof.flop_per_s)
        assert view.reached_ridge(roof) * view.reached_bandwidth_bytes_per_s == pytest.approx(roof.reached_flop_per_s)
    assert list(view.roofs) == sorted(view.roofs, key=lambda roof: -roof.flop_per_s)


HOST = {"gpu": "rtx3090", "cpu": "ryzen-9-7950x", "ram": "128GiB", "model": "llama3-70b", "quant": "q4"}


@pytest.mark.parametrize("ngl", [0, 20, 60, 80])
def test_spread_work_is_seen_from_one_device_of_the_machine(ngl: int) -> None:
    asked = replace(resolve(**HOST), settings=PlacementSettings(ngl=ngl))  # type: ignore[arg-type]
    view, e = roofline_view(asked, PRIORS), estimate_request(asked, PRIORS)
    assert view.device in ("GeForce RTX 3090", "AMD Ryzen 9 7950X")
    assert view.roofs
    decode = [point for point in view.points if point.kind == "decode"]
    assert decode[0].tokens_per_s == pytest.approx(e.decode[0].aggregate_tokens_per_s)
    for point in view.points:
        assert point.flop_per_s <= view.bandwidth_bytes_per_s * point.intensity * 1.001


def test_quantised_weights_on_int8_and_attention_on_fp16() -> None:
    _, view = view_of("dense")
    assert [roof.path for roof in view.roofs] == ["int8_matrix", "fp16_matrix_fp16_accumulate"]
    assert [roof.path for roof in view_of("float weights")[1].roofs] == ["fp16_matrix_fp16_accumulate"]


def test_the_reached_bandwidth_is_the_memory_factor() -> None:
    asked, view = view_of("dense")
    memory = PRIORS.machine(asked.backend, asked.devices[0]).values["memory"]
    assert view.reached_bandwidth_bytes_per_s == pytest.approx(view.bandwidth_bytes_per_s * np.exp(-memory.mean))


def test_more_sequences_raise_the_intensity() -> None:
    _, view = view_of("dense")
    batched = [point.intensity for point in view.points if point.kind == "batched"]
    assert len(batched) == 6
    assert np.all(np.diff(batched) > 0)


def test_operations_of_both_phases_are_there() -> None:
    _, view = view_of("dense")
    labels = {point.label for point in view.operations}
    assert "prefill: attention" in labels
    assert "decode: attention" in labels
    assert all(point.tokens_per_s is None for point in view.operations)
