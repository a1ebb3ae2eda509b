"""A user's own runs → the factors of their machine: the Bayesian update of the shipped factors.

The prior is what the shipped fit says of the machine, wider by what one machine of a kind may differ from another. Runs
are believed within their repetitions' spread, and the runs of one file share the time model's error for that file, so
that many runs of one model do not pass for many models. The most probable factors are found by the same Newton steps as
the corpus fit's, with its robust loss; their covariance is the inverse curvature there (Laplace). Imports scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..efficiency import (
    ABSOLUTE_FACTORS,
    MACHINE_FACTORS,
    Efficiency,
    Gaussian,
    MachineFactors,
    correction_prior,
    shipped,
)
from ..errors import InputError
from ..system import Device
from .calibrated import with_calibrated
from .design import STUDENT_SCALE, Design, Parameters, Posterior, design_of, most_probable
from .measurements import Case

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# A shipped sd is marginal. The runs behind it tie factors together, and as independent ones they would move too freely;
# a factor that no run told of is tied to nothing.
MARGINAL_SHARE: Final = 0.5
UNIT_SHARE: Final = 0.5  # spread between two machines with one device, relative to that between devices
UNIT_POWER_SD: Final = 0.15  # the same of the factors that power limits set
CORRECTION_UNIT_SD: Final = 0.05  # of the shared corrections
# Error of the time model from one file to the next on one machine, in log time, as public runs show it once the mean
# error of their machine is taken off; and the share of its variance that the runs of one file have in common.
MODEL_SD: Final = {"decode": 0.12, "prefill": 0.20}
FILE_SHARE: Final = 0.7
UNKNOWN_REPETITION_SD: Final = 0.02  # of the mean rate of a run that does not say how its repetitions spread
USUAL_REPETITIONS: Final = 5  # of llama-bench
SPREAD_PRIOR_RUNS: Final = 6.0  # MODEL_SD counts as so many runs when the user's own spread is estimated
INFORMED: Final = 0.02  # a correction that runs changed by less than this, in log time or in its sd, is not kept


@dataclass(frozen=True)
class Calibration:
    """The factors of one machine under one backend before and after its runs.

    `names` are the factors that the runs touch; `prior` and `mean` belong to them in that order, `covariance` is theirs
    after the runs. `spread`: standard deviation of the log time of a run of a file never seen, by phase.
    """

    backend: str
    device: Device
    cases: tuple[Case, ...]
    names: tuple[str, ...]
    prior: tuple[Gaussian, ...]
    mean: Vector
    covariance: Matrix
    spread: Mapping[str, float]
    base: Efficiency
    _fit: _Fit = field(repr=False)

    @property
    def key(self) -> str:
        """What the machine's factors are kept under: backend/device."""
        return f"{self.backend}/{self.device.id}"

    @property
    def posterior(self) -> tuple[Gaussian, ...]:
        """Each factor after the runs."""
        sds = np.sqrt(np.diag(self.covariance))
        return tuple(Gaussian(float(mean), float(sd)) for mean, sd in zip(self.mean, sds, strict=True))

    def factors(self, origin: str = "your own runs") -> MachineFactors:
        """All machine factors, and the corrections that the runs told something of."""
        kept = [number for number in range(len(self.names)) if self._is_kept(number)]
        untouched = unit_prior(self.base, self.backend, self.device)
        values = {name: untouched(name) for name in MACHINE_FACTORS}
        values |= {self.names[number]: self.posterior[number] for number in kept}
        pairs = {
            (self.names[first], self.names[second]): float(self.covariance[first, second])
            for place, first in enumerate(kept)
            for second in kept[:place]
        }
        return MachineFactors(values, origin, True, pairs)

    def _is_kept(self, number: int) -> bool:
        before, after = self.prior[number], self.posterior[number]
        moved = abs(after.mean - before.mean) > INFORMED * before.sd or after.sd < (1 - INFORMED) * before.sd
        return self.names[number] in MACHINE_FACTORS or moved

    def efficiency(self, origin: str = "your own runs") -> Efficiency:
        """The shipped factors with this machine's own in place of those of its device."""
        return with_calibrated(self.base, self.backend, self.device.id, self.factors(origin), self.spread)

    def without(self, numbers: Sequence[int]) -> Vector:
        """Log seconds of all cases as the other cases alone would predict them."""
        keep = np.ones(len(self.cases), bool)
        keep[list(numbers)] = False
        theta = self._fit.refitted(keep)
        return self._fit.design.log_seconds(self._fit.without_files(theta))

    def sensitivity(self, cases: Sequence[Case]) -> Sensitivity:
        """How the log times of other cases on this machine change with its unknowns, and what is known of those."""
        parameters = _MachineUnknowns(prior=unit_prior(self.base, self.backend, self.device))
        parameters.index = dict(self._fit.parameters.index)
        parameters.mean, parameters.sd = list(self._fit.parameters.mean), list(self._fit.parameters.sd)
        known = len(parameters.mean)
        design, _ = design_of(cases, parameters)
        theta = np.array(parameters.mean)
        theta[: self._fit.factors] = self.mean
        theta[self._fit.factors : known] = 0.0
        covariance = np.diag(np.square(parameters.sd))
        covariance[:known, :known] = _covariance(self._fit.posterior)
        _, gradient = design.log_seconds_and_gradient(theta)
        files = [self._fit.parameters.index.get(_file_name(file_of(case))) for case in cases]
        return Sensitivity(gradient.toarray(), covariance, tuple(files))


