"""What `llmcalc calibrate` finds, machine by machine, and the profile that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final

from ..efficiency import Efficiency, shipped
from .assessment import Assessment, ErrorsByPhase, assess
from .experiments import Experiment, best_experiments
from .machine_runs import MachineRuns
from .profiles import MachineProfile, Profile, run_records
from .update import Calibration, calibrate

SCHEMA: Final = "llmcalc.calibration/1"


@dataclass(frozen=True)
class MachineResult:
    """One machine under one backend: its calibration, how good it is, and which run would teach most."""

    calibration: Calibration
    assessment: Assessment
    next_runs: tuple[Experiment, ...]


def calibrate_machines(runs: MachineRuns, efficiency: Efficiency | None = None) -> tuple[MachineResult, ...]:
    """Calibrate every machine among `runs`."""
    results = []
    for cases in runs.machines.values():
        calibration = calibrate(cases, efficiency)
        results.append(MachineResult(calibration, assess(calibration), best_experiments(calibration, runs.file)))
    return tuple(results)


def profile_of(name: str, results: Sequence[MachineResult]) -> Profile:
    """The profile that keeps calibrations under `name`."""
    from importlib.metadata import version

    fit_version = shipped().provenance.get("fit_version")
    return Profile(
        name=name,
        created=date.today().isoformat(),
        machines=tuple(_machine_profile(result) for result in results),
        version=version("llmcalc-roofline"),
        fit_version=fit_version if isinstance(fit_version, int) else None,
    )


def _machine_profile(result: MachineResult) -> MachineProfile:
    calibration = result.calibration
    return MachineProfile(
        backend=calibration.backend,
        device=calibration.device,
        factors=calibration.factors(),
        spread=calibration.spread,
        errors=_errors(result.assessment),
        runs=run_records(case.run for case in calibration.cases),
    )


def _errors(assessment: Assessment) -> dict[str, Any]:
    named = {
        "before": assessment.before,
        "after": assessment.after,
        "runs_left_out": assessment.left_out,
        "models_left_out": assessment.other_models,
    }
    return {name: _by_phase(errors) for name, errors in named.items() if errors is not None}


def _by_phase(errors: ErrorsByPhase) -> dict[str, Any]:
    return {
        phase: {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(found).items()}
        for phase, found in errors.items()
    }


def result_data(result: MachineResult) -> dict[str, Any]:
    """A result as plain data. Factors are logs of what stretches a time: mean and standard deviation."""
    calibration = result.calibration
    rows = zip(calibration.names, calibration.prior, calibration.posterior, strict=True)
    return {
        "backend": calibration.backend,
        "device": calibration.device.id,
        "runs": len(calibration.cases),
        "factors": [
            {"name": name, "before": [before.mean, before.sd], "after": [after.mean, after.sd]}
            for name, before, after in rows
        ],
        "spread": dict(calibration.spread),
        "errors": _errors(result.assessment),
        "next_runs": [
            {
                "command": each.command,
                "margin_before": each.margin_before,
                "margin_after": each.margin_after,
                "seconds": each.seconds,
                "own_file": each.own_file,
            }
            for each in result.next_runs
        ],
    }
