"""A FitReport as a page for the terminal: the choices, llama.cpp's own beside them, the commands that start each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..fit_search import Choice, FitReport
from ..llama_commands import TOOLS, command_parts
from ..placement_settings import PlacementSettings
from ..units import GIB
from .layout import Style, columns, interval, margin, paragraph, rate

OWN_FIT: Final = "--fit"  # the row of what llama.cpp would choose
# Columns in order, each with its alignment. What has no room on the line goes first in the order of DROPPED: the
# commands say it as well.
COLUMNS: Final = (
    ("", "<"), ("quant", "<"), ("quality", "<"), ("context", ">"), ("decode", ">"), ("80 % range", ">"),
    ("full ctx", ">"), ("prefill", ">"), ("KV", "<"), ("ubatch", ">"), ("on host", ">"), ("placement", "<"),
)  # fmt: skip
DROPPED: Final = ("ubatch", "full ctx", "KV", "placement", "80 % range", "quality")


def fit_page(report: FitReport, style: Style) -> list[str]:
    """The page as lines."""
    lines = [*_head(report, style), "", *_table(report, style)]
    for note in report.notes:
        lines += ["", *paragraph(note, style.width, "  · ", "    ")]
    if report.llama_cpp:
        lines += ["", *_against(report.choices[0], report.llama_cpp, style)]
    lines += ["", style.heading("Commands")]
    for i, choice in enumerate(report.choices, 1):
        lines += _commands(str(i), choice, style)
    return lines


def _head(report: FitReport, style: Style) -> list[str]:
    request = report.choices[0].request
    machine = " + ".join(device.name for device in request.devices)
    w = request.workload
    contexts = sorted({choice.request.workload.context for choice in report.choices})
    shape = f"context {' or '.join(f'{n:,}' for n in contexts)}"
    shape += f", {w.parallel} sequences" if w.parallel > 1 else ""
    lines = paragraph(f"{request.model.name} on {machine}", style.width, "", "  ")
    told = f"{report.tried} combinations tried, {shape}; tokens/s of one sequence, decode at 1,024 tokens in the cache"
    return [*(style.paint(line, "bold") for line in lines), *paragraph(f"{told}.", style.width)]


def _table(report: FitReport, style: Style) -> list[str]:
    rows = [_row(str(i), choice) for i, choice in enumerate(report.choices, 1)]
    if report.llama_cpp:
        rows.append(_row(OWN_FIT, report.llama_cpp))
    shown = [name for name, _ in COLUMNS if name in _telling(report)]
    lines = _lines(rows, shown)
    for name in DROPPED:
        if max(map(len, lines)) > style.width and name in shown:
            shown.remove(name)
            lines = _lines(rows, shown)
    return [style.paint(lines[0], "dim"), *lines[1:]]


def _telling(report: FitReport) -> set[str]:
    """Columns that say something: one context needs none, nor does a CPU the places."""
    names = {name for name, _ in COLUMNS}
    if len({choice.request.workload.context for choice in report.choices}) == 1:
        names.discard("context")
    if not report.llama_cpp:
        names -= {"on host", "placement"}
    return names


def _lines(rows: Sequence[dict[str, str]], shown: Sequence[str]) -> list[str]:
    align = "".join(side for name, side in COLUMNS if name in shown)
    return columns([tuple(shown), *(tuple(row[name] for name in shown) for row in rows)], align)


def _row(name: str, choice: Choice) -> dict[str, str]:
    w = choice.request.workload
    return {
        "": name,
        "quant": choice.request.quantisation,
        "quality": choice.quality,
        "context": f"{w.context:,}",
        "decode": rate(choice.decode_tokens_per_s),
        "80 % range": interval(choice.decode_interval_80),
        "full ctx": rate(choice.decode_full_tokens_per_s),
        "prefill": rate(choice.prefill_tokens_per_s),
        "KV": w.kv_type_k,
        "ubatch": str(w.ubatch),
        "on host": f"{choice.plan.host.total_bytes / GIB:.1f} GiB",
        "placement": placement_text(choice.settings),
    }


def placement_text(settings: PlacementSettings) -> str:
    """The placement in a few characters: its flags, in their short forms; "all" where nothing is elsewhere."""
    flags = [
        f"-ngl {settings.ngl}" if settings.ngl is not None else "",
        f"-ncmoe {settings.n_cpu_moe}" if settings.n_cpu_moe else "",
        "-cmoe" if settings.cpu_moe else "",
        f"-ncffn {settings.n_cpu_ffn}" if settings.n_cpu_ffn else "",
        f"-ts {','.join(f'{share:g}' for share in settings.tensor_split)}" if settings.tensor_split else "",
        f"-sm {settings.split_mode}" if settings.split_mode != "layer" else "",
        f"-mg {settings.main_gpu}" if settings.main_gpu else "",
        "-ot …" if settings.overrides else "",
    ]
    return " ".join(filter(None, flags)) or "all"


def _against(best: Choice, own: Choice, style: Style) -> list[str]:
    decode = best.decode_tokens_per_s / own.decode_tokens_per_s
    prefill = best.prefill_tokens_per_s / own.prefill_tokens_per_s
    text = (
        f"{OWN_FIT} is what llama.cpp chooses by itself for the file of choice 1, whose decode is {decode:.2f} times "
        f"and whose prefill {prefill:.2f} times that."
    )
    return paragraph(text, style.width)


def _commands(name: str, choice: Choice, style: Style) -> list[str]:
    """The choice in words, then a command a tool, broken between options, ready to be pasted."""
    words = f"{choice.request.quantisation}, {choice.quality}, {rate(choice.decode_tokens_per_s)} tokens/s"
    if not choice.fits:
        words += f"; {margin(choice.plan.margin_bytes)}"
    lines = [f"  {style.paint(f'{name}  {words}', 'cyan')}"]
    for tool in TOOLS:
        lines += broken(command_parts(choice.request, tool), style.width, "     ")
    return lines


def broken(parts: Iterable[str], width: int, indent: str) -> list[str]:
    """A command on lines of `width` columns that end in a backslash, broken between its options only."""
    lines: list[str] = []
    line = ""
    for part in parts:
        if line and len(line) + len(part) + 3 > width:
            lines.append(f"{line} \\")
            line = f"{indent}  {part}"
        else:
            line = f"{line} {part}" if line else f"{indent}{part}"
    return [*lines, line]
