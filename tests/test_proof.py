"""How calibration is judged: which rows are given, and which are to be predicted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from calibration_cases import DEVICE, all_cases

from llmcalc.calibration.proof import draws, limits, public_results, whole_models
from llmcalc.efficiency import shipped
from llmcalc.timing import phase_time


def test_two_rows_of_one_model_and_none_of_it_among_those_to_predict() -> None:
    drawn = draws(all_cases(), Random(0), 20)
    assert len(drawn) == 20
    for draw in drawn:
        assert [case.phase.phase for case in draw.rows] == ["decode", "prefill"]
        assert len({case.model.id for case in draw.rows}) == 1
        assert draw.rows[0].model.id not in {case.model.id for case in draw.others}


def test_whole_models_hold_every_row_once() -> None:
    whole = whole_models(all_cases())
    assert sum(len(draw.rows) for draw in whole) == len(all_cases())
    assert all(len(draw.rows) + len(draw.others) == len(all_cases()) for draw in whole)


def test_one_publication_is_not_mixed_with_another() -> None:
    sources = ("https://example.org/a/b/issues/1", "https://example.org/a/b/issues/2")
    cases = [
        replace(case, run=replace(case.run, source=sources[number % 2])) for number, case in enumerate(all_cases())
    ]
    for draw in whole_models(cases, one_source=True):
        assert len({case.run.source for case in (*draw.rows, *draw.others)}) == 1


def test_a_model_alone_proves_nothing() -> None:
    alone = [case for case in all_cases() if case.model.id == "llama3-8b"]
    assert whole_models(alone) == [] and draws(alone, Random(0), 3) == []


def test_a_machine_that_is_slower_throughout_is_predicted_better_once_it_is_calibrated() -> None:
    slow = []
    for case in all_cases():
        time = phase_time(case.phase, case.model, case.device, case.conditions)
        slow.append(replace(case, seconds=1.4 * float(time.seconds)))
    (two,), (all_rows,) = public_results(slow, {DEVICE: shipped()}, 0, 3), limits(slow, {DEVICE: shipped()})
    assert two.device == all_rows.device == DEVICE
    assert all_rows.after < two.after < two.before
