"""A validation report as tables: overall, by group, the devices that are predicted worst, what was skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .layout import Style, columns, paragraph

if TYPE_CHECKING:
    from ..calibration.validation import Report, Statistics

HEAD: Final = ("", "runs", "devices", "median", "90 %", "bias", "≤10 %", "≤20 %", "≤30 %", "in 80 %")
SHOWN_GROUPS: Final = ("backend", "depth", "class")
WORST: Final = 8


def statistics_row(name: str, s: Statistics) -> tuple[str, ...]:
    """One line under `HEAD`: errors and shares in per cent, the bias as a ratio."""
    shares = (s.within_10, s.within_20, s.within_30, s.coverage_80)
    return (
        name,
        f"{s.n:,}",
        str(s.devices),
        f"{s.median_abs_error:.1%}",
        f"{s.p90_abs_error:.0%}",
        f"{s.bias:.2f}",
        *(f"{share:.0%}" for share in shares),
    )


def accuracy_page(report: Report, style: Style) -> list[str]:
    """Errors of the rate: |predicted − measured| ÷ measured, each device weighing the same."""
    overall = report.overall
    if not overall:
        return [*_skipped(report, style), "no run could be predicted"]
    rows = [HEAD, *(statistics_row(phase, s) for phase, s in overall.items())]
    lines = [style.heading("Error of predicted tokens/s, each device weighing the same"), *columns(rows, "<" + ">" * 9)]
    groups = report.groups
    for name in SHOWN_GROUPS:
        if len(groups[name]) > 1:
            lines += ["", style.heading(f"By {name}"), *columns([HEAD, *_group_rows(groups[name])], "<" + ">" * 9)]
    if len(groups["device"]) > 1:
        worst = worst_devices(groups["device"])[:WORST]
        rows = [HEAD, *(statistics_row(f"{device} {phase}", s) for device, phase, s in worst)]
        lines += ["", style.heading("Devices predicted worst"), *columns(rows, "<" + ">" * 9)]
    skipped = _skipped(report, style)
    return [*lines, "", *skipped] if skipped else lines


def _group_rows(values: Mapping[str, Mapping[str, Statistics]]) -> list[tuple[str, ...]]:
    return [statistics_row(f"{value} {phase}", s) for value, phases in values.items() for phase, s in phases.items()]


def worst_devices(devices: Mapping[str, Mapping[str, Statistics]]) -> list[tuple[str, str, Statistics]]:
    """(device, phase, statistics), the largest median error first."""
    every = [(device, phase, s) for device, phases in devices.items() for phase, s in phases.items()]
    return sorted(every, key=lambda one: -one[2].median_abs_error)


def _skipped(report: Report, style: Style) -> list[str]:
    skipped = report.skipped
    if not skipped:
        return []
    total = sum(skipped.values())
    lines = [style.heading(f"Not predicted: {total:,} of {report.rows:,} runs")]
    for reason, count in skipped.items():
        lines += paragraph(f"{count:,}  {reason}", style.width, "  ", "       ")
    return lines
