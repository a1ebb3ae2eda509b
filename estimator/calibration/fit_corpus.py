"""Fit the shipped efficiency factors: `python -m llmcalc.calibration.fit_corpus [-o FILE] [MEASUREMENTS …]`.

Reads hardware/measurements, fits the clean runs of single devices, measures the intervals on devices left out, and
writes estimator/efficiency.yaml. The same runs and the same code give the same file.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import click

from ..efficiency import Efficiency, to_mapping
from .fitting import Fit, fit, interval_quantiles, machine_of, spread_of_runs, summary
from .measurements import MEASUREMENTS, Case, UnpredictableError, case_of
from .readers import read_runs
from .validation import checked

FIT_VERSION: Final = 1
DIGITS: Final = 4
HEADER: Final = """\
# Efficiency factors, written by `python -m llmcalc.calibration.fit_corpus` from hardware/measurements. Do not edit.
#
# Every pair is [mean, standard deviation] of the natural logarithm of what stretches a time: [0.10, 0.03] means 10.5 %
# longer than the datasheet allows, give or take 3 %. Machine factors are totals for each level; a machine is looked up
# in `devices`, then `generations`, then `backends` + `hardware`. estimator/efficiency.py says what each factor means.
"""


def corpus_cases(paths: Sequence[Path]) -> tuple[list[Case], Counter[str]]:
    """The clean runs of measurement files, resolved, and why others are not among them."""
    cases, skipped = [], Counter[str]()
    for run in read_runs(list(paths)).runs:
        try:
            if run.class_ != "clean-single":
                raise UnpredictableError(str(run.class_))
            cases.append(checked(case_of(run)))
        except UnpredictableError as reason:
            skipped[str(reason)] += 1
    return cases, skipped


def fitted_efficiency(cases: Sequence[Case]) -> tuple[Efficiency, Fit]:
    """Factors with their intervals, and the fit behind them."""
    fitted = fit(cases)
    spread = spread_of_runs(fitted)
    quantiles = interval_quantiles(fitted, spread)
    return replace(summary(fitted, map(machine_of, cases)), spread=spread, quantiles=quantiles), fitted


def provenance(cases: Sequence[Case], skipped: Counter[str], paths: Sequence[Path]) -> dict[str, Any]:
    """What the factors were fitted on."""
    sources = Counter(_repository(case.run.source or "") for case in cases)
    return {
        "fit_version": FIT_VERSION,
        "files": [path.name for path in paths],
        "runs": len(cases),
        "devices": len({case.device.id for case in cases}),
        "models": len({case.model.id for case in cases}),
        "runs_by_source": dict(sorted(sources.items())),
        "not_fitted": dict(sorted(skipped.items())),
    }


def _repository(url: str) -> str:
    return "/".join(url.split()[0].split("/")[2:5]) if url else "not stated"


def to_yaml(efficiency: Efficiency) -> str:
    """The text of an efficiency file."""
    import yaml

    body = yaml.safe_dump(_rounded(to_mapping(efficiency)), sort_keys=False, default_flow_style=None, width=120)
    return HEADER + str(body)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value


@click.command()
@click.argument("measurements", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to write; default: the package's own file."
)
def main(measurements: tuple[Path, ...], output: Path | None) -> None:
    """Fit the efficiency factors to measured runs."""
    paths = list(measurements) or sorted(MEASUREMENTS.glob("*.csv"))
    cases, skipped = corpus_cases(paths)
    efficiency, _ = fitted_efficiency(cases)
    target = output or Path(str(files("llmcalc").joinpath("efficiency.yaml")))
    target.write_text(to_yaml(replace(efficiency, provenance=provenance(cases, skipped, paths))), encoding="utf-8")
    print(f"{len(cases)} runs fitted, {sum(skipped.values())} not; wrote {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
