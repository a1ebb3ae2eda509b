"""A FitReport as a page for the terminal: the choices, their commands, and llama.cpp's own."""

from __future__ import annotations

from ..fit_search import Choice, FitReport
from .layout import Style, columns, interval, margin, paragraph, rate

HEADER = ("", "quant", "quality", "context", "decode", "80 % range", "full ctx", "prefill", "KV", "ubatch")


def fit_page(report: FitReport, style: Style) -> list[str]:
    """The page as lines."""
    first = report.choices[0].request
    machine = " + ".join(device.name for device in first.devices)
    lines = [style.paint(f"{first.model.name} on {machine}", "bold"), f"{report.tried} combinations tried", ""]
    rows = [HEADER, *(_row(str(i), choice) for i, choice in enumerate(report.choices, 1))]
    if report.llama_cpp:
        rows.append(_row("--fit", report.llama_cpp))
    lines += columns(rows, "<<<>>>>><>")
    for note in report.notes:
        lines += ["", *paragraph(note, style.width, "  ", "  ")]
    lines += ["", style.heading("Commands")]
    for i, choice in enumerate(report.choices, 1):
        verdict = "" if choice.fits else f"  # {margin(choice.plan.margin_bytes)}"
        lines += paragraph(choice.command() + verdict, style.width, f"  {i}  ", "       ")
    lines += paragraph(report.choices[0].command("llama-cli"), style.width, "  1  ", "       ")
    lines += paragraph(report.choices[0].command("llama-bench"), style.width, "  1  ", "       ")
    if report.llama_cpp:
        lines += ["", style.heading("What llama.cpp's own --fit would do with the first file")]
        lines += paragraph(_against(report.choices[0], report.llama_cpp), style.width)
        lines += paragraph(report.llama_cpp.command(), style.width, "  ", "       ")
    return lines


def _row(name: str, choice: Choice) -> tuple[str, ...]:
    w = choice.request.workload
    return (
        name,
        choice.request.quantisation,
        choice.quality,
        f"{w.context:,}",
        rate(choice.decode_tokens_per_s),
        interval(choice.decode_interval_80),
        rate(choice.decode_full_tokens_per_s),
        rate(choice.prefill_tokens_per_s),
        w.kv_type_k,
        str(w.ubatch),
    )


def _against(best: Choice, own: Choice) -> str:
    decode = best.decode_tokens_per_s / own.decode_tokens_per_s
    prefill = best.prefill_tokens_per_s / own.prefill_tokens_per_s
    return f"Choice 1 against it: {decode:.2f} times its decode, {prefill:.2f} times its prefill."
