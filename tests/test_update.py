"""The update: a synthetic machine is recovered, more runs teach more, order and units do not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration_cases import DEVICE, all_cases, measured, truth
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc.calibration import update
from llmcalc.calibration.measurements import Case
from llmcalc.calibration.update import MODEL_SD, Calibration, calibrate
from llmcalc.device_catalog import custom_device, find_device
from llmcalc.efficiency import MACHINE_FACTORS, shipped
from llmcalc.errors import InputError
from llmcalc.timing import phase_time

IDENTIFIED = 0.7  # a factor whose sd the runs brought below this share of the prior's
shifts = st.dictionaries(
    st.sampled_from(["memory", "matrix", "launch", "unpack", "attention_read", "attention_compute"]),
    st.floats(-1.5, 1.5),
    max_size=4,
)
numbers = st.sets(st.integers(0, len(all_cases()) - 1), min_size=1, max_size=10)


def factor(calibration: Calibration, name: str) -> tuple[float, float]:
    value = dict(zip(calibration.names, calibration.posterior, strict=True))[name]
    return value.mean, value.sd


def error(case: Case, efficiency: object) -> float:
    time = phase_time(case.phase, case.model, case.device, case.conditions, efficiency)  # type: ignore[arg-type]
    return abs(float(np.log(float(time.seconds) / case.seconds)))


@settings(max_examples=12, deadline=None)
@given(shifts)
def test_a_synthetic_machine_is_recovered_within_its_stated_uncertainty(true: dict[str, float]) -> None:
    exact = truth(true)
    calibration = calibrate(measured(all_cases(), exact, noise=0.02, seed=len(true)))
    machine = exact.machine("CUDA", find_device(DEVICE))
    for name, after in zip(calibration.names, calibration.posterior, strict=True):
        if name in MACHINE_FACTORS:
            assert abs(after.mean - machine.values[name].mean) <= 3 * after.sd


@settings(max_examples=12, deadline=None)
@given(shifts)
def test_estimates_of_a_calibrated_machine_are_right(true: dict[str, float]) -> None:
    cases = measured(all_cases(), truth(true))
    known, unknown = cases[::2], cases[1::2]
    own = calibrate(known).efficiency()
    before = np.median([error(case, shipped()) for case in unknown])
    after = np.median([error(case, own) for case in unknown])
    assert after <= max(0.6 * before, 0.04)


@settings(max_examples=15, deadline=None)
@given(numbers, numbers, shifts)
def test_more_runs_never_widen_an_identified_factor(first: set[int], more: set[int], true: dict[str, float]) -> None:
    cases = measured(all_cases(), truth(true))
    few = calibrate([cases[number] for number in sorted(first)])
    many = calibrate([cases[number] for number in sorted(first | more)])
    prior = dict(zip(few.names, few.prior, strict=True))
    for name in few.names:
        before, after = factor(few, name)[1], factor(many, name)[1]
        if before < IDENTIFIED * prior[name].sd:
            assert after <= 1.03 * before  # the curvature is taken at another point


def test_order_does_not_matter() -> None:
    cases = measured(all_cases(), truth({"memory": 1.0, "matrix": -1.0}), noise=0.05)
    one, other = calibrate(cases), calibrate(cases[::-1])
    for name in one.names:
        assert factor(one, name) == pytest.approx(factor(other, name), abs=2e-3)


def test_units_do_not_matter() -> None:
    device = find_device(DEVICE)
    texts = ("504.2 GB/s", "0.5042 TB/s", 504.2e9)
    found = []
    for text in texts:
        same = custom_device(base=device, bandwidth=text)
        cases = [replace(case, device=same) for case in measured(all_cases()[:6], truth({"memory": 1.0}))]
        found.append(calibrate(cases))
    for other in found[1:]:
        assert other.mean == pytest.approx(found[0].mean)
        assert other.covariance == pytest.approx(found[0].covariance)


@pytest.mark.parametrize(("test", "factors"), [(2, {"memory"}), (0, {"matrix"})])
def test_one_run_moves_what_it_tells_of_and_leaves_the_rest(test: int, factors: set[str]) -> None:
    number = 12 + test  # llama3-8b Q8_0
    case = measured(all_cases(), truth({}))[number]
    slower = replace(case, seconds=1.3 * case.seconds)
    calibration = calibrate([slower])
    moved = {
        name: (after.mean - before.mean) / before.sd
        for name, before, after in zip(calibration.names, calibration.prior, calibration.posterior, strict=True)
    }
    assert all(moved[name] > 0.3 for name in factors)
    untouched = calibration.factors().values.keys() - set(calibration.names)
    prior = update.unit_prior(shipped(), "CUDA", find_device(DEVICE))
    assert untouched
    assert all(calibration.factors().values[name] == prior(name) for name in untouched)


def test_several_depths_tell_of_attention() -> None:
    cases = measured(all_cases(), truth({"attention_read": 1.5}))
    shallow = calibrate([cases[10]])
    deep = calibrate([cases[10], cases[11]])
    assert factor(deep, "attention_read")[1] < 0.97 * factor(shallow, "attention_read")[1]
    assert factor(deep, "attention_read")[0] > factor(shallow, "attention_read")[0]


def test_a_wrong_run_among_many_is_not_believed() -> None:
    cases = measured(all_cases(), truth({}))
    wrong = [replace(cases[0], seconds=8 * cases[0].seconds), *cases[1:]]
    own = calibrate(wrong).efficiency()
    assert np.median([error(case, own) for case in cases[1:]]) < 0.05


def test_many_runs_of_one_file_are_not_many_files() -> None:
    cases = measured(all_cases(), truth({}))
    decode = [case for case in cases if case.phase.phase == "decode" and not case.run.n_depth]
    same = calibrate([decode[2]] * len(decode) * 5)
    several = calibrate(decode)
    assert factor(several, "memory")[1] < factor(same, "memory")[1]


def test_hundreds_of_runs_work() -> None:
    cases = measured(list(all_cases()) * 20, truth({"memory": 1.0}), noise=0.05)
    calibration = calibrate(cases)
    assert np.median(np.abs([error(case, calibration.efficiency()) for case in cases])) < 0.08


def test_intervals_use_what_ties_factors_together() -> None:
    cases = measured(all_cases(), truth({}))
    calibration = calibrate(cases[2:3])
    known = calibration.sensitivity(cases[2:3])
    gradient = known.gradient[0]
    variance = gradient @ known.covariance @ gradient + calibration.spread["decode"] ** 2
    time = phase_time(cases[2].phase, cases[2].model, cases[2].device, cases[2].conditions, calibration.efficiency())
    assert float(time.log_sd) == pytest.approx(float(np.sqrt(variance)), rel=0.02)
    independent = float(np.sqrt(np.square(gradient) @ np.diag(known.covariance) + calibration.spread["decode"] ** 2))
    assert float(time.log_sd) < independent


def test_the_spread_follows_the_runs() -> None:
    quiet = calibrate(measured(all_cases(), truth({}), noise=0.01)).spread
    noisy = calibrate(measured(all_cases(), truth({}), noise=0.4)).spread
    for phase, usual in MODEL_SD.items():
        assert quiet[phase] < usual < noisy[phase]


def test_a_left_out_run_is_predicted_by_the_others_alone() -> None:
    cases = measured(all_cases(), truth({"memory": 1.0}))
    calibration = calibrate(cases)
    alone = calibrate(cases[1:])
    time = phase_time(cases[0].phase, cases[0].model, cases[0].device, cases[0].conditions, alone.efficiency())
    assert calibration.without([0])[0] == pytest.approx(float(np.log(time.seconds)), abs=5e-3)


def test_other_devices_keep_their_factors() -> None:
    own = calibrate(measured(all_cases(), truth({"memory": 1.5}))).efficiency()
    other = find_device("rtx4090")
    assert own.machine("CUDA", other).values == shipped().machine("CUDA", other).values
    assert own.correction("saturation.CUDA.dense") == shipped().correction("saturation.CUDA.dense")


def test_no_runs_and_several_machines_are_errors() -> None:
    with pytest.raises(InputError, match="no runs"):
        calibrate([])
    case = all_cases()[0]
    with pytest.raises(InputError, match="one machine"):
        calibrate([case, replace(case, device=find_device("rtx4090"))])
