"""The house rules that a machine can check: arrows one way, leaves stay leaves, small functions, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "estimator"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
LEAVES = ("cli", "report", "plots")
HEAVY = {"scipy", "pint", "matplotlib", "gguf", "platformdirs"}
MAY_BE_HEAVY = {"plots", "calibration.design"}  # charts, and the fit: nothing else imports them at its top
LONGEST_FUNCTION = 50


def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def top_level_imports(name: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported: not those in functions or under TYPE_CHECKING."""
    for node in tree(name).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def imported(name: str) -> set[str]:
    """Modules of this package that importing `name` imports."""
    package = name.split(".") if MODULES[name].name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part != "__init__"]
    found = set()
    for node in top_level_imports(name):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{module}.{alias.name}" if module else alias.name
                found.add(whole if whole in MODULES else module)
    return found - {name}


def test_imports_form_no_cycle() -> None:
    TopologicalSorter({name: imported(name) for name in MODULES if name != "__init__"}).prepare()


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] not in (*LEAVES, "__init__")])
def test_only_leaves_import_leaves(name: str) -> None:
    assert not {module for module in imported(name) if module.split(".")[0] in LEAVES}


@pytest.mark.parametrize("name", MODULES)
def test_heavy_libraries_are_imported_where_they_are_used(name: str) -> None:
    if name.split(".")[0] in MAY_BE_HEAVY or name in MAY_BE_HEAVY:
        return
    roots = set()
    for node in top_level_imports(name):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif not node.level and node.module:
            roots.add(node.module.split(".")[0])
    assert not roots & HEAVY


@pytest.mark.parametrize("name", MODULES)
def test_imports_inside_the_package_are_relative(name: str) -> None:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in ("llmcalc", "estimator")


@pytest.mark.parametrize("name", MODULES)
def test_functions_are_short_and_modules_say_what_they_are_for(name: str) -> None:
    module = tree(name)
    assert ast.get_docstring(module), f"{name} has no docstring"
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            signature = node.body[0].lineno - node.lineno
            assert length - signature <= LONGEST_FUNCTION, f"{name}.{node.name} has {length} lines"


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__main__"])
def test_modules_or_their_packages_say_what_they_may_import(name: str) -> None:
    docstrings = [ast.get_docstring(tree(each)) or "" for each in (name, name.rpartition(".")[0]) if each]
    assert any("mport" in docstring for docstring in docstrings)


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_and_classes_have_docstrings(name: str) -> None:
    for node in tree(name).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name}.{node.name} has no docstring"
