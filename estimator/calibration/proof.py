"""How well calibration does: `python -m llmcalc.calibration.proof [--seed N] [--draws N]` prints it as Markdown.

Every prior is fitted without any run of the device in question, so that the device is as new to it as a user's is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from statistics import median
from typing import Final

import click
import numpy as np

from ..efficiency import Efficiency
from ..timing import phase_time
from .design import publication
from .fit_corpus import corpus_cases
from .fitting import fit, spread_of_runs, without_each
from .measurements import MEASUREMENTS, Case
from .update import calibrate

# Machines of which every run was made in one place.
OWN_MACHINES: Final = {"xeon-emerald-rapids-2vcpu": "a two-core Xeon", "epyc-genoa-2vcpu": "a two-core EPYC"}
LEAST_ROWS: Final = 10
PHASES: Final = ("decode", "prefill")

Priors = dict[str, Efficiency]


@dataclass(frozen=True)
class Score:
    """Errors |predicted − measured| ÷ measured of rates, before and after calibration, and shares in the interval."""

    before: dict[str, list[float]]
    after: dict[str, list[float]]
    inside: dict[str, list[bool]]  # the 80 % interval, after

    def median(self, phase: str) -> tuple[float, float]:
        """Medians before and after; not-a-number without runs of the phase."""
        return _median(self.before[phase]), _median(self.after[phase])

    @property
    def pooled(self) -> tuple[float, float]:
        """Medians before and after over both phases."""
        return _median([e for p in PHASES for e in self.before[p]]), _median([e for p in PHASES for e in self.after[p]])


def _median(values: Sequence[float]) -> float:
    return median(values) if values else float("nan")


def score(calibrated_on: Sequence[Case], predicted: Sequence[Case], prior: Efficiency) -> Score:
    """Errors on `predicted` by the prior alone and after calibration on other runs."""
    result = Score(*({phase: [] for phase in PHASES} for _ in range(3)))  # type: ignore[arg-type]
    own = calibrate(calibrated_on, prior).efficiency()
    for case in predicted:
        phase = case.phase.phase
        result.before[phase].append(_error(case, prior))
        time = phase_time(case.phase, case.model, case.device, case.conditions, own)
        low, high = time.interval(0.8)
        result.after[phase].append(abs(case.seconds / float(time.seconds) - 1))
        result.inside[phase].append(bool(low <= case.seconds <= high))
    return result


def _error(case: Case, efficiency: Efficiency) -> float:
    time = phase_time(case.phase, case.model, case.device, case.conditions, efficiency)
    return abs(case.seconds / float(time.seconds) - 1)


def priors_without_each(cases: Sequence[Case], devices: set[str]) -> Priors:
    """For each of `devices` the factors fitted to the runs of all others."""
    fitted = fit(cases)
    spread = spread_of_runs(fitted)

    def group(case: Case) -> str:
        return case.device.id if case.device.id in devices else ""

    return {str(name): replace(found, spread=spread) for name, _, found in without_each(fitted, group) if name}


def of_device(cases: Sequence[Case], device: str) -> list[Case]:
    """The runs of one device."""
    return [case for case in cases if case.device.id == device]


def two_models(cases: Sequence[Case], prior: Efficiency) -> Iterator[tuple[str, Score]]:
    """Calibrate on all runs of each pair of models, predict all runs of the others."""
    models = sorted({case.model.id for case in cases})
    for pair in combinations(models, 2):
        known = [case for case in cases if case.model.id in pair]
        yield " + ".join(pair), score(known, [case for case in cases if case.model.id not in pair], prior)


def two_runs(cases: Sequence[Case], prior: Efficiency) -> Iterator[tuple[str, Score]]:
    """Calibrate on one tg and one pp run of each file, on all threads and without depth; predict all other models."""
    most = max(case.run.threads or 0 for case in cases)
    files: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        if (case.run.threads or 0) == most and not case.run.n_depth:
            files[case.model.id, case.run.quant or ""].append(case)
    for (model, quant), members in sorted(files.items()):
        decode = [case for case in members if case.phase.phase == "decode"]
        prefill = [case for case in members if case.run.n_prompt == 512]
        if decode and prefill:
            others = [case for case in cases if case.model.id != model]
            yield f"{model} {quant}", score([decode[0], prefill[0]], others, prior)


@dataclass(frozen=True)
class Draw:
    """Rows of one model to calibrate on, and the rows of other models under the same backend."""

    rows: tuple[Case, ...]
    others: list[Case]


def draws(cases: Sequence[Case], random: Random, number: int, one_source: bool = False) -> list[Draw]:
    """Random pairs of a decode and a prefill row of one model.

    `one_source`: both rows and those to predict are of one publication, which mostly means one machine.
    """
    whole = whole_models(cases, one_source)
    found = []
    for _ in range(number if whole else 0):
        draw = random.choice(whole)
        pair = tuple(random.choice([case for case in draw.rows if case.phase.phase == phase]) for phase in PHASES)
        found.append(Draw(pair, draw.others))
    return found


def whole_models(cases: Sequence[Case], one_source: bool = False) -> list[Draw]:
    """All rows of each model that has some of both phases, where there are other models to predict."""
    groups: dict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[_scope(case, one_source), case.conditions.backend, case.model.id].append(case)
    found = []
    for (source, backend, model), rows in sorted(groups.items()):
        others = [
            case
            for case in cases
            if (_scope(case, one_source), case.conditions.backend) == (source, backend) and case.model.id != model
        ]
        if others and {case.phase.phase for case in rows} == set(PHASES):
            found.append(Draw(tuple(rows), others))
    return found


def _scope(case: Case, one_source: bool) -> str:
    return publication(case.run.source) if one_source and case.run.source else ""


@dataclass(frozen=True)
class DeviceResult:
    """Means over the draws of a device of the median error, before and after."""

    device: str
    rows: int
    draws: int
    before: float
    after: float

    @property
    def better(self) -> bool:
        """Whether calibration beat the uncalibrated estimate."""
        return self.after < self.before


def public_results(
    cases: Sequence[Case], priors: Priors, seed: int, number: int, one_source: bool = False
) -> list[DeviceResult]:
    """Each device with enough rows: calibrated on two random rows of one model, the other models predicted."""
    return _results(cases, priors, lambda own, device: draws(own, Random(f"{seed}/{device}"), number, one_source))


def limits(cases: Sequence[Case], priors: Priors, one_source: bool = False) -> list[DeviceResult]:
    """The same with all rows of each model, which two random ones can hardly surpass."""
    return _results(cases, priors, lambda own, _: whole_models(own, one_source))


def _results(
    cases: Sequence[Case], priors: Priors, drawn: Callable[[list[Case], str], list[Draw]]
) -> list[DeviceResult]:
    results = []
    for device, prior in sorted(priors.items()):
        own = of_device(cases, device)
        pairs = [score(draw.rows, draw.others, prior).pooled for draw in drawn(own, device)]
        if pairs:
            before, after = np.mean(pairs, axis=0)
            results.append(DeviceResult(device, len(own), len(pairs), float(before), float(after)))
    return results


def machine_section(cases: Sequence[Case], prior: Efficiency, machine: str) -> list[str]:
    """Both experiments on one machine, as Markdown."""
    lines = [f"### Two models of {machine}, all runs of the others", "", *_head("calibrated on")]
    pairs = list(two_models(cases, prior))
    lines += [_row(name, found) for name, found in pairs] + [_summary(pairs)]
    lines += ["", f"### One tg and one pp run of one file of {machine}, all runs of its other models", ""]
    lines += _head("calibrated on")
    single = list(two_runs(cases, prior))
    return [*lines, *(_row(name, found) for name, found in single), _summary(single), ""]


def _head(first: str) -> list[str]:
    cells = (first, "decode before", "decode after", "in the 80 % interval", "prefill before", "prefill after", "in it")
    return [f"| {' | '.join(cells)} |", "| --- " + "| ---: " * (len(cells) - 1) + "|"]


def _row(name: str, found: Score) -> str:
    cells = [name]
    for phase in PHASES:
        before, after = found.median(phase)
        inside = found.inside[phase]
        cells += [_percent(before), _percent(after), f"{sum(inside) / len(inside):.0%}" if inside else ""]
    return f"| {' | '.join(cells)} |"


def _summary(scores: Sequence[tuple[str, Score]]) -> str:
    cells = ["**median of these**"]
    for phase in PHASES:
        before, after = (np.nanmedian([found.median(phase)[i] for _, found in scores]) for i in (0, 1))
        inside = np.concatenate([found.inside[phase] for _, found in scores])
        cells += [_percent(float(before)), _percent(float(after)), f"{np.mean(inside):.0%}"]
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return "" if share != share else f"{share:.1%}"


def public_section(results: Sequence[DeviceResult], title: str) -> list[str]:
    """The table of devices, as Markdown."""
    before, after, better = _over_devices(results)
    lines = [f"### {title}", "", "| device | rows | median error before | after | better |"]
    lines.append("| --- | ---: | ---: | ---: | --- |")
    for one in results:
        yes = "yes" if one.better else "no"
        lines.append(f"| {one.device} | {one.rows} | {_percent(one.before)} | {_percent(one.after)} | {yes} |")
    summary = f"| **{len(results)} devices** | | {_percent(before)} | {_percent(after)} | {better:.0%} |"
    return [*lines, summary, ""]


def _over_devices(results: Sequence[DeviceResult]) -> tuple[float, float, float]:
    """Median errors before and after, and the share of devices that calibration improves."""
    before, after = (median(getattr(result, name) for result in results) for name in ("before", "after"))
    return before, after, sum(result.better for result in results) / len(results)


def limit_section(anywhere: Sequence[DeviceResult], one_source: Sequence[DeviceResult]) -> list[str]:
    """What more rows would bring, as Markdown."""
    lines = ["### All rows of one model, instead of two", "", "| | devices | median error before | after | better |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for name, results in (("the other models of the device", anywhere), ("within one publication", one_source)):
        before, after, better = _over_devices(results)
        lines.append(f"| {name} | {len(results)} | {_percent(before)} | {_percent(after)} | {better:.0%} |")
    return [*lines, ""]


def sections(seed: int, number: int) -> list[str]:
    """All of it."""
    cases, _ = corpus_cases(sorted(MEASUREMENTS.glob("*.csv")))
    rows = Counter(case.device.id for case in cases)
    priors = priors_without_each(cases, {device for device, count in rows.items() if count >= LEAST_ROWS})
    lines = ["## Calibration", ""]
    for device, machine in OWN_MACHINES.items():
        if device in priors:
            lines += machine_section(of_device(cases, device), priors[device], machine)
    public = {device: prior for device, prior in priors.items() if device not in OWN_MACHINES}
    for title, one_source in (
        ("Two random rows of one model, the other models of the device", False),
        ("The same within one publication", True),
    ):
        lines += public_section(public_results(cases, public, seed, number, one_source), title)
    return lines + limit_section(limits(cases, public), limits(cases, public, one_source=True))


@click.command()
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--draws", "number", type=int, default=9, show_default=True, help="Pairs of rows a device.")
def main(seed: int, number: int) -> None:
    """Print how well calibration does, as Markdown."""
    click.echo("\n".join(sections(seed, number)))


if __name__ == "__main__":
    main()
