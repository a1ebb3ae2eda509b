"""Measured runs beside an estimate: which ones belong to it, and where they lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmcalc.calibration.measured_points import measured_points
from llmcalc.calibration.runs import Run
from llmcalc.multi_device import decode_on, prefill_on
from llmcalc.request import Request, resolve

DECODE = Run(
    hardware_id="geforce-rtx-4090", device_count=1, model_id="llama3.1-8b", quant="Q4_K_M", backend="CUDA",
    phase="decode", n_gen=128, n_depth=4096, t_s=120.0,
)  # fmt: skip
PREFILL = replace(DECODE, phase="prefill", n_prompt=512, n_gen=0, n_depth=1024, t_s=9000.0)


@pytest.fixture(scope="module")
def asked() -> Request:
    return resolve(gpu="rtx4090", model="llama3.1-8b", quant="q4", ctx="8k")


def test_points_have_the_rate_that_was_measured_and_the_work_that_was_done(asked: Request) -> None:
    run, model_id = replace(DECODE, model_id=asked.model.id), asked.model.id
    decode, prefill = measured_points([run, replace(PREFILL, model_id=model_id)], asked).points
    step = decode_on(asked, np.array([4096 + 64 + 1.0])).main
    assert (decode.phase, decode.tokens, decode.prompt, decode.tokens_per_s) == ("decode", 4160, 0, 120.0)
    assert decode.flop_per_s == pytest.approx(float(np.ravel(step.flops)[0]) * 120.0)
    assert decode.intensity == pytest.approx(float(np.ravel(step.intensity)[0]))
    read = prefill_on(asked, np.array([1536.0]), None, np.array([1024.0])).main
    assert (prefill.phase, prefill.tokens, prefill.prompt) == ("prefill", 1024, 512)
    assert prefill.flop_per_s == pytest.approx(float(np.ravel(read.flops)[0]) / 512 * 9000.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hardware_id": "geforce-rtx-3090"}, "another device"),
        ({"device_count": 2}, "another device"),
        ({"model_id": "llama3-70b"}, "another model"),
        ({"quant": "Q8_0"}, "another quantisation"),
        ({"backend": "Vulkan"}, "another backend"),
        ({"phase": "mixed", "n_prompt": 512}, "prompt and generation in one rate"),
        ({"phase": "prefill", "n_gen": 0}, "prompt length not stated"),
        ({"ngl": 10}, "offload"),
        ({"hardware_id": None}, "device, model or quantisation not recognised"),
    ],
)
def test_runs_of_something_else_are_counted_by_reason(asked: Request, changes: dict[str, object], reason: str) -> None:
    run = replace(replace(DECODE, model_id=asked.model.id), **changes)  # type: ignore[arg-type]
    found = measured_points([run], asked)
    assert found.points == ()
    assert found.skipped == {reason: 1}
