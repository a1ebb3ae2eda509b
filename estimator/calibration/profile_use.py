"""Which profile an estimate uses: the one that was named, or the newest that is of its device; and saying so."""

from __future__ import annotations

from collections.abc import Sequence

from ..efficiency import Efficiency, shipped
from ..errors import InputError
from ..system import Device
from .profiles import Damaged, MachineProfile, Profile, count_runs, load, matching


def named_machine(name: str, backend: str | None = None) -> MachineProfile:
    """The machine of the profile called `name`, under `backend` where it has several. InputError where it has none."""
    profile = load(name)
    found = [each for each in profile.machines if backend is None or each.backend.casefold() == backend.casefold()]
    if not found:
        there = ", ".join(each.backend for each in profile.machines)
        raise InputError(f"profile {profile.name!r} is of {there}, not of {backend}")
    return found[0]


def named_profile(name: str, backend: str, devices: Sequence[Device]) -> tuple[Efficiency, tuple[str, ...]]:
    """Factors of the profile called `name`, and a note. InputError where it is of none of `devices`."""
    profile = load(name)
    if not any(profile.machine(backend, device) for device in devices):
        raise InputError(_mismatch(profile, backend, devices))
    return profile.applied(shipped()), (*_notes(profile, backend, devices),)


def own_profile(backend: str, devices: Sequence[Device]) -> tuple[Efficiency | None, tuple[str, ...]]:
    """Factors of the newest profile that is of one of `devices`, if any, and notes on it and on damaged ones."""
    profile, damaged = matching(backend, devices)
    said = tuple(_damage(each) for each in damaged)
    if profile is None:
        return None, said
    return profile.applied(shipped()), (*_notes(profile, backend, devices), "--no-profile leaves it out.", *said)


def _notes(profile: Profile, backend: str, devices: Sequence[Device]) -> list[str]:
    used = [machine for machine in (profile.machine(backend, device) for device in devices) if machine]
    source = f"{count_runs(used[0])} of its own ({profile.created})"
    notes = [f"Profile {profile.name!r} is used: the factors of {used[0].device.name} on {backend} are from {source}."]
    others = sorted({device.id for device in devices if profile.machine(backend, device) is None})
    if others:
        notes.append(f"It says nothing of {', '.join(others)}.")
    current = shipped().provenance.get("fit_version")
    if profile.fit_version is not None and current is not None and profile.fit_version != current:
        notes.append(f"Profile {profile.name!r} was made with an earlier fit of the factors; calibrate anew.")
    return notes


def _mismatch(profile: Profile, backend: str, devices: Sequence[Device]) -> str:
    asked = [(backend, device.id) for device in devices]
    names = " + ".join(device.id for device in devices)
    if any((each.backend, each.device.id) in asked for each in profile.machines):
        return f"profile {profile.name!r} is of {names} with other bandwidth, peaks or cores; leave the device out"
    of = " and ".join(f"{each.device.id} on {each.backend}" for each in profile.machines)
    return f"profile {profile.name!r} is of {of}, not of {names} on {backend}; leave the device out to use its own"


def _damage(damaged: Damaged) -> str:
    return f"{damaged.path}: {damaged.reason}."
