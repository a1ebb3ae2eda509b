"""`llmcalc estimate`: the main job."""

from __future__ import annotations

from typing import Any

import click

from .options import request_of, request_options
from .output import echo_page, page_style


@click.command(name="estimate")
@request_options
@click.option("--explain", is_flag=True, help="Show every operation, its roof, its factor and where that is from.")
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

    estimate = estimate_request(request_of(given))
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
