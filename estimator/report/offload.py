"""An OffloadSweep as a page for the terminal: a table with bars, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from ..offload_sweep import OffloadSweep, SweepPoint
from ..units import gib
from .layout import Style, bar, columns, paragraph, rate

SOME = 13  # rows of a table unless every one is wanted
BAR_COLUMNS = 20


def offload_page(sweep: OffloadSweep, style: Style, every: bool = False) -> list[str]:
    """The page as lines."""
    r = sweep.request
    machine = " + ".join(device.name for device in r.devices)
    lines = [style.paint(f"{r.model.name} · {r.quantisation} · {machine} · context {r.workload.context:,}", "bold")]
    for knob, name in (("ngl", "-ngl"), ("n_cpu_moe", "--n-cpu-moe")):
        points = [point for point in sweep.points if point.knob == knob]
        if points:
            lines += ["", *_table(name, points if every else _some(points), style)]
    alone = (rate(sweep.cpu_decode_tokens_per_s), rate(sweep.cpu_prefill_tokens_per_s))
    lines += ["", f"  The CPU alone: {alone[0]} tokens/s of decode, {alone[1]} of prefill.", ""]
    for sentence in sweep.sentences():
        lines += paragraph(sentence, style.width, "  · ", "    ")
    return lines


def _some(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Evenly chosen points, the first, the last, and those on both sides of the cliff."""
    last = len(points) - 1
    chosen = {round(i * last / (SOME - 1)) for i in range(SOME)}
    fitting = [i for i, point in enumerate(points) if point.fits]
    if fitting:
        chosen |= {max(fitting), min(max(fitting) + 1, last)}
    return [points[i] for i in sorted(chosen)]


def _table(name: str, points: Sequence[SweepPoint], style: Style) -> list[str]:
    most = max(point.decode_tokens_per_s for point in points)
    rows: list[tuple[str, ...]] = [(name, "on GPUs", "on host", "decode", "", "prefill", "")]
    rows += [
        (
            str(point.value),
            gib(point.device_bytes),
            gib(point.host_bytes),
            rate(point.decode_tokens_per_s),
            style.paint(bar(point.decode_tokens_per_s / most, BAR_COLUMNS), "green" if point.fits else "red"),
            rate(point.prefill_tokens_per_s),
            "" if point.fits else "does not fit",
        )
        for point in points
    ]
    return columns(rows, ">>>><><")
