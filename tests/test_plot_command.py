"""`llmcalc plot` and `llmcalc report` as people call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcalc.cli import run

MACHINE = ["--gpu", "rtx4090", "--model", "llama3.1-8b", "--quant", "q4", "--ctx", "8k"]
TWO = ["--compare", "--gpu", "rtx4090", "--gpu", "m2-ultra-76", "--model", "llama3.1-8b", "--ctx", "8k"]
KINDS = ("roofline", "context", "prefill", "memory", "batch", "layers")
TEXT_KINDS = ("roofline", "context", "prefill", "batch", "layers")
MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
CSV = Path(__file__).parent.parent / "hardware" / "measurements" / "public_runs.csv"


@pytest.fixture
def few_runs(tmp_path: Path) -> Path:
    """The head of the public runs."""
    lines = CSV.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "runs.csv"
    path.write_text("".join(lines[:60]), encoding="utf-8")
    return path


def quiet(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command that must succeed and print nothing at all."""
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The single line that a command which must fail with status 2 says."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(("kind", "ending"), [*zip(KINDS, [*MAGIC] * 2, strict=True)])
def test_every_kind_writes_its_picture_and_nothing_else(
    kind: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"picture.{ending}"
    quiet(["plot", kind, *(TWO if ending == "svg" else MACHINE), "-o", str(out)], capsys)
    assert out.read_bytes().startswith(MAGIC[ending])
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_accuracy_writes_its_picture(few_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = few_runs.with_name("accuracy.png")
    quiet(["plot", "accuracy", str(few_runs), "-o", str(out)], capsys)
    assert out.read_bytes().startswith(MAGIC["png"])


PARETO = ["pareto", "--model", "llama3.1-8b", "--quant", "q4", "--kind", "gpu", "--vendor", "intel"]


def test_pareto_writes_its_picture_and_says_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "front.svg"
    quiet(["plot", *PARETO, "--against", "bandwidth", "-o", str(out)], capsys)
    assert out.read_bytes().startswith(MAGIC["svg"])
    assert run(["plot", *PARETO, "--ascii"]) == 0
    captured = capsys.readouterr()
    assert captured.out.isascii() and "Arc B580" in captured.out
    assert "their price is unknown" in captured.err


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_without_a_file_it_draws_text(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plot", kind, *MACHINE, "--ascii"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.isascii()
    assert max(map(len, captured.out.splitlines())) <= 80
    assert "*" in captured.out


def test_compare_draws_a_series_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", "context", *TWO, "--cpu", "ryzen-9-7950x"]) == 0
    out = capsys.readouterr().out
    for name in ("GeForce RTX 4090", "Apple M2 Ultra", "Ryzen 9 7950X"):
        assert name in out


def test_models_and_quantisations_are_series_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", "context", *MACHINE, "--model", "qwen3-8b", "--quant", "q8"]) == 0
    out = capsys.readouterr().out
    for name in ("Llama 3.1 8B · Q4_K_M", "Llama 3.1 8B · Q8_0", "Qwen3 8B · Q4_K_M", "Qwen3 8B · Q8_0"):
        assert name in out


def test_measured_runs_are_drawn_beside_the_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = tmp_path / "bench.csv", tmp_path / "roofline.svg"
    header, *_ = CSV.read_text(encoding="utf-8").splitlines()
    names = header.split(",")
    row = dict.fromkeys(names, "") | {
        "id": "1", "hardware_id": "geforce-rtx-4090", "device_count": "1", "model_id": "llama3.1-8b", "quant": "Q4_K_M",
        "backend": "CUDA", "phase": "decode", "n_prompt": "0", "n_gen": "128", "n_depth": "0", "n_parallel": "1",
        "t_s": "150", "class": "clean-single", "engine": "llama.cpp",
    }  # fmt: skip
    runs.write_text(f"{header}\n{','.join(row[name] for name in names)}\n", encoding="utf-8")
    for kind in ("roofline", "context"):
        quiet(["plot", kind, *MACHINE, "--measured", str(runs), "-o", str(out)], capsys)
        with_runs = out.read_bytes()
        quiet(["plot", kind, *MACHINE, "-o", str(out)], capsys)
        assert with_runs != out.read_bytes()
    assert "another device" in complaint(
        ["plot", "roofline", "--gpu", "rtx3090", "--model", "llama3.1-8b", "--measured", str(runs)], capsys
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["roofline", *MACHINE, "-o", "a.jpg"], ".png, .svg or .pdf"),
        (["roofline", *MACHINE, "-o", "missing/a.png"], "cannot be written"),
        (["memory", *MACHINE], "no text version"),
        (["accuracy", "missing.csv", "-o", "a.png"], "missing.csv"),
        (["accuracy"], "FILE"),
        (["roofline", "--gpu", "rtx4090"], "--model"),
        (["roofline", "--model", "llama3.1-8b"], "no device"),
        (["roofline", "--gpu", "rtx9999", "--model", "llama3.1-8b"], "rtx9999"),
        (["batch", *MACHINE, "--most", "1"], "--most"),
        (["context", *TWO, "--bandwidth", "1 TB/s"], "one device"),
        (["roofline", *MACHINE, "--measured", "missing.csv"], "missing.csv"),
        (["roofline", *MACHINE, "--gpu", "rtx3090", "--measured", "missing.csv"], "one device"),
        (["pie", *MACHINE], "pie"),
        ([*PARETO, "--vendor", "nobody"], "no device of the catalog"),
        (["pareto", "--model", "llama3-70b", "--gpu", "rtx3060"], "none of the devices is fit for it"),
        (["pareto", "--model", "llama3-8b", "--gpu", "m2-ultra-76"], "known price"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert words in complaint(["plot", *arguments], capsys)
    assert list(tmp_path.iterdir()) == []


def test_show_needs_a_display(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "get_backend", lambda: "agg")
    assert "no display" in complaint(["plot", "roofline", *MACHINE, "--show"], capsys)


def test_show_opens_a_window(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import pyplot

    opened: list[int] = []
    monkeypatch.setattr(pyplot, "get_backend", lambda: "QtAgg")
    monkeypatch.setattr(pyplot, "show", lambda: opened.extend(pyplot.get_fignums()))
    quiet(["plot", "roofline", *MACHINE, "--show"], capsys)
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("out", "words"), [("report.pdf", ".html"), ("missing/report.html", "cannot be written"), ("report", ".html")]
)
def test_report_says_what_is_wrong_with_its_path(
    out: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in complaint(["report", *MACHINE, "-o", out], capsys)


def test_report_writes_its_page_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    quiet(["report", *MACHINE, "-o", str(out)], capsys)
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert run(["report", *MACHINE, "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")
