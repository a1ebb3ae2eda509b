"""Runs as they were read → predictions: device and model are looked up where a run does not say them by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..efficiency import Efficiency
from .measurements import MEASUREMENTS
from .readers import read_runs
from .readers.resolve import Resolver, Unresolved
from .runs import Run
from .validation import LeaveOut, Prediction, Report, validate


def validate_resolved(
    runs: Sequence[Run],
    leave_out: LeaveOut | None = None,
    efficiency: Efficiency | None = None,
    *,
    gpu: str | None = None,
    model: str | None = None,
    quant: str | None = None,
    folders: Sequence[Path] = (),
) -> Report:
    """`validation.validate` of runs in any form; those that cannot be resolved are predictions with the reason.

    Where a device or model is left out, the shipped runs of all others are fitted too.
    `gpu`, `model` and `quant` stand in for what the runs say. Raises InputError for a name that no entry claims.
    """
    resolver = Resolver(gpu=gpu, model=model, quant=quant, folders=folders)
    overridden = gpu is not None or model is not None or quant is not None
    ready: list[Run] = []
    unresolved: dict[int, Prediction] = {}
    for number, run in enumerate(runs):
        if run.class_ is not None and not overridden:  # filed by whoever collected it
            ready.append(run)
            continue
        found = resolver.resolve(run)
        if isinstance(found, Unresolved):
            unresolved[number] = Prediction(run, skipped=found.reason)
        else:
            ready.append(found.run)
    others = () if leave_out is None else shipped_runs(ready)
    predicted = iter(validate(ready, leave_out, efficiency, folders=folders, others=others).predictions)
    return Report(tuple(unresolved[number] if number in unresolved else next(predicted) for number in range(len(runs))))


def shipped_runs(but: Sequence[Run]) -> list[Run]:
    """The runs that the shipped factors were fitted on, without those among `but`."""
    known = set(but)
    return [run for run in read_runs(sorted(MEASUREMENTS.glob("*.csv"))).runs if run not in known]
