"""Memory modules as firmware describes them, and how many of them the CPU can read at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from .facts import MemoryModule, MemoryReport
from .reading import number, text_of, whole

_DIMM_BITS: Final = 64
_KINDS: Final = r"(?:LP)?DDR[2-9]X?"

# How boards name the channel of a slot: "Channel A", "ChannelA-DIMM0", "P0 CHANNEL A", "DIMM_A1", "CPU1_DIMM_B2".
_CHANNEL: Final = r"(?i)channel[ _-]*([a-p0-9])(?![0-9a-z])|(?:dimm|ddr\d)[ _-]*([a-p])(?:[ _-]*\d|$)|^([a-p])\d$"
# What tells apart channels of the same letter: the socket, or one of a chip's memory controllers.
_OWNER: Final = r"(?i)(?:\bcpu|\bproc|\bp|\bnode|\bsocket|controller)[ _-]*(\d+)"


def memory_module(
    size_bytes: float | None, kind: Any, speed: Any, width: Any, locators: Iterable[Any]
) -> MemoryModule | None:
    """A populated slot; None for an empty one. `speed`: MT/s."""
    if size_bytes is None:
        return None
    named = re.search(_KINDS, text_of(kind) or "", re.IGNORECASE)
    rate = number(speed)
    return MemoryModule(
        size_bytes=size_bytes,
        kind=named[0].upper() if named else None,
        transfers_per_s=rate * 1e6 if rate else None,
        width_bits=whole(width),
        channel=_channel([text for text in map(text_of, locators) if text]),
    )


def _channel(locators: Sequence[str]) -> str | None:
    letters = [match for match in (re.search(_CHANNEL, text) for text in locators) if match]
    if not letters:
        return None
    letter = next(group for group in letters[0].groups() if group)
    owners = [match[0].replace(" ", "").lower() for text in locators for match in re.finditer(_OWNER, text)]
    return "/".join([*dict.fromkeys(owners), letter.upper()])


def memory_report(
    total_bytes: float | None, modules: tuple[MemoryModule, ...], most_channels: int | None
) -> MemoryReport:
    """What modules and total amount to. `most_channels`: of 64 bits, that the CPUs have, where that is known.

    Modules of one channel take turns; channels add up. Where the firmware does not say which channel a slot is on, each
    module is taken to have its own if the CPU has as many; else, and for soldered chips, the width of the bus stays
    unknown.
    """
    report = MemoryReport(total_bytes, modules)
    if not modules:
        return report
    if all(module.channel for module in modules):
        bits = _bits_by_channel(modules)
    elif most_channels is not None and len(modules) <= most_channels and not (report.kind or "").startswith("LP"):
        bits = sum(module.width_bits or _DIMM_BITS for module in modules)
    else:
        return report
    return replace(report, bus_bits=min(bits, most_channels * _DIMM_BITS) if most_channels else bits)


def _bits_by_channel(modules: Sequence[MemoryModule]) -> int:
    widths: dict[str | None, int] = {}
    for module in modules:
        widths[module.channel] = max(widths.get(module.channel, 0), module.width_bits or _DIMM_BITS)
    return sum(widths.values())
