"""`llmcalc session`: what prompt caching does, turn by turn."""

from __future__ import annotations

import json
from typing import Any

import click

from .options import (
    catalog_option,
    context_options,
    json_option,
    machine_options,
    model_options,
    profile_options,
    request_of,
)
from .output import echo_page, page_style
from .parameter_types import ANY_BYTES, BANDWIDTH, COUNT, SEQUENCES, SOME, SOME_TOKENS, TOKENS
from .placement_options import placement_options

TEMPLATES = {"kept": "kept", "dropped": "dropped", "dropped-at-user": "dropped_at_user"}


@click.command(name="session")
@model_options
@machine_options
@placement_options
@context_options
@click.option("--system", type=TOKENS, default=1000, show_default=True, metavar="N", help="System prompt.")
@click.option("--turns", type=COUNT, default=8, show_default=True, metavar="N", help="Messages of the user.")
@click.option("--message", type=SOME_TOKENS, default=200, show_default=True, metavar="N", help="Tokens of a message.")
@click.option("--answer", type=SOME_TOKENS, default=300, show_default=True, metavar="N", help="Tokens of an answer.")
@click.option("--reasoning", type=TOKENS, default=0, metavar="N", help="Reasoning before each answer  [0]")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="dropped-at-user",
    show_default=True,
    help="Earlier reasoning: sent again, never, or only within a chain of tool calls.",
)
@click.option("--tools", type=SOME, default=0, metavar="N", help="Tool calls after each message  [0]")
@click.option("--tool-result", type=TOKENS, default=1000, show_default=True, metavar="N", help="Tokens of a result.")
@click.option(
    "--edit-system", type=COUNT, multiple=True, metavar="TURN", help="The system prompt changes at this turn."
)
@click.option("--sessions", type=COUNT, default=1, show_default=True, metavar="N", help="Sessions that take turns.")
@click.option("--own-system", is_flag=True, help="Every session has a system prompt of its own.")
@click.option("--slots", type=SEQUENCES, default=4, show_default=True, metavar="N", help="llama-server's -np.")
@click.option("--kv-split", is_flag=True, help="Give each slot its own part of the cache  [all share it]")
@click.option("--cache-ram", type=ANY_BYTES, metavar="SIZE", help="Host cache; 0B: none  [8GiB]")
@click.option("--checkpoints", type=SOME, default=32, show_default=True, metavar="N", help="--ctx-checkpoints.")
@click.option("--host-link", type=BANDWIDTH, metavar="RATE", help="Rate of copies from and to the host  [free]")
@profile_options
@catalog_option
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Replay a multi-turn session on llama-server's caches: what is found, what is read again, and why.

    Each turn's prompt holds all that was said before; what a slot or the host cache still has of it need not be read.
    --ctx is what one slot may hold. The rules are those of llama.cpp b11434.

    \b
    Examples:
      llmcalc session --gpu rtx4090 -m qwen3-30b-a3b --ctx 64k --system 6k --turns 10
      llmcalc session --gpu rtx4090 -m gpt-oss-20b --ctx 64k --tools 4 --reasoning 400
      llmcalc session --gpu m2-ultra-76 -m llama3.3-70b --ctx 32k --sessions 6 --slots 2
      llmcalc session --gpu rtx4090 -m llama3-8b --ctx 32k --edit-system 5
    """
    from ..prompt_cache import CacheSettings, replay, state_size
    from ..request_times import RequestTimes
    from ..session_patterns import chat_session
    from ..sessions import interleaved
    from ..units import MIB

    request = request_of(given | {"prompt": None, "output": 1, "cached_prefix": 0, "queue": 0.0, "threads": None})
    w = request.workload
    settings = CacheSettings(
        slots=given["slots"],
        unified=not given["kv_split"],
        host_cache_bytes=8192 * MIB if given["cache_ram"] is None else given["cache_ram"],
        checkpoints=given["checkpoints"],
        batch=w.batch,
        ubatch=w.ubatch,
        context=w.context,
        host_bytes_per_s=given["host_link"],
    )
    session = chat_session(
        system=given["system"],
        turns=given["turns"],
        message=given["message"],
        answer=given["answer"],
        reasoning=given["reasoning"],
        tool_calls=given["tools"],
        tool_result=given["tool_result"],
        edited=given["edit_system"],
        template=TEMPLATES[given["template"]],  # type: ignore[arg-type]
        shared_system=not given["own_system"],
    )
    size = state_size(request.model, w)
    report = replay(interleaved([session] * given["sessions"]), size, RequestTimes(request), settings)
    from ..report.session import session_data, session_page

    if as_json:
        click.echo(json.dumps(session_data(request, report, settings), indent=2, ensure_ascii=False))
        return
    echo_page(session_page(request, report, size, settings, page_style()))
