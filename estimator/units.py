"""Quantities: text, numbers or pint quantities to SI floats and back; the only home of unit factors.

Parsing is plain regular expressions, because pint takes longer to import than an estimate takes to compute; pint itself
is used only when a caller hands in or asks for its quantities. Imports nothing of the package but `errors`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import InputError

if TYPE_CHECKING:
    import pint

Dimension = Literal["bytes", "bytes_per_s", "flop_per_s", "hertz", "seconds", "watts", "tokens"]

KB: Final = 1e3
MB: Final = 1e6
GB: Final = 1e9
TB: Final = 1e12
KIB: Final = 2.0**10
MIB: Final = 2.0**20
GIB: Final = 2.0**30
TIB: Final = 2.0**40

MAX_TOKENS: Final = 2**31 - 1  # token positions are 32-bit in llama.cpp

_BYTES: Final = {
    "b": 1.0, "kb": KB, "mb": MB, "gb": GB, "tb": TB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
}  # fmt: skip
_SI: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}

UNITS: Final[dict[Dimension, dict[str, float]]] = {
    "bytes": _BYTES,
    "bytes_per_s": {f"{unit}{per}": factor for unit, factor in _BYTES.items() for per in ("/s", "ps")},
    "flop_per_s": {
        f"{prefix}{unit}": factor for prefix, factor in _SI.items() for unit in ("flops", "flop/s", "ops", "op/s")
    },
    "hertz": {f"{prefix}hz": factor for prefix, factor in _SI.items()},
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "watts": {"w": 1.0, "mw": 1e-3, "kw": 1e3},
    # Context lengths are written in binary thousands: 32k is 32 768 everywhere in this field.
    "tokens": {"": 1.0, "tok": 1.0, "tokens": 1.0}
    | {f"{prefix}{unit}": factor for prefix, factor in (("k", KIB), ("m", MIB)) for unit in ("", "i", "tokens")},
}

EXAMPLES: Final[dict[Dimension, str]] = {
    "bytes": "24 GiB", "bytes_per_s": "1008 GB/s", "flop_per_s": "82.6 TFLOPS", "hertz": "2.5 GHz",
    "seconds": "20 ms", "watts": "450 W", "tokens": "32k",
}  # fmt: skip

_PINT_UNIT: Final[dict[Dimension, str]] = {
    "bytes": "byte", "bytes_per_s": "byte / second", "flop_per_s": "1 / second", "hertz": "hertz",
    "seconds": "second", "watts": "watt", "tokens": "dimensionless",
}  # fmt: skip

_QUANTITY: Final = r"(?i)\s*([-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)\s*([a-zµ/ ]*?)\s*"


def parse(value: object, dimension: Dimension, what: str) -> float:
    """`value` in SI units of `dimension`, as a finite float that is not negative.

    Takes numbers (already SI), text with a unit ("24 GiB", "1.008 TB/s", "32k") and pint quantities.
    Raises InputError, naming `what`, for another unit, no unit where one is needed, or no number at all.
    """
    if isinstance(value, bool) or value is None:
        raise InputError(f"{what}: expected a quantity such as {EXAMPLES[dimension]!r}, got {value!r}")
    if isinstance(value, str):
        result = _parse_text(value, dimension, what)
    elif hasattr(value, "to") and hasattr(value, "magnitude"):
        result = _from_pint(value, dimension, what)
    else:
        result = _number(value, dimension, what)
    if not math.isfinite(result):
        raise InputError(f"{what}: {value!r} is not a finite number")
    if result < 0:
        raise InputError(f"{what}: {value!r} is negative; write it like {EXAMPLES[dimension]!r}")
    return result


def parse_tokens(value: object, what: str) -> int:
    """A token count: 32768, "32768", "32k" and "128K" (binary thousands). Raises InputError unless it is whole
    and no more than llama.cpp can count."""
    tokens = parse(value, "tokens", what)
    if tokens != int(tokens):
        raise InputError(f"{what}: {value!r} is not a whole number of tokens")
    if tokens > MAX_TOKENS:
        raise InputError(f"{what}: {value!r} is more than the {MAX_TOKENS:,} tokens that llama.cpp can count")
    return int(tokens)


def _parse_text(text: str, dimension: Dimension, what: str) -> float:
    match = re.fullmatch(_QUANTITY, text)
    if match is None:
        raise InputError(f"{what}: cannot read {text!r}; write it like {EXAMPLES[dimension]!r}")
    number = float(match[1].replace(",", "").replace("_", ""))
    unit = match[2].replace(" ", "").lower()
    factor = UNITS[dimension].get(unit)
    if factor is None:
        problem = f"has no unit {match[2]!r} of this kind" if unit else "needs a unit"
        raise InputError(f"{what}: {text!r} {problem}; write it like {EXAMPLES[dimension]!r}")
    return number * factor


def _number(value: object, dimension: Dimension, what: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{what}: expected a quantity such as {EXAMPLES[dimension]!r}, got {type(value).__name__}"
        ) from None


def _from_pint(value: Any, dimension: Dimension, what: str) -> float:
    import pint

    try:
        return float(value.to(_PINT_UNIT[dimension]).magnitude)
    except pint.PintError as error:
        raise InputError(f"{what}: {error}") from None


def to_pint(value: float, dimension: Dimension) -> pint.Quantity[Any]:
    """`value` (SI) as a pint quantity of the application registry."""
    import pint

    quantity: pint.Quantity[Any] = pint.Quantity(value, _PINT_UNIT[dimension])
    return quantity


def gib(n_bytes: float) -> str:
    """Bytes as text in GiB with two decimals, or MiB below one GiB."""
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.1f} MiB"
