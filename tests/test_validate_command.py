"""`llmcalc validate` on measurement files and on benchmark output: its JSON, its rows, and what it cannot predict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
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


def corpus_rows(number: int = 40) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and every `number`-th row of the corpus."""
    with CORPUS.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)[::number]


def table(columns: Sequence[str], rows: Sequence[Mapping[str, str]], end: str = "\n", delimiter: str = ",") -> str:
    """A measurement file as text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator=end, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_bytes(form: str) -> bytes:
    """The same rows in a form that people's programs write."""
    columns, rows = corpus_rows()
    extra = [{**row, "tokens/s per W": "3, 4", "": "x"} for row in rows]
    return {
        "as it is": lambda: table(columns, rows).encode(),
        "CRLF": lambda: table(columns, rows, "\r\n").encode(),
        "CR": lambda: table(columns, rows, "\r").encode(),
        "byte order mark": lambda: table(columns, rows, "\r\n").encode("utf-8-sig"),
        "UTF-16": lambda: table(columns, rows).encode("utf-16"),
        "semicolons": lambda: table(columns, rows, delimiter=";").encode(),
        "tabs": lambda: table(columns, rows, delimiter="\t").encode(),
        "reordered": lambda: table(sorted(columns), rows).encode(),
        "extra columns": lambda: table(["tokens/s per W", *columns, ""], extra).encode(),
        "optional columns missing": lambda: table(
            [c for c in columns if c not in ("id", "source", "t_s_std")], rows
        ).encode(),
        "bytes of no encoding": lambda: table(columns, rows).encode().replace(b"https://", b"\xffhttps://"),
    }[form]()


