"""`llmcalc serve`: a server under load."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    catalog_option,
    figures_of,
    json_option,
    machine_options,
    model_options,
    profile_options,
)
from .output import echo_page, page_style
from .parameter_types import COUNT, RATE, SECONDS, SEQUENCES, SOME, SOME_SHARE, SOME_TOKENS, THREADS, TOKENS
from .placement_options import placement_options, settings_of, surroundings_of

if TYPE_CHECKING:
    from ..request import Request

SLOT_CONTEXT = 8192


@click.command(name="serve")
@model_options
@machine_options
@placement_options
@click.option(
    "--slots", "-np", type=SEQUENCES, default=4, show_default=True, metavar="N", help="Sequences served together."
)
@click.option("--ctx", "-c", type=SOME_TOKENS, metavar="N", help="Cache of all slots together  [8k a slot]")
@click.option("--kv-split", is_flag=True, help="Give each slot its own part of the cache  [all share it]")
@click.option("--kv-type", default="f16", show_default=True, metavar="TYPE", help="Type of the cache.")
@click.option("--batch", type=SOME_TOKENS, default=2048, show_default=True, metavar="N", help="Tokens of one step.")
@click.option("--threads", type=THREADS, metavar="N", help="CPU threads  [all cores]")
@click.option("--ubatch", type=SOME_TOKENS, default=512, show_default=True, metavar="N", help="Physical batch.")
@click.option("--prompt", "-p", default="512", show_default=True, metavar="LENGTH", help="512, mean=512,cv=1 …")
@click.option("--output", "-n", default="256", show_default=True, metavar="LENGTH", help="256, median=200,p95=1k …")
@click.option("--cached-prefix", type=TOKENS, default=0, metavar="N", help="Start of every prompt that slots hold.")
@click.option(
    "--trace", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Lengths, and times if any."
)
@click.option("--rate", type=RATE, metavar="N", help="Requests a second  [several, by theory]")
@click.option("--users", type=COUNT, metavar="N", help="People instead of a rate: each waits, thinks, asks again.")
@click.option("--think", type=SECONDS, default=0.0, metavar="TIME", help="Mean time that a user thinks: 20s.")
@click.option("--ttft", type=SECONDS, metavar="TIME", help="Objective: latest first token.")
@click.option("--tpot", type=SECONDS, metavar="TIME", help="Objective: longest mean time between tokens.")
@click.option(
    "--share", type=SOME_SHARE, default=0.95, show_default=True, metavar="P", help="Requests that must meet it."
)
@click.option("--simulate/--theory", default=True, help="Play requests step by step too, or not  [simulate]")
@click.option("--requests", type=COUNT, default=20_000, show_default=True, metavar="N", help="Requests to simulate.")
@click.option("--seed", type=SOME, default=0, show_default=True, metavar="N", help="Of the simulation.")
@profile_options
@catalog_option
@json_option
def command(as_json: bool, **given: Any) -> None:
    """A model served to several users: how many requests a second, how long they wait, how fast tokens come.

    Lengths are a number of tokens, a log-normal by mean and coefficient of variation (mean=512,cv=1) or by median and
    95th percentile (median=300,p95=2k), or those of a trace: a .csv or .jsonl with prompt and output tokens and perhaps
    arrival times. Prompts are read in chunks between decode steps, as llama-server does: TPOT is a request's mean time
    between tokens, ITL counts every token, also those that wait while others' prompts are read.

    \b
    Examples:
      llmcalc serve --gpu rtx4090 -m llama3-8b --quant q4 --slots 8
      llmcalc serve --gpu rtx4090 -m llama3-8b --slots 8 --rate 2 --prompt mean=800,cv=1 --ttft 2s --tpot 50ms
      llmcalc serve --gpu rtx4090 -m qwen3-30b-a3b --users 20 --think 30s
      llmcalc serve --gpu rtx4090 -m llama3-8b --trace requests.csv --theory
    """
    from ..service import load_of, serve
    from ..serving import Slo

    if given["users"] is not None and given["rate"] is not None:
        raise click.UsageError("--users and --rate exclude each other")
    request = _request(given)
    load = load_of(
        given["prompt"],
        given["output"],
        rate_per_s=given["rate"],
        trace=Path(given["trace"]) if given["trace"] else None,
        users=given["users"],
        think_s=given["think"],
        seed=given["seed"],
        longest=request.room,
    )
    ttft, tpot = given["ttft"], given["tpot"]
    wanted = ttft is not None or tpot is not None
    slo = Slo(_or_never(ttft), _or_never(tpot), given["share"]) if wanted else None
    simulated = given["requests"] if given["simulate"] or given["users"] else 0
    service = serve(request, load, slo=slo, simulated=simulated, seed=given["seed"])
    if as_json:
        click.echo(json.dumps(service.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    from ..report.service import service_page

    echo_page(service_page(service, page_style()))


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _request(given: dict[str, Any]) -> Request:
    """The server as a request; its own prompt and output do not matter."""
    from dataclasses import replace

    from ..request import resolve

    request = resolve(
        model=given["model"],
        quant=given["quant"],
        gpu=given["gpu"],
        cpu=given["cpu"],
        ram=given["ram"],
        backend=given["backend"],
        figures=figures_of(given),
        catalog=given["catalog"],
        profile=given["profile"] or not given["no_profile"],
        ctx=given["ctx"] or SLOT_CONTEXT * given["slots"],
        parallel=given["slots"],
        output=1,
        kv_type_k=given["kv_type"],
        kv_type_v=given["kv_type"],
        batch=given["batch"],
        ubatch=given["ubatch"],
        kv_unified=not given["kv_split"],
        all_logits=False,
        threads=given["threads"],
        settings=settings_of(given),
        rpc=given["rpc"],
        surroundings=surroundings_of(given),
    )
    cached = given["cached_prefix"]
    workload = replace(request.workload, prompt=max(request.workload.prompt, cached), cached_prefix=cached)
    return replace(request, workload=workload)
