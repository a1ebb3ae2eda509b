"""Shell completion: names of devices, models and types, without parsing a catalog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from llmcalc.catalog import open_catalog
from llmcalc.cli import COMMANDS, group
from llmcalc.cli.completion import BACKENDS, CACHE_TYPES
from llmcalc.device_catalog import find_device, list_devices
from llmcalc.file_types import FILE_TYPES, file_type
from llmcalc.model_catalog import find_model
from llmcalc.workload import KV_TYPES


def completions(line: str) -> list[str]:
    """What the last word of a command line may become."""
    *words, last = line.split(" ")
    found = ShellComplete(group, {}, "llmcalc", "_LLMCALC_COMPLETE").get_completions(words, last)
    return [item.value for item in found if item.type == "plain"]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("estimate --gpu rtx40", {"rtx4090", "rtx4060"}),
        ("estimate --gpu RTX-40", {"RTX-4090"}),
        ("estimate --gpu geforce-rtx-409", {"geforce-rtx-4090", "geforce-rtx-4090-d", "geforce-rtx-4090-laptop"}),
        ("estimate --gpu a", {"auto", "arc-b580", "a10"}),
        ("estimate --cpu ryzen-9-79", {"ryzen-9-7950x", "ryzen-9-7900x"}),
        ("estimate --cpu epyc-9654", {"epyc-9654"}),
        ("estimate --model qwen3-3", {"qwen3-32b", "qwen3-30b-a3b"}),
        ("estimate -m Qwen/Qwen3-0", {"Qwen/Qwen3-0.6b"}),
        ("estimate --quant q5_", {"q5_k_m", "q5_k_s", "q5_0", "q5_1"}),
        ("estimate --kv-type-k q", {"q8_0", "q4_0"}),
        ("estimate --backend V", {"Vulkan"}),
        ("plot roofline --gpu rtx3090", {"rtx3090"}),
        ("plot accuracy --gpu epyc-9654", {"epyc-9654"}),
        ("sweep --quant Q8_0,Q4_K_", {"Q8_0,Q4_K_M", "Q8_0,Q4_K_S"}),
        ("hardware show m4-m", {"m4-max"}),
        ("models show llama3-8", {"llama3-8b"}),
    ],
)
def test_names_are_completed(line: str, some: set[str]) -> None:
    found = completions(line)
    assert some <= set(found)
    assert all(one.startswith(line.rpartition(" ")[2]) for one in found)


def test_gpus_and_cpus_are_told_apart() -> None:
    gpus, cpus = completions("estimate --gpu "), completions("estimate --cpu ")
    kinds = {device.id: device.kind for device in list_devices()}
    assert {kinds[one] for one in gpus[2:]} == {"gpu", "apu", "apple", "soc"}
    assert {kinds[one] for one in cpus[1:]} == {"cpu", "soc"}


@pytest.mark.parametrize("typed", ["r", "rtx", "rx7", "m2", "apple", "xe", "8", "p"])
def test_every_completed_device_is_found(typed: str) -> None:
    found = completions(f"hardware show {typed}")
    assert found
    for name in found:
        find_device(name)


@pytest.mark.parametrize("typed", ["l", "q", "meta-llama/", "gpt", "deep"])
def test_every_completed_model_is_found(typed: str) -> None:
    found = completions(f"models show {typed}")
    assert found
    for name in found:
        find_model(name)


def test_every_completed_type_is_known() -> None:
    assert completions("estimate --quant ") == list(FILE_TYPES)
    for name in completions("estimate --quant iq"):
        file_type(name)
    assert {name.upper() for name in CACHE_TYPES} == set(KV_TYPES)
    assert set(BACKENDS) <= {backend for device in list_devices() for backend in device.backends}


def test_files_are_completed_where_no_model_begins_so() -> None:
    found = ShellComplete(group, {}, "llmcalc", "_LLMCALC_COMPLETE").get_completions(["estimate", "--model"], "./mo")
    assert [(item.type, item.value) for item in found] == [("file", "./mo")]


def test_fields_are_glanced_at_as_they_are_parsed() -> None:
    catalog = open_catalog("hardware")
    assert [catalog.glance(id, "kind") for id in catalog.ids()] == [
        catalog.entry(id).fields["kind"] for id in catalog.ids()
    ]


def test_every_command_can_be_completed() -> None:
    context = click.Context(group, resilient_parsing=True)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for below in getattr(command, "commands", {"": command}):
            assert isinstance(completions(f"{name} {below} --".replace("  ", " ")), list)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_get_a_script_and_no_catalog_is_parsed(shell: str) -> None:
    code = (
        "import sys; from llmcalc.cli import group\n"
        "try: group.main(prog_name='llmcalc')\n"
        "except SystemExit: print(sorted({'numpy', 'yaml', 'scipy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = dict(
        os.environ, COMP_WORDS="llmcalc estimate --gpu rtx409", COMP_CWORD="rtx409" if shell == "fish" else "3"
    )
    for ask, expected in ((f"{shell}_source", "_LLMCALC_COMPLETE"), (f"{shell}_complete", "rtx4090")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment | {"_LLMCALC_COMPLETE": ask}, capture_output=True, text=True
        )
        assert expected in done.stdout
        assert done.stderr == "[]\n"


@pytest.mark.parametrize("line", ["estimate --profile h", "validate --profile h", "profile show h", "profile export h"])
def test_kept_profiles_are_completed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCALC_PROFILES", str(tmp_path))
    assert completions(line) == []
    for name in ("home.yaml", "work.yaml", "home.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert completions(line) == ["home"]
