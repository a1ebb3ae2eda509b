"""`llmcalc calibrate`: the factors of a machine from its own runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .options import catalog_option, json_option
from .output import echo_page, page_style
from .runs import device_overrides, given_of, print_problems, read_machine_runs

if TYPE_CHECKING:
    from ..calibration.machine_runs import MachineRuns
    from ..calibration.readers import ReadResult
    from ..calibration.results import MachineResult


@click.command(name="calibrate")
@click.argument("files", nargs=-1, metavar="[RUNS]…")
@click.option("--save", metavar="NAME", help="Keep the result as a profile, which estimates of this device then use.")
@click.option("--run", "bench", metavar="PROGRAM", help="Run llama-bench now (its name or path) with --model FILE.")
@click.option("--budget", default="2m", show_default=True, metavar="TIME", help="How long --run may take: 90s, 5m.")
@click.option(
    "--keep", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Where --run keeps its runs."
)
@click.option("--fresh", is_flag=True, help="Do not go on with runs that --run kept of this file.")
@click.option("--model", "-m", metavar="NAME|FILE", help="The model, where the runs do not say it; the file for --run.")
@click.option("--quant", "-q", metavar="TYPE", help="The quantisation, where the runs do not say it.")
@device_overrides
@click.option("--all", "every_factor", is_flag=True, help="Show factors that the runs say nothing of, too.")
@catalog_option
@json_option
def command(files: tuple[str, ...], save: str | None, bench: str | None, as_json: bool, **given: Any) -> None:
    """Fit the efficiency factors to a machine's own runs, and say how sharp estimates for it become.

    RUNS: llama-bench output in any format, llama-batched-bench, llama-cli, llama-server and Ollama timings, tables
    pasted from anywhere, this project's CSV; files, folders, - for stdin. One run is enough to start.

    \b
    Examples:
      llama-bench -m model.gguf -o json | llmcalc calibrate - --save mine
      llmcalc calibrate runs/ --gpu rtx4090 --save mine
      llmcalc calibrate --run llama-bench --model model.gguf --budget 2m --save mine
      llmcalc calibrate bench.md --cpu custom --cores 8 --bandwidth "80 GB/s" --memory 64GiB --fp32 1.5TFLOPS
    """
    from ..calibration.profiles import checked_name
    from ..calibration.results import calibrate_machines, nothing_to_fit

    if not files and bench is None:
        raise click.UsageError("name files with runs, or let --run llama-bench --model FILE make them")
    name = checked_name(save) if save else None
    read, runs = _runs(files, bench, given)
    if not as_json:
        print_problems(read, runs)
    if not runs.machines:
        raise InputError(nothing_to_fit(read, runs))
    results = calibrate_machines(runs)
    saved = _save(name, results) if name else None
    if as_json:
        click.echo(json.dumps(_data(read, runs, results, saved), indent=1, ensure_ascii=False))
        return
    from ..report.calibration import calibration_page

    for number, result in enumerate(results):
        echo_page(([""] if number else []) + calibration_page(result, page_style(), given["every_factor"]))
    if saved:
        click.echo(f"\nSaved as profile {name}: {saved}")


def _runs(files: tuple[str, ...], bench: str | None, given: dict[str, Any]) -> tuple[ReadResult, MachineRuns]:
    overrides = given_of(given)
    if bench is None:
        return read_machine_runs(files, overrides)
    from .calibrate_run import run_bench

    kept, overrides = run_bench(bench, given, overrides)
    return read_machine_runs((*files, str(kept)), overrides)


def _save(name: str, results: tuple[MachineResult, ...]) -> Path:
    from ..calibration.profiles import save
    from ..calibration.results import profile_of

    return save(profile_of(name, results))


def _data(
    read: ReadResult, runs: MachineRuns, results: tuple[MachineResult, ...], saved: Path | None
) -> dict[str, Any]:
    from ..calibration.results import SCHEMA, result_data

    return {
        "schema": SCHEMA,
        "machines": [result_data(result) for result in results],
        "problems": [str(problem) for problem in read.problems],
        "skipped": [{"run": each.run.id, "reason": each.reason} for each in runs.skipped],
        "profile": str(saved) if saved else None,
    }
