"""Parameter types of the command line: numbers within limits, token counts and quantities as people write them.

What is no number, not finite or outside its limits is refused in one line, before anything is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import InputError
from ..units import KIB, MB, MIB, TB, TIB, Dimension, parse, parse_tokens

if TYPE_CHECKING:  # generic from click 8.2 on
    _IntType = click.ParamType[int]
    _FloatType = click.ParamType[float]
else:
    _IntType = _FloatType = click.ParamType

MOST_COUNT: Final = 1_000_000
YEAR_S: Final = 365.0 * 86400


class Tokens(_IntType):
    """A token count: 4096, 32k, 128K."""

    name = "tokens"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            tokens = parse_tokens(value, flag_of(param))
        except InputError as error:
            raise click.UsageError(str(error), ctx) from None
        if tokens < self.least:
            raise click.UsageError(f"{flag_of(param)}: must be at least {self.least}, got {value}", ctx)
        return tokens


class Whole(_IntType):
    """A whole number within limits, both of which are allowed."""

    name = "number"

    def __init__(self, least: int = 0, most: int = MOST_COUNT) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            raise click.UsageError(f"{flag_of(param)}: {value!r} is not a whole number", ctx) from None
        _require(self.least <= number <= self.most, f"{self.least}", f"{self.most:,}", value, param, ctx)
        return number


class Number(_FloatType):
    """A finite number within limits, both of which are allowed."""

    name = "number"

    def __init__(self, least: float = 0.0, most: float = 1e12) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            raise click.UsageError(f"{flag_of(param)}: {value!r} is not a number", ctx) from None
        _require(self.least <= number <= self.most, f"{self.least:g}", f"{self.most:g}", value, param, ctx)
        return number


class QuantityText(_FloatType):
    """A quantity with its unit, checked here and handed on as SI.

    `limits`: least and most in SI, with the text that a message names them by. They lie beyond all hardware there is,
    so that what they refuse is a slip of the unit.
    """

    def __init__(self, dimension: Dimension, name: str, *limits: tuple[float, str]) -> None:
        self.dimension: Dimension = dimension
        self.name = name
        self.limits = limits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            quantity = parse(value, self.dimension, flag_of(param))
        except InputError as error:
            raise click.UsageError(str(error), ctx) from None
        if self.limits:
            (least, low), (most, high) = self.limits
            _require(least <= quantity <= most, low, high, value, param, ctx)
        return quantity


def _require(
    inside: bool, low: str, high: str, value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    if not inside:
        raise click.UsageError(f"{flag_of(param)}: must be from {low} to {high}, got {value}", ctx)


def flag_of(param: click.Parameter | None) -> str:
    """The option as it is typed."""
    return param.opts[0] if param else "value"


TOKENS = Tokens()
SOME_TOKENS = Tokens(least=1)
RATE = Number()  # of tokens or requests a second
SHARE = Number(most=1.0)
SOME_SHARE = Number(least=0.01, most=1.0)
PRICE = Number()
BYTES = QuantityText("bytes", "bytes", (MIB, "1 MiB"), (KIB * TIB, "1 PiB"))
ANY_BYTES = QuantityText("bytes", "bytes", (0.0, "0 B"), (KIB * TIB, "1 PiB"))
BANDWIDTH = QuantityText("bytes_per_s", "rate", (MB, "1 MB/s"), (1e6 * TB, "1000000 TB/s"))
PEAK = QuantityText("flop_per_s", "flops", (1e6, "1 MFLOPS"), (1e21, "1000000 PFLOPS"))
SECONDS = QuantityText("seconds", "time", (0.0, "0 s"), (YEAR_S, "a year"))
WATTS = QuantityText("watts", "power", (0.0, "0 W"), (1e12, "1000000000 kW"))
COUNT = Whole(least=1)
SOME = Whole()  # a count that may be 0
SEQUENCES = Whole(least=1, most=256)  # LLAMA_MAX_SEQ
THREADS = Whole(least=1, most=512)  # GGML_MAX_N_THREADS
CORES = Whole(least=1, most=4096)
DEVICES = Whole(least=1, most=64)
LAYERS = Whole(most=2**31 - 1)
