"""`llmcalc calibrate`, `profile`, `benchmark`, `check`, and profiles in `estimate`, as people run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibration_cases import DEVICE, all_cases, measured, truth

from llmcalc.calibration.runs import COLUMNS, to_row
from llmcalc.cli import run
from llmcalc.user_folder import PROFILES_VARIABLE

DATA = Path(__file__).parent / "data" / "readers"
ESTIMATE = ["estimate", "--gpu", DEVICE, "--model", "llama3-8b", "--quant", "q8"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """A measurement file of a machine whose memory is slower than that of its kind."""
    rows = [to_row(case.run) for case in measured(all_cases()[:12], truth({"memory": 2.0}))]
    path = tmp_path / "runs.csv"
    lines = [",".join(COLUMNS), *(",".join(row[column] for column in COLUMNS) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("llmcalc: ")
    return lines[-1]


def estimated(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    data: dict[str, object] = json.loads(answer([*arguments, "--format", "json"], capsys))
    return data


def test_a_profile_is_used_by_default_and_said_so(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = estimated(ESTIMATE, capsys)
    answer(["calibrate", runs, "--save", "mine"], capsys)
    own, named, without = (
        estimated([*ESTIMATE, *more], capsys) for more in ([], ["--profile", "mine"], ["--no-profile"])
    )
    assert without == plain
    assert own["decode"] == named["decode"] != plain["decode"]
    assert own["decode"][0]["tokens_per_s"] < plain["decode"][0]["tokens_per_s"]  # type: ignore[index]
    assert "Profile 'mine' is used" in " ".join(own["notes"])  # type: ignore[arg-type]
    assert "profile 'mine' (12 runs" in " ".join(own["basis"])  # type: ignore[arg-type]
    assert not any("rofile" in note for note in plain["notes"])  # type: ignore[union-attr]


def test_a_profile_narrows_the_range(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(answer(["calibrate", runs, "--save", "mine", "--json"], capsys))
    for factor in result["machines"][0]["factors"]:
        assert factor["after"][1] <= factor["before"][1] * 1.001
    for each in result["machines"][0]["next_runs"]:
        assert each["margin_after"] < each["margin_before"]


def test_a_profile_brings_its_device(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer(["calibrate", runs, "--save", "mine"], capsys)
    data = estimated(["estimate", "--profile", "mine", "--model", "llama3-8b", "--quant", "q8"], capsys)
    assert data["inputs"]["devices"] == [DEVICE]  # type: ignore[index]
    assert data["decode"] == estimated(ESTIMATE, capsys)["decode"]


def test_a_profile_of_another_device_is_refused(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer(["calibrate", runs, "--save", "mine"], capsys)
    asked = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--profile", "mine"]
    assert f"is of {DEVICE} on CUDA, not of geforce-rtx-4090" in complaint(asked, capsys)
    assert "no profile 'other'" in complaint([*asked[:-1], "other"], capsys)
    other = estimated(asked[:-2], capsys)
    assert not any("rofile" in note for note in other["notes"])  # type: ignore[union-attr]


def test_a_damaged_profile_is_reported_and_the_estimate_goes_on(
    runs: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = estimated(ESTIMATE, capsys)
    answer(["calibrate", runs, "--save", "mine"], capsys)
    path = folder / "mine.yaml"
    path.write_text(path.read_text()[:3000])
    data = estimated(ESTIMATE, capsys)
    assert data["decode"] == plain["decode"]
    assert "set aside" in " ".join(data["notes"])  # type: ignore[arg-type]


def test_errors_before_and_after_and_left_out_are_printed(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = answer(["calibrate", runs], capsys)
    for line in ("before", "after", "each run left out", "each model left out"):
        assert f"  {line} " in page
    assert "llama-bench -m " in page
    assert "memory" in page


def test_one_run_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    page = answer(["calibrate", str(DATA / "llama-bench.jsonl"), "--cpu", "ryzen-9-7950x", "--cores", "2"], capsys)
    assert "AMD Ryzen 9 7950X on CPU" in page


def test_a_device_of_no_catalog_goes_by_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = ["--cpu", "custom", "--cores", "2", "--bandwidth", "40GB/s", "--memory", "16GiB", "--fp32", "200GFLOPS"]
    assert "custom on CPU" in answer(["calibrate", str(DATA / "llama-bench.json"), *figures, "--save", "vm"], capsys)
    data = estimated(["estimate", "--profile", "vm", "--model", "llama3.2-1b"], capsys)
    assert data["inputs"]["backend"] == "CPU"  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate"], "name files with runs"),
        (["calibrate", "nowhere.json"], "nowhere.json"),
        (["calibrate", str(DATA / "llama-bench.json"), "--save", "../x"], "profile name"),
        (["calibrate", str(DATA / "llama-bench.json"), "--gpu", "no-such-gpu"], "no-such-gpu"),
        (["calibrate", str(DATA / "README.md")], "no runs were found"),
        (["calibrate", "--run", "llama-bench"], "--run needs --model FILE"),
        (["calibrate", str(DATA / "llama-bench.json"), "--bandwidth", "1TB/s"], "go with a device"),
        (["benchmark"], "FILE"),
        (["benchmark", str(DATA / "README.md")], "no runs were found"),
        (["check", "nowhere.json"], "nowhere.json"),
        (["profile", "show", "none"], "no profile 'none'"),
        (["profile", "remove", "none"], "no profile 'none'"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in complaint(arguments, capsys)


def test_unreadable_lines_are_listed_and_the_others_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text((DATA / "llama-bench.jsonl").read_text() + '{"n_prompt": 512, "avg_ts": "fast"}\n')
    assert run(["calibrate", str(path), "--cpu", "ryzen-9-7950x"]) == 0
    assert f"{path}:3: " in capsys.readouterr().err
    data = json.loads(answer(["benchmark", str(path), "--cpu", "ryzen-9-7950x", "--json"], capsys))
    assert len(data["problems"]) == 1


def test_profiles_are_listed_shown_moved_and_removed(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No profiles" in answer(["profile", "list"], capsys)
    answer(["calibrate", runs, "--save", "mine"], capsys)
    (entry,) = json.loads(answer(["profile", "list", "--json"], capsys))
    assert (entry["id"], entry["machines"][0]["device"], entry["machines"][0]["runs"]) == ("mine", DEVICE, 12)
    assert "memory" in answer(["profile", "show", "mine"], capsys)
    file = tmp_path / "out.yaml"
    answer(["profile", "export", "mine", "-o", str(file)], capsys)
    assert answer(["profile", "export", "mine"], capsys) == file.read_text(encoding="utf-8")
    assert "already" in complaint(["profile", "import", str(file), "--as", "mine"], capsys)
    answer(["profile", "import", str(file), "--as", "other"], capsys)
    answer(["profile", "remove", "mine"], capsys)
    assert [each["id"] for each in json.loads(answer(["profile", "list", "--json"], capsys))] == ["other"]
    file.write_text("schema: x")
    assert "expected schema" in complaint(["profile", "import", str(file), "--as", "bad"], capsys)


def test_validate_predicts_with_a_profile(runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(["calibrate", runs, "--save", "mine"], capsys)
    plain, own = (
        json.loads(answer(["validate", runs, "--json", *more], capsys))["overall"]
        for more in ([], ["--profile", "mine"])
    )
    assert own["decode"]["n"] == plain["decode"]["n"] == 6
    assert own["decode"]["median_abs_error"] < 0.7 * plain["decode"]["median_abs_error"]
    nameless = tmp_path / "nameless.csv"
    nameless.write_text(Path(runs).read_text().replace(DEVICE, ""))
    again = json.loads(answer(["validate", str(nameless), "--json", "--profile", "mine"], capsys))["overall"]
    assert again["decode"]["median_abs_error"] == pytest.approx(own["decode"]["median_abs_error"])
    assert "exclude" in complaint(["validate", runs, "--profile", "mine", "--leave-out", "model"], capsys)


def test_benchmark_and_check_print_pages(capsys: pytest.CaptureFixture[str]) -> None:
    card = answer(["benchmark", str(DATA / "pasted-issue.md")], capsys)
    assert "Prompt processing, one sequence" in card
    assert "Decode, one sequence" in card
    page = answer(["check", str(DATA / "llama-bench-depth.json"), "--cpu", "ryzen-9-7950x"], capsys)
    assert "ryzen-9-7950x on CPU" in page
    data = json.loads(
        answer(["check", str(DATA / "llama-bench-depth.json"), "--cpu", "ryzen-9-7950x", "--json"], capsys)
    )
    assert data["schema"] == "llmcalc.check/1"
