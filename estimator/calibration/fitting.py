"""Runs → efficiency factors: weights, the fit, and its summary by backend, generation and device. Imports scipy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..efficiency import ABSOLUTE_FACTORS, MACHINE_FACTORS, Efficiency, Factors, Gaussian
from ..timing import phase_time
from .design import Design, Parameters, Posterior, Vector, design_of, most_probable
from .measurements import Case

RUN_WEIGHT: Final = 1.5
FULL_WEIGHT_RUNS: Final = 16  # a device's weight grows with the root of its runs up to here
LEVELS: Final = (0.8, 0.95)
REFIT_ITERATIONS: Final = 8
DEVICES_FOR_SPREAD: Final = 8  # a backend with fewer has its phase's spread

Machine = tuple[str, str, str]  # backend, generation, device


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted set of cases."""

    cases: Sequence[Case]
    design: Design
    parameters: Parameters
    log_measured: Vector
    weight: Vector
    posterior: Posterior


def fit(cases: Sequence[Case]) -> Fit:
    """Fit all factors to `cases`."""
    design, parameters = design_of(cases, sources=True)
    measured = np.log([case.seconds for case in cases])
    weight = run_weights(cases)
    return Fit(cases, design, parameters, measured, weight, most_probable(design, parameters, measured, weight))


def run_weights(cases: Sequence[Case]) -> Vector:
    """Weight of each run: those of a device and phase share what grows slowly, then not at all, with their number."""
    keys = [(case.device.id, case.conditions.backend, case.phase.phase) for case in cases]
    counts = Counter(keys)
    number = np.array([counts[key] for key in keys], float)
    weights: Vector = RUN_WEIGHT * np.sqrt(np.minimum(number, FULL_WEIGHT_RUNS)) / number
    return weights


def machine_of(case: Case) -> Machine:
    """What the machine factors of a case are keyed by."""
    return case.conditions.backend, case.device.generation or "unknown", case.device.id


def summary(fitted: Fit, machines: Iterable[Machine], corrections: Factors | None = None) -> Efficiency:
    """The factors of `machines` and of their generations and backends; `corrections` are computed unless given."""
    backends: dict[str, Factors] = {}
    hardware: dict[str, Factors] = {}
    generations: dict[str, Factors] = {}
    devices: dict[str, Factors] = {}
    for backend, generation, device in sorted(set(machines)):
        pair = f"{backend}/{generation}"
        if backend not in backends:
            backends[backend] = _totals(fitted, (backend,))
        if generation not in hardware:
            hardware[generation] = _totals(fitted, (generation,))
        if pair not in generations:
            generations[pair] = _totals(fitted, (backend, generation, pair))
        devices[f"{backend}/{device}"] = _totals(fitted, (backend, generation, pair, device))
    shared = _corrections(fitted) if corrections is None else corrections
    return Efficiency(backends, hardware, generations, devices, shared)


def _totals(fitted: Fit, scopes: Sequence[str]) -> Factors:
    """Each machine factor's sum over the levels `scopes`, where runs told of it."""
    totals: dict[str, Gaussian] = {}
    for factor in MACHINE_FACTORS:
        levels = scopes[:3] if factor in ABSOLUTE_FACTORS else scopes
        names = [f"{factor}@{scope}" for scope in levels]
        columns = [fitted.parameters.index[name] for name in names if name in fitted.parameters.index]
        if columns and names[0] in fitted.parameters.index:
            totals[factor] = _gaussian(fitted.posterior, columns)
    return totals


def _corrections(fitted: Fit) -> Factors:
    index = fitted.parameters.index
    return {name: _gaussian(fitted.posterior, [index[name]]) for name in sorted(index) if "@" not in name}


def _gaussian(posterior: Posterior, columns: Sequence[int]) -> Gaussian:
    mean = float(sum(posterior.theta[column] for column in columns))
    return Gaussian(mean, float(np.sqrt(posterior.variance(columns))))


def without_each(
    fitted: Fit, group: Callable[[Case], Hashable], only: Container[str] | None = None
) -> Iterator[tuple[Hashable, NDArray[np.int64], Efficiency]]:
    """For each group of cases: its name, its cases, and the factors fitted without them; `only`: for some groups.

    A device that is left out altogether has its generation's factors, as any device that was never seen.
    """
    names = np.array([str(group(case)) for case in fitted.cases])
    base = _corrections(fitted)
    devices = {case.device.id for case in fitted.cases}
    for name in sorted(set(names)):
        if only is not None and name not in only:
            continue
        out = names == name
        kept = {case.device.id for case, left in zip(fitted.cases, out, strict=True) if not left}
        start = fitted.posterior.theta.copy()
        for parameter, column in fitted.parameters.index.items():
            scope = parameter.partition("@")[2]
            if scope in devices and scope not in kept:
                start[column] = 0.0
        posterior = most_probable(
            fitted.design.subset(~out),
            fitted.parameters,
            fitted.log_measured[~out],
            fitted.weight[~out],
            start,
            REFIT_ITERATIONS,
            1e-4,
        )
        refitted = replace(fitted, posterior=posterior)
        cases = np.flatnonzero(out)
        left_out = [case for case, left in zip(fitted.cases, out, strict=True) if left]
        factors = summary(refitted, map(machine_of, left_out), _moved(base, refitted))
        yield name, cases, _only_seen(factors, fitted.cases, out)


