"""The device of the catalog that a run was measured on, from what drivers and operating systems call it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...device_catalog import find_device
from ...errors import InputError, UnknownNameError
from ...system import Device, DeviceKind
from ..runs import Run
from .values import NoMatchError, remembered, shown

_GPU_KINDS: Final[tuple[DeviceKind, ...]] = ("gpu", "apu", "apple", "soc")
_WITH_A_CPU: Final[tuple[DeviceKind, ...]] = ("apple", "soc", "apu")  # chips whose CPU is not an entry of its own
_FLAG: Final = "name it with --gpu"


class DeviceMatcher:
    """Finds devices of runs; runs of one machine are looked up once."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._found: dict[tuple[str | None, ...], Device | NoMatchError] = {}

    def find(self, run: Run) -> Device:
        """The device of `run`. Raises NoMatchError with the reason when it cannot be told."""
        key = (run.hardware_id, run.backend, run.device_detail)
        return remembered(self._found, key, lambda: self._find_device(run))

    def _find_device(self, run: Run) -> Device:
        if run.hardware_id:
            try:
                return find_device(run.hardware_id, None, self._folders)
            except InputError as error:
                raise NoMatchError(str(error)) from None
        if not run.device_detail:
            raise NoMatchError(f"the run does not say which {_device_noun(run)} it was measured on; {_FLAG}")
        names = re.split(r", (?!inc\b|ltd\b)", run.device_detail, flags=re.IGNORECASE)
        if len(names) > 1:
            listed = ", ".join(shown(name, 40) for name in names[:4])
            raise NoMatchError(f"it ran on several different devices ({listed}); {_FLAG} if only one counted")
        return self._find_described(names[0], run)

    def _find_described(self, description: str, run: Run) -> Device:
        """The device that a driver calls `description`; what is in brackets counts only where the rest says nothing."""
        preferred, accepted = _kinds(run.backend)
        error: UnknownNameError | None = None
        for name in _spellings(description):
            try:
                device = find_device(name, None, self._folders)
                if device.kind in preferred:
                    return device
            except UnknownNameError as unknown:
                error = unknown if error is None or not error.candidates else error
                if "may mean any of" not in str(unknown):
                    continue
            except InputError:
                continue
            for kinds in (preferred, accepted):
                try:
                    return find_device(name, kinds, self._folders)
                except InputError:
                    continue
        raise _unknown_device(description, run, error)


def _kinds(backend: str | None) -> tuple[tuple[DeviceKind, ...], tuple[DeviceKind, ...]]:
    """Kinds of device that the backend runs on: those to prefer, and those to accept."""
    if backend == "CPU":
        return ("cpu",), _WITH_A_CPU
    return (_GPU_KINDS, _GPU_KINDS) if backend else ((*_GPU_KINDS, "cpu"), (*_GPU_KINDS, "cpu"))


def _spellings(description: str) -> list[str]:
    """The description whole, without brackets, and what is in the brackets: "AMD Radeon Graphics (RADV GFX1151)"."""
    outside = re.sub(r"\s*\([^()]*\)", "", description).strip().removesuffix(" Series")
    inside = [text.removeprefix("RADV ") for text in re.findall(r"\(([^()]{4,60})\)", description)]
    return list(dict.fromkeys(text for text in (description, outside, *inside) if text))


def _device_noun(run: Run) -> str:
    return "CPU" if run.backend == "CPU" else "GPU" if run.backend else "device"


def _unknown_device(description: str, run: Run, error: UnknownNameError | None) -> NoMatchError:
    candidates = error.candidates if error else ()
    what = f"the {_device_noun(run)} {shown(description)}"
    if error and "may mean any of" in str(error):
        return NoMatchError(f"{what} may be any of {', '.join(candidates[:6])}; {_FLAG}", candidates)
    close = f" (close: {', '.join(candidates[:3])})" if candidates else ""
    return NoMatchError(f"{what} is not in the catalog{close}; {_FLAG}", candidates)
