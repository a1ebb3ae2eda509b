"""Profiles: calibrations kept as readable YAML in the platform's config folder, one file a profile.

Writes are atomic: a reader sees the old profile or the new one. A damaged profile is set aside under another name and
reported; nothing overwrites it. Several programs may use the folder at once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from ..efficiency import CORRECTION_PRIORS, MACHINE_FACTORS, Efficiency, Gaussian, MachineFactors
from ..errors import InputError
from ..frozen_dataclass import dataclass
from ..plain_yaml import load_plain
from ..system import Device
from ..user_folder import PROFILE_SUFFIX, profile_folder, profile_names
from ..whole_files import write_whole
from .calibrated import with_calibrated
from .device_record import device_of, device_record, same_figures

SCHEMA: Final = "llmcalc.profile/1"
PHASES: Final = ("decode", "prefill")
DIGITS: Final = 6
MAX_BYTES: Final = 8 * 2**20
HEADER: Final = """\
# A calibration of llmcalc: factors of one machine, from its own runs. Made by `llmcalc calibrate`.
# Pairs are [mean, standard deviation] of the natural logarithm of what stretches a time over the datasheet's.
"""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_RESERVED: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")  # device names of Windows


@dataclass(frozen=True)
class MachineProfile:
    """One machine under one backend: its factors, its spread of runs, and the runs behind them."""

    backend: str
    device: Device
    factors: MachineFactors
    spread: Mapping[str, float]  # of log time of a run, by phase
    errors: Mapping[str, Any] = field(default_factory=dict)  # of rates, before and after, as calibrated
    runs: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Profile:
    """A named calibration."""

    name: str
    created: str  # YYYY-MM-DD
    machines: tuple[MachineProfile, ...]
    version: str = ""  # of llmcalc
    fit_version: int | None = None  # of the shipped factors that were the prior

    def machine(self, backend: str, device: Device) -> MachineProfile | None:
        """The part of the profile that is of this device, with these figures, under this backend."""
        for each in self.machines:
            if each.backend == backend and same_figures(each.device, device):
                return each
        return None

    def applied(self, base: Efficiency) -> Efficiency:
        """`base` with the profile's machines in place of their devices'."""
        for each in self.machines:
            origin = f"profile {self.name!r} ({count_runs(each)}, {self.created})"
            own = replace(each.factors, origin=origin)
            base = with_calibrated(base, each.backend, each.device.id, own, each.spread)
        return base


def count_runs(machine: MachineProfile) -> str:
    """Its number of runs, in words."""
    return f"{len(machine.runs)} run" + ("" if len(machine.runs) == 1 else "s")


@dataclass(frozen=True)
class Damaged:
    """A profile that cannot be used: where it is now, and why, in a sentence."""

    path: Path
    reason: str


class NewerSchemaError(InputError):
    """A profile that another version of llmcalc wrote: not damaged, but of no use here."""


def checked_name(name: str) -> str:
    """`name` in lower case, if it is one that every file system takes; InputError otherwise."""
    lower = name.strip().lower()
    if not _NAME.fullmatch(lower) or _RESERVED.fullmatch(lower) or lower.endswith((".", PROFILE_SUFFIX)):
        raise InputError(
            f"profile name {name[:80]!r}: use up to 64 letters, digits, '-', '_' and '.', a letter or digit first"
        )
    return lower


def path_of(name: str) -> Path:
    """The file of the profile called `name`, which need not exist."""
    return profile_folder() / (checked_name(name) + PROFILE_SUFFIX)


def load(name: str) -> Profile:
    """The profile called `name`. InputError where there is none; a damaged one is set aside first."""
    path = path_of(name)
    try:
        return read(path, path.name[: -len(PROFILE_SUFFIX)])
    except FileNotFoundError:
        known = profile_names()
        there = f"; there are {', '.join(known[:8])}" if known else "; `llmcalc calibrate RUNS --save NAME` makes one"
        raise InputError(f"there is no profile {name!r}{there}") from None
    except NewerSchemaError:
        raise
    except InputError as error:
        raise InputError(f"profile {name!r} is damaged ({error}); {_set_aside(path)}") from None


def load_all() -> tuple[list[Profile], list[Damaged]]:
    """All profiles, and what is of no use. Damaged ones are set aside."""
    found: list[Profile] = []
    damaged: list[Damaged] = []
    for name in profile_names():
        path = profile_folder() / (name + PROFILE_SUFFIX)
        try:
            found.append(read(path, name))
        except FileNotFoundError:
            continue  # removed meanwhile
        except NewerSchemaError as error:
            damaged.append(Damaged(path, str(error)))
        except InputError as error:
            damaged.append(Damaged(path, f"damaged ({error}); {_set_aside(path)}"))
    return found, damaged


def matching(backend: str, devices: Sequence[Device]) -> tuple[Profile | None, list[Damaged]]:
    """The newest profile that is of one of `devices` under `backend`, and what could not be read on the way.

    Only files that name the device are parsed.
    """
    ids = [f"id: {device.id}" for device in devices]
    found: list[tuple[str, float, Profile]] = []
    damaged: list[Damaged] = []
    for name in profile_names():
        path = profile_folder() / (name + PROFILE_SUFFIX)
        try:
            text = _text(path)
            if not any(each in text for each in ids):
                continue
            profile = from_text(text, name)
            if any(profile.machine(backend, device) for device in devices):
                found.append((profile.created, path.stat().st_mtime, profile))
        except FileNotFoundError:
            continue
        except NewerSchemaError as error:
            damaged.append(Damaged(path, str(error)))
        except InputError as error:
            damaged.append(Damaged(path, f"damaged ({error}); {_set_aside(path)}"))
    newest = max(found, key=lambda each: each[:2], default=None)
    return (newest[2] if newest else None), damaged


def save(profile: Profile) -> Path:
    """Write a profile in place of the one of its name, and say where. A damaged one there is set aside first.

    InputError for a folder that cannot be written, and for a file of a newer schema, which stays.
    """
    path = path_of(profile.name)
    with suppress(FileNotFoundError):
        try:
            read(path, profile.name)
        except NewerSchemaError:
            raise
        except InputError:
            _set_aside(path)
    write_whole(path, to_text(profile))
    return path


def remove(name: str) -> Path:
    """Delete a profile. InputError where there is none."""
    path = path_of(name)
    try:
        path.unlink()
    except FileNotFoundError:
        raise InputError(f"there is no profile {name!r}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return path


def _set_aside(path: Path) -> str:
    """Rename a file that must not be used, never over another one; says where it is now."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        try:
            os.link(path, aside)  # unlike a rename, fails where the name is taken
            path.unlink()
            return f"it was set aside as {aside}"
        except FileExistsError:
            continue
        except OSError:
            break
    with suppress(OSError):
        if not aside.exists():
            path.rename(aside)
            return f"it was set aside as {aside}"
    return f"it stays at {path}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InputError("too large")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text") from None


