"""A Service as a page for the terminal and as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..comparison import machine_name
from ..service import AGREEMENT, finite
from .layout import Style, columns, duration, margin, paragraph, rate

if TYPE_CHECKING:
    from ..service import Service
    from ..serving import Percentiles, ServingReport

SCHEMA: Final = "llmcalc.serve/1"
TIMES: Final = (
    ("queue", "queue_s"),
    ("TTFT", "ttft_s"),
    ("TPOT", "tpot_s"),
    ("ITL", "itl_s"),
    ("whole answer", "end_to_end_s"),
)


def service_page(service: Service, style: Style) -> list[str]:
    """The page as lines."""
    r, server = service.request, service.server
    title = f"{r.model.name} · {r.quantisation} · {machine_name(r.devices)} ({r.backend})"
    cells = f"{server.kv_cells:,} tokens of cache" if server.kv_cells else "cache without limit"
    apart = "shared" if server.unified else f"{server.slot_cells:,} each"
    lines = [style.paint(title, "bold"), style.paint(f"{server.slots} slots, {cells}, {apart}", "dim")]
    lines += [margin(service.memory.margin_bytes), "", *_capacity(service, style)]
    reports = [report for report in (service.theory, service.simulation) if report is not None]
    for report in reports:
        lines += ["", *_report(report, style), *(_facts(report, style) if report is reports[-1] else [])]
    if service.loads:
        lines += ["", *_loads(service.loads, style)]
    return [*lines, *_objective(service, style), *_notes(service, style)]


def _capacity(service: Service, style: Style) -> list[str]:
    text = f"At most {rate(service.capacity_per_s)} requests/s can be served"
    if service.overloaded:
        return paragraph(
            f"{text}; at {rate(service.rate_per_s or 0.0)} requests/s the queue grows without end.", style.width, "", ""
        )
    alone, full = service.profile.decode_step_s[0], service.profile.decode_step_s[-1]
    slots = service.profile.slots
    return paragraph(
        f"{text}. A decode step of one sequence takes {duration(alone)}; of {slots}, {duration(full)}: "
        f"{rate(1 / full)} tokens/s for each, {rate(slots / full)} for all together.",
        style.width,
        "",
        "",
    )


def _report(report: ServingReport, style: Style) -> list[str]:
    method = "By theory" if report.method == "theory" else "By simulation"
    rows: list[tuple[str, ...]] = [("", "mean", "p50", "p95", "p99")]
    rows += [(name, *_times(getattr(report, key))) for name, key in TIMES]
    return [style.heading(f"{method}, {rate(report.arrival_rate_per_s)} requests/s"), *columns(rows, "<>>>>")]


def _facts(report: ServingReport, style: Style) -> list[str]:
    facts = [
        f"busy {report.utilisation:.0%} of the time".replace("%", " %"),
        f"{report.in_system:.3g} requests in the server on average, {report.waiting:.2g} of them waiting",
        f"{rate(report.user_tokens_per_s)} tokens/s for one user" if report.tpot_s.mean > 0 else "",
        f"{rate(report.aggregate_tokens_per_s)} tokens/s written for all users together",
        f"{rate(report.prompt_tokens_per_s)} prompt tokens/s read",
    ]
    facts += [f"{report.rejected} rejected: no slot holds their prompt"] if report.rejected else []
    facts += [f"{report.truncated} answers cut at the end of their slot"] if report.truncated else []
    return paragraph("; ".join(filter(None, facts)) + ".", style.width)


def _times(p: Percentiles) -> tuple[str, ...]:
    return tuple(_time(value) for value in (p.mean, p.p50, p.p95, p.p99))


def _time(value: float) -> str:
    if math.isnan(value):
        return ""
    return duration(value) if value > 0 else "0"


def _loads(loads: Sequence[ServingReport], style: Style) -> list[str]:
    head = ("requests/s", "busy", "TTFT p50", "p95", "TPOT p50", "p95", "one user tok/s", "all tok/s")
    rows = [
        (
            rate(one.arrival_rate_per_s),
            f"{one.utilisation:.0%}",
            *(_time(value) for value in (one.ttft_s.p50, one.ttft_s.p95, one.tpot_s.p50, one.tpot_s.p95)),
            rate(one.user_tokens_per_s) if one.tpot_s.mean > 0 else "",
            rate(one.aggregate_tokens_per_s),
        )
        for one in loads
    ]
    return [style.heading("By theory, at several rates"), *columns([head, *rows], ">>>>>>>>", gap=1)]


def _objective(service: Service, style: Style) -> list[str]:
    shown = service.simulation or service.theory or next(iter(service.loads), None)
    slo = service.largest.slo if service.largest else (shown.slo if shown else None)
    if slo is None:
        return []
    limits = [f"{name} within {duration(value)}" for name, value in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
              if value < math.inf]  # fmt: skip
    text = f"Objective: {' and '.join(limits)} for {slo.share:.0%} of the requests."
    if shown is not None and not service.loads and shown.slo_share is not None and shown.goodput_per_s is not None:
        verdict = "met" if shown.meets_slo else "not met"
        text += f" At this rate {shown.slo_share:.1%} are within it, {shown.goodput_per_s:.3g} a second: {verdict}."
    if service.largest is None:
        text += " Not even a nearly idle server meets it."
    else:
        text += f" The largest rate that meets it, by theory: {rate(service.largest.arrival_rate_per_s)} requests/s."
        text += "".join(
            f" Simulated, {simulation.slo_share:.1%} are within it there."
            for theory, simulation in service.checks
            if theory is service.largest and simulation.slo_share is not None
        )
    return ["", *paragraph(text, style.width, "", "")]


def _notes(service: Service, style: Style) -> list[str]:
    notes = [*service.profile.notes]
    if service.memory.fits is False:
        notes.append("It does not fit: the times are those that it would have with enough memory.")
    notes += _agreement(service)
    return ["", *(line for note in notes for line in paragraph(note, style.width, "  · ", "    "))] if notes else []


def _agreement(service: Service) -> list[str]:
    """What a simulation says of the theory; without one, what theory takes for granted."""
    if not service.checks:
        return ["Theory takes arrivals at random (Poisson)."] if service.theory or service.loads else []
    rates = " and ".join(f"{rate(theory.arrival_rate_per_s)}" for theory, _ in service.checks)
    errors = [simulation.ttft_error for _, simulation in service.checks if simulation.ttft_error]
    exact = f" The simulated mean TTFT is good to about {max(errors):.0%}." if errors else ""
    if not service.deviations:
        text = f"At {rates} requests/s theory and simulation agree within {AGREEMENT:.0%} in all these times"
        return [f"{text}, or within the error of the simulation.{exact}"]
    worst = service.deviations[0]
    side = "below" if worst.relative < 0 else "above"
    return [
        f"At {rate(worst.rate_per_s)} requests/s trust the simulation: theory is up to {abs(worst.relative):.0%} "
        f"{side} it ({worst.figure} {_time(worst.theory_s)} by theory, {_time(worst.simulation_s)} simulated).{exact}"
    ]


def service_data(service: Service) -> dict[str, Any]:
    """Plain numbers; what is unknown or infinite is null."""
    r = service.request
    return {
        "schema": SCHEMA,
        "model": r.model.id,
        "quantisation": r.quantisation,
        "devices": [device.id for device in r.devices],
        "backend": r.backend,
        "server": asdict(service.server),
        "fits": service.memory.fits,
        "margin_bytes": service.memory.margin_bytes,
        "capacity_per_s": service.capacity_per_s,
        "overloaded": service.overloaded,
        "theory": _report_data(service.theory),
        "simulation": _report_data(service.simulation),
        "loads": [_report_data(one) for one in service.loads],
        "largest_rate": _report_data(service.largest),
        "checks": [
            {"theory": _report_data(theory), "simulation": _report_data(simulation)}
            for theory, simulation in service.checks
        ],
        "deviations": [asdict(one) | {"relative": one.relative} for one in service.deviations],
        "notes": list(service.profile.notes),
    }


def _report_data(report: ServingReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    data = {key: _plain(value) for key, value in asdict(report).items()}
    return data | {"goodput_per_s": report.goodput_per_s, "user_tokens_per_s": _plain(report.user_tokens_per_s)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return finite(value) if isinstance(value, float) else value
