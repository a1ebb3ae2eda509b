"""Reading what tools print: JSON of any shape, numbers with or without units. Total: odd values are None, not errors.

Imports `errors` and `units`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import LlmcalcError
from ..units import GIB, KIB, MIB, TIB

# Drivers and firmware say MB and GB where they count in 1024s.
_SIZES: Final = {
    "": 1.0, "b": 1.0, "bytes": 1.0, "kb": KIB, "kib": KIB, "mb": MIB, "mib": MIB, "gb": GIB, "gib": GIB,
    "tb": TIB, "tib": TIB,
}  # fmt: skip
_NOT_SAID: Final = frozenset({"", "n/a", "[n/a]", "[not supported]", "unknown", "none", "not specified", "null"})


class OddOutputError(LlmcalcError):
    """A tool printed what its format does not foresee; the message goes on from the tool's name."""


def load_json(text: str) -> Any:
    """The JSON value in `text`, after any warnings before it. Raises OddOutputError when there is none."""
    starts = [position for position in (text.find("{"), text.find("[")) if position >= 0]
    try:
        return json.JSONDecoder().raw_decode(text[min(starts) :])[0] if starts else json.loads(text)
    except (ValueError, RecursionError):
        raise OddOutputError("printed no readable JSON") from None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a mapping, with its keys in lower case; else an empty one."""
    return {str(key).lower(): each for key, each in value.items()} if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list, or one that stands alone (PowerShell writes a list of one so)."""
    values = value if isinstance(value, list) else [value]
    return [mapping(each) for each in values if isinstance(each, Mapping)]


def text_of(value: Any) -> str | None:
    """Text or a number as text; None for the ways of saying "not known"."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    text = str(value).replace("\x00", "").strip()
    return None if text.lower() in _NOT_SAID else text[:200]


def number(value: Any) -> float | None:
    """The number that `value` is, begins with, or carries as {"value": …}; None unless it is positive."""
    if isinstance(value, Mapping):
        return number(mapping(value).get("value"))
    match = re.match(r"\d{1,18}(?:\.\d{1,9})?", text_of(value) or "")
    return (float(match[0]) or None) if match else None


def whole(value: Any) -> int | None:
    """`number` where it is whole."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def size(value: Any, unit: str = "") -> float | None:
    """Bytes of "24 GB", 24560 with `unit` "MB", or {"value": 24560, "unit": "MB"}; None unless it is positive."""
    if isinstance(value, Mapping):
        given = mapping(value)
        return size(given.get("value"), str(given.get("unit", unit)))
    match = re.match(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?i?b(?:ytes)?)?", text_of(value) or "", re.IGNORECASE)
    factor = _SIZES.get((match[2] or unit).lower()) if match else None
    return (float(match[1]) * factor or None) if match and factor else None


def bus_address(value: Any) -> str | None:
    """A PCI address as "0000:01:00.0", from any way of writing it."""
    match = re.search(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", str(text_of(value)).lower())
    return f"{(match[1] or '0000')[-4:]}:{match[2]}:{match[3]}.{match[4]}" if match else None


def vendor_of(text: str) -> str:
    """The maker that a name or a PCI vendor id means; "" for others, such as the display chips of servers."""
    word = re.search(
        r"(?i)(0x10de|nvidia|geforce|quadro|tesla)|(0x1002|\bamd\b|advanced micro devices|\bati\b|radeon|instinct)"
        r"|(0x8086|\bintel\b)|(0x106b|\bapple\b)|(0x5143|qualcomm|adreno)",
        text,
    )
    makers = ("nvidia", "amd", "intel", "apple", "qualcomm")
    return makers[word.lastindex - 1] if word and word.lastindex else ""