def read(path: Path, name: str) -> Profile:
    """The profile in a file. InputError for anything else, FileNotFoundError for no file."""
    return from_text(_text(path), name)


def to_text(profile: Profile) -> str:
    """A profile as YAML."""
    import yaml

    data = {
        "schema": SCHEMA,
        "name": profile.name,
        "created": profile.created,
        "llmcalc": profile.version,
        "fit_version": profile.fit_version,
        "machines": [_machine_data(each) for each in profile.machines],
    }
    body = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    return HEADER + str(body)


def _machine_data(machine: MachineProfile) -> dict[str, Any]:
    values = machine.factors.values
    return {
        "backend": machine.backend,
        "device": device_record(machine.device),
        "spread": {phase: round(sd, DIGITS) for phase, sd in machine.spread.items()},
        "errors": dict(machine.errors),
        "factors": {name: [round(value.mean, DIGITS), round(value.sd, DIGITS)] for name, value in values.items()},
        "covariances": {
            f"{first} & {second}": float(f"{value:.6g}")
            for (first, second), value in machine.factors.covariances.items()
            if value
        },
        "runs": [dict(run) for run in machine.runs],
    }


def from_text(text: str, name: str) -> Profile:
    """The profile that YAML describes, under `name`. Raises InputError with the reason where it is none."""
    import yaml

    try:
        data = load_plain(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, Mapping):
        raise InputError("no profile")
    schema = str(data.get("schema"))
    if schema != SCHEMA:
        if re.fullmatch(r"llmcalc\.profile/\d+", schema):
            raise NewerSchemaError(f"profile {name!r} has schema {schema}, this llmcalc reads {SCHEMA}")
        raise InputError(f"expected schema {SCHEMA}")
    machines = data.get("machines")
    if not isinstance(machines, list) or not machines:
        raise InputError("machines: expected a list of at least one")
    fit_version = data.get("fit_version")
    return Profile(
        name=name,
        created=str(data.get("created", "")),
        machines=tuple(_machine(each) for each in machines),
        version=str(data.get("llmcalc", "")),
        fit_version=fit_version if isinstance(fit_version, int) else None,
    )


