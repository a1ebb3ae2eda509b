"""A session's caching as a page for the terminal and as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..comparison import machine_name
from ..units import gib
from .layout import Style, columns, duration, paragraph

if TYPE_CHECKING:
    from ..prompt_cache import CacheSettings, SessionReport, StateSize, TurnReport
    from ..request import Request

SCHEMA: Final = "llmcalc.session/1"


def session_page(
    request: Request, report: SessionReport, size: StateSize, settings: CacheSettings, style: Style
) -> list[str]:
    """A line a turn, and what it sums up to."""
    several = len({turn.session for turn in report.turns}) > 1
    title = f"{request.model.name} · {request.quantisation} · {machine_name(request.devices)} ({request.backend})"
    slots = f"{settings.slots} slots, {'one cache' if settings.unified else 'a part of the cache each'}"
    host = gib(settings.host_cache_bytes) if settings.host_cache_bytes else "no"
    head = (
        *(("session",) if several else ()),
        "turn",
        "prompt",
        "cached",
        "read",
        "prefill",
        "saved",
        "slot holds",
        "",
    )
    rows = [_row(turn, several) for turn in report.turns]
    return [
        style.paint(title, "bold"),
        style.paint(f"{slots}, {host} host cache", "dim"),
        "",
        *columns([head, *rows], (">" if several else "") + ">>>>>>><", gap=1 if several else 2),
        "",
        *paragraph(_sum(report), style.width, "", ""),
        *_lost(report, style),
        *_rewinding(size, style),
    ]


def _row(turn: TurnReport, several: bool) -> tuple[str, ...]:
    return (
        *((str(turn.session + 1),) if several else ()),
        str(turn.turn + 1),
        f"{turn.prompt_tokens:,}",
        f"{turn.cached_tokens:,}",
        f"{turn.prefilled_tokens:,}",
        duration(turn.prefill_s),
        duration(turn.saved_s) if turn.saved_s > 1e-9 else "",
        gib(turn.slot_bytes),
        {"host": "from the host", "slot": "", "none": ""}[turn.source] + (" *" if turn.lost else ""),
    )


def _sum(report: SessionReport) -> str:
    spent = sum(turn.prefill_s for turn in report.turns)
    return (
        f"{report.hit_rate:.0%} of all prompt tokens were cached: prefill takes {duration(spent)} in all, without any "
        f"cache {duration(spent + report.saved_s)}. At most {gib(report.peak_device_bytes)} in slots, "
        f"{gib(report.peak_host_bytes)} in host memory."
    )


def _lost(report: SessionReport, style: Style) -> list[str]:
    reasons: dict[str, list[str]] = {}
    several = len({turn.session for turn in report.turns}) > 1
    for turn in report.turns:
        if turn.lost:
            where = f"{turn.session + 1}.{turn.turn + 1}" if several else str(turn.turn + 1)
            reasons.setdefault(turn.lost, []).append(where)
    lines = [f"* {reason} (turn {', '.join(turns)})" for reason, turns in reasons.items()]
    return ["", *(line for one in lines for line in paragraph(one, style.width, "", "  "))] if lines else []


def _rewinding(size: StateSize, style: Style) -> list[str]:
    if not size.needs_checkpoints:
        return []
    note = (
        f"This model's memory cannot be cut at any token; a checkpoint of {gib(size.checkpoint_bytes)} is kept at "
        "messages, and a changed prompt goes back to one of them."
    )
    return ["", *paragraph(note, style.width, "  · ", "    ")]


def session_data(request: Request, report: SessionReport, settings: CacheSettings) -> dict[str, Any]:
    """Plain numbers, a row a turn."""
    return {
        "schema": SCHEMA,
        "model": request.model.id,
        "quantisation": request.quantisation,
        "devices": [device.id for device in request.devices],
        "cache": asdict(settings),
        "turns": [
            asdict(turn) | {"prefilled_tokens": turn.prefilled_tokens, "saved_s": turn.saved_s} for turn in report.turns
        ],
        "hit_rate": report.hit_rate,
        "saved_s": report.saved_s,
        "peak_device_bytes": report.peak_device_bytes,
        "peak_host_bytes": report.peak_host_bytes,
    }
