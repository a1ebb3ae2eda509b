"""A device as plain data and back: profiles keep it, because factors belong to the figures they were fitted with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, Final

from ..device_catalog import DEVICE_KINDS
from ..errors import InputError
from ..system import Device, Link
from .readers.values import shown

_LEFT_OUT: Final = ("sources", "notes", "price_usd", "confidence")  # say nothing of how fast it is
_TUPLES: Final = ("memory_options_bytes", "fp32_flop_per_cycle_core")
_MAPPINGS: Final = ("peaks_flop_per_s", "base_clock_peaks_flop_per_s", "derived_peaks")
_LINKS: Final = ("host_link", "peer_link")
LARGEST: Final = 1e30  # no figure of a device is beyond it
_SAME: Final = 1e-3  # figures that differ by less are the same


def device_record(device: Device) -> dict[str, Any]:
    """The fields of a device that have a value, as lists, mappings, texts and numbers."""
    record: dict[str, Any] = {}
    for each in fields(Device):
        value = getattr(device, each.name)
        if each.name in _LEFT_OUT or value is None or (isinstance(value, (tuple, Mapping)) and not value):
            continue
        record[each.name] = _plain(value)
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Link):
        return {"name": value.name, "bandwidth_bytes_per_s": value.bandwidth_bytes_per_s}
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def device_of(record: object) -> Device:
    """The device that a record describes. Raises InputError for anything else."""
    if not isinstance(record, Mapping):
        raise InputError("device: expected a mapping")
    known = {each.name: each for each in fields(Device)}
    unknown = sorted(str(name) for name in record if name not in known)
    if unknown:
        raise InputError(f"device: unknown field {unknown[0]!r}")
    missing = [name for name, each in known.items() if _needed(each) and name not in record]
    if missing:
        raise InputError(f"device: field {missing[0]!r} is missing")
    return Device(**{name: _typed(name, value, str(known[name].type)) for name, value in record.items()})


def _needed(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _typed(name: str, value: Any, annotation: str) -> Any:
    """The value as the field of this annotation holds it. Raises InputError where it cannot."""
    if name in _LINKS and isinstance(value, Mapping):
        return Link(_text(name, value.get("name")), _figure(name, value.get("bandwidth_bytes_per_s")))
    if name in _MAPPINGS and isinstance(value, Mapping):
        read = _text if name == "derived_peaks" else _figure
        return MappingProxyType({_text(name, key): read(name, each) for key, each in value.items()})
    if name in _TUPLES and isinstance(value, list):
        return tuple(_figure(name, each) for each in value)
    if name == "kind" and value not in DEVICE_KINDS:
        raise InputError(f"device: kind: {shown(value)} is none of {', '.join(DEVICE_KINDS)}")
    if annotation.startswith(("str", "DeviceKind")):
        return _text(name, value)
    if annotation.startswith("int") and not isinstance(value, int):
        raise InputError(f"device: {name}: {shown(value)} is no whole number")
    return int(_figure(name, value)) if annotation.startswith("int") else _figure(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"device: {name}: {shown(value)} is no text")
    return value


def _figure(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        raise InputError(f"device: {name}: {shown(value)} is no positive number")
    return float(value)


def same_figures(one: Device, other: Device) -> bool:
    """Whether the roofs of two devices of one id are the same."""
    if one.id != other.id or (one.cores or 0) != (other.cores or 0):
        return False
    paths = one.peaks_flop_per_s.keys() | other.peaks_flop_per_s.keys()
    pairs = [(one.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)]
    pairs += [(one.peaks_flop_per_s.get(path, 0.0), other.peaks_flop_per_s.get(path, 0.0)) for path in paths]
    return all(abs(first - second) <= _SAME * max(first, second) for first, second in pairs)
