"""`llmcalc fit`: the settings under which a model runs best on a machine."""

from __future__ import annotations

import json
from typing import Any

import click

from .options import json_option, request_of, request_options
from .output import echo_page, page_style
from .parameter_types import RATE, SOME_TOKENS


@click.command(name="fit")
@request_options
@click.option("--min-tps", type=RATE, default=0.0, metavar="RATE", help="Decode of one sequence, tokens/s, at least.")
@click.option("--min-prefill", type=RATE, default=0.0, metavar="RATE", help="Prefill, tokens/s, at least.")
@click.option(
    "--contexts", type=SOME_TOKENS, multiple=True, metavar="N", help="Contexts to choose between; repeatable."
)
@click.option("--fix-kv", is_flag=True, help="Keep --kv-type-k and --kv-type-v as given  [f16 and q8_0 are tried]")
@click.option("--fix-ubatch", is_flag=True, help="Keep --ubatch as given  [512 and 2048 are tried]")
@json_option
def command(
    as_json: bool,
    min_tps: float,
    min_prefill: float,
    contexts: tuple[int, ...],
    fix_kv: bool,
    fix_ubatch: bool,
    **given: Any,
) -> None:
    """The best placements and settings for a model on a machine, and the commands that start them.

    Tries quantisations (unless --quant or a .gguf fixes it), cache types, micro-batches and placements; shows the
    choices that no other beats in speed, context and quality at once, and what llama.cpp's own --fit would do.

    \b
    Examples:
      llmcalc fit --gpu rtx3060 --cpu ryzen-5-5600x --ram 32GiB -m qwen3-30b-a3b --ctx 32k
      llmcalc fit --gpu rtx3090 --gpu rtx3060 -m llama3-70b --min-tps 8
    """
    from pathlib import Path

    from ..fit_search import CACHE_TYPES, FILE_TYPES, UBATCHES, Limits, fit

    request = request_of(given)
    if request.settings is not None:
        raise click.UsageError("fit chooses the placement itself; leave out -ngl, -ot, --n-cpu-moe and the like")
    fixed = given["quant"] is not None or Path(given["model"]).suffix.lower() == ".gguf" or given["model"] == "-"
    report = fit(
        request,
        Limits(min_tps, min_prefill),
        file_types=FILE_TYPES,
        cache_types=(request.workload.kv_type_k,) if fix_kv else CACHE_TYPES,
        ubatches=(request.workload.ubatch,) if fix_ubatch else UBATCHES,
        contexts=contexts,
        fixed_weights=fixed,
    )
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
        return
    from ..report.fit import fit_page

    echo_page(fit_page(report, page_style()))
