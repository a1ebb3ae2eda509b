"""Single values of benchmark output: text, numbers and flags as tools print them → typed values, or `Malformed`.

Every reader takes its values through here, so that nothing unreadable, infinite or absurd gets further.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...units import GIB, KIB, MIB, TIB

K = TypeVar("K")
V = TypeVar("V")

MAX_TEXT: Final = 500
_MAX_WHOLE: Final = 2**63 - 1
_UNKNOWN: Final = frozenset({"", "none", "null", "n/a", "na", "-", "?"})
_TRUE: Final = frozenset({"1", "true", "on", "yes", "enabled"})
_FALSE: Final = frozenset({"0", "false", "off", "no", "disabled"})

_PLUS_MINUS: Final = r"(?:±|\+/-|\+-|Â±|┬▒|\ufffd{1,2})"  # the last three: UTF-8 read as something else
_NUMBER: Final = r"\d{1,3}(?:,\d{3})+\.\d+|\d+(?:\.\d*)?(?:[eE][-+]?\d{1,3})?"
_RATE: Final = re.compile(rf"({_NUMBER})(?:\s*{_PLUS_MINUS}\s*({_NUMBER}|nan|-nan))?(?:\s*(?:t|tok|tokens)/s(?:ec)?)?")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B)", re.IGNORECASE)
_SIZE_UNITS: Final = {"b": 1.0, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)")
_COUNT_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class Malformed(Exception):  # noqa: N818 (never leaves the readers: it becomes a Problem)
    """A record that cannot be a run; the message says why, without the place."""


class NoMatchError(Exception):
    """A run whose device or model cannot be told: the reason in one sentence, and the ids that it may be."""

    def __init__(self, reason: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.candidates = tuple(candidates)


def remembered(known: dict[K, V | NoMatchError], key: K, find: Callable[[], V]) -> V:
    """What `find` returned or raised for `key` when it was first asked, so that nothing is looked up twice."""
    if key not in known:
        try:
            known[key] = find()
        except NoMatchError as error:
            known[key] = error
    found = known[key]
    if isinstance(found, NoMatchError):
        raise found
    return found


def shown(value: object, length: int = 60) -> str:
    """`value` for an error message: one line, printable, not long."""
    text = printable(str(value))
    return repr(text if len(text) <= length else text[: length - 1] + "…")


def printable(text: str) -> str:
    """`text` on one line, without control characters and unpaired surrogates, at most MAX_TEXT long."""
    text = text[:MAX_TEXT]
    return (text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)).strip()


def optional_text(value: object) -> str | None:
    """Text, or None for nothing and for what stands for nothing."""
    if value is None or isinstance(value, (dict, list)):
        return None
    return printable(str(value)) or None


def optional_whole(value: object, name: str) -> int | None:
    """A whole number of either sign; None for nothing. Raises Malformed for anything else."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _UNKNOWN):
        return None
    if isinstance(value, bool):
        return int(value)
    number = _real(value, name)
    if number != int(number) or abs(number) > _MAX_WHOLE:
        raise Malformed(f"{name} is {shown(value)}, not a whole number")
    return int(value) if isinstance(value, int) else int(number)


def optional_count(value: object, name: str) -> int | None:
    """A whole number that is not negative; None for nothing."""
    count = optional_whole(value, name)
    if count is not None and count < 0:
        raise Malformed(f"{name} is {count}, which is negative")
    return count


def optional_real(value: object, name: str) -> float | None:
    """A finite number that is not negative; None for nothing. Raises Malformed for anything else."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _UNKNOWN):
        return None
    number = _real(value, name)
    if number < 0:
        raise Malformed(f"{name} is {shown(value)}, which is negative")
    return number


def positive(value: object, name: str) -> float:
    """A finite number above zero. Raises Malformed for anything else."""
    number = optional_real(value, name)
    if not number:
        raise Malformed(f"{name} is {'missing' if number is None else 'zero'}")
    return number


def optional_flag(value: object, name: str) -> bool | None:
    """A boolean, as any version prints it; None for nothing."""
    if value is None or isinstance(value, bool):
        return value
    text = str(value).strip().lower() if not isinstance(value, float) else str(int(value))
    if text in _UNKNOWN - {"none"}:
        return None
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise Malformed(f"{name} is {shown(value)}, not a flag (0 or 1)")


def size_bytes(text: str) -> float | None:
    """Bytes of a printed size: "4.58 GiB" (binary prefixes, as the tools mean them), or plain bytes; None for nothing.

    Decimal prefixes are refused: whether "GB" was meant as 10⁹ or 2³⁰ cannot be seen.
    """
    if text.strip().lower() in _UNKNOWN:
        return None
    match = _SIZE.fullmatch(text.strip())
    factor = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match and factor is not None:
        return float(match[1]) * factor
    if text.strip().isdecimal():
        return optional_real(text, "size")
    raise Malformed(f"size is {shown(text)}, not a size such as '4.58 GiB'")


def parameters(text: str) -> float | None:
    """A printed number of parameters: "8.03 B", "134.52 M" or plain; None for nothing."""
    if text.strip().lower() in _UNKNOWN:
        return None
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise Malformed(f"params is {shown(text)}, not a count such as '8.03 B'")
    return float(match[1]) * _COUNT_UNITS[match[2]]


def rate(text: str) -> tuple[float, float | None]:
    """Mean and standard deviation of a printed rate: "5012.34 ± 21.07", or the mean alone."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise Malformed(f"rate is {shown(text)}, not tokens per second such as '5012.34 ± 21.07'")
    deviation = match[2] if match[2] and "nan" not in match[2] else None
    return _number(match[1]), None if deviation is None else _number(deviation)


def cell_text(cell: str) -> str:
    """A table cell without Markdown's emphasis, code marks, links and escapes."""
    text = html.unescape(cell).replace("\\", "")
    text = re.sub(r"\[([^\]]{0,200})\]\([^)]{0,500}\)", r"\1", text)
    return re.sub(r"</?\w{1,8}\s{0,3}/?>|[*`~]", "", text).strip()


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _real(value: object, name: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if (isinstance(value, str) and "_" in value) or not math.isfinite(number):
        raise Malformed(f"{name} is {shown(value)}, not a number")
    return number
