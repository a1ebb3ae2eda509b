"""`llmcalc benchmark`: a benchmark read aright."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import InputError
from .options import catalog_option, json_option, profile_options
from .output import echo_page, page_style
from .runs import given_of, runs_options


@click.command(name="benchmark")
@runs_options
@profile_options
@catalog_option
@json_option
def command(files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Say what each figure of a benchmark is, how near it comes to the roofs, and what is missing to interpret it.

    Figures of prompt processing, of decode and of several sequences together stand apart: they measure different
    things. "of estimate" sets a figure against what llmcalc expects of the device (with its profile, if there is one).

    \b
    Examples:
      llama-bench -m model.gguf -o json | llmcalc benchmark -
      llmcalc benchmark issue.md --gpu rtx4090
    """
    from pathlib import Path

    from ..calibration.benchmark_card import benchmark_data, read_benchmark
    from ..calibration.readers import read_runs

    read = read_runs([Path(name) for name in files])
    if not read.runs:
        raise InputError(f"no runs were found: {read.problems[0]}" if read.problems else "no runs were found")
    profile = given["profile"] or not given["no_profile"]
    benchmark = read_benchmark(read.runs, given_of(given), profile)
    if as_json:
        data = benchmark_data(benchmark) | {"problems": [str(problem) for problem in read.problems]}
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))
        return
    from ..report.benchmark import benchmark_page

    for problem in read.problems:
        click.echo(str(problem), err=True)
    echo_page(benchmark_page(benchmark, page_style()))
