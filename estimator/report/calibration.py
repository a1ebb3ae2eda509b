"""A calibration as a page for the terminal: factors before and after, errors, and the run that would teach most."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .layout import Style, columns, duration, paragraph

if TYPE_CHECKING:
    from ..calibration.assessment import Assessment, ErrorsByPhase
    from ..calibration.experiments import Experiment
    from ..calibration.results import MachineResult
    from ..efficiency import Gaussian

NARROWED: Final = 0.05  # a factor whose sd shrank by less, and which moved by less than half of it, is not worth a row
MEANINGS: Final = {
    "memory": "reading weights, against the bandwidth",
    "unpack": "work to unpack a weight",
    "unpack_energy": "energy to unpack a weight",
    "launch": "µs from kernel to kernel",
    "matrix": "matrix products, against the peak",
    "matrix_energy": "energy of matrix products",
    "attention_read": "reading the cache in decode",
    "attention_compute": "attention of a prompt",
    "activation": "moving activations",
    "core_memory": "memory against what a core usually draws",
}


def calibration_page(result: MachineResult, style: Style, every_factor: bool = False) -> list[str]:
    """The page as lines."""
    calibration = result.calibration
    count = len(calibration.cases)
    title = f"{calibration.device.name} on {calibration.backend}: {count} run{'' if count == 1 else 's'}"
    sections = [
        [style.paint(title, "bold")],
        _factors(result, style, every_factor),
        _errors(result.assessment, style),
        _next_runs(result.next_runs, style),
    ]
    lines: list[str] = []
    for section in filter(None, sections):
        lines += ([""] if lines else []) + section
    return lines


def _factors(result: MachineResult, style: Style, every_factor: bool) -> list[str]:
    calibration = result.calibration
    rows = [("factor", "before", "after", "")]
    untold = 0
    for name, before, after in zip(calibration.names, calibration.prior, calibration.posterior, strict=True):
        told = after.sd < (1 - NARROWED) * before.sd or abs(after.mean - before.mean) > 0.5 * before.sd
        untold += not told
        if told or every_factor:
            rows.append((name, _multiple(before), _multiple(after), MEANINGS.get(name, "")))
    lines = [style.heading("Factors: what stretches a time, with its standard deviation")]
    lines += columns(rows, "<>><") if len(rows) > 1 else ["  none that the runs tell anything of"]
    if untold and not every_factor:
        lines += paragraph(f"{untold} more stay as they were: the runs say nothing of them.", style.width)
    return lines


def _multiple(factor: Gaussian) -> str:
    return f"{math.exp(factor.mean):.3g} ± {100 * math.expm1(factor.sd):.0f} %"


def _errors(assessment: Assessment, style: Style) -> list[str]:
    rows = [("", "decode", "prefill")]
    for name, errors in (
        ("before", assessment.before),
        ("after", assessment.after),
        ("each run left out", assessment.left_out),
        ("each model left out", assessment.other_models),
    ):
        if errors is not None:
            rows.append((name, _median(errors, "decode"), _median(errors, "prefill")))
    lines = [style.heading("Median error of the rates"), *columns(rows, "<>>")]
    if assessment.left_out is None:
        lines += paragraph(
            "Two runs or more would also show how well runs that were not seen are predicted.", style.width
        )
    return lines


def _median(errors: ErrorsByPhase, phase: str) -> str:
    found = errors.get(phase)
    return f"{found.median_abs_error:.1%} of {found.n}".replace("%", " %") if found else "no runs"


def _next_runs(experiments: tuple[Experiment, ...], style: Style) -> list[str]:
    if not experiments:
        return []
    lines = [style.heading("What would teach most next")]
    for each in experiments:
        effect = f"± {each.margin_before:.0%} → ± {each.margin_after:.0%}".replace("%", " %")
        words = f"80 % range of everyday models {effect}; takes about {duration(each.seconds)}."
        lines += [
            *paragraph(each.command, style.width, "  ", "      "),
            *paragraph(words, style.width, "      ", "      "),
        ]
    return lines
