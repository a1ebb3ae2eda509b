"""The fit as linear algebra: a roof's log time is linear in the factors, and a run's time is a smooth sum of roofs.

With s the share of a roof in a run's time, the gradient of log time is Σ s × (the roof's row of the design), so that
Newton's method on a few thousand runs and factors takes seconds. Imports scipy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from ..efficiency import ABSOLUTE_FACTORS, MACHINE_FACTORS, Gaussian, correction_prior, machine_prior
from ..phase_roofs import model_traits, phase_roofs
from ..roof_groups import RoofGroup
from .measurements import Case

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

PAIR_SPREAD: float = 1.2  # spread of a generation's factors between backends, relative to that between generations
SOURCE_SD: float = 0.04  # log deviation that the runs of one publication have in common
STUDENT_SCALE: float = 0.1  # log deviation from which a run counts less and less
STUDENT_DOF: float = 4.0


@dataclass
class Parameters:
    """The unknowns, in the order of the columns of the design."""

    index: dict[str, int] = field(default_factory=dict)
    mean: list[float] = field(default_factory=list)
    sd: list[float] = field(default_factory=list)

    def __call__(self, name: str, prior: Gaussian) -> int:
        """Column of the unknown called `name`, made at its first use."""
        if name not in self.index:
            self.index[name] = len(self.mean)
            self.mean.append(prior.mean)
            self.sd.append(prior.sd)
        return self.index[name]

    def of_factor(self, factor: str, backend: str, generation: str, device: str) -> list[int]:
        """Columns whose sum is the factor's value: one for a correction, the levels of the hierarchy otherwise."""
        if factor not in MACHINE_FACTORS:
            return [self(factor, correction_prior(factor))]
        level = MACHINE_FACTORS[factor]
        columns = [
            self(f"{factor}@{backend}", machine_prior(factor, backend)),
            self(f"{factor}@{generation}", Gaussian(0.0, level.generation_sd)),
            self(f"{factor}@{backend}/{generation}", Gaussian(0.0, PAIR_SPREAD * level.generation_sd)),
        ]
        if factor not in ABSOLUTE_FACTORS:
            columns.append(self(f"{factor}@{device}", Gaussian(0.0, level.device_sd)))
        return columns


@dataclass(frozen=True, eq=False)
class Design:
    """Roofs of all runs, flattened. A group of roofs overlaps, the groups of a run add up."""

    runs: int
    group_run: Indices  # of each group
    roof_group: Indices  # of each roof
    base: Vector  # log seconds at the datasheet's rate, of each roof
    matrix: Any  # sparse (roofs, unknowns)
    saturation: Any  # sparse (roofs, the first unknowns): the same of saturations
    saturated: NDArray[np.bool_]  # roofs that have one
    columns: Vector

    @property
    def roof_run(self) -> Indices:
        """Run of each roof."""
        return self.group_run[self.roof_group]

    def subset(self, keep: NDArray[np.bool_]) -> Design:
        """The design of some runs alone, renumbered."""
        renumbered = np.cumsum(keep) - 1
        groups, roofs = keep[self.group_run], keep[self.roof_run]
        group_number = np.cumsum(groups) - 1
        return Design(
            int(keep.sum()),
            renumbered[self.group_run[groups]],
            group_number[self.roof_group[roofs]],
            self.base[roofs],
            self.matrix[roofs],
            self.saturation[roofs],
            self.saturated[roofs],
            self.columns[roofs],
        )

    def log_seconds(self, theta: Vector) -> Vector:
        """Log time of every run."""
        return self._evaluate(theta)[0]

    def log_seconds_and_gradient(self, theta: Vector) -> tuple[Vector, Any]:
        """Log time of every run and its sparse gradient by the unknowns."""
        log_time, share, missing = self._evaluate(theta)
        roofs = np.arange(len(self.base))
        shape = (self.runs, len(self.base))
        by_factor = sparse.csr_matrix((share, (self.roof_run, roofs)), shape=shape) @ self.matrix
        slope = share * missing / (1 + missing)
        by_saturation = sparse.csr_matrix((slope, (self.roof_run, roofs)), shape=shape) @ self.saturation
        by_saturation.resize(by_factor.shape)  # unknowns that were added to `matrix` alone
        return log_time, (by_factor + by_saturation).tocsr()

    def _evaluate(self, theta: Vector) -> tuple[Vector, Vector, Vector]:
        missing = np.where(
            self.saturated, np.exp(self.saturation @ theta[: self.saturation.shape[1]]) / self.columns, 0.0
        )
        log_roof = self.base + self.matrix @ theta + np.log1p(missing)
        squares = np.exp(2 * np.clip(log_roof, -200, 60))  # the smooth maximum of roofline.combined
        sums = np.bincount(self.roof_group, squares, len(self.group_run))
        group = np.sqrt(sums)
        total = np.bincount(self.group_run, group, self.runs)
        share = group[self.roof_group] / total[self.roof_run] * squares / sums[self.roof_group]
        return np.log(total), share, missing


def design_of(
    cases: Sequence[Case], parameters: Parameters | None = None, sources: bool = False
) -> tuple[Design, Parameters]:
    """The design of `cases`, its unknowns added to `parameters`; `sources`: with one for each publication and phase.

    Raises InputError where a device lacks a figure.
    """
    builder = _Builder(parameters or Parameters(), sources)
    for number, case in enumerate(cases):
        groups = phase_roofs(case.phase, case.device, case.conditions, model_traits(case.model))
        builder.add(number, groups, case)
    return builder.design(len(cases)), builder.parameters


