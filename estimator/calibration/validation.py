"""Predicted against measured: errors, bias and coverage of intervals, over runs that may be left out of the fit.

A relative error is |predicted − measured| ÷ measured of a rate, bias the median of predicted ÷ measured. Every device
weighs the same, however many runs it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ..efficiency import Efficiency, shipped
from ..errors import InputError
from ..timing import PhaseTime, phase_time
from .measurements import Case, UnpredictableError, case_of
from .runs import Run

LeaveOut = Literal["device", "model"]
Method = Literal["model", "ceiling", "fraction"]

# The rules of thumb that calculators use: a share of the bandwidth ceiling, and of the FP16 peak.
SCHEMA: Final = "llmcalc.validate/1"
UNREADABLE: Final = "line that cannot be read"
DECODE_FRACTION: Final = 0.7
PREFILL_FRACTION: Final = 0.35
DEPTHS: Final = ((0, "0"), (1, "1–4k"), (4096, "4k–16k"), (16384, "16k–64k"), (65536, "64k and more"))
GROUPS: Final[dict[str, Callable[[Run], str]]] = {
    "device": lambda run: run.hardware_id or "",
    "backend": lambda run: run.backend or "not stated",
    "model": lambda run: run.model_id or "",
    "quant": lambda run: run.quant or "not stated",
    "depth": lambda run: depth_name(run.n_depth),
    "class": lambda run: run.class_ or "not judged",
}


@dataclass(frozen=True)
class Prediction:
    """One run: predicted with an 80 % interval, or skipped for a reason. Rates in tokens/s."""

    run: Run
    phase: str | None = None
    measured: float | None = None
    predicted: float | None = None
    low_80: float | None = None
    high_80: float | None = None
    skipped: str | None = None


@dataclass(frozen=True)
class Statistics:
    """Errors over some runs."""

    n: int
    devices: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    within_10: float
    within_20: float
    within_30: float
    coverage_80: float


@dataclass(frozen=True)
class Report:
    """All predictions, in the order of the runs."""

    predictions: tuple[Prediction, ...]
    unreadable: int = 0  # lines beside them that would have been runs

    @property
    def rows(self) -> int:
        """Runs that there are, readable or not."""
        return len(self.predictions) + self.unreadable

    @property
    def skipped(self) -> dict[str, int]:
        """Reason → number of runs that could not be predicted, the commonest reason first."""
        reasons = Counter(one.skipped for one in self.predictions if one.skipped)
        return dict((reasons + Counter({UNREADABLE: self.unreadable})).most_common())

    @property
    def judged(self) -> list[Prediction]:
        """The predictions that count: of runs that nobody found suspicious."""
        return [one for one in self.predictions if not one.skipped and one.run.class_ in (None, "clean-single")]

    @property
    def overall(self) -> dict[str, Statistics]:
        """Statistics by phase."""
        return by_phase(self.judged)

    @property
    def groups(self) -> dict[str, dict[str, dict[str, Statistics]]]:
        """Statistics by device, backend, model …, value and phase. Classes hold suspicious runs too, others do not."""
        predicted = [one for one in self.predictions if not one.skipped]
        return {
            name: _grouped(predicted if name == "class" else self.judged, of_run) for name, of_run in GROUPS.items()
        }

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        groups = {
            name: {value: {phase: vars(one) for phase, one in phases.items()} for value, phases in values.items()}
            for name, values in self.groups.items()
        }
        return {
            "schema": SCHEMA,
            "rows": self.rows,
            "skipped": self.skipped,
            "overall": {phase: vars(one) for phase, one in self.overall.items()},
            "groups": groups,
        }


def depth_name(depth: int) -> str:
    """Which range of depths `depth` positions belong to."""
    return next(name for least, name in reversed(DEPTHS) if depth >= least)


def validate(
    runs: Iterable[Run],
    leave_out: LeaveOut | None = None,
    efficiency: Efficiency | None = None,
    method: Method = "model",
    folders: Sequence[Path] = (),
    others: Iterable[Run] = (),
) -> Report:
    """Predict every run.

    `leave_out`: predict each device's (model's) runs with factors fitted to the clean runs of all others among `runs`
    and `others`, instead of `efficiency` (the shipped factors). `method`: the time model, or one of the rules it is
    compared with. `folders`: user catalogs.
    """
    if leave_out is None:
        return Report(tuple(_predicted(run, efficiency, method, tuple(folders)) for run in runs))
    found = [_resolved(run, tuple(folders)) for run in runs]
    cases = {number: case for number, case in enumerate(found) if isinstance(case, Case)}
    beside = [case for case in (_resolved(run, tuple(folders)) for run in others) if isinstance(case, Case)]
    factors = _factors_by_run(cases, leave_out, beside)
    return Report(
        tuple(
            predict(case, factors.get(number, efficiency), method) if isinstance(case, Case) else case
            for number, case in enumerate(found)
        )
    )


def _resolved(run: Run, folders: tuple[Path, ...]) -> Case | Prediction:
    """What the time model needs for a run, or the reason why it cannot predict it."""
    try:
        return checked(case_of(run, folders=folders))
    except UnpredictableError as reason:
        return Prediction(run, skipped=str(reason))


def _predicted(run: Run, efficiency: Efficiency | None, method: Method, folders: tuple[Path, ...]) -> Prediction:
    """The prediction of one run, or the reason why there is none."""
    try:
        return predict(case_of(run, folders=folders), efficiency, method)
    except UnpredictableError as reason:
        return Prediction(run, skipped=str(reason))
    except InputError as reason:  # a figure that the time model would need
        return Prediction(run, skipped=_without_name(str(reason)))


def checked(case: Case) -> Case:
    """`case`, if the time model has all figures that it needs; raises UnpredictableError otherwise."""
    try:
        phase_time(case.phase, case.model, case.device, case.conditions, _NO_RUNS)
    except InputError as reason:
        raise UnpredictableError(_without_name(str(reason))) from None
    return case


_NO_RUNS: Final = Efficiency()


def _without_name(reason: str) -> str:
    return reason.partition(": ")[2] or reason


def predict(case: Case, efficiency: Efficiency | None = None, method: Method = "model") -> Prediction:
    """The rate of one run, with its interval if the time model predicts it."""
    time = phase_time(case.phase, case.model, case.device, case.conditions, efficiency)
    tokens = case.tokens
    if method == "model":
        low, high = time.interval_tokens_per_s(0.8)
        rate = tokens / float(time.seconds)
    else:
        rate = low = high = _rule(case, time, method)
    return Prediction(case.run, case.phase.phase, case.run.t_s, rate, low_80=float(low), high_80=float(high))


def _rule(case: Case, time: PhaseTime, method: Method) -> float:
    """Bare roofline ceiling; or fixed shares of bandwidth over bytes and of the FP16 peak over FLOPs."""
    if method == "ceiling":
        return float(time.ceiling_tokens_per_s)
    if case.phase.phase == "decode":
        return DECODE_FRACTION * float(time.tokens / (time.required_bytes / case.device.bandwidth_bytes_per_s))
    peaks = case.device.peaks_flop_per_s
    peak = next(peaks[name] for name in ("fp16_matrix", "fp16", "fp32") if name in peaks)
    return PREFILL_FRACTION * peak * float(time.tokens / time.flops)


def _factors_by_run(cases: dict[int, Case], leave_out: LeaveOut, others: Sequence[Case]) -> dict[int, Efficiency]:
    """For each run, factors fitted to the clean runs of other devices (models)."""
    from dataclasses import replace

    from .fitting import fit, spread_of_runs, without_each

    def group(case: Case) -> str:
        return case.device.id if leave_out == "device" else case.model.id

    fitted = fit([case for case in (*cases.values(), *others) if case.run.class_ in (None, "clean-single")])
    quantiles, spread = shipped().quantiles, spread_of_runs(fitted)
    factors: dict[str, Efficiency] = {
        str(name): replace(found, spread=spread, quantiles=quantiles)
        for name, _, found in without_each(fitted, group, {group(case) for case in cases.values()})
    }
    return {number: factors[group(case)] for number, case in cases.items() if group(case) in factors}


def by_phase(predictions: Sequence[Prediction]) -> dict[str, Statistics]:
    """Statistics of decode and of prefill, where there are runs of them."""
    phases = sorted({one.phase for one in predictions if one.phase})
    return {phase: statistics([one for one in predictions if one.phase == phase]) for phase in phases}


def _grouped(predictions: Sequence[Prediction], of_run: Callable[[Run], str]) -> dict[str, dict[str, Statistics]]:
    members: dict[str, list[Prediction]] = {}
    for one in predictions:
        members.setdefault(of_run(one.run), []).append(one)
    return {value: by_phase(members[value]) for value in sorted(members)}


def statistics(predictions: Sequence[Prediction]) -> Statistics:
    """Errors of predictions of one phase; InputError if there are none."""
    if not predictions:
        raise InputError("no runs to compare with")
    measured = np.array([one.measured for one in predictions], float)
    predicted = np.array([one.predicted for one in predictions], float)
    low = np.array([one.low_80 for one in predictions], float)
    high = np.array([one.high_80 for one in predictions], float)
    names = [one.run.hardware_id or "" for one in predictions]
    counts = Counter(names)
    weight = np.array([1 / counts[name] for name in names])
    error = np.abs(predicted - measured) / measured

    def share(holds: Any) -> float:
        return float(weight @ holds / weight.sum())

    return Statistics(
        n=len(predictions),
        devices=len(counts),
        median_abs_error=_quantile(error, weight, 0.5),
        p90_abs_error=_quantile(error, weight, 0.9),
        bias=_quantile(predicted / measured, weight, 0.5),
        within_10=share(error <= 0.1),
        within_20=share(error <= 0.2),
        within_30=share(error <= 0.3),
        coverage_80=share((low <= measured) & (measured <= high)),
    )


def _quantile(values: Any, weight: Any, level: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), len(values) - 1)])


def depth_ratio_errors(predictions: Sequence[Prediction], least: int = 4096, most: int = 65536) -> list[Prediction]:
    """Decode at depth relative to the same configuration without depth, as predictions of that ratio."""
    shallow = {_configuration(one.run): one for one in predictions if one.phase == "decode" and one.run.n_depth == 0}
    ratios = []
    for one in predictions:
        base = shallow.get(_configuration(one.run))
        if one.phase != "decode" or not least <= one.run.n_depth <= most or base is None:
            continue
        assert one.measured and one.predicted and base.measured and base.predicted
        measured, predicted = one.measured / base.measured, one.predicted / base.predicted
        ratios.append(Prediction(one.run, "decode", measured, predicted, predicted, predicted))
    return ratios


def _configuration(run: Run) -> tuple[object, ...]:
    """All that must be equal for two runs to differ in depth alone."""
    return (
        run.source, run.hardware_id, run.backend, run.model_id, run.quant, run.weights_gib, run.engine, run.era,
        run.build, run.flash_attn, run.type_k, run.type_v, run.n_parallel, run.threads,
    )  # fmt: skip
