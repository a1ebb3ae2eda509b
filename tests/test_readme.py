"""The README is true: its commands run, its outputs are what they print, its figures stand in ACCURACY.md.

`python tests/test_readme.py` writes the outputs of the console examples anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from llmcalc.cli import run

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(README.read_text(encoding="utf-8")) if kind == language]


def printed(command: str) -> str:
    """What a README command prints at 80 columns."""
    out = io.StringIO()
    environment = {"COLUMNS": "80", "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with contextlib.redirect_stdout(out):
            assert run(shlex.split(command)[1:]) == 0
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return out.getvalue()


def examples() -> list[tuple[str, str]]:
    """(command, output) of each console example."""
    found = []
    for text in blocks("console"):
        command, _, output = text.partition("\n")
        found.append((command.removeprefix("$ "), output))
    return found


def commands() -> list[str]:
    """Every `llmcalc …` in code spans."""
    text = BLOCK.sub("", README.read_text(encoding="utf-8"))
    return [
        span
        for span in re.findall(r"`(llmcalc [^`]+)`", text)
        if "|" not in span and "=" not in span and " " in span[8:]
    ]


@pytest.mark.parametrize(("command", "output"), examples())
def test_console_examples_print_what_they_show(command: str, output: str) -> None:
    assert printed(command) == output


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = ROOT / "hardware" / "measurements" / "cpu-xeon-2core" / "llama-3.2-1b-Q4_K_M.t2.json"
    Path("runs.json").write_text(sample.read_text(encoding="utf-8"), encoding="utf-8")
    assert printed(command)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_yaml_example_is_an_overlay(tmp_path: Path) -> None:
    (example,) = blocks("yaml")
    (tmp_path / "hardware.yaml").write_text(example, encoding="utf-8")
    shown = printed(f"llmcalc hardware show my-4090 --json --catalog {shlex.quote(str(tmp_path))}")
    assert json.loads(shown)["power_watts"] == 350


def test_set_up_commands_name_what_the_project_has() -> None:
    install, develop = blocks("sh")
    assert "pip install . &&" in install
    assert "pip install -e '.[dev]' && .venv/bin/pytest" in develop
    assert "'.[dev]'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_accuracy_figures_are_those_of_the_accuracy_file() -> None:
    accuracy = (ROOT / "ACCURACY.md").read_text(encoding="utf-8")
    rows = [
        line for line in README.read_text(encoding="utf-8").splitlines() if re.match(r"\| (decode|prefill): ", line)
    ]
    assert len(rows) >= 4
    for row in rows:
        assert row in accuracy


def update() -> None:
    """Write the outputs of the console examples anew."""
    text = README.read_text(encoding="utf-8")
    for command, output in examples():
        text = text.replace(f"$ {command}\n{output}", f"$ {command}\n{printed(command)}")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
