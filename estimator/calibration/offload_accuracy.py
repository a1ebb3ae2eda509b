"""How well models in several places are predicted: `python -m llmcalc.calibration.offload_accuracy [FILE…]`.

Prints the Markdown tables for ACCURACY.md: errors on runs that state their placement and host, on runs whose placement
is taken from llama.cpp's --fit, the order of settings within one machine's sweep, and the reasons of what is left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from ..efficiency import Efficiency
from ..errors import InputError
from ..placement import Placement
from .measurements import UnpredictableError
from .offload_runs import OFFLOAD_CLASSES, PlacedCase, placed_case
from .runs import Run

TIE: Final = 0.03  # rates closer than that are not ordered


@dataclass(frozen=True)
class PlacedPrediction:
    """A run's measured and predicted rate, with the 80 % range."""

    run: Run
    predicted: float
    low_80: float
    high_80: float
    placement: Placement | None = None

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.run.t_s


@dataclass(frozen=True)
class Scores:
    """Errors of some predictions; every row weighs the same, `by_machine` the median of the machines' medians."""

    n: int
    machines: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    coverage_80: float
    by_machine: float


@dataclass(frozen=True)
class Ordering:
    """Pairs of settings of one machine whose order is right, of all that differ measurably."""

    right: int
    pairs: int
    groups: int

    @property
    def share(self) -> float:
        """Right ones."""
        return self.right / self.pairs if self.pairs else 1.0


@dataclass(frozen=True)
class OffloadReport:
    """Predictions by how much the runs state, and the reasons of those left out."""

    stated: tuple[PlacedPrediction, ...]
    fitted: tuple[PlacedPrediction, ...]  # placement as --fit would choose it
    sweeps: tuple[PlacedPrediction, ...]  # stated, or with an ordinary host: for the order alone
    skipped: tuple[tuple[str, str], ...]  # class, reason

    def scores(self, class_: str, phase: str, fitted: bool = False) -> Scores | None:
        """Errors of one class and phase."""
        rows = self.fitted if fitted else self.stated
        return scores([row for row in rows if row.run.class_ == class_ and row.run.phase == phase])

    @property
    def ordering(self) -> Ordering:
        """Order of settings in sweeps of the class offload."""
        return ordering([row for row in self.sweeps if row.run.class_ == "offload"])


def offload_report(runs: Iterable[Run], efficiency: Efficiency | None = None) -> OffloadReport:
    """Predict every run of the classes offload and multi-device as far as it says enough."""
    stated, fitted, sweeps, skipped = [], [], [], []
    for run in runs:
        if run.class_ not in OFFLOAD_CLASSES:
            continue
        found = _first_that_works(run)
        if isinstance(found, str):
            skipped.append((str(run.class_), found))
            continue
        case, way = found
        try:
            prediction = predict(case, efficiency)
        except InputError as reason:
            skipped.append((str(run.class_), str(reason).partition(": ")[2]))
            continue
        if way == "stated":
            stated.append(prediction)
        elif way == "fitted":
            fitted.append(prediction)
        else:
            skipped.append((str(run.class_), "host not stated"))
        if way != "fitted":
            sweeps.append(prediction)
    return OffloadReport(tuple(stated), tuple(fitted), tuple(sweeps), tuple(skipped))


_WAYS: Final[dict[str, Callable[[Run], PlacedCase]]] = {
    "stated": placed_case,
    "fitted": lambda run: placed_case(run, assume_fit=True),
    "ordinary host": lambda run: placed_case(run, assume_host=True),
}


def _first_that_works(run: Run) -> tuple[PlacedCase, str] | str:
    """The case, and with which assumptions; or the reason why there is none without any."""
    reason = ""
    for way, resolve in _WAYS.items():
        try:
            return resolve(run), way
        except UnpredictableError as error:
            reason = reason or str(error)
    return reason


def predict(case: PlacedCase, efficiency: Efficiency | None = None) -> PlacedPrediction:
    """The rate of one run with its range."""
    time = case.predicted(efficiency)
    low, high = time.interval_tokens_per_s(0.80)
    return PlacedPrediction(case.run, float(time.tokens_per_s[0]), float(low[0]), float(high[0]), case.placed.placement)


