"""Speed against cost of machines: the figures of the plan, and the front by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from llmcalc import Goals, plan
from llmcalc.errors import InputError
from llmcalc.planner import Plan
from llmcalc.plots import front_figure
from llmcalc.report.layout import Style
from llmcalc.report.terminal_charts import front_chart, render
from llmcalc.speed_front import COST_LABELS, COSTS, speed_front

NAMES = ["rtx4090", "rtx3090", "rtx3060", "a100-sxm4-80gb", "p40", "apple-m2-ultra-76c"]


@pytest.fixture(scope="module")
def answer() -> Plan:
    return plan(model="llama3-8b", quant="q4", devices=NAMES, most=1)


@pytest.mark.parametrize("cost", COSTS)
def test_the_front_is_what_no_other_beats(answer: Plan, cost: str) -> None:
    front = speed_front(answer, cost)  # type: ignore[arg-type]
    for i, (price, speed) in enumerate(zip(front.costs, front.tokens_per_s, strict=True)):
        better = (front.costs <= price) & (front.tokens_per_s >= speed)
        better &= (front.costs < price) | (front.tokens_per_s > speed)
        assert front.on_front[i] == (not better.any())
    assert front.on_front.any()
    assert front.label == COST_LABELS[cost]  # type: ignore[index]
    assert len(front.machines) + front.left_out == len(NAMES)


def test_figures_are_those_of_the_plan(answer: Plan) -> None:
    front = speed_front(answer, "bandwidth")
    assert list(front.tokens_per_s) == sorted(front.tokens_per_s, reverse=True)
    assert np.all((front.low_80 < front.tokens_per_s) & (front.tokens_per_s < front.high_80))
    by_id = dict(zip((one.devices[0].id for one in front.machines), front.costs, strict=True))
    assert by_id["geforce-rtx-4090"] == 1008
    assert speed_front(answer, "watts").costs.max() == 450
    assert front.title == "Llama 3 8B · Q4_K_M, 8,192 tokens in the cache"


def test_unknown_costs_are_left_out_and_none_at_all_is_said(answer: Plan) -> None:
    assert speed_front(answer).left_out == len(answer.unpriced) > 0
    apple = plan(model="llama3-8b", quant="q4", devices=["apple-m2-ultra-76c"], most=1)
    with pytest.raises(InputError, match="none of the devices has a known price"):
        speed_front(apple)
    none = plan(model="llama3-70b", quant="f16", devices=["rtx3060"], most=1, goals=Goals(tokens_per_s=5))
    with pytest.raises(InputError, match="none of the devices is fit for it"):
        speed_front(none)


def test_the_picture_names_the_front(answer: Plan) -> None:
    front = speed_front(answer)
    (ax,) = front_figure(front).axes
    words = {text.get_text() for text in ax.texts}
    named = {
        one.devices[0].name.replace("GeForce ", "")
        for one, on in zip(front.machines, front.on_front, strict=True)
        if on
    }
    assert named <= words
    assert ax.get_xlabel() == front.label


def test_the_text_version_marks_every_machine(answer: Plan) -> None:
    front = speed_front(answer, "watts")
    lines = render(front_chart(front), Style(80), plain=True)
    drawing = "\n".join(lines[2:-4])
    assert max(map(len, lines)) <= 80
    assert "GeForce RTX 4090" in drawing
    assert drawing.count("*") == front.on_front.sum()
