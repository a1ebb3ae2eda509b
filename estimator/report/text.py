"""An Estimate as a page for the terminal: what it is about, does it fit, how fast, how long, how to check it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..units import gib
from .layout import Style, bar, columns, duration, interval, margin, paragraph, rate
from .rows import title

if TYPE_CHECKING:
    from ..estimation import DecodeEstimate, Estimate, PrefillEstimate
    from ..memory import MemoryPlan

BAR_COLUMNS = 24


def page(e: Estimate, style: Style, explain: bool = False) -> list[str]:
    """The page as lines, at most `style.width` columns wide where words allow."""
    sections = [_title(e, style), _memory(e, style), _prefill(e, style), _decode(e, style), _latency(e, style)]
    if explain:
        from .explain import explanation

        sections.append(explanation(e, style))
    sections += [_basis(e, style), _check(e, style), _notes(e, style)]
    lines: list[str] = []
    for section in filter(None, sections):
        lines += ([""] if lines else []) + section
    return lines


def _title(e: Estimate, style: Style) -> list[str]:
    w = e.request.workload
    context = f"context {w.context:,} tokens reserved"
    if w.parallel > 1:
        context += f" for {w.parallel} sequences, {e.request.room:,} each"
    return [style.paint(title(e), "bold"), style.paint(context, "dim")]


def _memory(e: Estimate, style: Style) -> list[str]:
    m, w = e.memory, e.request.workload
    cache = w.kv_type_k if w.kv_type_k == w.kv_type_v else f"K {w.kv_type_k}, V {w.kv_type_v}"
    rows = [
        ("weights", gib(m.weights_bytes), f"{e.request.weights.bits_per_weight:.2f} bits per weight"),
        ("loaded", gib(m.loaded_bytes), _loaded_words(m)),
        ("KV cache", gib(m.kv_cache_bytes), f"{cache}, {w.cells_per_sequence * w.streams:,} cells"),
        ("recurrent state", gib(m.recurrent_state_bytes), "the same at any context"),
        ("buffers", gib(m.compute_bytes + m.output_bytes), f"compute and output, ubatch {w.ubatch}"),
        ("total", gib(m.total_bytes), _places(e)),
    ]
    unsaid = {"recurrent state": not m.recurrent_state_bytes, "loaded": m.loaded_bytes == m.weights_bytes}
    shown = [row for row in rows if not unsaid.get(row[0])]
    return [style.heading("Memory"), *columns(shown, "<><"), *_verdict(e, style)]


def _loaded_words(m: MemoryPlan) -> str:
    """Why what is loaded is not what the file holds."""
    if m.loaded_bytes > m.weights_bytes:
        return "in memory: the token embedding twice, as output matrix too"
    return "in memory: without the blocks that predict further tokens"


def _places(e: Estimate) -> str:
    """Where the total lies: on the devices, and what the host keeps."""
    m = e.memory
    on_devices = sum(part.total_bytes for part in m.used)
    host = m.total_bytes - on_devices
    return f"{gib(on_devices)} on the device, {gib(host)} on the host" if host else ""


def _verdict(e: Estimate, style: Style) -> list[str]:
    m = e.memory
    words = margin(m.margin_bytes)
    if m.margin_bytes is None or m.share is None or m.usable_bytes is None:
        return [f"  {words}"]
    color = "green" if m.margin_bytes >= 0 else "red"
    filled = style.paint(bar(m.share, min(BAR_COLUMNS, style.width - 4)), color)
    share = f"{m.share:.0%} of {gib(m.usable_bytes)} usable"
    verdict = style.paint(words, color, "bold")
    return [f"  {filled}  {share}: {verdict}"] if style.width >= 80 else [f"  {filled}", f"  {share}:", f"  {verdict}"]


def _prefill(e: Estimate, style: Style) -> list[str]:
    rows: list[tuple[str, ...]] = [("", "tokens/s", "80 % range", "time", "bound by")]
    rows += [
        (_prompt(p), rate(p.tokens_per_s), interval(p.interval_80), duration(p.seconds), p.bound) for p in e.prefill
    ]
    ceiling = max(p.ceiling_tokens_per_s for p in e.prefill)
    rows.append(("ceiling (datasheet)", rate(ceiling), "", "", ""))
    return [style.heading("Prefill: reading the prompt"), *columns(rows, "<>>><")]


def _prompt(p: PrefillEstimate) -> str:
    cached = f", {p.cached_tokens:,} cached" if p.cached_tokens else ""
    return f"prompt of {p.prompt_tokens:,}{cached}"


def _decode(e: Estimate, style: Style) -> list[str]:
    n = e.request.workload.parallel
    rows: list[tuple[str, ...]] = [("", "tokens/s", "80 % range", "a token", "bound by")]
    rows += [_decode_row(d) for d in e.decode]
    if n > 1:
        rows += [(f"all {n} together, {_occupied(d)}", rate(d.aggregate_tokens_per_s), "", "", "") for d in e.decode]
    rows.append(("ceiling (bandwidth ÷ weights)", rate(e.weights_ceiling_tokens_per_s), "", "", ""))
    heading = "Decode: writing the answer" + (f", one of {n} sequences" if n > 1 else "")
    return [style.heading(heading), *columns(rows, "<>>><")]


def _decode_row(d: DecodeEstimate) -> tuple[str, ...]:
    return (_occupied(d), rate(d.tokens_per_s), interval(d.interval_80), duration(d.tpot_s), d.bound)


def _occupied(d: DecodeEstimate) -> str:
    return f"{d.occupied_tokens:,} tokens in the cache" if d.occupied_tokens else "empty cache"


def _latency(e: Estimate, style: Style) -> list[str]:
    t = e.latency
    parts = [("queue", t.queue_s), ("tokenising", t.tokenisation_s), ("prefill", t.prefill_s), ("step", t.first_step_s)]
    rows = [(name, duration(seconds), "") for name, seconds in parts if seconds]
    rows += [
        ("first token after", duration(t.ttft_s), "the sum of these"),
        ("each further token", duration(t.itl_s), "on average, as the answer grows"),
        ("whole answer after", duration(t.end_to_end_s), ""),
    ]
    heading = f"One request: {t.prompt_tokens:,} tokens in, {t.output_tokens:,} out"
    return [style.heading(heading), *columns(rows, "<><")]


def _basis(e: Estimate, style: Style) -> list[str]:
    return [style.heading("What this rests on"), *_bullets(e.basis, style.width)]


def _check(e: Estimate, style: Style) -> list[str]:
    lines = [style.heading("Check it")]
    for command in e.check_command.split("; "):
        lines += paragraph(command, style.width, "  ", "      ")
    return lines


def _notes(e: Estimate, style: Style) -> list[str]:
    return [style.heading("Notes"), *_bullets(e.notes, style.width)] if e.notes else []


def _bullets(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in paragraph(note, width, "  · ", "    ")]
