"""How axes are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.axes import machine_axis, name_axis, number_axis
from llmcalc.errors import InputError


@pytest.mark.parametrize(
    ("text", "doubles", "values"),
    [
        ("4096", True, [4096]),
        (8192, True, [8192]),
        ("1k..8k", True, [1024, 2048, 4096, 8192]),
        ("1k..9k", True, [1024, 2048, 4096, 8192]),
        ("1..5", False, [1, 2, 3, 4, 5]),
        ("0..16k+4k", True, [0, 4096, 8192, 12288, 16384]),
        ("100..1000*3", False, [100, 300, 900]),
        ("1..4*1.1", False, [1, 2, 3, 4]),
        ("4,1..2, 4", False, [4, 1, 2]),
        ([1, "2..3"], False, [1, 2, 3]),
        (np.array([7, 5]), False, [7, 5]),
    ],
)
def test_numbers(text: object, doubles: bool, values: list[int]) -> None:
    assert number_axis(text, "ctx", doubles).tolist() == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("8k..1k", "ends before it begins"),
        ("0..8k", "cannot grow by a factor from 0"),
        ("1..8+0", "step"),
        ("1..8*1", "factor"),
        ("1..8*x", "factor"),
        ("1..32q", "q"),
        ("", "no values"),
        ("-3", "negative"),
    ],
)
def test_bad_numbers(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"ctx: .*{says}"):
        number_axis(text, "ctx", True)


def test_endless_ranges_are_refused() -> None:
    with pytest.raises(InputError, match="give it a step"):
        number_axis("0..1000000000", "occupied")


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.floats(1.01, 4))
def test_growing_ranges_grow_and_end_in_time(first: int, more: int, factor: float) -> None:
    values = number_axis(f"{first}..{first + more}*{factor}", "ctx")
    assert values[0] == first
    assert values[-1] <= first + more
    assert (np.diff(values) >= 1).all()


def test_machines() -> None:
    assert machine_axis("rtx4090, 2x rtx3090+rtx3060") == (("rtx4090",), ("rtx3090", "rtx3090", "rtx3060"))
    assert machine_axis([("a", "2x b"), "c"]) == (("a", "b", "b"), ("c",))
    assert machine_axis("a,a") == (("a",),)
    with pytest.raises(InputError, match="cannot read"):
        machine_axis("rtx4090+")
    with pytest.raises(InputError, match="cannot read"):
        machine_axis("999x rtx4090")


def test_names() -> None:
    assert name_axis("q4, q5,q4") == ("q4", "q5")
    assert name_axis(["q4,q8", None]) == ("q4", "q8", None)
