"""What is released: sdist and wheel hold what they should and no more, licences too; the main job runs from it."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


MB = 1e6
LARGEST_WHEEL, LARGEST_SDIST = 2 * MB, 4 * MB
# Raw output behind tables that are in it.
NOT_IN_THE_WHEEL = ("hardware/measurements/cpu-epyc-2core/", "hardware/measurements/cpu-xeon-2core/")


@cache
def project_files() -> tuple[str, ...]:
    """Files of the project as git sees them: tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, made from a copy of the project, and the wheel, made from the sdist."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in project_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deprecated" not in (done.stdout + done.stderr).lower()
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (path,) = built.glob("*.tar.gz")
    return path


def test_sdist_holds_the_whole_project_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    made = {name for name in held if name.startswith("llmcalc_roofline.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    assert held - made == set(project_files())
    assert sdist.stat().st_size < LARGEST_SDIST


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    folders = {"estimator/": "llmcalc/", "hardware/": "llmcalc/hardware/", "models/": "llmcalc/models/"}
    expected = {
        to + name.removeprefix(folder)
        for name in project_files()
        for folder, to in folders.items()
        if name.startswith(folder) and not name.startswith(NOT_IN_THE_WHEEL)
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert wheel.stat().st_size < LARGEST_WHEEL


def test_wheel_carries_the_licences(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    licences = {Path(name).name for name in archive.namelist() if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert "License-Expression: MIT" in metadata


def test_notice_names_the_sources_of_the_measured_runs() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    with (ROOT / "hardware/measurements/public_runs.csv").open(encoding="utf-8", newline="") as file:
        sources = {row["source"] for row in csv.DictReader(file)}
    assert all(sources)
    repositories = {found[1] for source in sources if (found := re.search(r"github\.com/([\w.-]+/[\w.-]+)", source))}
    assert {name for name in repositories if name not in notice} == set()


def test_hooks_before_a_commit_check_what_ci_checks() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    for hook in hooks:
        named = " ".join([hook["entry"], *(["."] if hook.get("types") and hook.get("pass_filenames", True) else [])])
        assert any(line.startswith(named) for line in script), named
    checks = ("ruff check", "ruff format", "mypy", "pytest")
    assert {check for check in checks if not any(hook["entry"].startswith(check) for hook in hooks)} == set()


def test_the_version_is_that_of_the_newest_entry_of_the_changelog() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert version and newest
    assert version[1] == newest[1]


def test_the_lowest_constraints_are_the_bounds_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounds = dict(re.findall(r'^  "([\w-]+)(?:\[\w+\])?>=([\d.]+)"', project, re.MULTILINE))
    lines = (ROOT / "tests/constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition(";")[0].split("==") for line in lines if "#" not in line and ">=" not in line]
    lowest = dict(pins)
    needed = {"numpy", "pyyaml", "click", "pint", "matplotlib", "scipy", "platformdirs", "pytest", "hypothesis"}
    assert needed <= bounds.keys() & lowest.keys()
    for name, version in bounds.items():
        if name in lowest:
            assert lowest[name] == version or lowest[name].startswith(f"{version}."), name


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
