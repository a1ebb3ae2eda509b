"""Quantities as people write them become SI, agree with pint, and are refused in a sentence when they are nonsense."""

from __future__ import annotations

import math
from contextlib import suppress

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import InputError
from llmcalc.units import UNITS, gib, parse, parse_tokens, to_pint


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("24 GiB", "bytes", 24 * 2**30),
        ("24GB", "bytes", 24e9),
        ("1,008 GB/s", "bytes_per_s", 1008e9),
        ("1.2 TB/s", "bytes_per_s", 1.2e12),
        ("82.6 TFLOPS", "flop_per_s", 82.6e12),
        ("660 TOPS", "flop_per_s", 660e12),
        ("900 GFLOP/s", "flop_per_s", 900e9),
        ("2520 MHz", "hertz", 2.52e9),
        ("450 W", "watts", 450.0),
        ("250 us", "seconds", 250e-6),
        (17.0, "seconds", 17.0),
    ],
)
def test_text_becomes_si(text: object, dimension: str, expected: float) -> None:
    assert parse(text, dimension, "x") == pytest.approx(expected, rel=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"), [("32k", 32768), ("128K", 131072), ("131072", 131072), (4096, 4096), ("1M", 2**20)]
)
def test_token_counts(text: object, expected: int) -> None:
    assert parse_tokens(text, "ctx") == expected


@pytest.mark.parametrize(
    ("value", "dimension", "says"),
    [
        ("24", "bytes", "needs a unit"),
        ("24 GHz", "bytes", "has no unit 'GHz'"),
        ("fast", "bytes_per_s", "cannot read 'fast'"),
        ("", "bytes", "cannot read"),
        ("1,100,5000", "tokens", "cannot read"),
        ("1,5 TB/s", "bytes_per_s", "cannot read"),
        (None, "bytes", "expected a quantity"),
        (True, "bytes", "expected a quantity"),
        (float("nan"), "seconds", "not a finite number"),
        ("1e400 GB", "bytes", "not a finite number"),
        ([1], "bytes", "got list"),
        ("-24 GiB", "bytes", "is negative"),
        (pint.Quantity(1, "meter"), "bytes", "meter"),
    ],
)
def test_nonsense_is_refused_with_the_option_named(value: object, dimension: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse(value, dimension, "--memory")  # type: ignore[arg-type]
    assert str(caught.value).startswith("--memory: ")


@pytest.mark.parametrize("text", ["1.5", "0.3k", "many"])
def test_a_part_of_a_token_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_tokens(text, "ctx")


@pytest.mark.parametrize("dimension", ["bytes", "bytes_per_s", "hertz", "seconds", "watts"])
def test_every_unit_agrees_with_pint(dimension: str) -> None:
    si = {"bytes": "byte", "bytes_per_s": "byte/s", "hertz": "hertz", "seconds": "s", "watts": "watt"}[dimension]
    proper = {"b": "B", "kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB", "kib": "KiB", "mib": "MiB", "gib": "GiB",
              "tib": "TiB", "hz": "Hz", "khz": "kHz", "mhz": "MHz", "ghz": "GHz", "thz": "THz", "phz": "PHz",
              "w": "W", "mw": "mW", "kw": "kW", "h": "hour"}  # fmt: skip
    for unit, factor in UNITS[dimension].items():  # type: ignore[index]
        if unit.endswith("ps"):
            continue
        symbol, slash, per = unit.partition("/")
        in_pint = pint.Quantity(1, proper.get(symbol, symbol) + slash + per).to(si).magnitude
        assert factor == pytest.approx(in_pint, rel=1e-12), unit


@given(st.floats(1e-3, 1e15), st.sampled_from(["bytes", "bytes_per_s", "seconds", "watts", "hertz"]))
def test_pint_round_trip(value: float, dimension: str) -> None:
    assert parse(to_pint(value, dimension), dimension, "x") == pytest.approx(value, rel=1e-12)  # type: ignore[arg-type]


@given(st.text(max_size=30), st.sampled_from(sorted(UNITS)))
def test_any_text_gives_a_finite_number_or_our_error(text: str, dimension: str) -> None:
    with suppress(InputError):
        assert math.isfinite(parse(text, dimension, "x"))  # type: ignore[arg-type]


def test_bytes_are_shown_in_binary_units() -> None:
    assert gib(24 * 2**30) == "24.00 GiB"
    assert gib(762.5 * 2**20) == "762.5 MiB"
