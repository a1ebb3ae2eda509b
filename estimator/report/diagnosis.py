"""A diagnosis as a page for the terminal: what cannot be, what stands out, and why it may be slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .layout import Style, paragraph

if TYPE_CHECKING:
    from ..calibration.diagnosis import Diagnosis, Finding, MachineCheck
    from ..calibration.slowness import Cause

_COLORS: Final = {"data error": "red", "suspect": "yellow", "remark": "dim"}
_WORDS: Final = ((0.6, "very likely"), (0.3, "likely"), (0.12, "possible"), (0.0, "less likely"))


def diagnosis_page(diagnosis: Diagnosis, style: Style) -> list[str]:
    """The page as lines."""
    lines = [style.heading("Runs")]
    lines += [line for finding in diagnosis.findings for line in _finding(finding, style)]
    if not diagnosis.findings:
        lines.append("  Nothing stands out." if diagnosis.machines else "  None could be judged.")
    for machine in diagnosis.machines:
        lines += ["", *_machine(machine, style)]
    if diagnosis.notes:
        lines += ["", style.heading("Notes")]
        lines += [line for note in diagnosis.notes for line in paragraph(note, style.width, "  · ", "    ")]
    return lines


def _finding(finding: Finding, style: Style) -> list[str]:
    where = f"{finding.run.id or finding.run.origin}: " if finding.run.id or finding.run.origin else ""
    lines = paragraph(f"{finding.severity}: {where}{finding.text}.", style.width, "  ", "      ")
    return [lines[0].replace(finding.severity, style.paint(finding.severity, _COLORS[finding.severity]), 1), *lines[1:]]


def _machine(machine: MachineCheck, style: Style) -> list[str]:
    lines = [style.heading(f"{machine.device} on {machine.backend}")]
    symptoms = machine.symptoms
    shares = [
        f"{name} at {share:.0%}"
        for name, share in (("decode", symptoms.decode), ("prefill", symptoms.prefill))
        if share is not None
    ]
    if shares:
        lines += paragraph(f"{' and '.join(shares)} of the estimate, in the median.", style.width)
    if not machine.causes:
        return [*lines, "  Nothing here is slower than the estimate's range explains."]
    lines += ["", style.heading("Why is it slow? Likely causes, the likeliest first")]
    for number, cause in enumerate(machine.causes, 1):
        lines += _cause(number, cause, style)
    return lines


def _cause(number: int, cause: Cause, style: Style) -> list[str]:
    word = next(text for least, text in _WORDS if cause.likelihood >= least)
    lines = paragraph(f"{number}. {cause.name} ({word})", style.width, "  ", "     ")
    lines += paragraph("; ".join(cause.evidence) + ".", style.width, "     ", "     ")
    return [*lines, *paragraph(cause.command, style.width, "     → ", "       ")]
