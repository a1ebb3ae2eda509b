"""The library as people import it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import llmcalc


def test_public_names_are_not_hidden_by_modules_of_the_same_name() -> None:
    for module in pkgutil.walk_packages(llmcalc.__path__, "llmcalc."):
        if not module.name.endswith(("fit_corpus", "__main__")):
            importlib.import_module(module.name)
    for name in llmcalc.__all__:
        assert not isinstance(getattr(llmcalc, name), ModuleType), name


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, llmcalc; print([m for m in sys.modules if m.startswith('llmcalc.') or m == 'numpy'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        llmcalc.frobnicate  # noqa: B018
    assert set(llmcalc.__all__) <= set(dir(llmcalc))
