"""`llmcalc check`: physics lint of runs, and why a machine is slow."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import InputError
from .options import catalog_option, json_option, profile_options
from .output import echo_page, page_style
from .runs import given_of, print_problems, runs_options


@click.command(name="check")
@runs_options
@profile_options
@catalog_option
@json_option
def command(files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Find data errors and suspects among runs, and say why a machine may be slow.

    A run above 100 % of a roof is a data error; one far below its siblings is a suspect. Where a machine is slower than
    expected, likely causes are ranked, each with what speaks for it and the command that would tell.

    \b
    Examples:
      llama-bench -m model.gguf -p 512 -n 64 -d 0,4096 -o json | llmcalc check -
      llmcalc check runs/ --gpu rtx4090
    """
    from pathlib import Path

    from ..calibration.diagnosis import diagnose, diagnosis_data
    from ..calibration.machine_runs import MachineRuns
    from ..calibration.readers import read_runs

    read = read_runs([Path(name) for name in files])
    if not read.runs:
        raise InputError(f"no runs were found: {read.problems[0]}" if read.problems else "no runs were found")
    diagnosis = diagnose(read.runs, given_of(given), given["profile"] or not given["no_profile"])
    if as_json:
        data = diagnosis_data(diagnosis) | {"problems": [str(problem) for problem in read.problems]}
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))
        return
    from ..report.diagnosis import diagnosis_page

    print_problems(read, MachineRuns({}, diagnosis.skipped))
    echo_page(diagnosis_page(diagnosis, page_style()))