@dataclass(frozen=True)
class Sensitivity:
    """Gradients of log times by a machine's unknowns: (cases, unknowns), and the unknowns' covariance.

    `files`: the unknown that is the deviation of each case's file, where runs of that file were seen.
    """

    gradient: Matrix
    covariance: Matrix
    files: tuple[int | None, ...]


@dataclass(frozen=True)
class _Fit:
    """The linear algebra behind a calibration: unknowns are the factors, then a deviation of each file and phase."""

    design: Design
    parameters: Parameters
    log_measured: Vector
    weight: Vector
    posterior: Posterior
    factors: int  # so many of the unknowns are factors

    def refitted(self, keep: NDArray[np.bool_]) -> Vector:
        if not keep.any():
            return np.array(self.parameters.mean)
        start = self.posterior.theta
        design = self.design.subset(keep)
        return most_probable(design, self.parameters, self.log_measured[keep], self.weight[keep], start).theta

    def without_files(self, theta: Vector) -> Vector:
        return np.where(np.arange(len(theta)) < self.factors, theta, 0.0)


@dataclass
class _MachineUnknowns(Parameters):
    """One unknown a factor, with the machine's prior, in place of the corpus fit's hierarchy."""

    prior: Callable[[str], Gaussian] = field(kw_only=True)

    def __call__(self, name: str, prior: Gaussian) -> int:
        return super().__call__(name, self.prior(name))

    def of_factor(self, factor: str, backend: str, generation: str, device: str) -> list[int]:
        return [super().__call__(factor, self.prior(factor))]


def unit_prior(efficiency: Efficiency, backend: str, device: Device) -> Callable[[str], Gaussian]:
    """What is believed of each factor of one machine before its own runs."""
    machine = efficiency.machine(backend, device)

    def prior(name: str) -> Gaussian:
        level = MACHINE_FACTORS.get(name)
        if level is None:
            return _loosened(efficiency.correction(name), correction_prior(name).sd, CORRECTION_UNIT_SD)
        untold_sd = math.hypot(level.prior.sd, level.generation_sd, level.device_sd)
        unit_sd = UNIT_POWER_SD if name in ABSOLUTE_FACTORS else UNIT_SHARE * level.device_sd
        return _loosened(machine.values[name], untold_sd, unit_sd)

    return prior


def _loosened(shipped_factor: Gaussian, untold_sd: float, unit_sd: float) -> Gaussian:
    told = 1 - min((shipped_factor.sd / untold_sd) ** 2, 1.0)  # how much runs told of it
    share = 1 - (1 - MARGINAL_SHARE) * told
    return Gaussian(shipped_factor.mean, share * shipped_factor.sd).widened(unit_sd)