def _moved(corrections: Factors, refitted: Fit) -> Factors:
    """Corrections at their refitted means, with the uncertainty of the full fit, which a group hardly changes."""
    theta, index = refitted.posterior.theta, refitted.parameters.index
    return {name: Gaussian(float(theta[index[name]]), value.sd) for name, value in corrections.items()}


def _only_seen(factors: Efficiency, cases: Sequence[Case], out: NDArray[np.bool_]) -> Efficiency:
    """`factors` without levels of which no run was kept."""
    kept = [machine_of(case) for case, left in zip(cases, out, strict=True) if not left]
    pairs = {f"{backend}/{generation}" for backend, generation, _ in kept}
    machines = {f"{backend}/{device}" for backend, _, device in kept}
    backends = {backend for backend, _, _ in kept}
    generations = {generation for _, generation, _ in kept}
    return replace(
        factors,
        backends={key: value for key, value in factors.backends.items() if key in backends},
        hardware={key: value for key, value in factors.hardware.items() if key in generations},
        generations={key: value for key, value in factors.generations.items() if key in pairs},
        devices={key: value for key, value in factors.devices.items() if key in machines},
    )


def spread_of_runs(fitted: Fit) -> dict[str, float]:
    """Deviation that 68 % of the runs keep within, by phase and by phase and backend; devices weigh the same."""
    residual = np.abs(fitted.design.log_seconds(fitted.posterior.theta) - fitted.log_measured)
    return {
        group.name: weighted_quantile(residual[group.runs], group.weights, 0.68)
        for group in _phases_and_backends(fitted.cases)
        if group.devices >= DEVICES_FOR_SPREAD
    }


class _Runs(NamedTuple):
    """Some of the runs: those of a phase, or of a phase under one backend."""

    name: str  # "decode", "decode/CUDA"
    phase: str
    runs: NDArray[np.bool_]
    weights: Vector  # of these runs; devices weigh the same
    devices: int


def _phases_and_backends(cases: Sequence[Case]) -> Iterator[_Runs]:
    """Each phase before its backends."""
    keys = [(case.phase.phase, f"{case.phase.phase}/{case.conditions.backend}") for case in cases]
    devices = np.array([case.device.id for case in cases])
    for name in sorted({name for pair in keys for name in pair}):
        runs = np.array([name in pair for pair in keys])
        yield _Runs(name, name.split("/")[0], runs, balanced(devices[runs]), len(set(devices[runs])))


def interval_quantiles(fitted: Fit, spread: dict[str, float]) -> dict[str, float]:
    """Deviations within which 80 and 95 % of the runs of left-out devices lie, by phase and by larger backends."""
    deviation = np.empty(len(fitted.cases))
    for _, numbers, factors in without_each(fitted, lambda case: case.device.id):
        for number in numbers:
            case = fitted.cases[number]
            time = phase_time(case.phase, case.model, case.device, case.conditions, replace(factors, spread=spread))
            deviation[number] = abs(np.log(time.seconds / case.seconds)) / time.log_sd
    quantiles: dict[str, float] = {}
    for group, level in product(_phases_and_backends(fitted.cases), LEVELS):
        found = weighted_quantile(deviation[group.runs], group.weights, level)
        if group.name == group.phase:
            quantiles[f"{group.name}/{level:.2f}"] = found
        elif group.devices >= DEVICES_FOR_SPREAD:
            quantiles[f"{group.name}/{level:.2f}"] = _shrunk(
                found, group.devices, quantiles[f"{group.phase}/{level:.2f}"]
            )
    return quantiles


def _shrunk(of_some: float, devices: int, of_all: float) -> float:
    """A backend's quantile drawn to that of all, which counts as much as DEVICES_FOR_SPREAD devices."""
    share = devices / (devices + DEVICES_FOR_SPREAD)
    return float(of_some**share * of_all ** (1 - share))


def balanced(devices: NDArray[np.str_]) -> Vector:
    """Weights under which every device counts the same."""
    counts = Counter(devices.tolist())
    return np.array([1 / counts[device] for device in devices.tolist()])


def weighted_quantile(values: Vector, weights: Vector, level: float) -> float:
    """The value that a share `level` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), len(values) - 1)])
