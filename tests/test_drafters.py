"""Drafters of real models: what MTP layers cost and hold, and the gain against measured runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import pytest

from llmcalc.drafters import model_drafter, mtp_drafter, mtp_layers
from llmcalc.errors import InputError
from llmcalc.inventory import inventory
from llmcalc.memory import memory_plan
from llmcalc.request import Request, resolve
from llmcalc.request_times import RequestTimes
from llmcalc.speculative import acceptance_of, speculate

_MEASURED = re.compile(
    r"spec=draft-mtp; n_max=(\d+); acceptance=([\d.]+)(?:[-–]([\d.]+))?; paired with baseline ([\d.]+)"
)


def request(model: str = "qwen3.6-27b", gpu: str = "rtx4090", quant: str = "Q4_K_M") -> Request:
    return resolve(model=model, gpu=gpu, quant=quant, ctx=8192)


def test_mtp_layers_are_one_block_and_the_output_head() -> None:
    whole, part = request(), mtp_layers(request())
    assert part.model.n_layers == len(whole.model.draft_layers) == 1
    groups = inventory(part.model, part.weights).matrices
    assert [group.kind for group in groups].count("output") == 1
    assert sum(group.bytes for group in groups) < 0.15 * whole.weights.bytes
    own = [quantized for quantized in part.weights.tensors if quantized.tensor.layer == 0]
    drafted = [quantized for quantized in whole.weights.tensors if quantized.tensor.layer >= whole.model.n_layers]
    assert sum(one.bytes for one in own) == sum(one.bytes for one in drafted)


def test_mtp_memory_is_weights_and_cache() -> None:
    drafter, whole = mtp_drafter(request()), request()
    drafted = sum(q.bytes for q in whole.weights.tensors if q.tensor.layer >= whole.model.n_layers)
    cells = 8192 * 4 * 256 * 2 * 2  # 4 heads of 256, K and V, F16
    assert drafter.memory_bytes == drafted + cells


def test_drafting_is_cheaper_than_deciding() -> None:
    drafter, times = mtp_drafter(request()), RequestTimes(request())
    assert 0 < drafter.draft_s(1, 1, 1000) < 0.25 * times.decode_s(1, 1000)
    assert drafter.draft_s(0, 1, 1000) == 0


def test_a_draft_model_costs_its_steps_and_its_memory() -> None:
    small = request("llama3.2-1b")
    drafter = model_drafter(small)
    assert drafter.memory_bytes == memory_plan(small.model, small.weights, small.workload, small.system).total_bytes
    step = float(np.asarray(RequestTimes(small).decode_s(1, 1000)))
    # Catching up reads the weights once more, but not the output head (here, the tied embedding).
    assert 4 * step < drafter.draft_s(4, 1, 1000) < 5.2 * step


def test_verification_of_a_mixture_touches_more_experts() -> None:
    drafter = model_drafter(request("llama3.2-1b"))
    ratios = [
        (s := speculate(RequestTimes(request(model)), drafter, acceptance=0.8, draft_length=4)).verify_s
        / s.plain_step_s
        for model in ("llama3.1-8b", "qwen3-30b-a3b")
    ]
    assert ratios[1] > ratios[0] > 1


def test_models_without_mtp_say_so() -> None:
    with pytest.raises(InputError, match="no MTP layers"):
        mtp_drafter(request("llama3.1-8b"))


def measured() -> Iterator[tuple[str, str, int, float, float]]:
    """(device, quantisation, draft length, accepted share, speed-up) of MTP runs on one known device."""
    text = files("llmcalc.hardware").joinpath("measurements", "public_runs.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found = _MEASURED.search(row["notes"])
        if row["class"] != "speculative" or not found or "split_mode" in row["notes"] or not row["hardware_id"]:
            continue
        if row["quant"] not in ("", "Q4_K_M", "Q6_K", "UD-Q4_K_XL") or row["model_id"] != "qwen3.6-27b":
            continue
        quant = "Q6_K" if row["quant"] == "Q6_K" else "Q4_K_M"  # most rows: Q4_K_M or Unsloth's mix of the same size
        share = (float(found[2]) + float(found[3] or found[2])) / 2
        yield row["hardware_id"], quant, int(found[1]), share, float(row["t_s"]) / float(found[4])


def test_measured_gains() -> None:
    ratios = []
    for device, quant, length, share, gain in measured():
        asked = request(gpu=device, quant=quant)
        predicted = speculate(
            RequestTimes(asked),
            mtp_drafter(asked),
            acceptance=acceptance_of(share, length),
            draft_length=length,
            occupied=1000,
        )
        ratios.append(float(predicted.speedup) / gain)
    assert len(ratios) >= 25
    # Acceptance is often a range over prompts, whose middle stands for it here; the server's own work (sampling,
    # state copies) is not modelled, so that gains come out somewhat high.
    assert 0.95 < np.median(ratios) < 1.3
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.25
