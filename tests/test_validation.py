"""Validation and fit: statistics by hand, runs that cannot be predicted, and a fit that finds what it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files

import numpy as np
import pytest

from llmcalc.calibration.fit_corpus import corpus_cases, fitted_efficiency, to_yaml
from llmcalc.calibration.fitting import balanced, fit, machine_of, run_weights, summary, weighted_quantile, without_each
from llmcalc.calibration.measurements import Case, UnpredictableError, case_of, mixture_weights
from llmcalc.calibration.runs import Run
from llmcalc.calibration.validation import (
    Prediction,
    depth_name,
    depth_ratio_errors,
    statistics,
    validate,
)
from llmcalc.errors import InputError
from llmcalc.model_catalog import find_model
from llmcalc.phase_roofs import model_traits, phase_roofs
from llmcalc.timing import PhaseTime, phase_time

DECODE = Run(
    id="a", engine="llama.cpp", era="2025H2", backend="CUDA", hardware_id="geforce-rtx-4090", device_count=1,
    model_id="llama2-7b", quant="Q4_0", weights_gib=3.56, phase="decode", n_gen=128, t_s=186.0, class_="clean-single",
)  # fmt: skip
PREFILL = replace(DECODE, id="b", phase="prefill", n_gen=0, n_prompt=512, t_s=12_000.0)


@cache
def corpus() -> tuple[Case, ...]:
    with as_file(files("llmcalc.hardware").joinpath("measurements", "public_runs.csv")) as path:
        return tuple(corpus_cases([path])[0])


def some_devices(*names: str) -> list[Case]:
    return [case for case in corpus() if case.device.id in names]


def prediction(device: str, measured: float, predicted: float, low: float, high: float) -> Prediction:
    return Prediction(replace(DECODE, hardware_id=device), "decode", measured, predicted, low, high)


def test_statistics_by_hand() -> None:
    runs = [
        prediction("one", 100, 110, 90, 120),  # 10 % off, covered
        prediction("two", 100, 80, 70, 90),  # 20 % off, not covered
        prediction("two", 100, 140, 90, 190),  # 40 % off, covered
    ]
    found = statistics(runs)
    assert (found.n, found.devices) == (3, 2)
    assert found.median_abs_error == pytest.approx(0.1)  # half of the weight is device one's
    assert found.p90_abs_error == pytest.approx(0.4)
    assert found.within_10 == pytest.approx(0.5)
    assert found.within_20 == pytest.approx(0.75)
    assert found.within_30 == pytest.approx(0.75)
    assert found.coverage_80 == pytest.approx(0.75)
    assert found.bias == pytest.approx(1.1)


def test_no_runs_are_an_error() -> None:
    with pytest.raises(InputError):
        statistics([])


def test_devices_weigh_the_same() -> None:
    weights = balanced(np.array(["a", "b", "b", "b", "b"]))
    assert weights[0] == weights[1:].sum() == 1
    assert weighted_quantile(np.array([9.0, 1, 2, 3, 4]), weights, 0.5) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"class_": "offload"}, "offload"),
        ({"class_": None, "n_cpu_moe": 8}, "offload"),
        ({"class_": None, "ngl": 0}, "offload"),
        ({"class_": None, "engine": "ik_llama.cpp"}, "other engine"),
        ({"hardware_id": None}, "device not named"),
        ({"hardware_id": "geforce-rtx-9999"}, "unknown device"),
        ({"model_id": "no-such-model"}, "unknown model"),
        ({"class_": None, "device_count": 2}, "several devices"),
        ({"phase": "mixed", "n_prompt": 512}, "prompt and generation in one rate"),
        ({"phase": "prefill", "n_prompt": 0}, "prompt length not stated"),
        ({"backend": "CPU", "hardware_id": "apple-m2-max-30c"}, "CPU cores are not known"),
        ({"quant": None, "weights_gib": None}, "quantisation not stated"),
    ],
)
def test_runs_that_cannot_be_predicted_are_counted_by_reason(change: dict[str, object], reason: str) -> None:
    report = validate([DECODE, replace(DECODE, **change)])  # type: ignore[arg-type]
    ((found, count),) = report.skipped.items()
    assert reason in found and count == 1
    assert report.overall["decode"].n == 1
    assert len(report.predictions) == 2


def test_suspicious_runs_are_predicted_but_not_judged() -> None:
    report = validate([DECODE, replace(DECODE, id="c", class_="suspicious", t_s=500.0)])
    assert report.overall["decode"].n == 1
    assert set(report.groups["class"]) == {"clean-single", "suspicious"}


def test_the_report_as_json_keeps_its_contract() -> None:
    report = validate([DECODE, PREFILL, replace(DECODE, hardware_id=None)]).to_json()
    assert report["rows"] == 3
    assert report["skipped"] == {"device not named": 1}
    assert set(report["overall"]) == {"decode", "prefill"}
    keys = "n devices median_abs_error p90_abs_error bias within_10 within_20 within_30 coverage_80"
    assert set(report["overall"]["decode"]) == set(keys.split())
    assert set(report["groups"]) == {"device", "backend", "model", "quant", "depth", "class"}
    assert report["groups"]["device"]["geforce-rtx-4090"]["prefill"]["n"] == 1


def test_a_files_own_size_beats_the_rule_for_its_type() -> None:
    larger = case_of(replace(DECODE, quant="UD-Q4_K_XL", weights_gib=5.0))
    assert sum(op.weight_bytes for op in larger.phase.operations) == pytest.approx(5.0 * 2**30, rel=0.03)


def test_gpt_oss_files_that_are_named_for_all_but_their_experts() -> None:
    run = replace(DECODE, model_id="gpt-oss-20b", quant="F16", weights_gib=None)
    types = {op.tensor_type: op.weight_bytes for op in case_of(run).phase.operations if op.weight_bytes}
    assert {"F16", "MXFP4"} <= set(types) and "Q8_0" not in types
    made = mixture_weights(find_model("gpt-oss-20b"), "MXFP4_MOE", "F16")
    assert made.bytes / 2**30 == pytest.approx(12.8333, abs=1e-4)  # as published
    assert case_of(replace(run, quant="Q4_K_M")).phase.operations[0].tensor_type in ("Q8_0", "MXFP4")


def test_an_unknown_mixture_is_the_closest_one_of_its_size() -> None:
    case = case_of(replace(DECODE, quant="Q4_K_SPECIAL", weights_gib=3.8))
    assert {op.tensor_type for op in case.phase.operations if op.kind == "dense"} & {"Q4_K", "Q4_1", "Q4_0", "Q3_K"}
    with pytest.raises(UnpredictableError):
        case_of(replace(DECODE, quant="Q4_K_SPECIAL", weights_gib=None))


@pytest.mark.parametrize(
    ("depth", "name"), [(0, "0"), (1, "1–4k"), (4096, "4k–16k"), (65535, "16k–64k"), (200_000, "64k and more")]
)
def test_depth_names(depth: int, name: str) -> None:
    assert depth_name(depth) == name


def test_depth_ratios_compare_a_run_with_its_own_shallow_one() -> None:
    shallow = Prediction(DECODE, "decode", 100.0, 120.0, 110.0, 130.0)
    deep = Prediction(replace(DECODE, n_depth=8192), "decode", 50.0, 54.0, 40.0, 60.0)
    other = Prediction(replace(DECODE, n_depth=8192, flash_attn="0"), "decode", 50.0, 54.0, 40.0, 60.0)
    (ratio,) = depth_ratio_errors([shallow, deep, other])
    assert ratio.measured == pytest.approx(0.5) and ratio.predicted == pytest.approx(0.45)


@pytest.mark.slow
def test_the_shipped_factors_predict_the_runs_they_were_fitted_to() -> None:
    report = validate(
        [case.run for case in some_devices("geforce-rtx-4090", "apple-m2-ultra-76c", "radeon-rx-7900-xtx")]
    )
    assert report.overall["decode"].median_abs_error < 0.08
    assert report.overall["prefill"].median_abs_error < 0.12


def test_rules_of_thumb_are_worse_than_the_model() -> None:
    runs = [case.run for case in some_devices("geforce-rtx-4090", "apple-m2-ultra-76c")]
    model, ceiling = validate(runs), validate(runs, method="ceiling")
    assert ceiling.overall["decode"].median_abs_error > 3 * model.overall["decode"].median_abs_error
    assert ceiling.overall["decode"].bias > 1


def without_noise(cases: Sequence[Case], factor: float) -> list[Case]:
    """Cases whose times are the shipped model's, stretched."""
    exact = []
    for case in cases:
        time = phase_time(case.phase, case.model, case.device, case.conditions)
        exact.append(replace(case, seconds=factor * float(time.seconds)))
    return exact