class _Builder:
    def __init__(self, parameters: Parameters, sources: bool) -> None:
        self.parameters = parameters
        self.sources = sources
        self.group_run: list[int] = []
        self.roof_group: list[int] = []
        self.base: list[float] = []
        self.saturated: list[bool] = []
        self.columns: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.saturation_entries: list[tuple[int, int, float]] = []

    def add(self, run: int, groups: Iterable[RoofGroup], case: Case) -> None:
        source = self._source(case)
        backend, generation = case.conditions.backend, case.device.generation or "unknown"
        for group in (one for main in groups for one in (main, main.then) if one is not None):
            roofs = [roof for roof in group.roofs if float(roof.seconds) > 0]
            if not roofs:
                continue
            for roof in roofs:
                row = len(self.base)
                self.roof_group.append(len(self.group_run))
                self.base.append(float(np.log(roof.seconds)))
                self.columns.append(float(roof.columns))
                self.saturated.append(bool(roof.saturation))
                self.entries += [(row, column, 1.0) for column in source]
                for factors, entries in ((roof.factors, self.entries), (roof.saturation, self.saturation_entries)):
                    for factor in factors:
                        columns = self.parameters.of_factor(factor.name, backend, generation, case.device.id)
                        entries += [(row, column, factor.power) for column in columns]
            self.group_run.append(run)

    def _source(self, case: Case) -> list[int]:
        """Column of what the runs of a publication have in common: hosts, cooling, drivers, how runs were chosen."""
        if not self.sources or not case.run.source:
            return []
        name = f"source@{case.phase.phase}/{publication(case.run.source)}"
        return [self.parameters(name, Gaussian(0.0, SOURCE_SD))]

    def design(self, runs: int) -> Design:
        shape = (len(self.base), len(self.parameters.mean))
        return Design(
            runs,
            np.array(self.group_run),
            np.array(self.roof_group),
            np.array(self.base),
            _sparse(self.entries, shape),
            _sparse(self.saturation_entries, shape),
            np.array(self.saturated),
            np.array(self.columns),
        )


def _sparse(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> Any:
    rows, columns, powers = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csr_matrix((powers, (rows, columns)), shape=shape)


def publication(source: str) -> str:
    """What a source's runs were published in: a repository's files, or one of its discussions, issues or pulls."""
    parts = source.split()[0].split("/")
    return "/".join(parts[2:5] if parts[5:6] == ["blob"] else parts[2:7])


@dataclass(frozen=True, eq=False)
class Posterior:
    """Most probable values of the unknowns, and the factored curvature there."""

    theta: Vector
    factor: Any

    def variance(self, columns: Iterable[int]) -> float:
        """Variance of the sum of some unknowns."""
        direction = np.zeros(len(self.theta))
        for column in columns:
            direction[column] += 1.0
        return float(direction @ self.factor.solve(direction))


def most_probable(
    design: Design,
    parameters: Parameters,
    log_measured: Vector,
    weight: Vector,
    start: Vector | None = None,
    iterations: int = 60,
    tolerance: float = 1e-7,
) -> Posterior:
    """Maximum a posteriori under Gaussian priors and Student errors: damped Gauss-Newton with reweighting."""
    mean, precision = np.array(parameters.mean), 1 / np.square(parameters.sd)
    theta = mean.copy() if start is None else start.copy()
    damping = 1e-3
    log_time, gradient = design.log_seconds_and_gradient(theta)
    loss = _loss(log_time - log_measured, weight, theta - mean, precision)
    curvature = None
    for _ in range(iterations):
        residual = log_time - log_measured
        trust = weight * _trust(residual)
        curvature = gradient.T @ sparse.diags(trust) @ gradient + sparse.diags(precision)
        slope = gradient.T @ (trust * residual) + (theta - mean) * precision
        step = _factored(curvature + sparse.diags(curvature.diagonal() * damping)).solve(-slope)
        candidate = theta + np.clip(step, -1.5, 1.5)
        new_loss = _loss(design.log_seconds(candidate) - log_measured, weight, candidate - mean, precision)
        if new_loss > loss:
            damping = damping * 10 + 1e-6
            if damping > 1e6:
                break
            continue
        gain, theta, loss, damping = loss - new_loss, candidate, new_loss, damping / 5
        log_time, gradient = design.log_seconds_and_gradient(theta)
        if gain < tolerance * (1 + loss):
            break
    trust = weight * _trust(log_time - log_measured)
    return Posterior(theta, _factored(gradient.T @ sparse.diags(trust) @ gradient + sparse.diags(precision)))


def _loss(residual: Vector, weight: Vector, deviation: Vector, precision: Vector) -> float:
    scaled = np.square(residual / STUDENT_SCALE) / STUDENT_DOF
    return float(weight @ np.log1p(scaled) * STUDENT_DOF / 2 + np.square(deviation) @ precision / 2)


def _trust(residual: Vector) -> Vector:
    scaled = np.square(residual / STUDENT_SCALE) / STUDENT_DOF
    return 1 / (STUDENT_SCALE**2 * (1 + scaled))


def _factored(matrix: Any) -> Any:
    options = {"SymmetricMode": True}
    return splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
