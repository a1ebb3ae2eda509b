"""The half-year of a llama.cpp build: kernels change several-fold over the years, so a run is worth its era.

Build numbers count commits, so the number tells the date. Boundaries: first build of each half-year, from the commit
history of llama.cpp.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from .values import Malformed, shown

_FIRST_BUILDS: Final = (
    (0, "2023H2"), (1743, "2024H1"), (3269, "2024H2"), (4405, "2025H1"), (5788, "2025H2"), (7599, "2026H1"),
    (9850, "2026H2"),
)  # fmt: skip
_HALF_YEAR: Final = re.compile(r"20(?:2[3-9]|[3-9]\d)H[12]")
_DATE: Final = re.compile(r"(20\d\d)-(\d\d)(?:-\d\d)?")


def era(build_number: int | None, date: str | None = None) -> str | None:
    """Half-year such as "2025H2": of the build where its number is known, else of `date` (YYYY-MM…), else None."""
    if build_number:
        return _FIRST_BUILDS[bisect_right(_FIRST_BUILDS, build_number, key=lambda first: first[0]) - 1][1]
    match = _DATE.match(date or "")
    return f"{match[1]}H{1 if int(match[2]) <= 6 else 2}" if match else None


def checked_era(text: str) -> str | None:
    """A half-year as it stands in a measurement file; None for nothing. Raises Malformed for anything else."""
    if text and not _HALF_YEAR.fullmatch(text):
        raise Malformed(f"era is {shown(text)}, not a half-year of llama.cpp such as 2025H2")
    return text or None
