"""Figures of a benchmark: told apart by kind, set against the roofs, with what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from calibration_cases import DEVICE, run

from llmcalc.calibration.benchmark_card import KINDS, benchmark_data, kind_of, missing, read_benchmark
from llmcalc.calibration.machine_runs import Given
from llmcalc.calibration.readers import read_runs
from llmcalc.device_catalog import find_device
from llmcalc.estimation import estimate

DATA = Path(__file__).parent / "data" / "readers"


@pytest.mark.parametrize(
    ("prompt", "generated", "parallel", "kind"),
    [
        (512, 0, 1, "prefill"),
        (0, 128, 1, "decode"),
        (0, 128, 8, "aggregate_decode"),
        (512, 0, 8, "aggregate_prefill"),
        (512, 128, 1, "mixed"),
    ],
)
def test_kinds_are_told_apart(prompt: int, generated: int, parallel: int, kind: str) -> None:
    phase = "aggregate" if parallel > 1 else "mixed" if prompt and generated else "prefill" if prompt else "decode"
    assert kind_of(run("llama3-8b", "Q4_K_M", prompt, generated, phase=phase, n_parallel=parallel)) == kind
    assert kind in KINDS


def test_figures_of_different_kinds_are_apart() -> None:
    runs = [
        run("llama3-8b", "Q4_K_M", 512, 0, t_s=4000.0),
        run("llama3-8b", "Q4_K_M", 0, 128, t_s=80.0),
        run("llama3-8b", "Q4_K_M", 0, 128, phase="aggregate", n_parallel=8, t_s=400.0),
    ]
    (card,) = read_benchmark(runs, profile=False).cards
    assert [len(card.of_kind(kind)) for kind in KINDS] == [1, 1, 0, 1, 0]


def test_shares_are_recomputed_from_the_figures() -> None:
    rate = 75.0
    (card,) = read_benchmark([run("llama3-8b", "Q4_K_M", 0, 128, t_s=rate)], profile=False).cards
    judged = card.figures[0].achieved
    assert judged is not None
    device = find_device(DEVICE)
    assert judged.of_bandwidth == pytest.approx(judged.bytes_per_s / device.bandwidth_bytes_per_s)
    assert judged.of_peak == pytest.approx(judged.flop_per_s / device.peaks_flop_per_s[judged.peak or ""])
    assert judged.of_estimate == pytest.approx(rate / judged.estimate_tokens_per_s)
    assert judged.bytes_per_s / rate == pytest.approx(4.3e9, rel=0.1)  # 4.58 GiB less the token embedding, a token


def test_the_estimate_is_that_of_the_estimate_command() -> None:
    found = read_benchmark([run("llama3-8b", "Q4_K_M", 512, 0, t_s=4000.0, era=None)], profile=False).cards[0]
    judged = found.figures[0].achieved
    expected = estimate(gpu=DEVICE, model="llama3-8b", quant="q4", prompt=512)
    assert judged is not None
    # a run that says nothing of its build is taken to be of 2025H2, an estimate is for the newest
    assert judged.estimate_tokens_per_s == pytest.approx(expected.prefill[0].tokens_per_s, rel=0.35)


def test_what_cannot_be_judged_says_why() -> None:
    (card,) = read_benchmark([replace(run("llama3-8b", "Q4_K_M", 0, 64), ngl=12)], profile=False).cards
    assert card.figures[0].achieved is None
    assert card.figures[0].reason == "offload"


def test_missing_settings_are_named() -> None:
    said_nothing = {"backend": None, "hardware_id": None, "quant": None, "flash_attn": None}
    bare = replace(run("llama3-8b", "Q4_K_M", 512, 0), **said_nothing)  # type: ignore[arg-type]
    said = "; ".join(missing(bare, None))
    for what in ("device", "backend", "quantisation", "build", "micro-batch", "flash attention", "repetitions"):
        assert what in said
    whole = run("llama3-8b", "Q4_K_M", 512, 0, build="abc", n_ubatch=512, ngl=99, t_s_std=0.1, type_k="f16")
    assert missing(whole, whole) == []


def test_a_pasted_issue_gives_a_card_a_table() -> None:
    read = read_runs(DATA / "pasted-issue.md")
    benchmark = read_benchmark(read.runs, profile=False)
    assert sum(len(card.figures) for card in benchmark.cards) == len(read.runs)
    assert benchmark.cards[0].device == "geforce-rtx-4090"
    assert any("device not stated" in card.device for card in benchmark.cards)
    data = benchmark_data(benchmark)
    assert data["schema"] == "llmcalc.benchmark/1"
    assert data["cards"][0]["figures"][0]["of_ceiling"] < 1


def test_an_override_names_the_device() -> None:
    nameless = run("llama3-8b", "Q4_K_M", 0, 128, hardware_id=None, t_s=70.0)
    (card,) = read_benchmark([nameless], Given(gpu=find_device(DEVICE)), profile=False).cards
    assert card.device == DEVICE
    assert card.figures[0].achieved is not None
