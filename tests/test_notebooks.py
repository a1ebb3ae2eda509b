"""Notebooks run from top to bottom, and are stored without outputs.

Cells are executed in one namespace, as Jupyter does, their last expression shown by its representation; no kernel is
needed for that.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
LIBRARY = FOLDER.parent / "docs" / "library.md"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """Cells of a notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    found: list[dict[str, Any]] = notebook["cells"]
    return found


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Execute a cell and represent the value of its last line, if it is an expression."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            getattr(value, "_repr_html_", value.__repr__)()


def test_there_is_one_for_each_question() -> None:
    assert {path.stem for path in NOTEBOOKS} == {
        "calibrating_from_llama_bench",
        "capacity_planning",
        "first_estimate",
        "kv_cache_and_long_context",
        "offload",
        "prefill_and_decode_on_a_roofline",
    }


def public_names() -> set[tuple[str, str]]:
    """(module, name) of every function that docs/library.md lists."""
    rows = [line.split(" | ") for line in LIBRARY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {(where.strip(" |`"), name) for _, names, where in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_documented_names_are_there() -> None:
    names = public_names()
    assert ("llmcalc", "estimate") in names and ("llmcalc.speed_curves", "batch_curve") in names
    import llmcalc.plots  # a module of its own, which has to be imported

    assert llmcalc.plots
    for module, name in names:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_uses_documented_names_only(path: Path) -> None:
    names = public_names()
    for cell in cells(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))) if cell["cell_type"] == "code" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llmcalc"):
                assert {(node.module, alias.name) for alias in node.names} <= names
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "llmcalc":
                assert ("llmcalc", node.attr) in names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path: Path) -> None:
    for cell in cells(path):
        assert cell["cell_type"] in ("markdown", "code")
        assert cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    for variable in ("XDG_CONFIG_HOME", "HOME", "APPDATA", "USERPROFILE"):
        monkeypatch.setenv(variable, str(own))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path)):
        if cell["cell_type"] == "code":
            run_cell("".join(cell["source"]), f"{path.name}, cell {number}", namespace)
    pyplot.close("all")
    assert capsys.readouterr().out
    assert not own.exists() or not list(own.rglob("*llmcalc*")), "notebooks leave the user's own folder alone"
