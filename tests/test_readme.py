"""README, CONTRIBUTING and docs are true: their commands and code run, outputs are what is printed, pictures are drawn.

`python tests/test_readme.py` writes the outputs of the console examples and the README's chart anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest

from llmcalc.cli import run

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "ACCURACY.md", *sorted((ROOT / "docs").glob("*.md"))]
CHART = ROOT / "docs" / "roofline.png"
CHART_TOLERANCE = 14.0  # root mean square of 255, between versions of matplotlib and of the factors; other charts: 30
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
SAMPLE = ROOT / "hardware" / "measurements" / "cpu-xeon-2core" / "llama-3.2-1b-Q4_K_M.t2.json"


def blocks(language: str, document: Path = README) -> list[str]:
    return [text for kind, text in BLOCK.findall(document.read_text(encoding="utf-8")) if kind == language]


def status_and_output(command: str) -> tuple[int, str]:
    """Exit status of a README command, and what it prints at 80 columns."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    environment = {"COLUMNS": "80", "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with contextlib.redirect_stdout(out):
            status = run(shlex.split(command)[1:])
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    out.flush()
    return status, out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def printed(command: str) -> str:
    """What a command prints that succeeds, or that finds problems in a catalog, as it was asked to."""
    status, output = status_and_output(command)
    assert status == 0 or (status == 2 and " catalog check " in command)
    return output


def examples() -> list[tuple[str, str]]:
    """(command, output) of each console example."""
    found = []
    for text in blocks("console"):
        command, _, output = text.partition("\n")
        found.append((command.removeprefix("$ "), output))
    return found


def schemas() -> list[tuple[str, str, str]]:
    """(command, schema, keys) of docs/json.md."""
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(llmcalc [^`]+)` \| `([^`]+)` \| (.*) \|$", text, re.MULTILINE)


def commands() -> list[str]:
    """Every `llmcalc …` in code spans that is whole: no pipe, no placeholder, no file that nobody has.

    Those with a schema have a test of their own.
    """
    found = []
    known = {command for command, _, _ in schemas()}
    for document in DOCUMENTS:
        spans = re.findall(r"`(llmcalc [^`]+)`", BLOCK.sub("", document.read_text(encoding="utf-8")))
        found += [one for one in spans if " " in one[8:] and not re.search(r"[|…]|COMMAND|model\.gguf", one)]
    return [one for one in dict.fromkeys(found) if one not in known]


@pytest.fixture(autouse=True)
def a_folder_with_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML examples under the names that their first lines say, runs in runs.json, no configuration of one's own."""
    monkeypatch.chdir(tmp_path)
    for variable in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "own"))
    write_files(tmp_path)


def write_files(folder: Path) -> None:
    for text in blocks("yaml"):
        path = folder / text.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    runs = SAMPLE.read_text(encoding="utf-8").replace('"backends": "CPU"', '"backends": "CUDA"')
    (folder / "runs.json").write_text(runs.replace('"gpu_info": ""', '"gpu_info": "RTX 4090"'), encoding="utf-8")


@pytest.mark.parametrize(("command", "output"), examples())
def test_console_examples_print_what_they_show(command: str, output: str) -> None:
    assert printed(command) == output


@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str) -> None:
    if "profile" in command and "--save" not in command:
        printed("llmcalc calibrate runs.json --gpu rtx4090 --save mine")
    output = printed(command)
    written = re.search(r" -o (\S+)", command)
    assert output if written is None else Path(written[1]).stat().st_size


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=document.name) for document in DOCUMENTS for code in blocks("python", document)]
)
def test_python_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_no_block_is_left_out() -> None:
    known = {"console", "python", "yaml", "sh", ""}
    for document in DOCUMENTS:
        assert {kind for kind, _ in BLOCK.findall(document.read_text(encoding="utf-8"))} <= known


def test_yaml_examples_are_overlays() -> None:
    shown = printed("llmcalc hardware show my-4090 --json --catalog mine")
    assert json.loads(shown)["power_watts"] == 350
    shown = printed("llmcalc models show my-8b --json --catalog mine")
    assert json.loads(shown)["total_params"] == 8030261248


def test_the_chart_is_what_its_command_draws(tmp_path: Path) -> None:
    import matplotlib
    from matplotlib.testing.compare import compare_images

    if tuple(map(int, matplotlib.__version__.split(".")[:2])) < (3, 8):
        pytest.skip("matplotlib 3.6 sets text a little narrower, which may move a label to another place")
    (command,) = (one for one in commands() if one.endswith("-o roofline.png"))
    assert "](docs/roofline.png)" in README.read_text(encoding="utf-8")
    assert CHART.stat().st_size < 200_000
    (tmp_path / "expected.png").write_bytes(CHART.read_bytes())
    printed(command)
    assert compare_images("expected.png", "roofline.png", CHART_TOLERANCE) is None
    printed(command.replace("rtx4090", "m2-ultra-76"))
    assert compare_images("expected.png", "roofline.png", CHART_TOLERANCE) is not None


def test_every_schema_is_documented() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "estimator").rglob("*.py"))
    found = set(re.findall(r'"(llmcalc\.\w+/\d+)"', sources)) - {"llmcalc.efficiency/1", "llmcalc.profile/1"}  # files
    assert found == {schema for _, schema, _ in schemas()}


@pytest.mark.parametrize(("command", "schema", "keys"), schemas())
def test_json_has_its_schema_and_keys(command: str, schema: str, keys: str) -> None:
    answer = json.loads(printed(command))
    assert next(iter(answer)) == "schema" and answer["schema"] == schema
    assert set(keys.split(", ")) <= set(answer)


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            assert "://" in target or (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_layout_names_what_is_there() -> None:
    (layout,) = (text for text in blocks("") if text.startswith("estimator/"))
    for line in layout.splitlines()[1:]:
        for name in re.findall(r"[\w./]+", line[:42]):
            path = ROOT / "estimator" / name
            assert path.exists() or path.with_suffix(".py").exists(), name


def test_set_up_commands_name_what_the_project_has() -> None:
    install, develop = blocks("sh")
    assert "pip install . &&" in install
    assert "pip install -e '.[dev]' && .venv/bin/pytest" in develop
    assert "'.[dev]'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_checks_that_contributing_names_are_those_of_ci() -> None:
    checks = next(text for text in blocks("", ROOT / "CONTRIBUTING.md") if "ruff" in text).splitlines()[-1]
    ran = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in checks.split(" && "):
        name = command.removeprefix(".venv/bin/")
        assert name.split(" -n")[0] in ran


def test_accuracy_figures_are_those_of_the_accuracy_file() -> None:
    accuracy = (ROOT / "ACCURACY.md").read_text(encoding="utf-8")
    rows = [
        line for line in README.read_text(encoding="utf-8").splitlines() if re.match(r"\| (decode|prefill): ", line)
    ]
    assert len(rows) >= 4
    for row in rows:
        assert row in accuracy


def update() -> None:
    """Write the outputs of the console examples, and the chart, anew."""
    text = README.read_text(encoding="utf-8")
    os.chdir(tempfile.mkdtemp())
    os.environ["XDG_CONFIG_HOME"] = os.environ["HOME"] = os.getcwd()
    write_files(Path())
    (command,) = (one for one in commands() if one.endswith("-o roofline.png"))
    printed(command)
    CHART.write_bytes(Path("roofline.png").read_bytes())
    for command, output in examples():
        text = text.replace(f"$ {command}\n{output}", f"$ {command}\n{printed(command)}")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
