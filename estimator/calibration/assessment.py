"""How good a calibration is: errors before and after, on its runs, on runs left out, and on models left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..efficiency import Efficiency
from ..timing import phase_time
from .measurements import Case
from .update import Calibration, Vector

MOST_FOLDS: Final = 30  # of more runs, several are left out at a time


@dataclass(frozen=True)
class Errors:
    """Errors |predicted − measured| ÷ measured of rates of one phase, and the median of predicted ÷ measured."""

    n: int
    median_abs_error: float
    p90_abs_error: float
    bias: float


ErrorsByPhase = dict[str, Errors]


@dataclass(frozen=True)
class Assessment:
    """Errors of the estimates of a machine's runs, by phase.

    `left_out`: each run as the others predict it; None for a single run. `other_models`: the runs of each model as the
    runs of the others predict them; None for a single model.
    """

    before: ErrorsByPhase
    after: ErrorsByPhase
    left_out: ErrorsByPhase | None
    other_models: ErrorsByPhase | None


def assess(calibration: Calibration) -> Assessment:
    """Errors before and after, and what they would be on runs and models that were not seen."""
    cases = calibration.cases
    measured = np.log([case.seconds for case in cases])
    runs = [[number for number in range(len(cases)) if number % MOST_FOLDS == fold] for fold in range(MOST_FOLDS)]
    models = _by_model(cases)
    return Assessment(
        before=errors(cases, measured - _log_seconds(cases, calibration.base)),
        after=errors(cases, measured - calibration.without([])),
        left_out=_left_out(calibration, measured, runs) if len(cases) > 1 else None,
        other_models=_left_out(calibration, measured, models) if len(models) > 1 else None,
    )


def errors(cases: Sequence[Case], log_ratio: Vector) -> ErrorsByPhase:
    """Errors by phase; `log_ratio`: log of predicted over measured rate of each case."""
    found = {}
    for phase in ("decode", "prefill"):
        ratio = np.exp(log_ratio[[case.phase.phase == phase for case in cases]])
        if len(ratio):
            wrong = np.abs(ratio - 1)
            found[phase] = Errors(
                len(ratio), float(np.median(wrong)), float(np.quantile(wrong, 0.9)), float(np.median(ratio))
            )
    return found


def _log_seconds(cases: Sequence[Case], efficiency: Efficiency) -> Vector:
    return np.log([float(phase_time(c.phase, c.model, c.device, c.conditions, efficiency).seconds) for c in cases])


def _by_model(cases: Sequence[Case]) -> list[list[int]]:
    models: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        models.setdefault(case.model.id, []).append(number)
    return list(models.values())


def _left_out(calibration: Calibration, measured: Vector, folds: Sequence[Sequence[int]]) -> ErrorsByPhase:
    predicted = np.empty(len(measured))
    for fold in filter(None, folds):
        predicted[list(fold)] = calibration.without(fold)[list(fold)]
    return errors(calibration.cases, measured - predicted)