def calibrate(cases: Sequence[Case], efficiency: Efficiency | None = None) -> Calibration:
    """The factors of the machine that `cases` were measured on. Raises InputError for none, or several machines."""
    base = efficiency or shipped()
    backend, device = _machine(cases)
    parameters = _MachineUnknowns(prior=unit_prior(base, backend, device))
    design, _ = design_of(cases, parameters)
    names = tuple(parameters.index)
    prior = tuple(map(Gaussian, parameters.mean, parameters.sd))
    design = _with_files(design, parameters, cases)
    measured = np.log([case.seconds for case in cases])
    weight = np.square(STUDENT_SCALE / np.array([run_sd(case) for case in cases]))
    posterior = most_probable(design, parameters, measured, weight)
    fit = _Fit(design, parameters, measured, weight, posterior, len(names))
    mean, covariance = posterior.theta[: len(names)], _covariance(posterior)[: len(names), : len(names)]
    deviation = measured - design.log_seconds(fit.without_files(posterior.theta))
    spread = _spread(cases, deviation)
    return Calibration(backend, device, tuple(cases), names, prior, mean, covariance, spread, base, fit)


def _machine(cases: Sequence[Case]) -> tuple[str, Device]:
    machines = {(case.conditions.backend, case.device.id): case.device for case in cases}
    if not machines:
        raise InputError("no runs to calibrate on")
    if len(machines) > 1:
        names = ", ".join(f"{device} on {backend}" for backend, device in machines)
        raise InputError(f"one calibration is of one machine under one backend, these runs are of {names}")
    (backend, _), device = next(iter(machines.items()))
    return backend, device


def file_of(case: Case) -> tuple[str, str, str]:
    """What runs share the time model's error by: file and phase."""
    return case.model.id, case.run.quant or "", case.phase.phase


def _file_name(file: tuple[str, str, str]) -> str:
    return "file." + ".".join(file)


def file_sd(case: Case) -> float:
    """The part of the time model's error that all runs of a file and phase share, in log time."""
    return math.sqrt(FILE_SHARE) * MODEL_SD[case.phase.phase]


def run_sd(case: Case) -> float:
    """The rest of it, with the spread of the run's repetitions."""
    return math.hypot(math.sqrt(1 - FILE_SHARE) * MODEL_SD[case.phase.phase], repetition_sd(case))


def repetition_sd(case: Case) -> float:
    """Standard error of the mean over the repetitions, in log time."""
    run = case.run
    if run.t_s_std is None:
        return UNKNOWN_REPETITION_SD
    return run.t_s_std / run.t_s / math.sqrt(len(run.samples_t_s) or USUAL_REPETITIONS)


def _with_files(design: Design, parameters: Parameters, cases: Sequence[Case]) -> Design:
    """The design with a column for the deviation of each file and phase."""
    from scipy import sparse

    files = list(dict.fromkeys(map(file_of, cases)))
    first = {file_of(case): case for case in reversed(cases)}
    for file in files:
        parameters.index[_file_name(file)] = len(parameters.mean)
        parameters.mean.append(0.0)
        parameters.sd.append(file_sd(first[file]))
    of_run = np.array([files.index(file_of(case)) for case in cases])
    roofs = np.arange(len(design.base))
    entries = (np.ones(len(roofs)), (roofs, of_run[design.roof_run]))
    columns = sparse.csr_matrix(entries, shape=(len(roofs), len(files)))
    return replace(design, matrix=sparse.hstack([design.matrix, columns]).tocsr())


def _covariance(posterior: Posterior) -> Matrix:
    inverse: Any = posterior.factor.solve(np.eye(len(posterior.theta)))
    return np.asarray((inverse + inverse.T) / 2, float)


def _spread(cases: Sequence[Case], deviation: Vector) -> dict[str, float]:
    """The usual spread of runs, corrected by what is left of these runs after the fit, by phase."""
    spread = {}
    for phase, usual in MODEL_SD.items():
        chosen = deviation[[case.phase.phase == phase for case in cases]]
        robust = np.square(np.minimum(np.abs(chosen), 3 * usual))
        variance = (SPREAD_PRIOR_RUNS * usual**2 + robust.sum()) / (SPREAD_PRIOR_RUNS + len(chosen))
        spread[phase] = math.sqrt(float(variance))
    return spread
