"""The wheel holds all that the main job needs: it is built, installed into an empty environment and run from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


def test_wheel_holds_the_catalogs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (("hardware", "llmcalc/hardware"), ("models", "llmcalc/models"), ("estimator", "llmcalc")):
        for source in (ROOT / folder).glob("*.yaml"):
            assert f"{package}/{source.name}" in names
    assert "llmcalc/py.typed" in names
    assert any(name.startswith("llmcalc/hardware/measurements/") and name.endswith(".csv") for name in names)
    assert not any(name.startswith(("tests/", "estimator/")) for name in names)


def test_main_job_runs_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = str(scripts / "python")
    # The dependencies are lent by this environment, so that the test needs no package index; llmcalc itself is not:
    # a path that a .pth file adds is searched last, and the .pth file of an editable install in it is not read.
    ask = [python, "-c", "import site; print(site.getsitepackages()[0])"]
    site_packages = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    Path(site_packages, "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, cwd=tmp_path, env=environment)
    job = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--quant", "q4", "--ctx", "32k", "--format", "json"]
    done = subprocess.run(
        [str(scripts / "llmcalc"), *job], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["memory"]["weights_bytes"] == 4_912_898_048  # llama-quantize: Q4_K_M of this model
