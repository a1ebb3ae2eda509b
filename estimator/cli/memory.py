"""`llmcalc memory`: bytes per device as llama.cpp allocates them, and what still fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import (
    catalog_option,
    context_options,
    figures_of,
    json_option,
    machine_options,
    model_options,
    workload_of,
)
from .output import echo_page, page_style
from .placement_options import placement_options, settings_of


@click.command(name="memory")
@model_options
@machine_options
@placement_options
@context_options
@click.option("--server/--bench", "server", default=False, help="llama-server's buffers, which keep few logits.")
@catalog_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@json_option
def command(form: str, as_json: bool, server: bool, **given: Any) -> None:
    """Model, context and compute memory of each device and the host, in MiB, as llama.cpp prints them itself.

    Without a device, everything is planned on one GPU of unknown size.

    \b
    Examples:
      llmcalc memory --gpu rtx3090 --model gemma3-27b --quant q4 --ctx 64k
      llmcalc memory --gpu rtx3090 --gpu rtx3060 --model llama3-70b --quant iq2_xs
      llmcalc memory --gpu rtx3090 --model qwen3-30b-a3b --n-cpu-moe 20 --ctx 32k
      llmcalc memory --model ./model.gguf --ctx 32k --json
    """
    from ..memory_summary import memory_report

    folders: tuple[Path, ...] = given["catalog"]
    report = memory_report(
        model=given["model"],
        quant=given["quant"],
        gpus=given["gpu"],
        cpu=given["cpu"],
        ram=given["ram"],
        figures=figures_of(given),
        folders=folders,
        settings=settings_of(given),
        rpc=given["rpc"],
        all_logits=not server,
        **workload_of(given),
    )
    if as_json or form == "json":
        click.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
        return
    from ..report.memory import memory_page

    echo_page(memory_page(report, page_style()))
