"""The page of `llmcalc fit`, and that its commands are llama.cpp's."""

from __future__ import annotations

import re
import shlex

import pytest

from llmcalc.fit_search import FitReport, fit
from llmcalc.llama_commands import TOOLS, command_parts
from llmcalc.placement_settings import PlacementSettings
from llmcalc.report.fit import broken, fit_page, placement_text
from llmcalc.report.layout import Style
from llmcalc.request import Request, resolve
from llmcalc.surroundings import surrounded

# Options of llama-server, llama-cli and llama-bench b11434, as their --help lists them.
RUN_OPTIONS = {
    "-m", "-c", "-ngl", "--n-cpu-moe", "--cpu-moe", "--n-cpu-ffn", "-ts", "-sm", "-mg", "--no-kv-offload",
    "--no-op-offload", "-lm", "-ot", "-ctk", "-ctv", "-b", "-ub", "-t", "-fa", "--swa-full", "--rpc", "-np",
}  # fmt: skip
OPTIONS = {
    "llama-server": RUN_OPTIONS | {"-kvu"},
    "llama-cli": RUN_OPTIONS,
    "llama-bench": {
        "-m", "-p", "-n", "-d", "-b", "-ub", "-ctk", "-ctv", "-t", "-ngl", "-ncmoe", "-sm", "-mg", "-nkvo", "-fa",
        "-lm", "-ts", "-ot", "-nopo", "--rpc",
    },
}  # fmt: skip


def machines() -> list[Request]:
    """One small model on machines that take every kind of placement."""
    return [
        resolve(model="qwen3-30b-a3b", gpu="rtx3070", cpu="ryzen-5-5600x", ram="32GiB", ctx="16k", quant="q4"),
        resolve(model="qwen3-14b", gpu="rtx3060", cpu="ryzen-5-5600x", ram="32GiB", quant="q8"),
        resolve(model="llama3-70b", gpu=["rtx3090", "rtx3060"], quant="q4"),
        resolve(model="qwen3-8b", cpu="ryzen-9-7950x", ram="32GiB", threads=8, quant="q4"),
    ]


@pytest.fixture(scope="module")
def reports() -> list[FitReport]:
    return [fit(request, fixed_weights=True) for request in machines()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_too_wide(reports: list[FitReport], width: int) -> None:
    for report in reports:
        for line in fit_page(report, Style(width)):
            assert len(line) <= width or " -ot " in line or line.lstrip().startswith("-ot"), line


def test_wide_pages_show_every_column_and_narrow_ones_the_speeds(reports: list[FitReport]) -> None:
    wide, narrow = ("\n".join(fit_page(reports[0], Style(width))) for width in (120, 50))
    for name in ("quant", "decode", "prefill", "on host"):
        assert name in wide
        assert name in narrow
    assert "placement" in wide
    assert "ubatch" not in narrow


def test_every_choice_has_a_command_of_each_tool_that_can_be_pasted(reports: list[FitReport]) -> None:
    for report in reports:
        text = "\n".join(fit_page(report, Style(70)))
        found = re.findall(r"^ +(llama-(?:.*\\\n)*.*)$", text, re.M)
        pasted = [" ".join(shlex.split(command.replace("\\\n", ""))) for command in found]
        meant = [" ".join(shlex.split(choice.command(tool))) for choice in report.choices for tool in TOOLS]
        assert pasted == meant


def test_commands_use_options_that_the_tools_have(reports: list[FitReport]) -> None:
    remote = machines()[2]
    asked = resolve(model="llama3-8b", gpu="rtx3060", parallel=4, kv_unified=True, swa_full=True, flash_attention="off")
    over_network = resolve(model="llama3-8b", rpc=["rtx3060"], gpu="rtx3060", cpu="ryzen-5-5600x")
    requests = [choice.request for report in reports for choice in report.choices] + [remote, asked, over_network]
    for request in requests:
        for tool in TOOLS:
            name, *options = command_parts(request, tool)
            assert name == tool
            assert {option.split(" ")[0] for option in options} <= OPTIONS[tool]


def test_remote_devices_are_in_every_command() -> None:
    request = resolve(model="llama3-8b", rpc=["rtx3060", "rtx3060"], gpu="rtx3060")
    for tool in TOOLS:
        assert "--rpc HOST1:50052,HOST2:50052" in command_parts(request, tool)
    assert surrounded(request.system, remote=0).remote == 0


def test_a_command_is_broken_between_its_options_only() -> None:
    lines = broken(("llama-server", "-m a.gguf", "-c 8192", "-ngl all"), 26, "  ")
    assert lines == ["  llama-server -m a.gguf \\", "    -c 8192 -ngl all"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (PlacementSettings(), "all"),
        (PlacementSettings(ngl=12), "-ngl 12"),
        (PlacementSettings(n_cpu_moe=7), "-ncmoe 7"),
        (PlacementSettings(tensor_split=(60.0, 40.0), ngl=9), "-ngl 9 -ts 60,40"),
        (PlacementSettings(split_mode="none", main_gpu=1), "-sm none -mg 1"),
        (PlacementSettings(overrides=("a=CPU",)), "-ot …"),
    ],
)
def test_placements_in_a_few_characters(settings: PlacementSettings, text: str) -> None:
    assert placement_text(settings) == text


def test_an_assumed_host_is_said_where_it_works(reports: list[FitReport]) -> None:
    assert not reports[0].notes
    assert any("--cpu" in note for note in reports[2].notes)
    assert any("--ram" in note for note in reports[2].notes)


def test_a_larger_context_at_the_same_speed_is_preferred() -> None:
    request = resolve(model="llama3-8b", gpu="rtx3060", quant="q4")
    report = fit(request, fixed_weights=True, contexts=(8192, 16384), cache_types=("F16",), ubatches=(512,))
    assert [choice.request.workload.context for choice in report.choices] == [16384]
