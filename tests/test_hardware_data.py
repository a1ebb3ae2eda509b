"""The built-in hardware catalog: arithmetic, rates per clock, and the figures that are easily got wrong.

Its form is tested by `catalog check`, in tests/test_catalog_check.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llmcalc.catalog import open_catalog
from llmcalc.device_catalog import device_from_fields
from llmcalc.device_rules import core_fp32, device_faults, shader_fp32
from llmcalc.generations import GENERATIONS
from llmcalc.system import Device
from llmcalc.units import GIB

FOLDER = Path(__file__).parent.parent / "hardware"
ENTRIES = {entry.id: entry for entry in open_catalog("hardware").entries()}
DEVICES = {id: device_from_fields(id, entry.fields, entry.where) for id, entry in ENTRIES.items()}
GPUS = {id: device for id, device in DEVICES.items() if not device.is_cpu}
CPUS = {id: device for id, device in DEVICES.items() if device.is_cpu}


def some(devices: Mapping[str, Device]) -> Any:
    """Parametrise over devices by id."""
    return pytest.mark.parametrize("device", devices.values(), ids=devices.keys())


def test_how_much_there_is() -> None:
    assert len(DEVICES) >= 480
    count = {kind: sum(device.kind == kind for device in DEVICES.values()) for kind in ("gpu", "cpu", "apple", "soc")}
    assert count["gpu"] > 240
    assert count["cpu"] > 140
    assert count["apple"] > 40
    assert count["soc"] > 20


# Form


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_files_are_made_to_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.endswith("\n")
    assert not [line for line in text.splitlines() if len(line) > 120 or "\t" in line or line != line.rstrip()]


@some(DEVICES)
def test_every_figure_is_positive_and_finite(device: Device) -> None:
    numbers = [value for value in vars(device).values() if isinstance(value, (int, float))]
    numbers += [*device.peaks_flop_per_s.values(), *device.memory_options_bytes, *device.fp32_flop_per_cycle_core]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert list(device.memory_options_bytes) == sorted(set(device.memory_options_bytes))
    assert 2014 <= (device.release_year or 0) <= 2026


def test_prices_name_their_source() -> None:
    priced = [device for device in DEVICES.values() if device.price_usd]
    assert len(priced) > 100
    assert all("Hugging Face hardware tables" in device.sources for device in priced)


def test_confidence_is_given_and_mostly_good() -> None:
    grades = [device.confidence for device in DEVICES.values()]
    assert set(grades) == {"A", "B", "C"}
    assert grades.count("C") < 20


@some(DEVICES)
def test_generation_and_backend_are_known(device: Device) -> None:
    assert device.generation is not None
    assert device.backends or device.generation == "gaudi"


def test_no_architecture_in_the_table_is_unused() -> None:
    assert set(GENERATIONS) == {device.architecture for device in DEVICES.values()}


# Arithmetic


@some(DEVICES)
def test_no_figure_contradicts_another(device: Device) -> None:
    assert list(device_faults(device)) == []


def test_few_devices_lack_bus_and_rate() -> None:
    without = [id for id, device in DEVICES.items() if not device.memory_transfers_per_s]
    assert without == ["nvidia-grace-480gb", "nvidia-grace-240gb"]


FP32_EXCEPTIONS = {"cmp-170hx-8gb", "h20-96gb", "apple-a14"}  # cut multiply-add, published for export, half-rate core


@some({id: d for id, d in GPUS.items() if d.shader_cores and d.boost_hertz and "fp32" in d.peaks_flop_per_s})
def test_fp32_is_shaders_times_clock(device: Device) -> None:
    agrees = device.peaks_flop_per_s["fp32"] == pytest.approx(shader_fp32(device), rel=0.05)
    assert agrees != (device.id in FP32_EXCEPTIONS)


def test_most_peaks_say_where_they_come_from() -> None:
    derived = sum(len(device.derived_peaks) for device in DEVICES.values())
    assert derived > 0.75 * sum(len(device.peaks_flop_per_s) for device in DEVICES.values())


@some({id: device for id, device in CPUS.items() if device.kind == "cpu"})
def test_cpu_peaks_are_cores_times_rate_times_clock(device: Device) -> None:
    rates, upper = device.fp32_flop_per_cycle_core, core_fp32(device)
    assert upper is not None and device.cores is not None
    if len(rates) == 1:
        assert device.peaks_flop_per_s["fp32"] == pytest.approx(upper, rel=0.001)
    else:  # efficiency cores run slower, and some do half as much
        assert 0.55 * upper < device.peaks_flop_per_s["fp32"] < upper
    base = device.base_clock_peaks_flop_per_s
    if base:
        assert device.base_hertz is not None
        assert base["fp32"] == pytest.approx(device.cores * rates[0] * device.base_hertz, rel=0.001)


# Rates per clock

# int8 matrix over fp16 matrix at its fastest, dense.
INT8_OVER_FP16 = {
    "turing": 2, "ampere": 2, "ampere-dc": 2, "ada": 2, "hopper": 2, "blackwell": 2, "volta": 2, "blackwell-dc": 2,
    "rdna3": 1, "rdna4": 2, "cdna1": 1, "cdna2": 1, "cdna3": 2, "cdna4": 2,
    "alchemist": 2, "battlemage": 2, "xe-lpg-plus": 2, "xe3-lpg": 2, "ponte-vecchio": 2,
}  # fmt: skip
INT8_CUT = {"b300-sxm", "gb300", "l40", "l20"}  # fused or limited in the product, not by the architecture


@some({id: device for id, device in GPUS.items() if {"int8_matrix", "fp16_matrix"} <= set(device.peaks_flop_per_s)})
def test_int8_stands_to_fp16_as_the_architecture_has_it(device: Device) -> None:
    peaks = device.peaks_flop_per_s
    fp16 = peaks.get("fp16_matrix_fp16_accumulate", peaks["fp16_matrix"])
    agrees = peaks["int8_matrix"] / fp16 == pytest.approx(INT8_OVER_FP16[device.generation or ""], rel=0.03)
    assert agrees != (device.id in INT8_CUT)


@some({id: device for id, device in GPUS.items() if "fp16_matrix_fp16_accumulate" in device.peaks_flop_per_s})
def test_geforce_halves_with_fp32_accumulation_and_others_do_not(device: Device) -> None:
    peaks = device.peaks_flop_per_s
    halved = device.id.startswith("geforce-rtx") or device.id in ("l40", "l20")
    ratio = peaks["fp16_matrix_fp16_accumulate"] / peaks["fp16_matrix"]
    assert ratio == pytest.approx(2 if halved else 1, rel=0.03)


@some({id: device for id, device in GPUS.items() if {"bf16_matrix", "fp16_matrix"} <= set(device.peaks_flop_per_s)})
def test_bf16_runs_at_the_fp16_rate(device: Device) -> None:
    ratio = device.peaks_flop_per_s["bf16_matrix"] / device.peaks_flop_per_s["fp16_matrix"]
    different = {"instinct-mi100": 0.5, "gaudi-2": None, "gaudi-3": None}
    expected = different.get(device.id, 1.0)
    assert expected is None or ratio == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(
    ("generation", "absent"),
    [
        ("kepler", {"fp16_matrix", "int8_matrix", "int8_dot"}),
        ("pascal", {"fp16_matrix", "int8_matrix", "bf16_matrix"}),
        ("volta", {"bf16_matrix", "tf32_matrix", "fp8_matrix"}),
        ("turing", {"bf16_matrix", "tf32_matrix", "fp8_matrix"}),
        ("ampere", {"fp8_matrix", "fp4_matrix"}),
        ("ada", {"fp4_matrix"}),
        ("hopper", {"int4_matrix", "fp4_matrix"}),
        ("gcn", {"fp16_matrix", "int8_dot", "int8_matrix"}),
        ("vega", {"fp16_matrix", "int8_matrix"}),
        ("rdna1", {"fp16_matrix", "int8_matrix"}),
        ("rdna2", {"fp16_matrix", "int8_matrix"}),
        ("rdna3", {"fp8_matrix"}),
        ("xe-lpg", {"fp16_matrix", "int8_matrix"}),
        ("battlemage", {"fp8_matrix"}),
        ("apple-m5", {"int8_matrix"}),
    ],
)
def test_units_that_an_architecture_lacks_have_no_peak(generation: str, absent: set[str]) -> None:
    devices = [device for device in DEVICES.values() if device.generation == generation]
    assert devices
    assert [device.id for device in devices if absent & set(device.peaks_flop_per_s)] == []


def test_gtx_16_has_no_matrix_units() -> None:
    devices = [device for id, device in DEVICES.items() if id.startswith("geforce-gtx-16")]
    assert len(devices) == 8
    assert all("matrix" not in path for device in devices for path in device.peaks_flop_per_s)


# Figures that are easily got wrong


@pytest.mark.parametrize(
    ("id", "gb_per_s"),
    [
        ("tesla-t4", 320),  # 300 in print
        ("tesla-p40", 347.1),
        ("geforce-rtx-3060-12gb", 360),
        ("geforce-rtx-3060-8gb", 240),
        ("geforce-rtx-3060-ti", 448),
        ("geforce-rtx-3060-ti-gddr6x", 608),
        ("geforce-rtx-3080-10gb", 760.3),
        ("geforce-rtx-3080-12gb", 912.4),
        ("geforce-rtx-4060-ti-16gb", 288),  # 554 "effective"
        ("geforce-rtx-4090", 1008),
        ("geforce-rtx-5070", 672),
        ("geforce-rtx-5070-ti", 896),
        ("geforce-rtx-5080", 960),
        ("geforce-rtx-5090", 1792),
        ("rtx-2000-ada", 224),
        ("rtx-pro-6000-blackwell", 1792),
        ("rtx-pro-6000-blackwell-server", 1597),
        ("l4", 300),
        ("h100-pcie-80gb", 2039),
        ("h100-sxm5-80gb", 3352),
        ("h100-nvl-94gb", 3938),
        ("gh200-96gb", 4000),
        ("b200-sxm-180gb", 7700),
        ("gb10", 273.1),
        ("radeon-rx-7800-xt", 624),  # 2708 with the cache
        ("radeon-rx-6700-xt", 384),
        ("radeon-rx-7900-xtx", 960),
        ("instinct-mi50-16gb", 1024),
        ("instinct-mi250-gcd", 1638.4),
        ("instinct-mi300x", 5324.8),
        ("arc-a770-16gb", 560),
        ("arc-a770-8gb", 512),
        ("steam-deck-lcd", 88),
        ("radeon-8060s", 256),
        ("apple-m3-pro-18c", 153.6),
        ("apple-m3-max-30c", 307.2),
        ("apple-m4-max-32c", 409.6),
        ("apple-m4-max-40c", 546.1),
        ("nvidia-grace-480gb", 384),
        ("nvidia-grace-240gb", 512),
        ("epyc-9654", 460.8),
        ("xeon-6980p-mrdimm-8800", 844.8),
    ],
)
def test_bandwidths(id: str, gb_per_s: float) -> None:
    assert DEVICES[id].bandwidth_bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=0.001)


@pytest.mark.parametrize(
    ("id", "path", "tera"),
    [
        ("geforce-rtx-4090", "bf16_matrix", 165.2),  # 330 with fp16 accumulation
        ("geforce-rtx-5090", "fp16_matrix", 209.5),
        ("geforce-rtx-5090", "fp4_matrix", 1676),  # 3352 sparse
        ("l40", "bf16_matrix", 181.05),
        ("l40s", "bf16_matrix", 362.05),
        ("a10", "bf16_matrix", 125),
        ("a10g", "bf16_matrix", 70),
        ("l4", "bf16_matrix", 121),  # 242 sparse
        ("a100-sxm4-80gb", "bf16_matrix", 312),
        ("h100-sxm5-80gb", "bf16_matrix", 989.4),  # 1979 sparse
        ("h100-pcie-80gb", "bf16_matrix", 756.5),  # 1513 sparse
        ("h20-96gb", "bf16_matrix", 148),
        ("b300-sxm", "int8_matrix", 153.5),  # 4500 carried over
        ("gb10", "bf16_matrix", 118.8),
        ("jetson-agx-orin-64gb", "int8_matrix", 85.2),  # 275 sparse with accelerators
        ("tesla-v100-sxm2-32gb", "fp16_matrix", 125),
        ("radeon-rx-7900-xtx", "fp32", 61.39),
        ("instinct-mi250", "fp32", 45.3),
        ("gaudi-3", "bf16_matrix", 1677),  # 1835 marketed
        ("apple-m1-max-32c", "fp32", 10.62),
        ("apple-m3-pro-18c", "fp32", 6.36),
    ],
)
def test_peaks(id: str, path: str, tera: float) -> None:
    assert DEVICES[id].peaks_flop_per_s[path] == pytest.approx(tera * 1e12, rel=0.001)


def test_mining_cards_promise_no_matrix_rates() -> None:
    for id in ("cmp-170hx-8gb", "cmp-90hx"):
        assert not any("matrix" in path for path in DEVICES[id].peaks_flop_per_s)


def test_laptop_peaks_are_said_to_be_lower_bounds() -> None:
    laptops = [d for d in DEVICES.values() if d.vendor == "nvidia" and d.device_class == "laptop"]
    assert len(laptops) > 20
    assert all(any("lower bound" in note for note in device.notes) for device in laptops)


def test_one_die_is_half_of_the_module() -> None:
    for name in ("instinct-mi250", "instinct-mi250x"):
        module, die = DEVICES[name], DEVICES[f"{name}-gcd"]
        assert die.bandwidth_bytes_per_s * 2 == module.bandwidth_bytes_per_s
        assert die.memory_bytes == 64 * GIB
        assert module.memory_bytes == 128 * GIB
        for path, peak in die.peaks_flop_per_s.items():
            assert peak * 2 == pytest.approx(module.peaks_flop_per_s[path])


def test_links_count_one_direction() -> None:
    a100 = DEVICES["a100-sxm4-80gb"]
    assert a100.peer_link is not None
    assert a100.host_link is not None
    assert (a100.peer_link.name, a100.peer_link.bandwidth_bytes_per_s) == ("NVLink 3", 300e9)
    assert (a100.host_link.name, a100.host_link.bandwidth_bytes_per_s) == ("PCIe 4.0 x16", 31.5e9)


def test_shared_memory_has_no_size_of_its_own() -> None:
    without = {device.kind for device in GPUS.values() if device.memory_bytes is None}
    assert without == {"apu"}