def test_a_fit_finds_what_it_is_shown() -> None:
    cases = without_noise(some_devices("geforce-rtx-3090", "geforce-rtx-3080-10gb"), 1.2)
    factors = summary(fitted := fit(cases), map(machine_of, cases))
    errors = np.abs(fitted.design.log_seconds(fitted.posterior.theta) - fitted.log_measured)
    assert np.median(errors) < 0.02
    assert set(factors.devices) == {f"{case.conditions.backend}/{case.device.id}" for case in cases}


def test_machines_that_are_no_product_are_known_to_their_runs() -> None:
    run = replace(DECODE, backend="CPU", hardware_id="xeon-emerald-rapids-2vcpu", threads=2, t_s=3.0)
    assert validate([run]).overall["decode"].n == 1


def test_the_design_predicts_what_the_time_model_predicts() -> None:
    cases = some_devices("geforce-rtx-3090", "radeon-rx-7900-xt", "ryzen-9-7950x", "apple-m2-ultra-76c")
    fitted = fit(cases)
    factors = summary(fitted, map(machine_of, cases))
    own = np.array([not name.startswith("source@") for name in fitted.parameters.index])  # not of publications
    by_design = np.exp(fitted.design.log_seconds(fitted.posterior.theta * own))
    for case, seconds in zip(cases, by_design, strict=True):
        time = phase_time(case.phase, case.model, case.device, case.conditions, factors)
        if beats_the_datasheet(time):  # held back by the prediction, not by the fit
            assert seconds * (1 - 1e-6) <= time.seconds <= seconds * 1.01
        else:
            assert time.seconds == pytest.approx(seconds, rel=1e-6)