def scores(rows: Sequence[PlacedPrediction]) -> Scores | None:
    """Errors over some rows; None without any."""
    if not rows:
        return None
    errors = np.array([abs(row.ratio - 1) for row in rows])
    machines: dict[str, list[float]] = {}
    for row, error in zip(rows, errors, strict=True):
        machines.setdefault(_machine(row.run), []).append(float(error))
    return Scores(
        n=len(rows),
        machines=len(machines),
        median_abs_error=float(np.median(errors)),
        p90_abs_error=float(np.quantile(errors, 0.9)),
        bias=float(np.median([row.ratio for row in rows])),
        coverage_80=float(np.mean([row.low_80 <= row.run.t_s <= row.high_80 for row in rows])),
        by_machine=float(np.median([np.median(found) for found in machines.values()])),
    )


def ordering(rows: Sequence[PlacedPrediction]) -> Ordering:
    """Pairs of runs of one machine that differ in their placement alone, and how many are put in the right order."""
    groups: dict[tuple[object, ...], list[PlacedPrediction]] = {}
    for row in rows:
        groups.setdefault(_sweep(row.run), []).append(row)
    right = pairs = used = 0
    for found in groups.values():
        counted = 0
        for first, second in combinations(found, 2):
            measured = np.log(first.run.t_s / second.run.t_s)
            if abs(measured) < TIE or first.placement == second.placement:
                continue
            counted += 1
            right += bool(measured * np.log(first.predicted / second.predicted) > 0)
        pairs += counted
        used += counted > 0
    return Ordering(right, pairs, used)


def _machine(run: Run) -> str:
    return f"{run.hardware_id} × {run.device_count or 1}, {run.device_detail}"


def _sweep(run: Run) -> tuple[object, ...]:
    same = (run.source, run.hardware_id, run.device_detail, run.model_id, run.quant)
    return (*same, run.phase, run.n_prompt, run.n_depth, run.n_ubatch, run.threads, run.flash_attn)


def markdown(report: OffloadReport) -> str:
    """The tables."""
    lines = ["| runs | phase | n | machines | median error | 90th percentile | by machine | bias | in 80 % range |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for title, class_, fitted in (
        ("offload, placement and host stated", "offload", False),
        ("offload, placement as --fit chooses", "offload", True),
        ("several devices", "multi-device", False),
    ):
        for phase in ("decode", "prefill"):
            found = report.scores(class_, phase, fitted)
            if found is not None:
                lines.append(_row(title, phase, found))
    order = report.ordering
    lines += ["", f"Order of settings within one machine's sweep: {order.right} of {order.pairs} pairs right "]
    lines[-1] += f"({order.share:.0%}), in {order.groups} sweeps."
    lines += ["", "| machine | phase | n | median error | bias |", "|---|---|---|---|---|"]
    lines += _by_machine(report)
    lines += ["", "| left out | class | runs |", "|---|---|---|"]
    for (class_, reason), count in Counter(report.skipped).most_common():
        lines.append(f"| {reason} | {class_} | {count} |")
    return "\n".join(lines)


def _row(title: str, phase: str, s: Scores) -> str:
    errors = f"{s.median_abs_error:.1%} | {s.p90_abs_error:.0%} | {s.by_machine:.1%}"
    return f"| {title} | {phase} | {s.n} | {s.machines} | {errors} | {s.bias:.2f} | {s.coverage_80:.0%} |"


def _by_machine(report: OffloadReport) -> list[str]:
    groups: dict[tuple[str, str], list[PlacedPrediction]] = {}
    for row in report.stated:
        name = f"{row.run.hardware_id} × {row.run.device_count or 1}" + (" (split matrices)" * _is_tensor(row.run))
        groups.setdefault((name, row.run.phase), []).append(row)
    lines = []
    for (name, phase), rows in sorted(groups.items()):
        found = scores(rows)
        assert found is not None
        lines.append(f"| {name} | {phase} | {found.n} | {found.median_abs_error:.0%} | {found.bias:.2f} |")
    return lines


def _is_tensor(run: Run) -> bool:
    return run.split_mode == "tensor"


def main(arguments: Sequence[str]) -> None:
    """Print the tables for measurement files; by default the public runs that come with the project."""
    from importlib.resources import as_file, files

    from .readers import read_runs

    if arguments:
        print(markdown(offload_report(read_runs([Path(name) for name in arguments]).runs)))
        return
    with as_file(files("llmcalc.hardware").joinpath("measurements/public_runs.csv")) as path:
        print(markdown(offload_report(read_runs([path]).runs)))


if __name__ == "__main__":
    main(sys.argv[1:])
