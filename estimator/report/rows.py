"""The rows that several forms of an Estimate share: title, memory, speeds, each cell as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..units import gib
from .layout import duration, interval, rate

if TYPE_CHECKING:
    from ..estimation import Estimate

SPEED_COLUMNS: Final = ("phase", "tokens/s", "80 % range", "time", "bound by")


def title(e: Estimate) -> str:
    """Model, quantisation, machine and backend."""
    r = e.request
    machine = " + ".join(device.name for device in r.devices)
    return f"{r.model.name} · {r.quantisation} · {machine} ({r.backend})"


def memory_rows(e: Estimate) -> list[tuple[str, str]]:
    """What takes memory, and how much."""
    m = e.memory
    state = [("recurrent state", gib(m.recurrent_state_bytes))] if m.recurrent_state_bytes else []
    return [
        ("weights", gib(m.weights_bytes)),
        *([("loaded", gib(m.loaded_bytes))] if m.loaded_bytes != m.weights_bytes else []),
        ("KV cache", gib(m.kv_cache_bytes)),
        *state,
        ("compute and output buffers", gib(m.compute_bytes + m.output_bytes)),
        ("total", gib(m.total_bytes)),
    ]


def speed_rows(e: Estimate) -> list[tuple[str, str, str, str, str]]:
    """Prefill and decode, a row a point, under `SPEED_COLUMNS`; the time of decode is that of one token."""
    prefill = [
        (f"prefill of {p.prompt_tokens:,}", rate(p.tokens_per_s), interval(p.interval_80), duration(p.seconds), p.bound)
        for p in e.prefill
    ]
    decode = [
        (f"decode at {d.occupied_tokens:,}", rate(d.tokens_per_s), interval(d.interval_80), duration(d.tpot_s), d.bound)
        for d in e.decode
    ]
    return prefill + decode