def _machine(data: object) -> MachineProfile:
    if not isinstance(data, Mapping) or not isinstance(data.get("backend"), str):
        raise InputError("machines: each needs a backend and a device")
    values = {str(name): _gaussian(name, pair) for name, pair in _mapping(data, "factors").items()}
    missing = sorted(MACHINE_FACTORS.keys() - values.keys())
    if missing:
        raise InputError(f"factors: {missing[0]!r} is missing")
    runs = data.get("runs") or []
    if not isinstance(runs, list) or not all(isinstance(run, Mapping) for run in runs):
        raise InputError("runs: expected a list of mappings")
    return MachineProfile(
        backend=str(data["backend"]),
        device=device_of(data.get("device")),
        factors=MachineFactors(values, "", True, _covariances(data, values)),
        spread={phase: _number(f"spread: {phase}", _mapping(data, "spread").get(phase), 0.0) for phase in PHASES},
        errors=_mapping(data, "errors") if data.get("errors") else {},
        runs=tuple(dict(run) for run in runs),
    )


def _mapping(data: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"{key}: expected a mapping")
    return value


def _gaussian(name: object, pair: object) -> Gaussian:
    if str(name) not in MACHINE_FACTORS and str(name).partition(".")[0] not in CORRECTION_PRIORS:
        raise InputError(f"factors: {str(name)[:60]!r} is none of this version's; calibrate anew")
    if not isinstance(pair, list) or len(pair) != 2:
        raise InputError(f"factors: {name}: expected [mean, standard deviation]")
    return Gaussian(_number(f"factors: {name}", pair[0]), _number(f"factors: {name}", pair[1], 0.0))


def _covariances(data: Mapping[Any, Any], values: Mapping[str, Gaussian]) -> dict[tuple[str, str], float]:
    found = {}
    for key, value in (_mapping(data, "covariances") if data.get("covariances") else {}).items():
        first, _, second = str(key).partition(" & ")
        if first not in values or second not in values:
            raise InputError(f"covariances: {str(key)[:120]!r} is of no two factors")
        covariance = _number(f"covariances: {key}", value)
        if abs(covariance) > 1.01 * values[first].sd * values[second].sd + 1e-9:
            raise InputError(f"covariances: {key}: larger than the standard deviations allow")
        found[first, second] = covariance
    return found


def _number(what: str, value: object, least: float = -math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
        raise InputError(f"{what}: expected a number, got {str(value)[:40]!r}")
    return float(value)


def run_records(runs: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Provenance of runs: what was measured of what, when and with which build, without what is empty."""
    from .runs import to_row

    kept = (
        "date", "engine", "build", "model_id", "quant", "weights_gib", "threads", "n_ubatch", "flash_attn", "type_k",
        "type_v", "phase", "n_prompt", "n_gen", "n_depth", "n_parallel", "t_s", "t_s_std",
    )  # fmt: skip
    records = []
    for run in runs:
        row = to_row(run)
        source = {"source": str(run.origin)} if run.origin else {}
        records.append({name: row[name] for name in kept if row[name] not in ("", "0")} | source)
    return tuple(records)
