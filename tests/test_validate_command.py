"""`llmcalc validate` on measurement files and on benchmark output: its JSON, its rows, and what it cannot predict."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files
from pathlib import Path

import pytest

from llmcalc.cli import run

CORPUS = Path(str(files("llmcalc.hardware"))) / "measurements" / "public_runs.csv"
RAW = CORPUS.parent / "cpu-xeon-2core" / "llama-3.2-1b-Q4_K_M.t2.json"
STATISTICS = {
    "n", "devices", "median_abs_error", "p90_abs_error", "bias", "within_10", "within_20", "within_30", "coverage_80",
}  # fmt: skip


@pytest.fixture(scope="module")
def some_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every 40th row of the corpus."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text("".join([lines[0], *lines[1::40]]), encoding="utf-8")
    return path


def output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["validate", *arguments]) == 0
    return capsys.readouterr().out


def test_json_contract(some_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(output([str(some_runs), "--json"], capsys))
    assert {"rows", "skipped", "overall", "groups"} <= set(report)
    assert set(report["overall"]) == {"decode", "prefill"}
    assert all(set(s) == STATISTICS for s in report["overall"].values())
    assert set(report["groups"]) == {"device", "backend", "model", "quant", "depth", "class"}
    predicted = sum(s["n"] for values in report["groups"]["class"].values() for s in values.values())
    assert report["rows"] == predicted + sum(report["skipped"].values())


def test_a_row_for_every_run(some_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(output([str(some_runs), "--csv"], capsys))))
    given = list(csv.DictReader(some_runs.open(encoding="utf-8")))
    assert [row["id"] for row in rows] == [row["id"] for row in given]
    for row in rows:
        assert bool(row["predicted_tokens_per_s"]) != bool(row["skipped"])
        if not row["skipped"]:
            assert float(row["low_80"]) < float(row["predicted_tokens_per_s"]) < float(row["high_80"])


def test_errors_are_those_of_the_rows(some_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(output([str(some_runs), "--csv"], capsys))))
    given = {row["id"]: row for row in csv.DictReader(some_runs.open(encoding="utf-8"))}
    clean = [row for row in rows if not row["skipped"] and given[row["id"]]["class"] == "clean-single"]
    report = json.loads(output([str(some_runs), "--json"], capsys))
    assert len(clean) == sum(s["n"] for s in report["overall"].values())


def test_benchmark_output_with_its_device_named(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(output([str(RAW), "--cpu", "xeon-platinum-8592-plus", "--json"], capsys))
    assert report["rows"] == 3
    assert report["overall"]["decode"]["n"] == 1
    assert list(report["groups"]["model"]) == ["llama3.2-1b"]


def test_unpredictable_runs_are_counted_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    text = output([str(RAW)], capsys)
    assert "Not predicted: 3 of 3 runs" in text
    assert "name it with --gpu" in text


def test_leaving_a_device_out_does_not_flatter(some_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = json.loads(output([str(some_runs), "--json"], capsys))
    left_out = json.loads(output([str(some_runs), "--leave-out", "device", "--json"], capsys))
    for phase in ("decode", "prefill"):
        assert left_out["overall"][phase]["median_abs_error"] > shipped["overall"][phase]["median_abs_error"]


def test_plot(some_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "accuracy.svg"
    output([str(some_runs), "--plot", str(picture)], capsys)
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.csv"], "missing.csv"),
        ([str(RAW), "--gpu", "rtx4091"], "rtx4091"),
        ([str(RAW), "--json", "--csv"], "--csv"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert len(captured.err.splitlines()) == 1
