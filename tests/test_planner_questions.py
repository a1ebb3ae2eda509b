"""The planner's other questions: models for a machine, users of devices, upgrades."""

from __future__ import annotations

import pytest

from llmcalc.device_catalog import find_device
from llmcalc.errors import InputError
from llmcalc.estimation import estimate
from llmcalc.planner import Goals, plan
from llmcalc.planner_models import QUANTISATIONS, ModelChoices, suitable_models
from llmcalc.planner_upgrades import upgrades
from llmcalc.planner_users import users_table


@pytest.fixture(scope="module")
def choices() -> ModelChoices:
    return suitable_models(gpu=["rtx3090"], ctx=16384, goals=Goals(tokens_per_s=20))


def test_models_that_suit_do_suit(choices: ModelChoices) -> None:
    assert len(choices.models) > 50
    for one in choices.models[::15]:
        e = estimate(gpu="rtx3090", model=one.info.id, quant=one.quantisation, ctx=16384)
        assert e.memory.fits
        assert e.decode[-1].tokens_per_s >= 20


def test_the_best_quantisation_is_chosen(choices: ModelChoices) -> None:
    for one in choices.models[::25]:
        better = QUANTISATIONS[: QUANTISATIONS.index(one.quantisation)] if one.quantisation in QUANTISATIONS else ()
        for quant in better:
            e = estimate(gpu="rtx3090", model=one.info.id, quant=quant, ctx=16384)
            assert not (e.memory.fits and e.decode[-1].tokens_per_s >= 20)


def test_larger_models_first_or_faster_ones(choices: ModelChoices) -> None:
    sizes = [one.total_params for one in choices.models]
    assert sizes == sorted(sizes, reverse=True)
    fast = suitable_models(gpu=["rtx3090"], ctx=16384, goals=Goals(tokens_per_s=100), rank="tokens", quants=["q4"])
    rates = [one.arrangement.tokens_per_s for one in fast.models]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) >= 100


def test_models_need_a_known_memory() -> None:
    with pytest.raises(InputError, match="--ram"):
        suitable_models(cpu="ryzen-9-7950x")


def test_users_are_as_many_as_the_goals_allow() -> None:
    goals = Goals(tokens_per_s=25, ttft_s=3, users=30)
    table = users_table(model="llama3-8b", quant="q4", ctx=8192, goals=goals, device=find_device("rtx3090"), most=4)
    counts = [row.users for row in table.rows]
    assert counts == sorted(counts)
    one = counts[0]
    assert one > 1
    for users, enough in ((one, True), (one + 1, False)):
        e = estimate(gpu="rtx3090", model="llama3-8b", quant="q4", ctx=8192 * users, parallel=users)
        assert (bool(e.memory.fits) and e.decode[-1].tokens_per_s >= 25) == enough
    assert table.fewest == next(row.count for row in table.rows if row.users >= 30)
    assert "30 users: " in repr(table)
    assert table.to_dict()["rows"][0]["users"] == one


def test_a_split_makes_room_where_one_device_has_none() -> None:
    goals = Goals(tokens_per_s=5, users=2)
    table = users_table(model="llama3-70b", quant="q4", ctx=8192, goals=goals, device=find_device("rtx3090"), most=3)
    assert [row.users > 0 for row in table.rows] == [False, True, True]
    assert table.rows[0].arrangement is None


def test_goals_that_nothing_meets() -> None:
    goals = Goals(tokens_per_s=10_000, users=2)
    table = users_table(model="llama3-8b", quant="q4", goals=goals, device=find_device("rtx3090"), most=2)
    assert table.fewest is None
    assert "do not meet" in repr(table)


def test_a_second_card_makes_a_70b_fit() -> None:
    result = upgrades(model="llama3-70b", quant="q4", ctx=8192, devices=[find_device("rtx3090")])
    assert result.now.fits is False
    (second,) = [one for one in result.upgrades if one.added.id == "geforce-rtx-3090"]
    assert second.fits
    e = estimate(gpu=["rtx3090", "rtx3090"], model="llama3-70b", quant="q4", ctx=8192)
    assert second.figures.tokens_per_s == pytest.approx(e.decode[-1].tokens_per_s)
    fitting = [bool(one.fits) for one in result.upgrades]
    assert fitting == sorted(fitting, reverse=True)
    assert all(one.added.price_usd is not None for one in result.upgrades)
    assert "lacks" in repr(result)
    assert result.to_dict()["now"]["fits"] is False


def test_named_upgrades_only() -> None:
    there, added = find_device("rtx4060"), find_device("rtx3060-12gb")
    result = upgrades(model="qwen3-14b", quant="q4", devices=[there], added=[added], prices={"rtx3060-12gb": 210.0})
    (one,) = result.upgrades
    assert (one.added.id, one.added.price_usd) == ("geforce-rtx-3060-12gb", 210.0)
    with pytest.raises(InputError, match="name the GPUs"):
        upgrades(model="qwen3-14b", quant="q4", devices=[])


def test_an_upgrade_is_answered_in_words() -> None:
    result = upgrades(devices=[find_device("rtx3090")], model="llama3-70b", quant="q4", ctx=8192)
    page = " ".join(repr(result).split())
    assert "It lacks" in page
    assert "A second GeForce RTX 3090: fits" in page
    assert "The cheapest that makes it fit" in page
    cheapest = min(one.added.price_usd or 1e9 for one in result.upgrades if one.fits)
    assert f"about {cheapest:,.0f} USD" in page


@pytest.mark.parametrize("goals", [Goals(tokens_per_s=15), Goals(tokens_per_s=15, users=8, ttft_s=5)])
def test_an_answer_is_one_screen(goals: Goals) -> None:
    lines = repr(plan(model="llama3-70b", quant="q4", ctx=32768, goals=goals)).splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80


def test_without_any_price_the_page_says_so() -> None:
    answer = plan(model="llama3-8b", quant="q4", devices=[find_device("m2-ultra-76")])
    page = repr(answer)
    assert "no price of them is known" in page
    assert "Prices are" not in page
    assert "\n\n\n" not in page
