"""The expected narrowing is what a further run really does; commands and times are those of llama-bench."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration_cases import DEVICE, all_cases, measured, truth

from llmcalc.calibration.experiments import (
    EVERYDAY_MODELS,
    Test,
    best_experiments,
    candidate_case,
    everyday_cases,
    experiments,
    own_candidates,
    test_seconds,
)
from llmcalc.calibration.update import calibrate
from llmcalc.device_catalog import find_device
from llmcalc.efficiency import shipped
from llmcalc.timing import phase_time

Test.__test__ = False  # type: ignore[attr-defined]
test_seconds.__test__ = False  # type: ignore[attr-defined]
cases = measured(all_cases(), truth({}))


def margin(calibrated: object) -> float:
    targets = everyday_cases(find_device(DEVICE), cases[0])
    own = calibrated.efficiency()  # type: ignore[attr-defined]
    sds = []
    for case in targets:
        time = phase_time(case.phase, case.model, case.device, case.conditions, replace(own, spread={}))
        sds.append(float(np.sqrt(max(float(time.log_sd) ** 2 - 0.1**2, 0.0))))
    return float(np.mean(sds))


@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_run_narrows_as_expected(number: int) -> None:
    calibration = calibrate(cases[2:3])
    candidates = own_candidates(calibration.cases)
    expected = experiments(calibration, candidates)[number]
    exact = phase_time(
        expected.case.phase,
        expected.case.model,
        expected.case.device,
        expected.case.conditions,
        calibration.efficiency(),
    )
    outcome = replace(expected.case, seconds=float(exact.seconds))
    really = margin(calibrate([cases[2], outcome])) / margin(calibration)
    assert expected.margin_after <= expected.margin_before
    assert really <= 1.001
    if expected.gain > 0.1:
        assert really < 0.95


def test_prefill_is_proposed_where_only_decode_is_known() -> None:
    best = best_experiments(calibrate([cases[2]]))
    assert best[0].test.prompt
    assert best[0].command.startswith("llama-bench -m ")
    assert f"-p {best[0].test.prompt} -n 0" in best[0].command
    assert [each.gain for each in best] == sorted((each.gain for each in best), reverse=True) or any(
        each.own_file for each in best
    )


def test_the_more_is_known_the_less_there_is_to_gain() -> None:
    few, many = best_experiments(calibrate(cases[2:3])), best_experiments(calibrate(cases))
    assert many[0].gain < few[0].gain
    assert many[0].margin_before < few[0].margin_before


def test_everyday_models_fit_the_device() -> None:
    small = replace(find_device(DEVICE), memory_bytes=4 * 2.0**30)
    names = {case.model.id for case in everyday_cases(small, cases[0])}
    assert names == {EVERYDAY_MODELS[0]}
    names = {case.model.id for case in everyday_cases(replace(small, memory_bytes=80 * 2.0**30), cases[0])}
    assert names == set(EVERYDAY_MODELS)


@pytest.mark.parametrize(
    ("test", "name", "arguments"),
    [
        (Test(512, 0), "pp512", "-p 512 -n 0 -fa 1"),
        (Test(0, 32, 4096), "tg32 @ d4096", "-p 0 -n 32 -d 4096 -fa 1"),
        (Test(0, 64, 0, False), "tg64", "-p 0 -n 64 -fa 0"),
    ],
)
def test_tests_are_named_and_run_as_in_llama_bench(test: Test, name: str, arguments: str) -> None:
    assert (test.name, " ".join(test.arguments)) == (name, arguments)


def test_time_counts_depth_warm_up_and_repetitions() -> None:
    like = cases[2]  # of a model with a long context
    deep, flat = Test(0, 32, 8192), Test(0, 32)
    case = candidate_case(like, deep)
    assert case is not None
    step = float(phase_time(case.phase, case.model, case.device, case.conditions, shipped()).seconds)
    filled = candidate_case(like, Test(8192, 0))
    assert filled is not None
    depth = float(phase_time(filled.phase, filled.model, filled.device, filled.conditions, shipped()).seconds)
    assert test_seconds(case, deep, shipped(), 3) == pytest.approx(2.0 + depth + 97 * step)
    shallow = candidate_case(like, flat)
    assert shallow is not None
    assert test_seconds(shallow, flat, shipped(), 3) < test_seconds(case, deep, shipped(), 3)


def test_nothing_beyond_the_models_context_is_proposed() -> None:
    short = replace(cases[0], model=replace(cases[0].model, max_context=2048))
    assert candidate_case(short, Test(0, 32, 4096)) is None
    assert candidate_case(short, Test(512, 0)) is not None
