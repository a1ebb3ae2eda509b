"""Energy and its price for a token: a range, because only the power limit is known, not what decoding draws.

Imports `errors` and `units`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import InputError

if TYPE_CHECKING:
    from .system import Device

# Decode waits for memory and seldom reaches the limit of the board, which a prompt does. No measurement stands behind
# the lower end: it is an assumption, wide on purpose. The rest of the machine (host, fans, power supply) comes on top.
LEAST_SHARE: Final = 0.3  # of the power limit, while a device works
IDLE_SHARE: Final = 0.05  # while it waits for the others
JOULES_PER_KWH: Final = 3.6e6


@dataclass(frozen=True)
class Energy:
    """Joules for a token of output, of the devices alone: at the least and at the most."""

    low_j: float
    high_j: float

    def price(self, tariff_per_kwh: float, tokens: float = 1e6) -> tuple[float, float]:
        """What so many tokens cost, in the currency of the tariff."""
        factor = tokens * tariff_per_kwh / JOULES_PER_KWH
        return self.low_j * factor, self.high_j * factor


def energy_per_token(
    devices: Sequence[Device], shares: Sequence[float], aggregate_tokens_per_s: float
) -> Energy | None:
    """Energy of a token while decoding; None if a device's power limit is unknown.

    `shares`: part of a step in which each device works. High: all draw their limits all the time. Low: each draws a
    part of it while it works, and next to nothing while it waits.
    """
    watts = [device.power_watts for device in devices]
    known = [one for one in watts if one is not None]
    if len(known) != len(watts):
        return None
    low = sum(w * (share * LEAST_SHARE + (1 - share) * IDLE_SHARE) for w, share in zip(known, shares, strict=True))
    return Energy(low / aggregate_tokens_per_s, sum(known) / aggregate_tokens_per_s)


@dataclass(frozen=True)
class Tariff:
    """A price of electricity, in a currency that the user names."""

    per_kwh: float
    currency: str = ""


def parse_tariff(text: str) -> Tariff:
    """ "0.30", "0.30 EUR" or "0.30 EUR/kWh". Raises InputError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z€$£]*)\s*(?:(?:/|per )\s*kWh)?\s*", text, re.IGNORECASE)
    if match is None:
        raise InputError(f"tariff: cannot read {text!r}; write the price of a kWh, such as '0.30 EUR'")
    return Tariff(float(match[1]), match[2])
