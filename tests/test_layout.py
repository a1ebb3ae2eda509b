"""How figures and columns are set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.report.layout import Style, bar, columns, duration, fitted, interval, margin, paragraph, rate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7312.4, "7,310"),
        (148.2, "148"),
        (14.23, "14.2"),
        (1.4, "1.40"),
        (0.53, "0.530"),
        (0.012, "0.012"),
        (99.96, "100"),
    ],
)
def test_rates_have_three_significant_digits(value: float, text: str) -> None:
    assert rate(value) == text


@given(st.floats(1e-6, 1e12))
def test_a_rate_reads_back_as_what_it_was(value: float) -> None:
    assert float(rate(value).replace(",", "")) == pytest.approx(value, rel=0.051 if value < 0.1 else 0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.006431, "6.43 ms"), (0.584, "584 ms"), (1.74, "1.74 s"), (83, "83.0 s"), (750, "12.5 min"), (11160, "3.10 h")],
)
def test_durations_take_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_intervals_and_verdicts() -> None:
    assert interval((138.2, 163.4)) == "138–163"
    assert margin(2**30) == "fits, 1.00 GiB to spare"
    assert margin(-(2**30)) == "does not fit, 1.00 GiB too much"
    assert margin(None) == "memory of the device unknown"


@given(st.lists(st.tuples(st.text("ab ", max_size=9), st.text("12", max_size=9)), min_size=1, max_size=6))
def test_columns_align(rows: list[tuple[str, str]]) -> None:
    lines = columns(rows, "<>")
    numbers_end = {len(line) for line, row in zip(lines, rows, strict=True) if row[1]}
    assert len(numbers_end) <= 1
    assert all(line == line.rstrip() for line in lines)


@given(st.floats(-1, 3), st.integers(0, 60))
def test_bars_keep_their_width(share: float, width: int) -> None:
    assert len(bar(share, width)) == width


def test_headings_and_paragraphs_keep_to_the_width() -> None:
    assert Style(30).heading("Memory", "fits") == "Memory" + " " * 20 + "fits"
    assert Style(30, color=True).heading("Memory").startswith("\x1b[1m")
    assert all(len(line) <= 30 for line in paragraph("word " * 30, 30))
    assert paragraph("a/very/long/path/that/must/stay/whole/to/be/copied", 30) == [
        "  a/very/long/path/that/must/stay/whole/to/be/copied"
    ]


def test_tables_are_cut_to_the_width_in_one_column() -> None:
    rows = [("a long name of something", "12"), ("short", "3")]
    assert fitted(rows, "<>", 80, 0) == columns(rows, "<>")
    cut = fitted(rows, "<>", 20, 0)
    assert max(map(len, cut)) <= 20
    assert "…" in cut[0]
    assert cut[0].endswith("12")
    assert "short" in cut[1]
