"""Physics lint: what cannot be is an error, what does not fit its siblings a suspect; causes follow their marks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from calibration_cases import DEVICE, FILES, run

from llmcalc.calibration.achieved import achieved
from llmcalc.calibration.diagnosis import Diagnosis, diagnose, diagnosis_data
from llmcalc.calibration.measurements import case_of
from llmcalc.calibration.runs import Run
from llmcalc.device_catalog import find_device

CPU = {"backend": "CPU", "hardware_id": "ryzen-9-7950x"}


def at(share: float, *test: object, **given: object) -> Run:
    """A run at a share of what is estimated for it."""
    bare = run(*test, **given)  # type: ignore[arg-type]
    return replace(bare, t_s=share * achieved(case_of(bare)).estimate_tokens_per_s)


def check(*runs: Run) -> Diagnosis:
    return diagnose(runs, profile=False)


def first_cause(*runs: Run) -> str:
    (machine,) = check(*runs).machines
    return machine.causes[0].name


def test_a_run_above_a_roof_is_a_data_error() -> None:
    bare = run("llama3-8b", "Q8_0", 0, 128)
    ceiling = achieved(case_of(bare)).ceiling_tokens_per_s
    assert not check(replace(bare, t_s=0.98 * ceiling)).findings
    (finding,) = check(replace(bare, t_s=1.1 * ceiling)).findings
    assert finding.severity == "data error"
    assert "110% of the bandwidth" in finding.text


def test_a_run_above_the_compute_roof_is_one_too() -> None:
    bare = run("llama3-8b", "Q8_0", 2048, 0)
    (finding,) = check(replace(bare, t_s=1.5 * achieved(case_of(bare)).ceiling_tokens_per_s)).findings
    assert (finding.severity, "compute roof" in finding.text) == ("data error", True)


def test_weights_that_fit_the_cache_may_be_faster_than_memory() -> None:
    small = run("smollm2-135m", "Q8_0", 0, 64, weights_gib=0.05, **CPU)
    ceiling = achieved(case_of(small)).ceiling_tokens_per_s
    (finding,) = check(replace(small, t_s=1.2 * ceiling)).findings
    assert (finding.severity, "cache" in finding.text) == ("remark", True)


@pytest.mark.parametrize("phase", [(512, 0), (0, 128)])
def test_one_run_far_below_its_siblings_is_a_suspect(phase: tuple[int, int]) -> None:
    siblings = [at(0.95 + 0.02 * number, *file, *phase) for number, file in enumerate(FILES[1:])]
    slow = at(0.4, *FILES[0], *phase)
    (finding,) = check(slow, *siblings).findings
    assert finding.severity == "suspect"
    assert finding.run.t_s == slow.t_s


def test_runs_that_are_all_alike_are_no_suspects() -> None:
    assert not check(*(at(0.5, *file, 0, 128) for file in FILES)).findings


def test_nothing_slow_has_no_causes() -> None:
    runs = [at(share, *file, *test) for file in FILES[:3] for test, share in (((512, 0), 0.97), ((0, 128), 1.02))]
    assert [machine.causes for machine in check(*runs).machines] == [()]


def test_slow_prefill_alone_points_to_a_power_limit() -> None:
    assert "power" in first_cause(at(0.4, "llama3-8b", "Q4_K_M", 512, 0), at(1.0, "llama3-8b", "Q4_K_M", 0, 128))


def test_falling_repetitions_point_to_heat() -> None:
    hot = replace(at(0.5, "llama3-8b", "Q4_K_M", 512, 0), samples_t_s=(100.0, 80.0, 60.0))
    diagnosis = check(hot, at(0.9, "llama3-8b", "Q4_K_M", 0, 128))
    assert "power or temperature" in diagnosis.machines[0].causes[0].name
    assert any("slower than the last" in finding.text for finding in diagnosis.findings)


def test_slow_decode_alone_on_a_cpu_points_to_its_memory() -> None:
    runs = (at(0.5, "llama3-8b", "Q4_K_M", 0, 64, **CPU), at(1.0, "llama3-8b", "Q4_K_M", 512, 0, **CPU))
    assert "one channel" in first_cause(*runs)


def test_more_threads_than_cores_are_seen() -> None:
    given = {**CPU, "threads": 32}
    runs = (at(0.5, "llama3-8b", "Q4_K_M", 0, 64, **given), at(0.5, "llama3-8b", "Q4_K_M", 512, 0, **given))
    (machine,) = check(*runs).machines
    assert machine.causes[0].name == "the number of threads"
    assert "32 threads on 16 cores" in machine.causes[0].evidence[0]


def test_a_model_as_large_as_the_memory_spills() -> None:
    runs = (at(0.2, "llama3-8b", "F16", 0, 64, weights_gib=14.9), at(0.2, "llama3-8b", "F16", 512, 0, weights_gib=14.9))
    (machine,) = check(*runs).machines
    assert "spilled" in machine.causes[0].name
    assert "on a device with 12 GiB" in machine.causes[0].evidence[0]


def test_slow_at_depth_alone_points_to_the_cache_or_flash_attention() -> None:
    deep = at(0.3, "llama3.2-1b", "Q8_0", 0, 32, 16384, flash_attn="1")
    flat = at(1.0, "llama3.2-1b", "Q8_0", 0, 128, flash_attn="1")
    assert "KV cache is on the host" in first_cause(deep, flat)
    off = [replace(one, flash_attn="0") for one in (deep, flat)]
    share = achieved(case_of(off[0])).of_estimate
    off[0] = replace(off[0], t_s=off[0].t_s * 0.3 / share)
    names = [cause.name for cause in check(*off).machines[0].causes]
    assert "flash attention is off" in names[:2]


def test_an_unusual_backend_is_named() -> None:
    vulkan = {"backend": "Vulkan"}
    runs = (at(0.4, "llama3-8b", "Q4_K_M", 0, 64, **vulkan), at(0.4, "llama3-8b", "Q4_K_M", 512, 0, **vulkan))
    (machine,) = check(*runs).machines
    build = next(cause for cause in machine.causes if "build" in cause.name)
    assert "CUDA is the usual backend" in " ".join(build.evidence)


def test_layers_on_the_cpu_are_said_outright() -> None:
    (machine,) = check(run("llama3-8b", "Q4_K_M", 0, 64, ngl=10)).machines
    assert machine.device == DEVICE
    assert "-ngl 10" in machine.causes[0].evidence[0]


def test_every_cause_has_evidence_and_a_command() -> None:
    runs = [at(0.3, "llama3-8b", "Q4_K_M", *test, **given) for test in ((0, 64), (512, 0)) for given in ({}, CPU)]
    runs = [replace(one, t_s_std=0.2 * one.t_s) for one in runs]
    data = diagnosis_data(check(*runs))
    assert len(data["machines"]) == 2
    for machine in data["machines"]:
        ranked = [cause["likelihood"] for cause in machine["causes"]]
        assert len(ranked) > 3
        assert ranked == sorted(ranked, reverse=True)
        assert all(0 < one <= 1 for one in ranked)
        assert all(cause["command"] and cause["evidence"] for cause in machine["causes"])


def test_apple_is_not_asked_for_memory_channels() -> None:
    metal = {"backend": "Metal", "hardware_id": "apple-m1-max-32c"}
    runs = (at(0.5, "llama3-8b", "Q4_K_M", 0, 64, **metal), at(1.0, "llama3-8b", "Q4_K_M", 512, 0, **metal))
    assert find_device("apple-m1-max-32c").vendor == "apple"
    assert not any("channel" in cause.name for cause in check(*runs).machines[0].causes)
