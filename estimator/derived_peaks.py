"""Formulas of derived peaks, as the hardware catalog writes them: "units × 128 × boost_clock", "fp32 / 64 + 2 TFLOPS".

Imports `errors`, `system` and `units`.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import FieldError
from .system import Device
from .units import parse

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_CLOCK: Final = re.compile(r"\d+(?:\.\d+)? [GM]Hz")


def evaluate(formula: str, device: Device) -> float:
    """FLOP/s of a sum of products and quotients of numbers, clocks, peaks and counts of the device.

    Raises FieldError, its path the word, for a word that means nothing or whose figure the device lacks.
    """
    return sum(_term(term, device) for term in formula.split(" + "))


def _term(term: str, device: Device) -> float:
    first, *rest = re.split(r" ([×/]) ", term.strip())
    product = _value(first, device)
    for sign, word in zip(rest[::2], rest[1::2], strict=True):
        product = product * _value(word, device) if sign == "×" else product / _value(word, device)
    return product


def _value(word: str, device: Device) -> float:
    if _NUMBER.fullmatch(word):
        return float(word)
    if _CLOCK.fullmatch(word):
        return parse(word, "hertz", word)
    counts = {"units": device.units, "shader_cores": device.shader_cores, "cores": device.cores}
    figures = counts | {"boost_clock": device.boost_hertz, "base_clock": device.base_hertz}
    if word in device.peaks_flop_per_s:
        return device.peaks_flop_per_s[word]
    if word not in figures:
        known = ", ".join(figures)
        raise FieldError(f"{word!r} is no number, clock or peak of this device, and none of {known}", (word,))
    found = figures[word]
    if found is None:
        raise FieldError(f"{word} is not given", (word,))
    return float(found)