FORMS = (
    "CRLF", "CR", "byte order mark", "UTF-16", "semicolons", "tabs", "reordered", "extra columns",
    "optional columns missing", "bytes of no encoding",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_in_any_form_give_the_same_report(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for name in ("as it is", form):
        path = tmp_path / "runs.csv"
        path.write_bytes(as_bytes(name))
        report = json.loads(output([str(path), "--json"], capsys))
        reports.append({key: report[key] for key in ("rows", "overall")})
    assert reports[0] == reports[1]


ODD = {
    "t_s": ("abc", "-3", "0", "1e999", "", "1,5"), "n_depth": ("-1", "x", "1.5"), "weights_gib": ("1e-9", "1e9", "0"),
    "era": ("foo", "2024", "1999H2"), "backend": ("Foo", "cuda", "ROCm/HIP", "Metal"), "phase": ("Decode", "tg", ""),
    "class": ("clean", "Clean-Single", ""), "type_k": ("q5_7", "bf16"), "quant": ("", "FOO", "q4_0"),
    "hardware_id": ("nope", ""), "model_id": ("nope", ""), "engine": ("vLLM", "", "Ollama 0.5"), "ngl": ("0", "x"),
    "flash_attn": ("maybe", "True"), "n_prompt": ("", "1000000000000"), "n_parallel": ("0", "100000"),
    "n_ubatch": ("0", "1"), "device_count": ("0", "4"), "threads": ("0",),
}  # fmt: skip


def test_odd_values_spoil_no_other_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns, rows = corpus_rows(1)
    clean = [row for row in rows if row["class"] == "clean-single" and row["backend"] == "CUDA"][:2]
    odd = [{**row, name: value} for row in clean for name, values in ODD.items() for value in values]
    given = [{**row, "id": f"row {number}"} for number, row in enumerate([*odd, *clean])]
    path = tmp_path / "odd.csv"
    path.write_text(table(columns, given), encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(output([str(path), "--csv"], capsys))))
    assert [row["id"] for row in found] == [row["id"] for row in given]
    assert all(bool(row["predicted_tokens_per_s"]) != bool(row["skipped"]) for row in found)
    assert not any(row["skipped"] for row in found[-2:])
    report = json.loads(output([str(path), "--json"], capsys))
    assert report["rows"] == len(given)
    assert sum(report["skipped"].values()) == sum(bool(row["skipped"]) for row in found)


@pytest.mark.parametrize(("backend", "as_stated"), [("cuda", "CUDA"), ("ROCm/HIP", "ROCm"), ("vulkan", "Vulkan")])
def test_backends_as_people_spell_them(
    backend: str, as_stated: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = corpus_rows(1)
    row = next(row for row in rows if row["class"] == "clean-single" and row["backend"] == as_stated)
    path = tmp_path / "runs.csv"
    path.write_text(table(columns, [row, {**row, "backend": backend}]), encoding="utf-8")
    one, other = csv.DictReader(io.StringIO(output([str(path), "--csv"], capsys)))
    assert one == other


@pytest.mark.parametrize("text", ["", "nothing of the kind\n", "phase,t_s\n", "phase,t_s\nfoo,bar\n"])
def test_a_file_without_any_run_is_unreadable_input(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    assert run(["validate", str(path), "--json"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert len(printed.err.splitlines()) == 1 and "no runs were found" in printed.err


OWN = {
    "hardware": "my-card: {extends: geforce-rtx-4090, name: My Card}\n",
    "models": "my-model: {extends: llama2-7b, name: My Model}\n",
}


@pytest.mark.parametrize("class_", ["clean-single", ""])
@pytest.mark.parametrize("own", [{"hardware_id": "my-card"}, {"model_id": "my-model"}])
def test_entries_of_a_user_s_catalog(
    own: dict[str, str], class_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, text in OWN.items():
        (tmp_path / f"{kind}.yaml").write_text(text, encoding="utf-8")
    columns, rows = corpus_rows(1)
    row = next(row for row in rows if row["class"] == "clean-single" and row["model_id"] == "llama2-7b")
    path = tmp_path / "runs.csv"
    path.write_text(table(columns, [{**row, **own, "class": class_}]), encoding="utf-8")
    assert json.loads(output([str(path), "--json"], capsys))["skipped"]
    assert not json.loads(output([str(path), "--json", "--catalog", str(tmp_path)], capsys))["skipped"]


def test_statistics_are_recomputed_from_the_rows_by_hand(some_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {row["id"]: row for row in csv.DictReader(some_runs.open(encoding="utf-8"))}
    rows = [row for row in csv.DictReader(io.StringIO(output([str(some_runs), "--csv"], capsys))) if not row["skipped"]]
    overall = json.loads(output([str(some_runs), "--json"], capsys))["overall"]
    for phase in ("decode", "prefill"):
        judged = [row for row in rows if given[row["id"]]["class"] == "clean-single"]
        judged = [row for row in judged if given[row["id"]]["phase"] == phase]
        by_device: dict[str, list[float]] = {}
        inside: dict[str, list[bool]] = {}
        for row in judged:
            measured, predicted = float(row["measured_tokens_per_s"]), float(row["predicted_tokens_per_s"])
            device = given[row["id"]]["hardware_id"]
            by_device.setdefault(device, []).append(abs(predicted - measured) / measured)
            inside.setdefault(device, []).append(float(row["low_80"]) <= measured <= float(row["high_80"]))
        assert overall[phase]["n"] == len(judged)
        assert overall[phase]["devices"] == len(by_device)
        for limit, key in ((0.1, "within_10"), (0.2, "within_20"), (0.3, "within_30")):
            shares = [sum(error <= limit for error in errors) / len(errors) for errors in by_device.values()]
            assert overall[phase][key] == pytest.approx(sum(shares) / len(shares))
        covered = [sum(holds) / len(holds) for holds in inside.values()]
        assert overall[phase]["coverage_80"] == pytest.approx(sum(covered) / len(covered))
        weighted = sorted((error, 1 / len(errors)) for errors in by_device.values() for error in errors)
        for level, key in ((0.5, "median_abs_error"), (0.9, "p90_abs_error")):
            below = sum(weight for error, weight in weighted if error < overall[phase][key] * (1 - 1e-4))
            up_to = sum(weight for error, weight in weighted if error <= overall[phase][key] * (1 + 1e-4))
            assert below <= level * len(by_device) <= up_to + 1e-9
