"""Energy for a token, and what it costs."""

from __future__ import annotations

import pytest

from llmcalc.energy import IDLE_SHARE, LEAST_SHARE, energy_per_token, parse_tariff
from llmcalc.errors import InputError
from llmcalc.system import Device


def device(watts: float | None) -> Device:
    return Device("d", "D", "nvidia", "gpu", "desktop", "Ampere", 1e12, power_watts=watts)


def test_between_a_share_and_the_limit() -> None:
    energy = energy_per_token([device(300)], [1.0], 50.0)
    assert energy is not None
    assert (energy.low_j, energy.high_j) == pytest.approx((300 * LEAST_SHARE / 50, 6.0))


def test_devices_that_wait_draw_little_at_the_least() -> None:
    energy = energy_per_token([device(300), device(100)], [0.25, 0.75], 10.0)
    assert energy is not None
    low = 300 * (0.25 * LEAST_SHARE + 0.75 * IDLE_SHARE) + 100 * (0.75 * LEAST_SHARE + 0.25 * IDLE_SHARE)
    assert (energy.low_j, energy.high_j) == pytest.approx((low / 10, 40.0))


def test_an_unknown_limit_is_unknown_energy() -> None:
    assert energy_per_token([device(300), device(None)], [0.5, 0.5], 10.0) is None


def test_a_million_tokens_at_one_joule_are_a_quarter_of_a_kilowatt_hour() -> None:
    energy = energy_per_token([device(100)], [1.0], 100.0)
    assert energy is not None
    assert energy.price(0.36)[1] == pytest.approx(0.36 / 3.6)


@pytest.mark.parametrize(
    ("text", "value", "currency"), [("0.3", 0.3, ""), ("0.30 EUR", 0.3, "EUR"), ("12 ct/kWh", 12.0, "ct")]
)
def test_tariffs(text: str, value: float, currency: str) -> None:
    tariff = parse_tariff(text)
    assert (tariff.per_kwh, tariff.currency) == (value, currency)


def test_bad_tariff() -> None:
    with pytest.raises(InputError, match="write the price of a kWh"):
        parse_tariff("cheap")
