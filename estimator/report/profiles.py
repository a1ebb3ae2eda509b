"""Profiles as lines for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layout import Style, columns, paragraph

if TYPE_CHECKING:
    from ..calibration.profiles import MachineProfile, Profile


def profile_rows(profiles: Sequence[Profile]) -> list[str]:
    """A line for each machine of each profile."""
    rows = [("profile", "device", "backend", "runs", "made")]
    for profile in profiles:
        rows += [
            (profile.name, each.device.id, each.backend, str(len(each.runs)), profile.created)
            for each in profile.machines
        ]
    return columns(rows, "<<<><", indent=0)


def profile_page(profile: Profile, style: Style) -> list[str]:
    """Every machine of a profile: errors, factors, runs."""
    lines = [
        style.paint(f"Profile {profile.name}", "bold"),
        style.paint(f"made {profile.created} by llmcalc {profile.version}", "dim"),
    ]
    for machine in profile.machines:
        lines += ["", *_machine(machine, style)]
    return lines


def _machine(machine: MachineProfile, style: Style) -> list[str]:
    lines = [style.heading(f"{machine.device.name} on {machine.backend}")]
    lines += columns(_errors(machine), "<>>")
    rows = [("factor", "multiple of the datasheet's time", "± (log)")]
    rows += [(name, f"{math.exp(value.mean):.3g}", f"{value.sd:.2f}") for name, value in machine.factors.values.items()]
    lines += ["", *columns(rows, "<>>"), ""]
    lines += [line for run in machine.runs for line in paragraph(_run(run), style.width, "  · ", "    ")]
    return lines


def _errors(machine: MachineProfile) -> list[tuple[str, str, str]]:
    rows = [("median error", "decode", "prefill")]
    for name, by_phase in machine.errors.items():
        cells = [by_phase.get(phase, {}).get("median_abs_error") for phase in ("decode", "prefill")]
        decode, prefill = (f"{cell:.1%}".replace("%", " %") if isinstance(cell, float) else "" for cell in cells)
        rows.append((name.replace("_", " "), decode, prefill))
    return rows


def _run(run: object) -> str:
    assert isinstance(run, dict)
    tokens = f"pp{run['n_prompt']}" if run.get("n_prompt") else f"tg{run.get('n_gen', '?')}"
    depth = f" @ d{run['n_depth']}" if run.get("n_depth") else ""
    rest = ", ".join(str(run[name]) for name in ("build", "date", "source") if run.get(name))
    return f"{run.get('model_id')} {run.get('quant')} {tokens}{depth}: {run.get('t_s')} tokens/s ({rest})"
