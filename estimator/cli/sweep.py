"""`llmcalc sweep`: every combination, a row each, to CSV, JSON lines or Parquet."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .axis_options import axes_of, axis_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..parameter_sweep import Sweep
    from ..sweep_output import Format, Made, Progress


@click.command(name="sweep")
@axis_options
@click.option("--occupied", metavar="TOKENS", multiple=True, help="Positions of a sequence at decode  [full]")
@click.option("--columns", metavar="NAMES", help="Only these columns, such as model,ctx,decode_tokens_per_s.")
@click.option("-o", "output_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="  [stdout]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="[by the file's name, else csv]; parquet needs pyarrow.",
)
@click.option("--resume", is_flag=True, help="Take up FILE where an interrupted run of the same sweep left it.")
@click.option("--engine", type=click.Choice(["local", "dask"]), default="local", show_default=True)
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler, such as tcp://10.0.0.1:8786.")
def command(
    output_file: Path | None,
    form: Format | None,
    columns: str | None,
    resume: bool,
    engine: str,
    scheduler: str | None,
    **given: Any,
) -> None:
    """Estimate every combination of machines, models, settings and token counts: a row each, streamed.

    Values are separated by commas. 1k..128k doubles from 1k to 128k; 1..32 (--parallel) counts; 0..32k+4k goes in steps
    of 4k; 1k..100k*1.5 grows by a factor. A machine is one device, or several: 2x rtx3090+rtx3060. Points whose context
    does not hold the prompt with its output, or the occupied positions, are left out and counted.

    Rates are of one sequence unless they are called aggregate; fits says whether memory suffices (empty: unknown).
    An interrupted FILE stays as FILE.part, which ends with a whole row, and --resume goes on from there.

    \b
    Examples:
      llmcalc sweep --gpu rtx4090,2x\\ rtx3090 -m llama3-8b --quant q4,q5,q8 --ctx 1k..128k
      llmcalc sweep --gpu rtx4090 -m qwen3-30b-a3b --ctx 64k --parallel 1..32 -o batches.csv
      llmcalc sweep --cpu ryzen-9-7950x --ram 64GiB -m llama3-8b --occupied 0..8k+256
      llmcalc sweep --gpu h100-sxm5-80gb -m llama3-70b --ctx 8k..1M*1.1 -o big.parquet
      llmcalc sweep … -o big.csv --engine dask --scheduler tcp://10.0.0.1:8786
    """
    from ..parameter_sweep import COLUMNS, sweep
    from ..sweep_output import Resumed, format_of, open_sink, write_sweep
    from ..sweep_output import resume as find_rest

    if resume and output_file is None:
        raise click.UsageError("--resume needs the file: -o FILE")
    chosen = form or (format_of(output_file) if output_file else "csv")
    wanted = tuple(name.strip() for name in columns.split(",")) if columns else COLUMNS
    asked = sweep(columns=wanted, **axes_of(given))
    first = find_rest(output_file, asked, chosen) if resume and output_file else Resumed()
    made = _engine(engine, scheduler, asked, chosen, first.blocks)
    sink = open_sink(output_file, sys.stdout.buffer, asked, chosen, first)
    try:
        done = write_sweep(asked, made, sink, chosen, _Meter(first.blocks), first)
    except KeyboardInterrupt:
        if output_file is not None and chosen != "parquet":
            click.echo(f"{output_file.name}.part ends with a whole row; --resume goes on from there", err=True)
        raise
    if not done.rows:
        raise InputError(asked.why_empty())
    _say(done)


def _engine(engine: str, scheduler: str | None, asked: Sweep, form: Format, first: int) -> Iterable[Made]:
    """The blocks, from where they are made."""
    if engine == "local":
        if scheduler is not None:
            raise click.UsageError("--scheduler goes with --engine dask")
        from ..sweep_output import local_blocks

        return local_blocks(asked, form, first)
    if scheduler is None:
        raise click.UsageError("--engine dask needs --scheduler ADDRESS")
    from ..sweep_dask import connect, dask_blocks

    return dask_blocks(asked, form, connect(scheduler), first)


class _Meter:
    """Progress on stderr: on a terminal, after the first two seconds, twice a second."""

    def __init__(self, first: int) -> None:
        self.first, self.start, self.last = first, time.monotonic(), 0.0

    def __call__(self, done: Progress) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self.start < 2.0:
            return
        whole = done.blocks == done.of_blocks
        if now - self.last < 0.5 and not whole:
            return
        self.last = now
        share = (done.blocks - self.first) / max(done.of_blocks - self.first, 1)
        left = (now - self.start) * (1 / share - 1) if share else 0.0
        text = f"{done.blocks / done.of_blocks:.0%}, {done.rows:,} rows, {left:,.0f} s left"
        click.echo("\r" + " " * 60 + "\r" if whole else f"\r{text:<60}", err=True, nl=False)


def _say(done: Progress) -> None:
    """What was left out, on stderr."""
    if done.left_out:
        click.echo(
            f"{done.left_out:,} points left out: their context does not hold the prompt and output, or the occupied "
            "positions",
            err=True,
        )
    for problem, cells in done.problems.items():
        click.echo(f"{cells:,} combinations left out: {problem}", err=True)
