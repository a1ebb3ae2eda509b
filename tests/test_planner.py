"""Plans: what is proposed meets the goals when it is estimated anew, and nothing cheaper does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.device_catalog import find_device
from llmcalc.errors import InputError
from llmcalc.estimation import estimate
from llmcalc.planner import Arrangement, Goals, Plan, plan, rank_key, splits, stackable
from llmcalc.system import Device

NAMES = (
    "rtx3060-12gb", "rtx3090", "rtx4060", "rtx4090", "rtx5090", "rx7900xtx", "arc-a770-16gb", "gb10", "h100-pcie-80gb",
    "jetson-agx-orin-64gb", "gtx1080ti", "rtx4070-laptop", "m2-ultra-76", "ryzen-9-7950x",
)  # fmt: skip
MOST = 3


@pytest.fixture(scope="module")
def devices() -> list[Device]:
    return [find_device(name) for name in NAMES]


def estimated(one: Arrangement, goals: Goals, context: int) -> tuple[float, float, bool | None]:
    """(tokens/s of one user at a full context, TTFT, fits) of an arrangement, by the estimate itself."""
    users = -(-goals.users // one.instances)
    e = estimate(gpu=list(one.request.devices), model="llama3-8b", quant="q4", ctx=context * users, parallel=users)
    return e.decode[-1].tokens_per_s, e.latency.ttft_s, e.memory.fits


def meets(devices: tuple[Device, ...], goals: Goals, context: int) -> bool:
    """Whether a single instance of these devices meets goals for one user, by the estimate itself."""
    try:
        e = estimate(gpu=list(devices), model="llama3-8b", quant="q4", ctx=context)
    except InputError:  # a figure that the catalog lacks
        return False
    fast = e.decode[-1].tokens_per_s >= goals.tokens_per_s and e.latency.ttft_s <= goals.ttft_s
    return fast and e.memory.fits is True


@given(
    rate=st.floats(1, 150),
    ttft=st.one_of(st.just(math.inf), st.floats(0.05, 3)),
    context=st.sampled_from([2048, 8192, 65536, 262144]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_answer_meets_its_goals_and_the_next_cheaper_does_not(
    devices: list[Device], rate: float, ttft: float, context: int
) -> None:
    goals = Goals(tokens_per_s=rate, ttft_s=ttft)
    answer = plan(model="llama3-8b", quant="q4", ctx=context, goals=goals, devices=devices, most=MOST)
    for one in (*answer.priced, *answer.unpriced):
        speed, first, fits = estimated(one, goals, context)
        assert speed >= goals.tokens_per_s
        assert first <= goals.ttft_s * (1 + 1e-9)
        assert fits
    best = answer.priced[0].price_usd if answer.priced else math.inf
    assert best is not None
    for device in devices:
        for count in range(1, (MOST if stackable(device) else 1) + 1):
            if device.price_usd is not None and device.backends and device.price_usd * count < best:
                assert not meets((device,) * count, goals, context), (device.id, count)


@pytest.mark.parametrize("users", [1, 5, 12])
def test_fewest_of_every_kind(devices: list[Device], users: int) -> None:
    goals = Goals(tokens_per_s=15, users=users)
    answer = plan(model="llama3-8b", quant="q4", ctx=8192, goals=goals, devices=devices, most=4)
    assert answer.priced
    for one in (*answer.priced, *answer.unpriced):
        speed, _, fits = estimated(one, goals, 8192)
        assert speed >= 15
        assert fits
        assert one.instances * one.figures.parallel >= users
        if len(one.devices) > 1:
            fewer = plan(
                model="llama3-8b",
                quant="q4",
                ctx=8192,
                goals=goals,
                devices=[one.devices[0]],
                most=len(one.devices) - 1,
            )
            assert not (*fewer.priced, *fewer.unpriced)


def test_ranks(devices: list[Device]) -> None:
    for rank in ("price", "watts", "tokens", "value"):
        answer = plan(model="llama3-8b", quant="q4", devices=devices, rank=rank, most=2)
        keys = [rank_key(one, rank) for one in answer.priced]
        assert keys == sorted(keys)


def test_the_front_is_cheaper_or_faster(devices: list[Device]) -> None:
    answer = plan(model="llama3-8b", quant="q4", devices=devices, most=2)
    on = [one for one, front in zip(answer.priced, answer.on_front, strict=True) if front]
    assert on
    for one in on:
        for other in answer.priced:
            cheaper_and_faster = (other.price_usd or 0) < (one.price_usd or 0) and other.tokens_per_s > one.tokens_per_s
            assert not cheaper_and_faster


def test_prices_are_never_invented(devices: list[Device]) -> None:
    answer = plan(model="llama3-8b", quant="q4", devices=devices, most=1)
    for one in answer.priced:
        assert one.price_usd == find_device(one.devices[0].id).price_usd
    assert all(find_device(one.devices[0].id).price_usd is None for one in answer.unpriced)
    assert {one.devices[0].id for one in answer.unpriced} >= {"apple-m2-ultra-76c"}
    given = plan(model="llama3-8b", quant="q4", devices=devices, most=1, prices={"m2-ultra-76": 3000.0})
    (mac,) = [one for one in given.priced if one.devices[0].id == "apple-m2-ultra-76c"]
    assert mac.price_usd == 3000.0


def test_limits_of_price_and_power(devices: list[Device]) -> None:
    cheap = plan(model="llama3-8b", quant="q4", devices=devices, goals=Goals(price_usd=800))
    assert cheap.priced
    assert not cheap.unpriced
    assert all((one.price_usd or math.inf) <= 800 for one in cheap.priced)
    frugal = plan(model="llama3-8b", quant="q4", devices=devices, goals=Goals(power_watts=80))
    assert all((one.power_watts or math.inf) <= 80 for one in (*frugal.priced, *frugal.unpriced))
    assert frugal.missed["watts"] > 0


def test_every_kind_is_accounted_for(devices: list[Device]) -> None:
    answer = plan(model="llama3-70b", quant="q4", devices=devices, goals=Goals(tokens_per_s=12), most=2)
    assert len(answer.priced) + len(answer.unpriced) + sum(answer.missed.values()) == len(devices)
    assert answer.missed["unknown memory"] == 1  # the CPU
    with_ram = plan(model="llama3-8b", quant="q4", devices=devices, ram="64GiB")
    assert "unknown memory" not in with_ram.missed
    assert any(one.devices[0].is_cpu for one in with_ram.unpriced)


def test_several_only_where_one_machine_takes_several(devices: list[Device]) -> None:
    answer = plan(model="llama3-70b", quant="q4", ctx=32768, devices=devices, most=4)
    several = {one.devices[0].id for one in (*answer.priced, *answer.unpriced) if len(one.devices) > 1}
    assert several
    assert all(find_device(id).kind == "gpu" and find_device(id).device_class != "laptop" for id in several)


def test_mixed_pairs_share_the_layers() -> None:
    pair = [find_device(name) for name in ("rtx3090", "rtx3060-12gb")]
    apart = plan(model="qwen3-32b", quant="q6", ctx=8192, devices=pair, most=1)
    assert not apart.priced
    together = plan(model="qwen3-32b", quant="q6", ctx=8192, devices=pair, most=1, mixed=True)
    (one,) = together.priced
    assert {device.id for device in one.devices} == {device.id for device in pair}
    assert one.price_usd == sum(device.price_usd or 0 for device in pair)


def test_instances_divide_users() -> None:
    assert list(splits(4, 8)) == [(4, 1), (2, 2), (1, 4)]
    assert list(splits(4, 2)) == [(4, 1), (2, 2)]
    assert list(splits(3, 1)) == [(3, 1)]


def test_bad_goals() -> None:
    with pytest.raises(InputError, match="goals"):
        Goals(users=0)
    with pytest.raises(InputError, match="goals"):
        Goals(tokens_per_s=-1)


def test_the_plan_prints_and_becomes_data(devices: list[Device]) -> None:
    answer: Plan = plan(model="llama3-8b", quant="q4", devices=devices, goals=Goals(tokens_per_s=30, users=2), most=2)
    text = repr(answer)
    assert all(len(line) <= 90 for line in text.splitlines())
    assert "2 users at once" in text
    data = answer.to_dict()
    assert [entry["price_usd"] for entry in data["priced"]] == sorted(entry["price_usd"] for entry in data["priced"])
    first = answer.priced[0]
    assert data["priced"][0]["tokens_per_s"] == first.tokens_per_s
    assert data["priced"][0]["aggregate_tokens_per_s"] == pytest.approx(
        first.tokens_per_s * first.figures.parallel * first.instances
    )
    assert data["goals"]["ttft_s"] is None


def test_a_price_changes_no_speed() -> None:
    device = find_device("rtx4090")
    one = plan(model="llama3-8b", quant="q4", devices=[device]).priced[0]
    other = plan(model="llama3-8b", quant="q4", devices=[replace(device, price_usd=1.0)]).priced[0]
    assert one.tokens_per_s == other.tokens_per_s
