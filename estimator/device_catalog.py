"""Devices from the hardware catalog: fields to `Device`, look-up by the names people use, figures typed by hand.

Imports `catalog`, `system`, `units`, `field_reader`; the fields of an entry are those of `FIELDS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_args

from .catalog import Entry, find_entry, open_catalog, user_files
from .errors import FieldError, InputError, UnknownNameError
from .field_reader import FieldReader
from .system import COMPUTE_PATHS, Device, DeviceKind, Link
from .units import EXAMPLES, GIB, Dimension, parse

DEVICE_KINDS: Final[tuple[DeviceKind, ...]] = get_args(DeviceKind)
DEVICE_CLASSES: Final = (
    "desktop", "laptop", "workstation", "datacenter", "server", "unified", "apu", "igpu", "embedded", "phone", "sbc",
)  # fmt: skip
CONFIDENCES: Final = ("A", "B", "C")
UNKNOWN: Final = "unknown"
FIELDS: Final = (
    "name", "aliases", "vendor", "kind", "class", "architecture", "isa", "released", "cores", "core_name", "units",
    "shader_cores", "base_clock", "boost_clock", "simd", "fp32_flop_per_cycle", "memory", "memory_type",
    "memory_channels", "memory_bus", "memory_rate", "bandwidth", "cache", "peaks", "derived", "peaks_at_base_clock",
    "power", "pcie", "host_link", "peer_link", "price", "confidence", "sources", "notes",
)  # fmt: skip

_NUMBER_WITH_UNIT: Final = r"(\d+(?:\.\d+)?) ?(\D+)"
_TRANSFERS: Final = {"GT/s": 1e9, "MT/s": 1e6}
_CORES: Final = r"\d+[A-Za-z]*(?:\+\d+[A-Za-z]*)*"
_MEMORY_SUFFIX: Final = r"(.+?)[\s_-]+(\d+)\s*gi?b?"


def find_device(name: str, kinds: Collection[DeviceKind] | None = None, folders: Sequence[Path] = ()) -> Device:
    """The device that people call `name`, of one of `kinds` where they are given.

    A size of memory may follow the name of a device that is sold with several ("m4-max 64GB"). Raises UnknownNameError,
    which lists the closest ids, and InputError for a size that is not sold.
    """
    chosen = None if kinds is None else tuple(kinds)
    return _found(name, chosen, folders) if user_files("hardware", folders) else _built_in(name, chosen)


@lru_cache(maxsize=1024)
def _built_in(name: str, kinds: tuple[DeviceKind, ...] | None) -> Device:
    return _found(name, kinds, ())


def _found(name: str, kinds: tuple[DeviceKind, ...] | None, folders: Sequence[Path]) -> Device:
    try:
        return _named(name, kinds, folders)
    except UnknownNameError as unknown:
        match = re.fullmatch(_MEMORY_SUFFIX, name, re.IGNORECASE)
        if match is None:
            raise
        try:
            device = _named(match[1], kinds, folders)
        except UnknownNameError:
            raise unknown from None
        return _sold_with(device, float(match[2]) * GIB)


def list_devices(folders: Sequence[Path] = ()) -> tuple[Device, ...]:
    """Every device of the catalog, in the order of its files."""
    catalog = open_catalog("hardware", folders)
    return tuple(device_from_fields(entry.id, entry.fields, entry.where) for entry in catalog.entries())


def custom_device(
    name: str = "custom",
    *,
    bandwidth: object = None,
    memory: object = None,
    peaks: Mapping[str, object] | None = None,
    base: Device | None = None,
    vendor: str = UNKNOWN,
    architecture: str = UNKNOWN,
    kind: DeviceKind = "gpu",
) -> Device:
    """A device whose figures are typed by hand, or `base` with those that are given in place of its own.

    `peaks`: compute path → quantity. Without a `base`, bandwidth and memory are needed, and `name` is the id. A note
    says what was set. Raises InputError for a figure that is missing, no quantity, or not positive.
    """
    if base is None:
        if bandwidth is None or memory is None:
            example = "such as --bandwidth '1.2 TB/s' --memory 48GiB"
            raise InputError(f"device {name!r}: needs a bandwidth and a memory, {example}")
        rate = _positive(bandwidth, "bytes_per_s", "bandwidth")
        base = Device(name, name, vendor, kind, "desktop", architecture, rate)
    given: dict[str, Any] = {}
    if bandwidth is not None:
        given["bandwidth_bytes_per_s"] = _positive(bandwidth, "bytes_per_s", "bandwidth")
    if memory is not None:
        given["memory_bytes"] = _positive(memory, "bytes", "memory")
    typed = {path: _positive(value, "flop_per_s", path) for path, value in (peaks or {}).items() if _is_path(path)}
    derived = {path: formula for path, formula in base.derived_peaks.items() if path not in typed}
    texts = {"bandwidth": bandwidth, "memory": memory} | dict(peaks or {})
    set_by_hand = ", ".join(f"{what} {value}" for what, value in texts.items() if value is not None)
    return replace(
        base,
        **given,
        peaks_flop_per_s=MappingProxyType({**base.peaks_flop_per_s, **typed}),
        derived_peaks=MappingProxyType(derived),
        notes=(*base.notes, f"Set by hand: {set_by_hand}.") if set_by_hand else base.notes,
    )


def with_cores(device: Device, cores: int) -> Device:
    """A CPU of which only some cores are there: each peak is that of these cores."""
    if device.cores is None:
        return replace(device, cores=cores)
    if not 0 < cores <= device.cores:
        raise InputError(f"cores: {device.id} has {device.cores}, so it cannot run on {cores}")
    share = cores / device.cores
    note = f"{cores} of {device.cores} cores are there: peaks are those of {cores}."
    return replace(
        device,
        cores=cores,
        peaks_flop_per_s=_scaled(device.peaks_flop_per_s, share),
        base_clock_peaks_flop_per_s=_scaled(device.base_clock_peaks_flop_per_s, share),
        notes=(*device.notes, note),
    )


def _scaled(peaks: Mapping[str, float], share: float) -> Mapping[str, float]:
    return MappingProxyType({path: peak * share for path, peak in peaks.items()})


def device_from_fields(id: str, fields: Mapping[str, Any], where: str) -> Device:
    """The device that a catalog entry describes. Raises InputError naming `where` and the field that is wrong."""
    read = _DeviceReader(fields, where)
    options = read.quantities("memory", "bytes")
    bandwidth = read.quantity("bandwidth", "bytes_per_s")
    if bandwidth is None:
        raise read.fail("bandwidth", "is missing")
    boost, bus, price = (
        read.quantities("boost_clock", "hertz"),
        read.suffixed("memory_bus", "bit"),
        read.suffixed("price", "USD"),
    )
    return Device(
        id=id,
        name=read.text("name", id),
        vendor=read.text("vendor", UNKNOWN),
        kind=read.choice("kind", "gpu", DEVICE_KINDS),
        device_class=read.choice("class", "desktop", DEVICE_CLASSES),
        architecture=read.text("architecture", UNKNOWN),
        bandwidth_bytes_per_s=bandwidth,
        memory_bytes=max(options, default=None),
        memory_options_bytes=options,
        memory_type=read.optional_text("memory_type"),
        isa=read.optional_text("isa"),
        release_year=read.optional_integer("released", 1970),
        peaks_flop_per_s=read.peaks("peaks"),
        base_clock_peaks_flop_per_s=read.peaks("peaks_at_base_clock"),
        derived_peaks=read.derived(),
        units=read.count("units"),
        shader_cores=read.optional_integer("shader_cores"),
        cache_bytes=read.cache(),
        cores=read.cores(),
        core_name=read.optional_text("core_name"),
        base_hertz=read.quantity("base_clock", "hertz"),
        boost_hertz=boost[0] if boost else None,
        simd=read.optional_text("simd"),
        fp32_flop_per_cycle_core=read.rates("fp32_flop_per_cycle"),
        memory_bus_bits=None if bus is None else int(bus),
        memory_transfers_per_s=read.transfers("memory_rate"),
        memory_channels=read.optional_integer("memory_channels"),
        power_watts=read.quantity("power", "watts"),
        host_link=read.link("host_link"),
        peer_link=read.link("peer_link"),
        pcie=read.optional_text("pcie"),
        price_usd=price,
        confidence=read.choice("confidence", None, CONFIDENCES),
        sources=read.texts("sources"),
        notes=read.texts("notes"),
    )


class _DeviceReader(FieldReader):
    """The fields of a device: what `FieldReader` reads, and quantities with units."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        super().__init__(fields, where, FIELDS)

    def quantity(self, key: str, dimension: Dimension) -> float | None:
        return self._quantity(key, self.fields[key], dimension) if key in self else None

    def quantities(self, key: str, dimension: Dimension) -> tuple[float, ...]:
        """One quantity or a list of them, in the order given; empty when the field is absent."""
        value = self.fields.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        return tuple(self._quantity(key, each, dimension) for each in values)

    def _quantity(self, key: str, value: Any, dimension: Dimension) -> float:
        if not isinstance(value, str):
            raise self.fail(
                key, f"expected text with a unit, got {str(value)[:60]!r}; write it like {EXAMPLES[dimension]!r}"
            )
        return self._positive(value, dimension, key)

    def _positive(self, value: object, dimension: Dimension, *path: str) -> float:
        try:
            return _positive(value, dimension, ": ".join((self.where, *path)))
        except InputError as error:
            raise FieldError(str(error), path) from None

    def suffixed(self, key: str, unit: str) -> float | None:
        """A number and its unit, where only this unit is allowed: "384 bit", "1600 USD"."""
        if key not in self:
            return None
        match = re.fullmatch(_NUMBER_WITH_UNIT, str(self.fields[key]))
        if match is None or match[2] != unit or not float(match[1]):
            raise self.fail(key, f"{str(self.fields[key])[:60]!r} is not a number of {unit}, such as '256 {unit}'")
        return float(match[1])

    def transfers(self, key: str) -> float | None:
        """Transfers a second: "21 GT/s", "5600 MT/s"."""
        if key not in self:
            return None
        match = re.fullmatch(_NUMBER_WITH_UNIT, str(self.fields[key]))
        if match is None or match[2] not in _TRANSFERS or not float(match[1]):
            raise self.fail(key, f"{str(self.fields[key])[:60]!r} is not a rate such as '21 GT/s' or '5600 MT/s'")
        return float(match[1]) * _TRANSFERS[match[2]]

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty when the field is absent."""
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.fail(key, f"expected a list of texts, got {str(value)[:60]!r}")
        return tuple(value)

    def count(self, key: str) -> int | None:
        """A number of things with their name: "128 SMs"."""
        if key not in self:
            return None
        match = re.match(r"([1-9]\d*)\b", str(self.fields[key]))
        if match is None:
            raise self.fail(key, f"expected a number such as '128 SMs', got {str(self.fields[key])[:60]!r}")
        return int(match[1])

    def cores(self) -> int | None:
        """CPU cores of all kinds: 16, "8P+16E"."""
        text = str(self.fields.get("cores", ""))
        if not text:
            return None
        if not re.fullmatch(_CORES, text):
            raise self.fail("cores", f"expected a number such as 16 or 8P+16E, got {text[:60]!r}")
        return sum(map(int, re.findall(r"\d+", text))) or None

    def cache(self) -> float | None:
        """Size of the last cache, which its name may follow: "72 MiB L2"."""
        if "cache" not in self:
            return None
        return self._quantity("cache", " ".join(str(self.fields["cache"]).split()[:2]), "bytes")

    def rates(self, key: str) -> tuple[float, ...]:
        """One number or a list of them."""
        value = self.fields.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        for each in values:
            if isinstance(each, bool) or not isinstance(each, int | float) or not each > 0:
                raise self.fail(key, f"expected positive numbers, got {str(each)[:60]!r}")
        return tuple(map(float, values))

    def peaks(self, key: str) -> Mapping[str, float]:
        """Compute path → FLOP/s."""
        group = self.group(key, COMPUTE_PATHS)
        given = {} if group is None else group.fields
        return MappingProxyType({path: self._positive(value, "flop_per_s", key, path) for path, value in given.items()})

    def derived(self) -> Mapping[str, str]:
        """Compute path → formula, from formulas that several paths may share: "fp16_matrix, bf16_matrix: …"."""
        value = self.fields.get("derived", {})
        if not isinstance(value, Mapping):
            raise self.fail("derived", f"expected a mapping, got {str(value)[:60]!r}")
        formulas = {path.strip(): str(text) for paths, text in value.items() if text for path in paths.split(",")}
        for path in formulas:
            if path not in (self.fields.get("peaks") or {}):
                raise self.fail("derived", f"{path!r} is not among the peaks")
        return MappingProxyType(formulas)

    def link(self, key: str) -> Link | None:
        group = self.group(key, ("name", "bandwidth"))
        if group is None:
            return None
        rate = self._positive(group.fields.get("bandwidth"), "bytes_per_s", key, "bandwidth")
        return Link(group.text("name"), rate)


def _named(name: str, kinds: Collection[DeviceKind] | None, folders: Sequence[Path]) -> Device:
    def accept(entry: Entry) -> bool:
        return entry.fields.get("kind", "gpu") in (kinds or ())

    try:
        entry = find_entry("hardware", name, folders, None if kinds is None else accept)
    except UnknownNameError:
        other = None if kinds is None else _of_another_kind(name, folders)
        if other is None:
            raise
        raise UnknownNameError(f"{name!r} is {other}") from None
    return device_from_fields(entry.id, entry.fields, entry.where)


def _of_another_kind(name: str, folders: Sequence[Path]) -> str | None:
    try:
        entry = find_entry("hardware", name, folders)
    except UnknownNameError:
        return None
    if entry.fields.get("kind", "gpu") == "cpu":
        return f"the CPU {entry.id}, no GPU: give it as the CPU (--cpu {entry.id})"
    return f"the GPU {entry.id}, no CPU: give it as the GPU (--gpu {entry.id})"


def _sold_with(device: Device, memory_bytes: float) -> Device:
    if memory_bytes in device.memory_options_bytes:
        return replace(device, memory_bytes=memory_bytes)
    sizes = ", ".join(f"{size / GIB:g}" for size in device.memory_options_bytes)
    sold = f"is sold with {sizes} GiB, not {memory_bytes / GIB:g}" if sizes else "has no memory of its own"
    raise InputError(f"{device.id} {sold}; to set a size by hand, use --memory")


def _is_path(path: str) -> bool:
    if path not in COMPUTE_PATHS:
        raise InputError(f"unknown compute path {path!r}; known are {', '.join(COMPUTE_PATHS)}")
    return True


def _positive(value: object, dimension: Dimension, what: str) -> float:
    quantity = parse(value, dimension, what)
    if quantity <= 0:
        raise InputError(f"{what}: must be positive, got {value!r}")
    return quantity
