"""Measured runs in several places: how they are read, how well they are predicted, what is left out and why."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from published_models import published

from llmcalc.calibration.measurements import UnpredictableError
from llmcalc.calibration.offload_accuracy import (
    OffloadReport,
    PlacedPrediction,
    markdown,
    offload_report,
    ordering,
    scores,
)
from llmcalc.calibration.offload_runs import known_host, placed_case
from llmcalc.calibration.readers import read_runs
from llmcalc.calibration.runs import Run
from llmcalc.placement import HOST, on_host, place

FILE = Path(__file__).parent.parent / "hardware" / "measurements" / "public_runs.csv"


@cache
def offload() -> OffloadReport:
    return offload_report(run for run in read_runs([FILE]).runs if run.class_ == "offload")


@cache
def several() -> OffloadReport:
    """Every fourth run on several devices: enough to see that nothing broke."""
    return offload_report([run for run in read_runs([FILE]).runs if run.class_ == "multi-device"][::4])


RUN = Run(
    engine="llama.cpp", backend="CUDA", hardware_id="quadro-rtx-5000", device_count=1, model_id="qwen3-30b-a3b",
    device_detail="16GB, 230W; VM with 6 P-cores; DDR5 JEDEC 4000 MT/s", quant="Q4_K_M", ngl=99, n_cpu_moe=24,
    threads=6, phase="decode", n_gen=128, t_s=50.86, class_="offload", era="2026H2",
)  # fmt: skip


def test_a_run_with_its_placement_and_host() -> None:
    case = placed_case(RUN)
    placement = case.placed.placement
    assert [placement.expert_device(i) for i in (0, 23, 24, 47)] == [HOST, HOST, 0, 0]
    assert case.placed.machine.host.device.bandwidth_bytes_per_s == 64e9
    assert case.placed.machine.threads == 6
    assert float(case.predicted().tokens_per_s[0]) == pytest.approx(RUN.t_s, rel=0.3)


def test_overrides_in_the_notes() -> None:
    run = replace(RUN, n_cpu_moe=None, notes="ot=exps=CPU")
    assert all(placed_case(run).placed.placement.expert_device(i) == HOST for i in range(48))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device_detail": "16GB"}, "host not stated"),
        ({"ngl": None, "n_cpu_moe": None}, "placement not stated"),
        ({"hardware_id": None}, "device not named"),
        ({"model_id": None}, "model not named"),
        ({"engine": "vllm"}, "other engine"),
        ({"phase": "mixed"}, "prompt and generation in one rate"),
        ({"class_": "clean-single"}, "neither offload nor several devices"),
        ({"class_": "multi-device"}, "number of devices not stated"),
    ],
)
def test_reasons_for_leaving_a_run_out(change: dict[str, object], reason: str) -> None:
    with pytest.raises(UnpredictableError, match=reason):
        placed_case(replace(RUN, **change))  # type: ignore[arg-type]


def test_assumptions_are_asked_for() -> None:
    assert placed_case(replace(RUN, device_detail="16GB"), assume_host=True).placed.machine.host.note
    fitted = placed_case(replace(RUN, ngl=None, n_cpu_moe=None), assume_fit=True)
    assert fitted.placed.placement.ruled  # 17 GiB of weights on 16


def test_hosts_are_known_by_the_words_of_the_source() -> None:
    host = known_host("8GB; host Ryzen 9 9900X, 64GB RAM")
    assert host is not None
    assert host.cpu.cores == 12
    assert known_host("host Ryzen 3 1200") is None


@pytest.mark.slow
def test_offload_is_predicted_well_enough() -> None:
    decode, prefill = (offload().scores("offload", phase) for phase in ("decode", "prefill"))
    assert decode is not None
    assert prefill is not None
    assert decode.n >= 20
    assert prefill.n >= 25
    assert decode.median_abs_error <= 0.20
    assert prefill.median_abs_error <= 0.30


@pytest.mark.slow
def test_several_devices_are_predicted_well_enough() -> None:
    decode, prefill = (several().scores("multi-device", phase) for phase in ("decode", "prefill"))
    assert decode is not None
    assert prefill is not None
    assert decode.median_abs_error <= 0.20
    assert prefill.median_abs_error <= 0.30


def test_settings_of_a_machine_are_put_in_order() -> None:
    order = offload().ordering
    assert order.pairs > 150
    assert order.share >= 0.90


def test_every_run_is_predicted_or_left_out_for_a_reason() -> None:
    rows = sum(run.class_ == "offload" for run in read_runs([FILE]).runs)
    assert len(offload().stated) + len(offload().fitted) + len(offload().skipped) == rows
    assert all(reason for _, reason in offload().skipped)
    assert "| host not stated | offload |" in markdown(offload())


def prediction(measured: float, predicted: float, gpu_layers: int) -> PlacedPrediction:
    model = published("llama3-8b")
    placement = place(model, gpu_layers) if gpu_layers else on_host(model)
    return PlacedPrediction(replace(RUN, t_s=measured), predicted, predicted / 2, predicted * 2, placement)


def test_ordering_counts_pairs_that_differ() -> None:
    rows = [prediction(10, 11, 0), prediction(20, 19, 10), prediction(30, 18, 20), prediction(10.1, 5, 5)]
    found = ordering(rows)
    assert (found.right, found.pairs, found.groups) == (4, 5, 1)  # 10 and 10.1 are a tie, 20 and 30 are swapped


def test_scores_of_a_few() -> None:
    found = scores([prediction(10, 11, 0), prediction(20, 10, 0)])
    assert found is not None
    assert found.median_abs_error == pytest.approx(0.3)
    assert found.coverage_80 == 1.0
    assert scores([]) is None
