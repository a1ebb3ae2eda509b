"""Gains of drafts: curves, best lengths and break-evens that belong together."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from llmcalc.drafting import DraftingGain, drafting_gain
from llmcalc.errors import InputError
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
    assert gain.plain_tokens_per_s == pytest.approx(1 / float(np.asarray(times.decode_s(1, gain.occupied + 1))))


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


def test_exactly_one_drafter() -> None:
    with pytest.raises(InputError, match="name one drafter"):
        drafting_gain(request())
    with pytest.raises(InputError, match="name one drafter"):
        drafting_gain(request(), mtp=True, ngram_coverage=0.5)
    with pytest.raises(InputError, match="at least one acceptance"):
        drafting_gain(request(), ngram_coverage=0.5, acceptances=[])


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
