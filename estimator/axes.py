"""Axes as people write them: "1k..128k", "0..32k+4k", "q4,q5,q8", "rtx4090,2x rtx3090+rtx3060".

Imports `errors` and `units`. A comma separates values; a range has its end in it where the steps meet it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .units import parse_tokens

Counts = NDArray[np.int64]

MOST_VALUES: Final = 1 << 24  # of one axis
MOST_POWERS: Final = 1 << 20  # of one range that grows by a factor
MOST_DEVICES: Final = 64  # of one machine
LONGEST_RANGE: Final = 100  # letters

_RANGE: Final = re.compile(r"(.+?)\.\.(.+?)(?:([*+])(.+))?")
_REPEATED: Final = re.compile(r"(\d{1,3})\s*[x×]\s*(\S.*)")


def number_axis(given: object, what: str, doubles: bool = False) -> Counts:
    """Whole numbers: 4096, "32k", "1k,4k", "1..32", "0..32k+4k" (steps of 4k), "1k..128k*2" (doubling).

    A range without a step counts by one, or doubles where `doubles`. Repeated values count once, in the order given.
    Raises InputError, naming `what`, for anything else.
    """
    parts = _bounded((part for one in _listed(given) for part in _numbers(one, what, doubles)), what)
    values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.array([], np.int64)
    if not len(values):
        raise InputError(f"{what}: has no values")
    if len(parts) == 1 and isinstance(_listed(given)[0], str):
        return values  # a range repeats nothing
    _, first = np.unique(values, return_index=True)
    return np.asarray(values[np.sort(first)])


def name_axis(given: object) -> tuple[Any, ...]:
    """Names, separated by commas; other objects stay as they are. Repeated ones count once."""
    return _once(value for one in _listed(given) for value in (_split(one) if isinstance(one, str) else [one]))


def machine_axis(given: object) -> tuple[tuple[Any, ...], ...]:
    """Machines, each a tuple of devices. Text: devices joined by +, each with a count before it if there are several.

    "rtx4090,2x rtx3090+rtx3060" is two machines, the second with three devices. A tuple is one machine.
    """
    machines: list[tuple[Any, ...]] = []
    for one in _listed(given):
        machines += [_machine(text) for text in _split(one)] if isinstance(one, str) else [_devices(one)]
    return _once(machines)


def _once(values: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(dict.fromkeys(values))
    except TypeError as error:
        raise InputError(f"an axis takes names and objects of this library: {error}") from None


def _listed(given: object) -> Sequence[Any]:
    return given if isinstance(given, list) else [given]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _devices(one: object) -> tuple[Any, ...]:
    if not isinstance(one, tuple):
        return (one,)
    return tuple(device for part in one for device in (_machine(part) if isinstance(part, str) else (part,)))


def _machine(text: str) -> tuple[str, ...]:
    devices: list[str] = []
    for part in text.split("+"):
        repeated = _REPEATED.fullmatch(part.strip())
        count, name = (int(repeated[1]), repeated[2]) if repeated else (1, part.strip())
        if not name or not 0 < count <= MOST_DEVICES:
            raise InputError(f"machine: cannot read {text!r}; write it like 'rtx4090' or '2x rtx3090+rtx3060'")
        devices += [name] * count
    return tuple(devices)


def _bounded(parts: Iterable[Counts], what: str) -> list[Counts]:
    """All the parts, made one by one, unless they are absurdly many values together."""
    kept, values = [], 0
    for part in parts:
        values += len(part)
        if values > MOST_VALUES:
            raise InputError(f"{what}: has more than {MOST_VALUES:,} values")
        kept.append(part)
    return kept


def _numbers(one: object, what: str, doubles: bool) -> Iterator[Counts]:
    if isinstance(one, np.ndarray):
        yield one.astype(np.int64).ravel()
    elif not isinstance(one, str):
        yield np.array([parse_tokens(one, what)], np.int64)
    else:
        yield from (_range(part, what, doubles) for part in _split(one))


def _range(text: str, what: str, doubles: bool) -> Counts:
    match = _RANGE.fullmatch(text) if len(text) <= LONGEST_RANGE else None
    if match is None:
        return np.array([parse_tokens(text, what)], np.int64)
    first, last = parse_tokens(match[1].strip(), what), parse_tokens(match[2].strip(), what)
    if last < first:
        raise InputError(f"{what}: the range {text!r} ends before it begins")
    sign = match[3] or ("*" if doubles else "+")
    if sign == "+":
        return _steps(first, last, parse_tokens(match[4].strip(), what) if match[4] else 1, text, what)
    return _powers(first, last, _factor(match[4] or "2", text, what), text, what)


def _steps(first: int, last: int, step: int, text: str, what: str) -> Counts:
    if step < 1:
        raise InputError(f"{what}: the step of {text!r} must be at least 1")
    if (last - first) // step >= MOST_VALUES:
        raise InputError(f"{what}: {text!r} has more than {MOST_VALUES:,} values; give it a step, such as {text}+1k")
    return np.arange(first, last + 1, step, dtype=np.int64)


def _factor(text: str, whole: str, what: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < float("inf"):
        raise InputError(f"{what}: the factor of {whole!r} must be a number above 1")
    return factor


def _powers(first: int, last: int, factor: float, text: str, what: str) -> Counts:
    """Whole numbers by a factor, each at least one more than the last."""
    if first < 1:
        raise InputError(f"{what}: {text!r} cannot grow by a factor from 0; give it a step, such as {first}..{last}+1k")
    values: list[int] = []
    exact = float(first)
    while round(exact) <= last:
        if len(values) >= MOST_POWERS:
            raise InputError(f"{what}: {text!r} has more than {MOST_POWERS:,} values; take a larger factor")
        values.append(round(exact))
        exact = max(exact * factor, values[-1] + 1.0)
    return np.array(values, np.int64)
