"""`llmcalc offload`: speed against how much of a model lies on the GPUs."""

from __future__ import annotations

import csv
import json
import sys
from typing import Any

import click

from .options import json_option, request_of, request_options
from .output import echo_page, page_style


@click.command(name="offload")
@request_options
@click.option("--sweep", is_flag=True, help="Every number of layers, not only some.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a setting.")
@json_option
def command(as_json: bool, as_csv: bool, sweep: bool, **given: Any) -> None:
    """tokens/s against layers on the GPUs (-ngl), and against experts on the CPU (--n-cpu-moe) of a mixture.

    With the cliff where it no longer fits, the memory from which a GPU helps at all, and the worth of one more GiB.

    \b
    Examples:
      llmcalc offload --sweep --gpu rtx3060 --cpu ryzen-5-5600x -m qwen3-14b
      llmcalc offload --sweep --gpu rtx4070 -m qwen3-30b-a3b --csv
    """
    from ..offload_sweep import csv_rows, offload_sweep

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    if given.get("ngl") is not None or given.get("n_cpu_moe") is not None or given.get("cpu_moe"):
        raise click.UsageError("-ngl, --n-cpu-moe and --cpu-moe are what is varied; leave them out")
    result = offload_sweep(request_of(given))
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=1, ensure_ascii=False))
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(result))
    else:
        from ..report.offload import offload_page

        echo_page(offload_page(result, page_style(), every=sweep))
