"""What one more device would change: does it fit then, and how fast is it.

Imports `planner` and `key_figures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .device_catalog import list_devices
from .errors import InputError
from .key_figures import KeyFigures, key_figures
from .memory import memory_plan
from .planner import Task, stackable, task, with_prices
from .system import Device


@dataclass(frozen=True)
class Upgrade:
    """A device that is added, and the figures with it, of all users that were asked for on one instance."""

    added: Device
    figures: KeyFigures

    @property
    def fits(self) -> bool | None:
        """Whether the model fits with it; None: memory unknown."""
        return self.figures.fits


@dataclass(frozen=True)
class Upgrades:
    """A machine as it is, and with one device more; those first that make it fit, then the fastest."""

    devices: tuple[Device, ...]
    task: Task
    now: KeyFigures
    upgrades: tuple[Upgrade, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.plan import upgrades_data

        return upgrades_data(self)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.plan import upgrades_page

        return "\n".join(upgrades_page(self, Style()))


def upgrades(
    *,
    devices: Sequence[Device],
    added: Iterable[Device] | None = None,
    prices: Mapping[str, float] | None = None,
    catalog: Sequence[Path] = (),
    **given: Any,
) -> Upgrades:
    """What each of `added` would change; by default another of those that are there, and every priced GPU that fits in.

    `given`: the arguments of `planner.task`. Raises InputError for a machine without a GPU.
    """
    asked = task(catalog=catalog, **given)
    if not devices or any(device.is_cpu for device in devices):
        raise InputError("upgrades: name the GPUs that are there with --gpu")
    candidates = _candidates(devices, catalog) if added is None else list(added)
    found = []
    for device in with_prices(candidates, prices or {}, catalog):
        try:
            found.append(Upgrade(device, _figures(asked, (*devices, device))))
        except InputError:  # the catalog lacks a figure that is needed
            if added is not None:
                raise
    ordered = sorted(found, key=lambda one: (not one.fits, -one.figures.tokens_per_s))
    return Upgrades(tuple(devices), asked, _figures(asked, devices), tuple(ordered))


def _candidates(devices: Sequence[Device], folders: Sequence[Path]) -> list[Device]:
    """Another of each that is there, and priced GPUs for the same kind of machine and the same backend."""
    same = {device.id: device for device in devices if stackable(device)}
    backend, in_server = devices[0].default_backend, devices[0].device_class == "datacenter"
    for device in list_devices(folders):
        fits_in = stackable(device) and (device.device_class == "datacenter") == in_server
        if fits_in and device.price_usd is not None and device.backends[:1] == (backend,):
            same.setdefault(device.id, device)
    return list(same.values())


def _figures(asked: Task, devices: Sequence[Device]) -> KeyFigures:
    request = asked.request(devices, asked.goals.users)
    plan = memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
    return key_figures(request, asked.efficiency, asked.occupied, plan)
