"""An Estimate as Markdown, for issues and chats, and as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layout import duration, margin
from .rows import SPEED_COLUMNS, memory_rows, speed_rows, title

if TYPE_CHECKING:
    from ..estimation import DecodeEstimate, Estimate, PrefillEstimate

CSV_COLUMNS = (
    "phase", "model", "quantisation", "devices", "backend", "prompt_tokens", "cached_tokens", "occupied_tokens",
    "parallel", "seconds", "tokens_per_s", "aggregate_tokens_per_s", "low_80", "high_80", "low_95", "high_95",
    "ceiling_tokens_per_s", "bound", "intensity_flop_per_byte",
)  # fmt: skip


def markdown(e: Estimate) -> str:
    """Three small tables under a heading; the command that checks them; the notes."""
    t = e.latency
    return "\n".join(
        [
            f"### {title(e)} · context {e.request.workload.context:,}",
            "",
            *markdown_table(("memory", "size"), memory_rows(e)),
            "",
            f"**{margin(e.memory.margin_bytes)}**",
            "",
            *markdown_table(SPEED_COLUMNS, speed_rows(e)),
            "",
            f"First token after {duration(t.ttft_s)}, then one every {duration(t.itl_s)}; {t.prompt_tokens:,} in and "
            f"{t.output_tokens:,} out take {duration(t.end_to_end_s)}.",
            "",
            f"Check: `{e.check_command}`",
            *(["", *(f"- {note}" for note in e.notes)] if e.notes else []),
        ]
    )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines: text in the first column, figures in the others."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def csv_text(e: Estimate) -> str:
    """A line a phase and point, SI units, with a header."""
    r = e.request
    same = {
        "model": r.model.id,
        "quantisation": r.quantisation,
        "devices": "+".join(device.id for device in r.devices),
        "backend": r.backend,
    }
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for p in e.prefill:
        tokens = {"prompt_tokens": p.prompt_tokens, "cached_tokens": p.cached_tokens}
        writer.writerow(same | tokens | {"phase": "prefill", "seconds": p.seconds} | _figures(p))
    for d in e.decode:
        tokens = {"occupied_tokens": d.occupied_tokens, "parallel": d.parallel}
        rates = {"seconds": d.tpot_s, "aggregate_tokens_per_s": d.aggregate_tokens_per_s}
        writer.writerow(same | tokens | {"phase": "decode"} | rates | _figures(d))
    return out.getvalue().rstrip("\n")


def _figures(phase: PrefillEstimate | DecodeEstimate) -> dict[str, object]:
    return {
        "tokens_per_s": phase.tokens_per_s,
        "low_80": phase.interval_80[0],
        "high_80": phase.interval_80[1],
        "low_95": phase.interval_95[0],
        "high_95": phase.interval_95[1],
        "ceiling_tokens_per_s": phase.ceiling_tokens_per_s,
        "bound": phase.bound,
        "intensity_flop_per_byte": phase.intensity_flop_per_byte,
    }
