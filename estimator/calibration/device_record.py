"""A device as plain data and back: profiles keep it, because factors belong to the figures they were fitted with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, Final

from ..errors import InputError
from ..system import Device, Link

_LEFT_OUT: Final = ("sources", "notes", "price_usd", "confidence")  # say nothing of how fast it is
_TUPLES: Final = ("memory_options_bytes", "fp32_flop_per_cycle_core")
_MAPPINGS: Final = ("peaks_flop_per_s", "base_clock_peaks_flop_per_s", "derived_peaks")
_LINKS: Final = ("host_link", "peer_link")
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
    try:
        return Device(**{name: _typed(name, value) for name, value in record.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"device: {error}") from None


def _needed(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _typed(name: str, value: Any) -> Any:
    if name in _LINKS:
        return Link(str(value["name"]), float(value["bandwidth_bytes_per_s"]))
    if name == "derived_peaks":
        return MappingProxyType({str(key): str(text) for key, text in value.items()})
    if name in _MAPPINGS:
        return MappingProxyType({str(key): float(figure) for key, figure in value.items()})
    if name in _TUPLES:
        return tuple(map(float, value))
    if name.endswith(("_per_s", "_bytes", "_hertz", "_watts")):
        return float(value)
    return value


def same_figures(one: Device, other: Device) -> bool:
    """Whether the roofs of two devices of one id are the same."""
    if one.id != other.id or (one.cores or 0) != (other.cores or 0):
        return False
    paths = one.peaks_flop_per_s.keys() | other.peaks_flop_per_s.keys()
    pairs = [(one.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)]
    pairs += [(one.peaks_flop_per_s.get(path, 0.0), other.peaks_flop_per_s.get(path, 0.0)) for path in paths]
    return all(abs(first - second) <= _SAME * max(first, second) for first, second in pairs)
