"""Charts in text: what is set where, within the width, in Braille or ASCII."""

from __future__ import annotations

import numpy as np
import pytest

from llmcalc.efficiency import Efficiency
from llmcalc.report.layout import Style
from llmcalc.report.terminal_charts import (
    BRAILLE,
    Chart,
    Line,
    Mark,
    ascii_only,
    batch_chart,
    render,
    roofline_chart,
    speed_chart,
)
from llmcalc.request import resolve
from llmcalc.roofline_view import roofline_view
from llmcalc.speed_curves import batch_curve, decode_curve, prefill_curve

PRIORS = Efficiency()
MODELS = [resolve(gpu=name, model="llama3.1-8b", quant="q4", ctx="32k") for name in ("rtx4090", "m2-ultra-76")]


def charts() -> dict[str, Chart]:
    return {
        "roofline": roofline_chart([roofline_view(MODELS[0], PRIORS)]),
        "rooflines": roofline_chart([roofline_view(one, PRIORS) for one in MODELS]),
        "context": speed_chart([decode_curve(MODELS[0], PRIORS)], "Decode", "occupied context (tokens)"),
        "contexts": speed_chart([decode_curve(one, PRIORS) for one in MODELS], "Decode", "occupied context (tokens)"),
        "prefill": speed_chart([prefill_curve(MODELS[0], PRIORS)], "Prefill", "prompt (tokens)", log=True),
        "batch": batch_chart([batch_curve(one, PRIORS) for one in MODELS]),
    }


def diagonal(**changes: object) -> Chart:
    line = Line(np.array([0.0, 100.0]), np.array([0.0, 10.0]))
    given = {"title": "t", "x_label": "x", "y_label": "y", "lines": [line], "x_range": (0, 100), "y_range": (0, 10)}
    return Chart(**(given | changes))  # type: ignore[arg-type]


def area(lines: list[str]) -> list[str]:
    """The plotting area: what stands right of the y axis."""
    return [line.partition(line[edge])[2] for line in lines for edge in [axis_column(line)] if edge >= 0]


def axis_column(line: str) -> int:
    return next((i for i, sign in enumerate(line) if sign in "│┤|" or (sign == "+" and "-" not in line)), -1)


def test_a_diagonal_goes_from_corner_to_corner() -> None:
    rows = area(render(diagonal(), Style(60), plain=True, rows=12))
    columns = [row.rfind("*") for row in rows]
    assert len(rows) == 12
    assert columns == sorted(columns, reverse=True)
    assert (rows[-1].find("*"), columns[-1] < 8, columns[0] > 45) == (0, True, True)


def test_braille_sets_as_many_dots_as_the_line_is_long() -> None:
    rows = area(render(diagonal(), Style(60), rows=12))
    dots = sum((ord(sign) - BRAILLE).bit_count() for row in rows for sign in row if ord(sign) >= BRAILLE)
    assert dots == pytest.approx(2 * len(rows[0]), abs=4)


def test_logarithmic_axes_make_powers_straight() -> None:
    x = np.geomspace(1, 1000, 50)
    chart = diagonal(lines=[Line(x, x**2)], x_range=(1, 1000), y_range=(1, 1e6), x_log=True, y_log=True)
    rows = area(render(chart, Style(60), plain=True, rows=13))
    columns = [row.rfind("*") for row in rows]
    assert np.ptp(np.diff(columns)) <= 2


def test_marks_stand_on_their_point_and_their_texts_give_way() -> None:
    marks = [Mark(50, 5, "P", text="here"), Mark(53, 5, "D", text="there")]
    text = "\n".join(render(diagonal(lines=[], marks=marks), Style(60), plain=True))
    row = next(line for line in text.splitlines() if "P" in line)
    assert "D" in row
    assert "here" in text
    assert "there" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_wider_than_the_terminal(width: int, plain: bool) -> None:
    for name, chart in charts().items():
        for line in render(chart, Style(width), plain):
            assert len(line) <= width, (name, line)


def test_plain_is_ascii_alone() -> None:
    for chart in charts().values():
        assert "\n".join(render(chart, Style(80), plain=True)).isascii()
    assert ascii_only("Llama · 4–5 × 2 ÷ 1") == "Llama - 4-5 x 2 / 1"


def test_colours_show_only_where_they_may() -> None:
    for chart in charts().values():
        assert "\x1b" not in "\n".join(render(chart, Style(80)))
        assert "\x1b[36m" in "\n".join(render(chart, Style(80, color=True)))


def test_roofline_says_its_roofs_and_phases() -> None:
    text = "\n".join(render(charts()["roofline"], Style(100)))
    for words in ("INT8 matrix 660.6 TFLOP/s", "ridge at 655 FLOP/byte", "prefill of 1,024", "decode", "64 sequences"):
        assert words in text


def test_each_series_has_a_line_in_the_legend() -> None:
    text = "\n".join(render(charts()["rooflines"], Style(100)))
    assert "GeForce RTX 4090" in text
    assert "Apple M2 Ultra" in text
