"""Gains of speculative decoding as a page for the terminal and as plain data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..comparison import machine_name
from ..units import gib
from .layout import Style, bar, columns, duration, paragraph, rate

if TYPE_CHECKING:
    from ..drafting import DraftingGain

SCHEMA: Final = "llmcalc.speculate/1"
BAR: Final = 30


def drafting_page(gain: DraftingGain, style: Style) -> list[str]:
    """Best draft lengths by acceptance; for a single acceptance the whole curve; break-even by length."""
    r = gain.request
    title = f"{r.model.name} · {r.quantisation} · {machine_name(r.devices)} ({r.backend})"
    several = f", {gain.parallel} sequences" if gain.parallel > 1 else ""
    plain = f"without drafts {rate(gain.plain_tokens_per_s)} tokens/s for one sequence at {gain.occupied:,} tokens"
    one = len(gain.acceptances) == 1
    body = _curve(gain, style) if one else _best(gain, style)
    return [
        style.paint(title, "bold"),
        *(
            style.paint(line, "dim")
            for line in paragraph(f"drafts by {gain.kind}; {plain}{several}", style.width, "", "")
        ),
        "",
        *body,
        "",
        *_break_even(gain, style),
        "",
        *_notes(gain, style),
    ]


def _best(gain: DraftingGain, style: Style) -> list[str]:
    rows = [("acceptance", "best length", "tokens/s", "speed-up", "tokens a step")]
    for i, acceptance in enumerate(gain.acceptances):
        n = int(gain.best[i])
        tokens = gain.curves.tokens_per_step[i, n]  # type: ignore[index]
        rows.append(
            (
                f"{acceptance:.0%}",
                str(n) if n else "no drafts",
                rate(float(gain.tokens_per_s[i, n])),
                f"{gain.speedup[i, n]:.2f}x",
                f"{float(tokens):.2f}",
            )
        )
    return [style.heading("The best draft length"), *columns(rows, ">>>>>")]


def _curve(gain: DraftingGain, style: Style) -> list[str]:
    speedup, best = gain.speedup[0], int(gain.best[0])
    longest = float(speedup.max())
    rows = [("length", "tokens/s", "speed-up", "", "")]
    for n in gain.lengths:
        mark = "best" if n == best else ""
        drawn = bar(float(speedup[n]) / longest, BAR)
        rows.append((str(n), rate(float(gain.tokens_per_s[0, n])), f"{speedup[n]:.2f}x", drawn, mark))
    heading = f"Drafts of 0 to {gain.lengths[-1]} tokens, of which {gain.acceptances[0]:.0%} each are accepted"
    return [style.heading(heading), *columns(rows, ">>><<")]


def _break_even(gain: DraftingGain, style: Style) -> list[str]:
    shown = [n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= len(gain.break_even)]
    texts = ["never" if math.isnan(gain.break_even[n - 1]) else f"{gain.break_even[n - 1]:.0%}" for n in shown]
    rows = [("drafts of", *map(str, shown)), ("pay above", *texts)]
    return [style.heading("Acceptance from which drafts pay"), *columns(rows, "<" + ">" * len(shown))]


def _notes(gain: DraftingGain, style: Style) -> list[str]:
    import numpy as np

    step = gain.curves
    n = min(4, int(gain.lengths[-1]))
    verify, draft = (
        float(values[..., n].flat[0]) for values in (_full(gain, step.verify_s), _full(gain, step.draft_s))
    )
    sampling = float(np.asarray(step.sample_s).flat[0])
    plain = float(np.asarray(step.plain_step_s).flat[0]) - sampling
    notes = [
        f"A plain step takes {duration(plain)}; verifying {n} drafted tokens {duration(verify)}, drafting them "
        f"{duration(draft) if draft else 'nothing'}. Every token also takes {duration(sampling)} of sampling on the "
        "CPU, which all rates here contain.",
        f"The drafter needs {gib(gain.drafter.memory_bytes)} more"
        + {True: ", which fits.", False: ", which does not fit.", None: "."}[gain.fits]
        if gain.drafter.memory_bytes
        else "The drafter needs no memory of its own.",
        "Acceptance is the chance that a drafted token is the model's own; it depends on the text. llama-server prints "
        "the share of drafted tokens that were accepted, which is lower: --accepted-share takes that.",
    ]
    if gain.work.checkpoint_s > 0:
        notes.insert(
            1,
            "For such drafts the model keeps no copies of its recurrent state: the server saves it before each "
            f"({duration(gain.work.checkpoint_s)}), and after a rejection reads the accepted tokens once more.",
        )
    return [line for note in notes for line in paragraph(note, style.width, "  · ", "    ")]


def _full(gain: DraftingGain, values: Any) -> Any:
    import numpy as np

    return np.broadcast_to(np.asarray(values, float), gain.speedup.shape)


def drafting_data(gain: DraftingGain) -> dict[str, Any]:
    """Plain numbers; a break-even that cannot be reached is null."""
    r = gain.request
    return {
        "schema": SCHEMA,
        "model": r.model.id,
        "quantisation": r.quantisation,
        "devices": [device.id for device in r.devices],
        "drafter": gain.kind,
        "drafter_bytes": gain.drafter.memory_bytes,
        "fits": gain.fits,
        "occupied_tokens": gain.occupied,
        "parallel": gain.parallel,
        "plain_tokens_per_s": gain.plain_tokens_per_s,
        "sampling_s": gain.work.sample_s,
        "checkpoint_s": gain.work.checkpoint_s,
        "draft_lengths": gain.lengths.tolist(),
        "acceptances": [
            {
                "acceptance": acceptance,
                "best_draft_length": int(gain.best[i]),
                "speedup": gain.speedup[i].tolist(),
                "tokens_per_s": gain.tokens_per_s[i].tolist(),
            }
            for i, acceptance in enumerate(gain.acceptances)
        ],
        "break_even_acceptance": [None if math.isnan(x) else x for x in gain.break_even.tolist()],
    }
