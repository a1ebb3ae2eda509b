"""Physics lint of runs: what cannot be, what does not fit its siblings, and what is slower than it should be.

A run above 100 % of a roof is a data error. A run far below its siblings, runs of the same device and backend, is a
suspect. Whether a machine as a whole is slow is for `slowness` to explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import numpy as np

from .achieved import Achieved, achieved, own_factors
from .machine_runs import Given, Skipped, machine_runs
from .runs import Run
from .slowness import Cause, Symptoms, causes, offload_cause, symptoms_of

SCHEMA: Final = "llmcalc.check/1"
ABOVE_ROOF: Final = 1.02  # figures are printed with few digits, and clocks boost beyond the datasheet's a little
FAR_BELOW: Final = 0.65  # of what its siblings reach of their estimates
SIBLINGS: Final = 3  # fewer say nothing
NOISY: Final = 0.10
FALLING: Final = 0.93  # last repetition over the first

Severity = Literal["data error", "suspect", "remark"]


@dataclass(frozen=True)
class Finding:
    """Something about one run, in a sentence, with the figures that show it."""

    severity: Severity
    run: Run
    text: str


@dataclass(frozen=True)
class MachineCheck:
    """One device under one backend: how its runs compare with what is expected, and likely causes if they are slow."""

    device: str
    backend: str
    symptoms: Symptoms
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class Diagnosis:
    """All findings, worst first; a check of each machine; runs that could not be judged; notes."""

    findings: tuple[Finding, ...]
    machines: tuple[MachineCheck, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


def diagnose(runs: Sequence[Run], given: Given | None = None, profile: str | bool = True) -> Diagnosis:
    """Check `runs`; `profile` as `request.resolve` takes it."""
    found = machine_runs(runs, given)
    findings: list[Finding] = []
    machines: list[MachineCheck] = []
    notes: list[str] = []
    for cases in found.machines.values():
        factors, said = own_factors(cases[0], profile)
        notes += said
        judged = [achieved(case, factors) for case in cases]
        findings += [finding for each in judged for finding in _above_roofs(each)]
        findings += _below_siblings(judged) + [finding for each in judged for finding in _unsteady(each)]
        symptoms = symptoms_of(_possible(judged))
        device = cases[0].device
        machines.append(MachineCheck(device.id, cases[0].conditions.backend, symptoms, causes(symptoms, device)))
    machines += _offloaded(found.skipped)
    order: tuple[Severity, ...] = ("data error", "suspect", "remark")
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(tuple(findings), tuple(machines), found.skipped, tuple(dict.fromkeys(notes)))


def _above_roofs(judged: Achieved) -> list[Finding]:
    if judged.of_ceiling <= ABOVE_ROOF:
        return []
    case = judged.case
    by_bytes = judged.of_bandwidth > ABOVE_ROOF
    roof = f"{judged.of_bandwidth:.0%} of the bandwidth" if by_bytes else f"{judged.of_ceiling:.0%} of the compute roof"
    what = f"{case.run.t_s:,.4g} tokens/s would be {roof} of {case.device.name}"
    if by_bytes and case.device.cache_bytes and _weights(case.run) <= case.device.cache_bytes:
        return [Finding("remark", case.run, f"{what}: the weights fit its cache, so memory does not bound it")]
    reasons = "the device, the model, the quantisation or the number of sequences is another one"
    return [Finding("data error", case.run, f"{what}, which cannot be: {reasons}")]


def _weights(run: Run) -> float:
    return run.weights_bytes or float("inf")


def _possible(judged: Sequence[Achieved]) -> list[Achieved]:
    return [each for each in judged if each.of_ceiling <= ABOVE_ROOF]


def _below_siblings(judged: Sequence[Achieved]) -> list[Finding]:
    """Runs far below the median of the others of their phase, all as shares of their estimates."""
    findings = []
    possible = _possible(judged)
    for phase in ("decode", "prefill"):
        members = [each for each in possible if each.case.phase.phase == phase]
        for each in members:
            siblings = [other.of_estimate for other in members if other is not each]
            if len(siblings) >= SIBLINGS and _far_below(each.of_estimate, siblings):
                findings.append(_suspect(each, median(siblings)))
    return findings


def _far_below(share: float, siblings: Sequence[float]) -> bool:
    """Below two thirds of the siblings' median, and outside of three times their usual distance from it."""
    logs = np.log(siblings)
    usual = float(np.median(np.abs(logs - np.median(logs)))) * 1.4826
    distance = float(np.median(logs)) - float(np.log(share))
    return share < FAR_BELOW * median(siblings) and distance > 3 * usual


def _suspect(judged: Achieved, siblings: float) -> Finding:
    text = (
        f"{judged.tokens_per_s:,.4g} tokens/s are {judged.of_estimate:.0%} of the estimate, where other runs of "
        f"{judged.case.device.name} reach {siblings:.0%}"
    )
    return Finding("suspect", judged.case.run, text)


def _unsteady(judged: Achieved) -> list[Finding]:
    run = judged.case.run
    found = []
    samples = run.samples_t_s
    if len(samples) >= 3 and samples[-1] < FALLING * samples[0] and list(samples) == sorted(samples, reverse=True):
        text = f"each repetition was slower than the last, {samples[0]:,.4g} to {samples[-1]:,.4g} tokens/s: heat"
        found.append(Finding("remark", run, text))
    elif run.t_s_std is not None and run.t_s_std > NOISY * run.t_s:
        text = f"repetitions vary by {run.t_s_std / run.t_s:.0%}: something else was running, or clocks changed"
        found.append(Finding("remark", run, text))
    return found


def _offloaded(skipped: Sequence[Skipped]) -> list[MachineCheck]:
    """Machines whose runs had layers on the CPU: that is the answer, and no estimate is needed for it."""
    checks: dict[tuple[str, str], MachineCheck] = {}
    for each in skipped:
        known = each.known
        if known is not None and known.class_ == "offload" and known.hardware_id:
            key = (known.hardware_id, known.backend or "GPU")
            checks[key] = MachineCheck(*key, Symptoms(), (offload_cause(known),))
    return list(checks.values())


def diagnosis_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as plain data."""
    return {
        "schema": SCHEMA,
        "findings": [{"severity": each.severity, "run": each.run.id, "text": each.text} for each in diagnosis.findings],
        "machines": [
            {
                "device": each.device,
                "backend": each.backend,
                "decode_of_estimate": each.symptoms.decode,
                "prefill_of_estimate": each.symptoms.prefill,
                "deep_of_shallow": each.symptoms.deep,
                "slow": each.symptoms.slow or bool(each.causes),
                "causes": [
                    {
                        "cause": cause.name,
                        "likelihood": round(cause.likelihood, 3),
                        "evidence": list(cause.evidence),
                        "command": cause.command,
                    }
                    for cause in each.causes
                ],
            }
            for each in diagnosis.machines
        ],
        "skipped": [{"run": each.run.id, "reason": each.reason} for each in diagnosis.skipped],
        "notes": list(diagnosis.notes),
    }