def beats_the_datasheet(time: PhaseTime) -> bool:
    """Whether an operation would, by its factors, read memory faster than the datasheet says, and is held at that."""
    return any(
        float(np.max(operation.seconds)) <= float(np.max(one.roof.seconds)) * (1 + 1e-9)
        for operation in time.operations
        for one in operation.roofs
        if one.roof.path == "bandwidth" and float(np.max(one.roof.seconds)) > 0
    )


def test_more_runs_make_a_device_weigh_more_but_ever_less_so() -> None:
    case = some_devices("geforce-rtx-4090")[0]
    totals = [run_weights([case] * number).sum() for number in (1, 4, 16, 400)]
    assert totals[1] == pytest.approx(2 * totals[0])
    assert totals[3] == pytest.approx(totals[2]) == pytest.approx(4 * totals[0])


def test_leaving_a_device_out_leaves_its_runs_out() -> None:
    names = ("geforce-rtx-3090", "geforce-rtx-3080-10gb", "rtx-a6000")
    honest = some_devices(*names)
    forged = [replace(c, seconds=3 * c.seconds) if c.device.id == "rtx-a6000" else c for c in honest]
    left_out = [
        next(factors for name, _, factors in without_each(fit(cases), lambda c: c.device.id) if name == "rtx-a6000")
        for cases in (honest, forged)
    ]
    for factors in left_out:
        assert "CUDA/rtx-a6000" not in factors.devices
        assert not factors.machine("CUDA", some_devices("rtx-a6000")[0].device).measured
    honest_memory, forged_memory = (one.generations["CUDA/ampere"]["memory"].mean for one in left_out)
    assert honest_memory == pytest.approx(forged_memory, abs=0.02)


def test_leaving_out_takes_the_device_for_one_never_seen() -> None:
    runs = [case.run for case in some_devices("geforce-rtx-3090", "geforce-rtx-3080-10gb", "rtx-a5000", "rtx-a4500")]
    seen, unseen = validate(runs), validate(runs, leave_out="device")
    for one, other in zip(seen.predictions, unseen.predictions, strict=True):
        assert one.predicted != other.predicted
    assert unseen.overall["decode"].median_abs_error < 0.35


def test_leaving_out_fits_the_runs_beside_those_that_are_predicted() -> None:
    """A lone device is predicted from those beside it, and no better from its own."""
    runs = [case.run for case in some_devices("rtx-a5000")]
    others = [case.run for case in some_devices("geforce-rtx-3090", "geforce-rtx-3080-10gb", "rtx-a4500")]
    alone, beside, twice = (validate(runs, "device", others=more) for more in ((), others, [*others, *runs]))
    assert beside.overall["decode"].median_abs_error < 0.8 * alone.overall["decode"].median_abs_error
    for one, other in zip(beside.predictions, twice.predictions, strict=True):
        assert one.predicted == pytest.approx(other.predicted, rel=0.02)


@pytest.mark.parametrize(
    ("backend", "said", "variant"),
    [
        ("Vulkan", {"notes": "variant=amdvlk; mmap=0"}, "amdvlk"),
        ("Vulkan", {"device_detail": "AMD Radeon RX 7600 XT (AMD open-source driver)"}, "amdvlk"),
        ("Vulkan", {"notes": "variant=coopmat1; coopmat1"}, "coopmat1"),
        ("Vulkan", {"notes": "variant=coopmat2; coopmat2"}, None),
        ("Vulkan", {"device_detail": "AMD Radeon Graphics (RADV GFX1151)"}, None),
        ("ROCm", {"notes": "variant=amdvlk"}, None),
    ],
)
def test_poorer_vulkan_drivers_are_told_by_what_runs_say(
    backend: str, said: dict[str, str], variant: str | None
) -> None:
    run = replace(DECODE, hardware_id="radeon-rx-7900-xtx", backend=backend, **said)  # type: ignore[arg-type]
    assert case_of(run).conditions.vulkan == variant


def test_a_weak_host_costs_what_the_driver_does_there() -> None:
    run = replace(DECODE, backend="Vulkan", notes="weak host: a single-board computer")
    for device, vendor in (("geforce-rtx-4090", "nvidia"), ("radeon-rx-7900-xtx", "amd"), ("arc-b580", "intel")):
        case = case_of(replace(run, hardware_id=device))
        groups = phase_roofs(case.phase, case.device, case.conditions, model_traits(case.model))
        names = {factor.name for group in groups for roof in group.roofs for factor in roof.factors}
        assert {name for name in names if "weak_host" in name} == {f"launch_weak_host.{vendor}"}


def test_the_same_runs_give_the_same_file() -> None:
    cases = some_devices("geforce-rtx-3090", "rtx-a5000", "apple-m1-7c")
    first, second = (to_yaml(fitted_efficiency(cases)[0]) for _ in range(2))
    assert first == second
    assert "CUDA/rtx-a5000:" in first
