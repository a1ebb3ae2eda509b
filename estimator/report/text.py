"""An Estimate as a page for the terminal: what it is about, does it fit, how fast, how long, how to check it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..units import gib
from .layout import Style, bar, columns, duration, paragraph, rate

if TYPE_CHECKING:
    from ..estimate import DecodeEstimate, Estimate, Interval, PrefillEstimate


def render(estimate: Estimate, style: Style) -> str:
    """The page, at most `style.width` columns wide where words allow."""
    sections = (_title, _memory, _prefill, _decode, _latency, _basis, _check, _notes)
    return "\n\n".join("\n".join(section(estimate, style)) for section in sections if section(estimate, style))


def _title(e: Estimate, style: Style) -> list[str]:
    r = e.request
    machine = " + ".join(device.name for device in r.system.devices)
    lines = [style.paint(f"{r.model.name} · {r.quantisation} · {machine} ({r.backend})", "bold")]
    w = r.workload
    context = f"context {w.context:,} tokens reserved"
    if w.parallel > 1:
        context += f" for {w.parallel} sequences of {w.cells_per_sequence:,}"
    return [*lines, style.paint(context, "dim")]


def _memory(e: Estimate, style: Style) -> list[str]:
    m, w = e.memory, e.request.workload
    cache = w.kv_type_k if w.kv_type_k == w.kv_type_v else f"K {w.kv_type_k}, V {w.kv_type_v}"
    rows = [
        ("weights", gib(m.weights_bytes), f"{e.request.weights.bits_per_weight:.2f} bits per weight"),
        ("KV cache", gib(m.kv_cache_bytes), f"{cache}, {w.cells_per_sequence * w.streams:,} cells"),
        ("recurrent state", gib(m.recurrent_state_bytes), "the same at any context"),
        ("compute buffers", gib(m.compute_bytes + m.output_bytes), f"ubatch {w.ubatch}"),
        ("total", gib(m.total_bytes), _share(e)),
    ]
    shown = [row for row in rows if row[0] != "recurrent state" or m.recurrent_state_bytes]
    lines = [style.heading("Memory"), *columns(shown, "<><")]
    lines.append(f"  {bar(m.share, min(style.width - 4, 48))}  {_verdict(e, style)}")
    return lines


def _share(e: Estimate) -> str:
    m = e.memory
    if m.capacity_bytes is None:
        return "memory of the device unknown"
    return f"{m.share:.0%} of the {gib(m.usable_bytes)} usable of {gib(m.capacity_bytes)}"


def _verdict(e: Estimate, style: Style) -> str:
    m = e.memory
    if m.fits is None:
        return ""
    if m.fits:
        return style.paint(f"fits, {gib(m.margin_bytes)} to spare", "green", "bold")
    return style.paint(f"does not fit, {gib(-m.margin_bytes)} too much", "red", "bold")


def _prefill(e: Estimate, style: Style) -> list[str]:
    rows = [("", "tokens/s", "80 % range", "time", "bound by")]
    rows += [(_prompt(p), rate(p.tokens_per_s), _range(p.interval_80), duration(p.seconds), p.bound) for p in e.prefill]
    ceiling = max(p.ceiling_tokens_per_s for p in e.prefill)
    rows.append(("ceiling (datasheet)", rate(ceiling), "", "", ""))
    return [style.heading("Prefill: reading the prompt"), *columns(rows, "<>>><")]


def _prompt(p: PrefillEstimate) -> str:
    cached = f", {p.cached_tokens:,} cached" if p.cached_tokens else ""
    return f"prompt of {p.prompt_tokens:,}{cached}"


def _decode(e: Estimate, style: Style) -> list[str]:
    many = e.request.workload.parallel > 1
    rows = [("", "tokens/s", "80 % range", "a token", "bound by")]
    rows += [_decode_row(d) for d in e.decode]
    rows.append(("ceiling (bandwidth ÷ weights)", rate(e.weights_ceiling_tokens_per_s), "", "", ""))
    title = "Decode: writing the answer" + (", tokens/s of one sequence" if many else "")
    lines = [style.heading(title), *columns(rows, "<>>><")]
    if many:
        total = e.decode[0]
        lines.append(f"  all {total.parallel} sequences together: {rate(total.aggregate_tokens_per_s)} tokens/s")
    return lines


def _decode_row(d: DecodeEstimate) -> tuple[str, ...]:
    where = f"{d.occupied_tokens:,} tokens in the cache" if d.occupied_tokens else "empty cache"
    return (where, rate(d.tokens_per_s), _range(d.interval_80), duration(d.tpot_s), d.bound)


def _range(interval: Interval) -> str:
    return f"{rate(interval[0])}–{rate(interval[1])}"


def _latency(e: Estimate, style: Style) -> list[str]:
    t = e.latency
    parts = [("prefill", t.prefill_s), ("tokenisation", t.tokenisation_s), ("first step", t.first_step_s)]
    if t.queue_s:
        parts.insert(0, ("queue", t.queue_s))
    made_of = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts)
    rows = [
        ("first token after", duration(t.ttft_s), f"({made_of})"),
        ("then a token every", duration(t.itl_s), ""),
        ("whole answer after", duration(t.end_to_end_s), ""),
    ]
    title = f"One request: {t.prompt_tokens:,} tokens in, {t.output_tokens:,} out"
    return [style.heading(title), *columns(rows, "<><")]


def _basis(e: Estimate, style: Style) -> list[str]:
    lines = [style.heading("What it rests on")]
    for line in e.basis:
        lines += paragraph(line, style.width, "  ", "    ")
    return lines


def _check(e: Estimate, style: Style) -> list[str]:
    return [style.heading("Check it"), *paragraph(e.check_command, style.width, "  ", "    ")]


def _notes(e: Estimate, style: Style) -> list[str]:
    if not e.notes:
        return []
    return [style.heading("Notes"), *_bullets(e.notes, style.width)]


def _bullets(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in paragraph(note, width, "  · ", "    ")]
