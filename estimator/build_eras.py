"""The age of a llama.cpp build: half-years such as "2025H2", None being the newest that is known.

Imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

NEWEST_ERA: Final = "2026H2"
REFERENCE_YEAR: Final = 2025.5  # build-age factors are 1 for builds of 2025H2


def built_since(first: str, era: str | None) -> bool:
    """Whether a build of `era` has what builds have from the half-year `first` on."""
    return era is None or era >= first


def years_of(era: str | None) -> float:
    """Years between the reference and a build; builds of the future count as the newest."""
    half = min(era or NEWEST_ERA, NEWEST_ERA)
    return float(half[:4]) + (0.5 if half.endswith("H2") else 0.0) - REFERENCE_YEAR
