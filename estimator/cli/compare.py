"""`llmcalc compare`: machines, models and settings side by side."""

from __future__ import annotations

import json
from typing import Any

import click

from .axis_options import axes_of, axis_options
from .options import json_option
from .output import echo_page, page_style


@click.command(name="compare")
@axis_options
@click.option("--sensitivity", is_flag=True, help="Say what would change each of them, and by how much.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@json_option
def command(sensitivity: bool, markdown: bool, as_json: bool, **given: Any) -> None:
    """Compare every combination of machines, models and settings; values are separated by commas.

    Ranges are written as for sweep: 4k..32k doubles, 0..32k+4k goes in steps. The last column of the decode table is
    the rate as a multiple of the first line's. --sensitivity estimates each again with more bandwidth, compute or
    power, another cache type or quantisation, twice the sequences, one more device.

    \b
    Examples:
      llmcalc compare --gpu rtx4090,rtx3090,m2-ultra-76 -m llama3-8b --quant q4 --ctx 32k
      llmcalc compare --gpu rtx3090 -m qwen3-30b-a3b,gemma3-27b,qwen3-32b --quant q4
      llmcalc compare --gpu "rtx5090,2x rtx3090" -m llama3-70b --quant iq2_xs,q3_k_m,q4
      llmcalc compare --gpu rtx4090 -m llama3-8b --ctx 32k --kv-type f16,q8_0 --sensitivity
    """
    from ..comparison import compare

    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    result = compare(sensitivity=sensitivity, **axes_of(given))
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
    elif markdown:
        from ..report.comparison import comparison_markdown

        click.echo(comparison_markdown(result))
    else:
        from ..report.comparison import comparison_page

        echo_page(comparison_page(result, page_style()))
