"""`llmcalc estimate`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import (
    TOKENS,
    QuantityText,
    catalog_option,
    context_options,
    figures_of,
    machine_options,
    model_options,
    workload_of,
)
from .output import echo_page, page_style


@click.command(name="estimate")
@model_options
@machine_options
@context_options
@click.option("--prompt", "-p", type=TOKENS, multiple=True, metavar="N", help="Prompt length; repeatable  [1k and all]")
@click.option("--output", "-n", type=TOKENS, default=256, show_default=True, metavar="N", help="Tokens of the answer.")
@click.option("--cached-prefix", type=TOKENS, default=0, metavar="N", help="Prompt tokens that are cached already.")
@click.option("--queue", type=QuantityText("seconds", "time"), default=0.0, help="Wait before the request starts: 2s.")
@click.option("--threads", type=int, metavar="N", help="CPU threads  [all cores]")
@click.option("--explain", is_flag=True, help="Show every operation, its roof, its factor and where that is from.")
@catalog_option
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown", "csv"]), default="text", show_default=True
)
def command(form: str, explain: bool, **given: Any) -> None:
    """Memory, time to first token and tokens/s of a model on a machine, with their range and the run that checks them.

    \b
    Examples:
      llmcalc estimate --gpu rtx4090 --model llama3-8b --quant q4 --ctx 32k
      llmcalc estimate --gpu m2-ultra-76 --model gpt-oss-120b --ctx 128k --prompt 4k
      llmcalc estimate --cpu ryzen-9-7950x --ram 64GiB --model qwen3-30b-a3b
      llmcalc estimate --gpu custom --bandwidth "1.2 TB/s" --memory 48GiB --fp16 200TFLOPS -m ./model.gguf
    """
    from ..estimation import estimate_request
    from ..request import resolve

    folders: tuple[Path, ...] = given["catalog"]
    request = resolve(
        model=given["model"],
        gpu=given["gpu"],
        cpu=given["cpu"],
        ram=given["ram"],
        backend=given["backend"],
        quant=given["quant"],
        figures=figures_of(given),
        queue=given["queue"],
        threads=given["threads"],
        catalog=folders,
        prompt=given["prompt"] or None,
        output=given["output"],
        cached_prefix=given["cached_prefix"],
        **workload_of(given),
    )
    estimate = estimate_request(request)
    if form == "json":
        from ..report.json import render

        click.echo(render(estimate))
    elif form == "markdown":
        from ..report.tables import markdown

        click.echo(markdown(estimate))
    elif form == "csv":
        from ..report.tables import csv_text

        click.echo(csv_text(estimate))
    else:
        from ..report.text import page

        echo_page(page(estimate, page_style(), explain))
