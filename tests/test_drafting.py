"""Gains of drafts: curves, best lengths and break-evens that belong together."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from llmcalc.drafting import DraftingGain, drafting_gain
from llmcalc.errors import InputError
from llmcalc.placement_settings import settings
from llmcalc.request import Request, resolve
from llmcalc.request_times import RequestTimes


def request(model: str = "qwen3-32b", quant: str = "q4", **given: object) -> Request:
    return resolve(gpu="rtx4090", model=model, quant=quant, ctx=8192, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def gain() -> DraftingGain:
    return drafting_gain(request(), draft=request("qwen3-0.6b", "q8"))


def test_the_best_length_is_the_top_of_the_curve(gain: DraftingGain) -> None:
    assert (gain.best == np.argmax(gain.speedup, axis=1)).all()
    assert (np.diff(gain.best) >= 0).all()
    assert (np.diff(gain.speedup.max(axis=1)) > 0).all()
    assert gain.speedup[:, 0] == pytest.approx(1.0)
    assert gain.tokens_per_s == pytest.approx(gain.speedup * gain.plain_tokens_per_s)


def test_plain_is_decode_of_the_request(gain: DraftingGain) -> None:
    times = RequestTimes(gain.request)
    assert gain.occupied == 1024 + 128
    decode_s = float(np.asarray(times.decode_s(1, gain.occupied + 1)))
    assert gain.plain_tokens_per_s == pytest.approx(1 / (decode_s + gain.work.sample_s))
    assert 0 < gain.work.sample_s < 0.05 * decode_s


def test_break_even_is_where_a_length_pays(gain: DraftingGain) -> None:
    for n in (1, 4, 8):
        alpha = float(gain.break_even[n - 1])
        at = drafting_gain(gain.request, draft=request("qwen3-0.6b", "q8"), acceptances=[alpha, min(alpha + 0.05, 1)])
        assert at.speedup[0, n] == pytest.approx(1.0, abs=1e-6)
        assert at.speedup[1, n] > 1


def test_memory_counts_beside_the_model(gain: DraftingGain) -> None:
    assert gain.fits is True
    margin = gain.memory.margin_bytes
    assert margin is not None
    assert margin >= gain.drafter.memory_bytes > 0
    assert drafting_gain(request(quant="q5"), draft=request("qwen3-1.7b", "f16")).fits is False


def test_mtp_and_ngrams() -> None:
    mtp = drafting_gain(request("qwen3.6-27b"), mtp=True, acceptances=[0.8])
    assert 1.2 < mtp.speedup.max() < 3.5
    assert mtp.kind == "its MTP layers"
    free = drafting_gain(request(), ngram_coverage=0.4, acceptances=[0.9])
    assert free.drafter.memory_bytes == 0
    assert 1 < free.speedup.max() < drafting_gain(request(), ngram_coverage=0.8, acceptances=[0.9]).speedup.max()


def test_a_draft_must_fit_on_the_device_that_holds_it() -> None:
    def put(model: str, **placed: object) -> Request:
        asked = resolve(gpu=["rtx4090", "rtx3060-12gb"], model=model, quant="q4", ctx=8192)
        return replace(asked, settings=settings(**placed))

    # The target fills the first card and leaves the second empty.
    target = put("qwen3-32b", split_mode="none", main_gpu=0)
    assert drafting_gain(target, draft=put("qwen3-4b", split_mode="none", main_gpu=1)).fits is True
    assert drafting_gain(target, draft=put("qwen3-4b", split_mode="none", main_gpu=0)).fits is False


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="a draft model needs the same vocabulary"):
        drafting_gain(request(), draft=request("llama3.2-1b"))


def test_rejections_cost_more_where_states_are_saved() -> None:
    hybrid = drafting_gain(request("qwen3.6-27b"), ngram_coverage=0.5, acceptances=[0.6])
    assert hybrid.work.checkpoint_s > 0
    assert "recurrent state" in repr(hybrid)
    mtp = drafting_gain(request("qwen3.6-27b"), mtp=True, acceptances=[0.6])
    assert mtp.work.checkpoint_s == 0
    assert hybrid.break_even[2] > 0.3


def test_exactly_one_drafter() -> None:
    with pytest.raises(InputError, match="name one drafter"):
        drafting_gain(request())
    with pytest.raises(InputError, match="name one drafter"):
        drafting_gain(request(), mtp=True, ngram_coverage=0.5)
    with pytest.raises(InputError, match="at least one acceptance"):
        drafting_gain(request(), ngram_coverage=0.5, acceptances=[])
    with pytest.raises(InputError, match="at most 256 tokens"):
        drafting_gain(request(), ngram_coverage=0.5, longest=100_000)


def test_pages_and_data(gain: DraftingGain) -> None:
    curve = drafting_gain(request(), ngram_coverage=0.5, acceptances=[0.9])
    for one in (gain, curve):
        lines = repr(one).splitlines()
        assert max(map(len, lines)) <= 80
    assert "best" in repr(curve)
    data = json.loads(json.dumps(gain.to_dict(), allow_nan=False))
    assert data["acceptances"][0]["best_draft_length"] == int(gain.best[0])
    assert len(data["acceptances"][0]["speedup"]) == len(data["draft_lengths"]) == 17
    never = [None if math.isnan(x) else x for x in gain.break_even.tolist()]
    assert data["break_even_acceptance"] == never
