"""Calibrating from Python: what the command does, without keeping anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llmcalc
from llmcalc.calibration.results import calibrate_runs, result_data
from llmcalc.cli import run
from llmcalc.errors import InputError

RUNS = Path(__file__).parent.parent / "hardware" / "measurements" / "cpu-xeon-2core" / "llama-3.2-1b-Q4_K_M.t2.json"
FIGURES = {"cores": 2, "bandwidth": "24.4 GB/s", "memory": "24 GiB", "fp32": "268.8 GFLOPS"}


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_it_finds_what_the_command_finds(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = calibrate_runs(RUNS, cpu="custom", figures=FIGURES)
    assert list(own_folder.iterdir()) == []
    options = ["--cores", "2", "--bandwidth", "24.4 GB/s", "--memory", "24 GiB", "--fp32", "268.8 GFLOPS"]
    assert run(["calibrate", str(RUNS), "--cpu", "custom", *options, "--json"]) == 0
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    assert json.loads(json.dumps(result_data(result))) == machine
    assert "custom on CPU: 3 runs" in repr(result)


def test_estimates_take_its_factors() -> None:
    (result,) = calibrate_runs(RUNS, cpu="custom", figures=FIGURES)
    asked = llmcalc.resolve(cpu="custom", figures=FIGURES, model="gemma3-1b", quant="q4", threads=2)
    before, after = llmcalc.estimate_request(asked), llmcalc.estimate_request(asked, result.efficiency)
    low, high = after.decode[0].interval_80
    assert low < after.decode[0].tokens_per_s < high
    assert after.decode[0].tokens_per_s != before.decode[0].tokens_per_s


def test_runs_that_cannot_be_used_say_why() -> None:
    with pytest.raises(InputError, match="no runs were found"):
        calibrate_runs("nothing of interest\n")
    with pytest.raises(InputError, match=r"none of 3 runs can be used; the first: "):
        calibrate_runs(RUNS)
