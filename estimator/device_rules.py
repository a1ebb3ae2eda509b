"""What must hold between the figures of a device: bandwidth and bus, peaks and units, links and lanes, and the units.

Each rule yields (field, what is wrong). Imports `system`, `generations`, `derived_peaks` and `units`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from math import isclose
from typing import Final

from .derived_peaks import evaluate
from .errors import FieldError
from .generations import GENERATIONS
from .system import Device, Link
from .units import GB, GIB

Fault = tuple[str, str]

BANDWIDTH_TOLERANCE: Final = 0.02  # datasheets round
DERIVED_TOLERANCE: Final = 0.007
CORE_TOLERANCE: Final = 0.01
SHADER_TOLERANCE: Final = 0.15  # published rates may rest on another clock than the boost clock
LINK_TOLERANCE: Final = 0.01
SLOW_CORES: Final = 0.55  # least share of their upper bound that CPUs with several kinds of cores reach

# FLOPs of a shader and clock: a fused multiply-add, twice where fp32 is issued in pairs or packed.
FP32_PER_SHADER: Final = {"rdna3": 4, "rdna4": 4, "cdna3": 4, "cdna4": 4}
# One direction of one lane, after line coding: PCI-SIG base specifications.
PCIE_LANE_BYTES_PER_S: Final = {
    "1.0": 0.25e9, "2.0": 0.5e9, "3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9, "6.0": 7.563e9,
}  # fmt: skip
# Far outside what is built, where a figure has the wrong unit: (attribute, field, lowest, highest, unit, its size).
_RANGES: Final = (
    ("bandwidth_bytes_per_s", "bandwidth", 1e9, 1e14, "GB/s", GB),
    ("memory_bytes", "memory", GIB / 4, 2**14 * GIB, "GiB", GIB),
    ("base_hertz", "base_clock", 5e7, 1e10, "GHz", 1e9),
    ("boost_hertz", "boost_clock", 5e7, 1e10, "GHz", 1e9),
    ("memory_transfers_per_s", "memory_rate", 1e8, 1e11, "GT/s", 1e9),
    ("cache_bytes", "cache", 2**14, 2**36, "MiB", 2**20),
    ("power_watts", "power", 1.0, 2e4, "W", 1.0),
    ("price_usd", "price", 5.0, 1e6, "USD", 1.0),
)
_PEAK_RANGE: Final = (1e9, 1e17)


def device_faults(device: Device, unread: Collection[str] = ()) -> Iterator[Fault]:
    """Everything that contradicts itself; rules that need one of the fields `unread` are passed over."""
    yield from _sizes(device)
    yield from _bandwidth(device)
    yield from _derived(device, unread)
    yield from _shaders(device)
    yield from _cores(device)
    yield from _links(device)
    yield from _architecture(device)


def bus_bandwidth(device: Device) -> float | None:
    """Bytes/s of bus width × transfer rate; a memory channel has 64 bits. None where either is unknown."""
    bits = device.memory_bus_bits or 64 * (device.memory_channels or 0)
    rate = device.memory_transfers_per_s
    return bits / 8 * rate if bits and rate else None


def shader_fp32(device: Device) -> float | None:
    """FLOP/s of shaders × clock for a GPU, None where either is unknown."""
    if device.is_cpu or not device.shader_cores or not device.boost_hertz:
        return None
    return FP32_PER_SHADER.get(device.generation or "", 2) * device.shader_cores * device.boost_hertz


def core_fp32(device: Device) -> float | None:
    """FLOP/s of a CPU if all of its cores were of the fastest kind at the boost clock, None where unknown."""
    rates = device.fp32_flop_per_cycle_core
    if device.kind != "cpu" or not rates or not device.cores or not device.boost_hertz:
        return None
    return device.cores * max(rates) * device.boost_hertz


def pcie_bandwidth(name: str) -> float | None:
    """Bytes/s one way of a link called "PCIe 4.0 x16", None for other links."""
    match = re.fullmatch(r"PCIe ([\d.]+) x(\d+)", name)
    lane = PCIE_LANE_BYTES_PER_S.get(match[1]) if match else None
    return lane * int(match[2]) if match and lane else None


def _sizes(device: Device) -> Iterator[Fault]:
    for attribute, key, low, high, unit, size in _RANGES:
        value = getattr(device, attribute)
        if value is not None and not low <= value <= high:
            usual = f"{low / size:,g} to {high / size:,g} {unit}"
            yield key, f"{value / size:,.4g} {unit} is far outside what is built ({usual}): check the unit"
    for path, peak in device.peaks_flop_per_s.items():
        if not _PEAK_RANGE[0] <= peak <= _PEAK_RANGE[1]:
            yield f"peaks: {path}", f"{_tera(peak)} is far outside what is built: check the unit"
    options = device.memory_options_bytes
    if list(options) != sorted(set(options)):
        yield "memory", "sizes that it is sold with must ascend, each there once"


def _bandwidth(device: Device) -> Iterator[Fault]:
    product, given = bus_bandwidth(device), device.bandwidth_bytes_per_s
    if product is None or isclose(given, product, rel_tol=BANDWIDTH_TOLERANCE):
        return
    rate = f"{(device.memory_transfers_per_s or 0) / 1e9:,.4g} GT/s"
    bus = f"{device.memory_bus_bits} bit" if device.memory_bus_bits else f"{device.memory_channels} channels × 64 bit"
    yield (
        "bandwidth",
        f"{given / GB:,.5g} GB/s is not bus × rate: {bus} × {rate} = {product / GB:,.5g} GB/s; correct what is wrong, "
        "or remove memory_rate (null takes an inherited one away)",
    )


def _derived(device: Device, unread: Collection[str]) -> Iterator[Fault]:
    for path, formula in device.derived_peaks.items():
        try:
            computed = evaluate(formula, device)
        except FieldError as error:
            if not {*error.path, "peaks", "derived"} & set(unread):
                yield f"derived: {path}", f"cannot compute {formula!r}: {error}"
            continue
        except ZeroDivisionError:
            yield f"derived: {path}", f"{formula!r} divides by zero"
            continue
        peak = device.peaks_flop_per_s[path]
        if not isclose(peak, computed, rel_tol=DERIVED_TOLERANCE):
            yield f"peaks: {path}", f"{_tera(peak)} is not what derived says: {formula} = {_tera(computed)}"


def _shaders(device: Device) -> Iterator[Fault]:
    product, peak = shader_fp32(device), device.peaks_flop_per_s.get("fp32")
    if product is None or peak is None or "fp32" in device.derived_peaks:
        return
    if not isclose(peak, product, rel_tol=SHADER_TOLERANCE):
        each = FP32_PER_SHADER.get(device.generation or "", 2)
        clock = f"{(device.boost_hertz or 0) / 1e9:.4g} GHz"
        yield (
            "peaks: fp32",
            f"{_tera(peak)} is not units × clock: {each} × {device.shader_cores:,} shader_cores × {clock} = "
            f"{_tera(product)}; if the chip differs, give its formula under derived",
        )


def _cores(device: Device) -> Iterator[Fault]:
    product, peak = core_fp32(device), device.peaks_flop_per_s.get("fp32")
    if product is None or peak is None:
        return
    rates = device.fp32_flop_per_cycle_core
    lowest = product * (SLOW_CORES if len(rates) > 1 else 1)
    if not lowest * (1 - CORE_TOLERANCE) <= peak <= product * (1 + CORE_TOLERANCE):
        clock = f"{(device.boost_hertz or 0) / 1e9:.4g} GHz"
        most = "at most " if len(rates) > 1 else ""
        yield (
            "peaks: fp32",
            f"{_tera(peak)} is not units × clock: {device.cores} cores × {max(rates):g} fp32_flop_per_cycle × {clock} "
            f"= {most}{_tera(product)}",
        )


def _links(device: Device) -> Iterator[Fault]:
    links: tuple[tuple[str, Link | None], ...] = (("host_link", device.host_link), ("peer_link", device.peer_link))
    for key, link in links:
        expected = pcie_bandwidth(link.name) if link else None
        if link and expected and not isclose(link.bandwidth_bytes_per_s, expected, rel_tol=LINK_TOLERANCE):
            given = f"{link.bandwidth_bytes_per_s / GB:.4g} GB/s"
            yield f"{key}: bandwidth", f"{given} is not that of {link.name}, {expected / GB:.4g} GB/s one way"


def _architecture(device: Device) -> Iterator[Fault]:
    if device.architecture in (*GENERATIONS, "unknown"):
        return
    from difflib import get_close_matches

    close = get_close_matches(device.architecture, GENERATIONS, n=2)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "no generation of it is known;"
    yield "architecture", f"{device.architecture!r}: {hint} leave it out if its efficiency factors are unknown"


def _tera(flop_per_s: float) -> str:
    return f"{flop_per_s / 1e12:,.4g} TFLOPS"
