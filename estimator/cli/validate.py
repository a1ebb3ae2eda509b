"""`llmcalc validate`: predicted against measured."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..errors import InputError
from .options import catalog_option, json_option
from .output import echo_page, page_style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..calibration.readers import Problem
    from ..calibration.runs import Run
    from ..calibration.validation import Prediction, Report

CSV_COLUMNS = ("id", "measured_tokens_per_s", "predicted_tokens_per_s", "low_80", "high_80", "skipped")


@click.command(name="validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--gpu", "--cpu", "device", metavar="NAME", help="The device, where the runs do not say it.")
@click.option("--model", metavar="NAME", help="The model, where the runs do not say it.")
@click.option("--quant", metavar="TYPE", help="The quantisation, where the runs do not say it.")
@click.option(
    "--leave-out",
    type=click.Choice(["device", "model"]),
    help="Predict each device (model) with factors fitted to the runs of all others, shipped ones and those in FILE.",
)
@click.option("--profile", metavar="NAME", help="A calibration, for the runs of its machine.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it, PNG, SVG or PDF."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a run.")
@catalog_option
@json_option
def command(
    files: tuple[str, ...],
    device: str | None,
    model: str | None,
    quant: str | None,
    leave_out: Literal["device", "model"] | None,
    profile: str | None,
    plot: Path | None,
    as_csv: bool,
    catalog: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Predict measured runs and say how far off the predictions are; every device weighs the same.

    FILE: llama-bench output in any of its formats, tables pasted from anywhere, or this project's CSV; - is stdin.
    Runs that cannot be predicted are counted by reason.

    \b
    Examples:
      llmcalc validate runs.csv --leave-out device
      llmcalc validate bench.json --profile mine
      llama-bench -m model.gguf -o json | llmcalc validate - --gpu rtx4090
    """
    from dataclasses import replace

    from ..calibration.readers import read_runs
    from ..calibration.resolved import validate_resolved

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    read = read_runs([Path(name) for name in files])
    if not read.runs:
        raise InputError(f"no runs were found: {read.problems[0]}" if read.problems else "no runs were found")
    for problem in read.problems:
        click.echo(str(problem), err=True)
    if profile is None:
        report = validate_resolved(read.runs, leave_out, gpu=device, model=model, quant=quant, folders=catalog)
    else:
        report = _with_profile(profile, read.runs, leave_out, device, model, quant, catalog)
    report = replace(report, unreadable=sum(problem.lines for problem in read.problems))
    if plot is not None:
        from ..plots import save_accuracy

        save_accuracy(report, plot)
    if as_csv:
        _print_csv(report, read.problems)
    elif as_json:
        click.echo(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        from ..report.accuracy import accuracy_page

        echo_page(accuracy_page(report, page_style()))


def _with_profile(
    name: str,
    runs: Sequence[Run],
    leave_out: str | None,
    device: str | None,
    model: str | None,
    quant: str | None,
    catalog: tuple[Path, ...],
) -> Report:
    from ..calibration.machine_runs import Given
    from ..calibration.profile_validation import validate_with_profile
    from ..calibration.profiles import load
    from ..device_catalog import find_device

    if leave_out is not None:
        raise click.UsageError("--profile and --leave-out exclude each other")
    named = None if device is None else find_device(device, None, catalog)
    return validate_with_profile(runs, load(name), Given(named, named, model, quant, catalog))


def _print_csv(report: Report, problems: Sequence[Problem]) -> None:
    """A row a run in the order of the files; lines that could not be read stand where they were."""
    from ..calibration.runs import Origin
    from ..calibration.validation import UNREADABLE

    rows = [(one.run.origin, _cells(one)) for one in report.predictions]
    for each in problems:
        if each.line:
            cells = (each.id or str(Origin(each.file, each.line)), "", "", "", "", f"{UNREADABLE}: {each.reason}")
            rows.append((Origin(each.file, each.line), cells))
    files = {origin.file: number for number, (origin, _) in reversed(list(enumerate(rows))) if origin}
    rows.sort(key=lambda row: (files[row[0].file], row[0].line) if row[0] else (-1, 0))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(cells for _, cells in rows)


def _cells(one: Prediction) -> tuple[str, ...]:
    figures = (one.run.t_s, one.predicted, one.low_80, one.high_80)
    return (one.run.id or "", *("" if x is None else f"{x:.6g}" for x in figures), one.skipped or "")
