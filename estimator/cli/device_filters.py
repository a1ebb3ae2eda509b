"""Which devices of the catalog a command considers: those that are named, or those of a vendor, kind and class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .option_groups import apply_options

if TYPE_CHECKING:
    from ..system import Device

F = TypeVar("F", bound=Callable[..., Any])


def device_filters(command: F) -> F:
    """--vendor, --kind and --class."""
    options = [
        click.option("--vendor", metavar="NAME", help="Only this vendor's devices: nvidia, amd, intel, apple."),
        click.option("--kind", metavar="KINDS", help="Only gpu, apple, apu, soc or cpu; several with commas."),
        click.option("--class", "device_class", metavar="CLASSES", help="Only desktop, laptop, workstation …"),
    ]
    return apply_options(options, command)


def filtered_devices(given: Mapping[str, Any]) -> list[Device]:
    """The devices of --gpu, or of the whole catalog, that the filters let through. Raises InputError for none."""
    from ..device_catalog import find_device, list_devices

    folders = given["catalog"]
    named = [find_device(name, None, folders) for name in given["gpu"]]
    chosen = [device for device in named or list_devices(folders) if _wanted(device, given)]
    if not chosen:
        raise InputError("no device of the catalog is of this vendor, kind and class")
    return chosen


def _wanted(device: Device, given: Mapping[str, Any]) -> bool:
    checks = (("vendor", device.vendor), ("kind", device.kind), ("device_class", device.device_class))
    return all(
        given[name] is None or value.casefold() in [part.strip().casefold() for part in given[name].split(",")]
        for name, value in checks
    )
