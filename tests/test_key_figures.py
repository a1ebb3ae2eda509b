"""The few figures that planning compares are those of the estimate."""

from __future__ import annotations

import pytest

from llmcalc.estimation import estimate_request
from llmcalc.key_figures import key_figures
from llmcalc.request import resolve
from llmcalc.request_times import RequestTimes
from llmcalc.step_times import mixed_s


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(("gpu", "model"), [("rtx4090", "llama3-8b"), (["rtx3090", "rtx3060-12gb"], "qwen3-30b-a3b")])
def test_same_as_the_estimate(gpu: object, model: str, parallel: int) -> None:
    request = resolve(gpu=gpu, model=model, quant="q4", ctx=32768, parallel=parallel, prompt=2000, cached_prefix=500)
    whole, few = estimate_request(request), key_figures(request)
    full = whole.decode[-1]
    assert few.occupied_tokens == full.occupied_tokens == 32768 // parallel - 1
    assert few.tokens_per_s == pytest.approx(full.tokens_per_s)
    assert few.aggregate_tokens_per_s == pytest.approx(full.aggregate_tokens_per_s)
    assert few.interval_80 == pytest.approx(full.interval_80)
    assert few.prefill_tokens_per_s == pytest.approx(whole.prefill[0].tokens_per_s)
    assert few.ttft_s == pytest.approx(whole.latency.ttft_s)
    assert few.fits == whole.memory.fits
    assert few.memory.margin_bytes == whole.memory.margin_bytes


def test_others_who_decode_delay_the_first_token() -> None:
    request = resolve(gpu="rtx4090", model="llama3-8b", ctx=65536, parallel=8, prompt=1500, kv_unified=True)
    figures = key_figures(request)
    expected = mixed_s(RequestTimes(request), 1500.0, 0.0, 7.0, 1500.0)
    assert figures.busy_ttft_s - figures.ttft_s == pytest.approx(float(expected) - figures.prefill_s)
    assert figures.busy_ttft_s > figures.ttft_s
    alone = key_figures(resolve(gpu="rtx4090", model="llama3-8b", ctx=8192, prompt=1500))
    assert alone.busy_ttft_s == alone.ttft_s
