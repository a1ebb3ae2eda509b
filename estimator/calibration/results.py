"""What `llmcalc calibrate` finds, machine by machine, and the profile that keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..efficiency import Efficiency, shipped
from ..errors import InputError
from .assessment import Assessment, ErrorsByPhase, assess
from .experiments import Experiment, best_experiments
from .machine_runs import MachineRuns
from .profiles import MachineProfile, Profile, run_records
from .update import Calibration, calibrate

if TYPE_CHECKING:
    from .readers import ReadResult, Source

SCHEMA: Final = "llmcalc.calibration/1"


@dataclass(frozen=True)
class MachineResult:
    """One machine under one backend: its calibration, how good it is, and which run would teach most."""

    calibration: Calibration
    assessment: Assessment
    next_runs: tuple[Experiment, ...]

    @property
    def efficiency(self) -> Efficiency:
        """The factors with this machine's own in place, for `estimate(…, efficiency=…)`."""
        return self.calibration.efficiency()

    def __repr__(self) -> str:
        from ..report.calibration import calibration_page
        from ..report.layout import Style

        return "\n".join(calibration_page(self, Style(), every_factor=False))


def calibrate_runs(
    runs: Source | Sequence[Source],
    *,
    gpu: str | None = None,
    cpu: str | None = None,
    figures: Mapping[str, object] | None = None,
    model: str | None = None,
    quant: str | None = None,
    catalog: Sequence[Path] = (),
    efficiency: Efficiency | None = None,
) -> tuple[MachineResult, ...]:
    """Calibrate every machine among `runs`, which are files, folders or text as `read_runs` takes them.

    `gpu`, `cpu` (with `figures`, as in `estimate`), `model` and `quant` stand in for what the runs do not say. Nothing
    is kept: `llmcalc calibrate --save` does that. Raises InputError where no run can be used, with the reason.
    """
    from ..request import GPU_KINDS, resolve_device
    from .machine_runs import Given, machine_runs
    from .readers import read_runs

    read = read_runs(runs)
    given = Given(
        gpu=None if gpu is None else resolve_device(gpu, GPU_KINDS, None if cpu else figures, catalog),
        cpu=None if cpu is None else resolve_device(cpu, ("cpu", "soc"), figures, catalog),
        model=model,
        quant=quant,
        folders=tuple(catalog),
    )
    found = machine_runs(read.runs, given)
    if not found.machines:
        raise InputError(nothing_to_fit(read, found))
    return calibrate_machines(found, efficiency)


def nothing_to_fit(read: ReadResult, runs: MachineRuns) -> str:
    """Why none of the runs that were read can be used."""
    if runs.skipped:
        return f"none of {len(runs.skipped)} runs can be used; the first: {runs.skipped[0].reason}"
    return f"no runs were found: {read.problems[0]}" if read.problems else "no runs were found"


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
