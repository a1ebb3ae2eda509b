"""plan, compare, sweep, serve, session and speculate as people run them."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from pathlib import Path

import pytest

from llmcalc.cli import COMMANDS, group, run

NAMES = ("plan", "compare", "sweep", "serve", "session", "speculate")


def answer(text: str, capfd: pytest.CaptureFixture[str]) -> str:
    """stdout of a command that must succeed."""
    assert run(shlex.split(text)) == 0, capfd.readouterr().err
    return capfd.readouterr().out


def complaint(text: str, capfd: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that must fail with status 2."""
    assert run(shlex.split(text)) == 2
    captured = capfd.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def examples() -> list[str]:
    """Every example of these commands' help, without those that need something else."""
    found = []
    for name in NAMES:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        lines = [line.strip() for line in (command.help or "").splitlines()]
        own = [line for line in lines if line.startswith(f"llmcalc {name} ")]
        assert len(own) >= 3, name
        found += [line.removeprefix("llmcalc ") for line in own if "--trace" not in line and "…" not in line]
    return found


@pytest.mark.parametrize("text", examples())
def test_examples_of_the_help_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if ".parquet" in text:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = answer(text, capfd)
    if text.startswith("sweep"):
        assert out or list(tmp_path.iterdir())
        return
    assert max(map(len, out.splitlines())) <= 80
    assert json.loads(answer(text + " --json", capfd))["schema"].startswith("llmcalc.")


def test_commands_are_listed() -> None:
    assert set(NAMES) <= set(COMMANDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("plan", "--model finds devices"),
        ("plan --find users --model llama3-8b", "one kind of device"),
        ("plan --find devices --gpu rtx4090", "--model"),
        ("plan --model llama3-8b --price rtx3090", "write it like rtx3090=700"),
        ("plan --model llama3-8b --price rtx3091=5", "geforce-rtx-309"),
        ("plan --model llama3-8b --rank size", "--rank size"),
        ("plan --model llama3-8b --vendor nobody", "no device of the catalog"),
        ("plan --model llama3-8b --users 0", "users: must be from 1"),
        ("plan --model llama3-8b --max-ttft 2", "needs a unit"),
        ("plan --model llama3-8b --tariff cheap", "price of a kWh"),
        ("compare --gpu rtx4090", "--model"),
        ("compare --gpu rtx4091 -m llama3-8b", "geforce-rtx-4090"),
        ("compare --gpu rtx4090 -m llama3-8b --ctx 8k..1k", "ends before it begins"),
        ("compare --gpu rtx4090 -m llama3-8b --json --markdown", "exclude"),
        ("sweep --gpu rtx4090 -m llama3-8b --columns ctx,speed", "columns: speed"),
        ("sweep --gpu rtx4090 -m llama3-8b --resume", "-o FILE"),
        ("sweep --gpu rtx4090 -m llama3-8b --engine dask", "--scheduler"),
        ("sweep --gpu rtx4090 -m llama3-8b --scheduler tcp://x:1", "--engine dask"),
        ("sweep --gpu rtx4090 -m llama3-8b -o rows.txt", ".csv"),
        ("sweep --gpu rtx4090 -m llama3-8b --format parquet", "needs a file"),
        ("sweep --gpu rtx4090 -m llama3-8b --ctx 512 -p 512", "--ctx"),
        ("serve --gpu rtx4090 -m llama3-8b --rate 1 --users 2", "exclude"),
        ("serve --gpu rtx4090 -m llama3-8b --prompt mean=5", "write '512'"),
        ("serve --gpu rtx4090 -m llama3-8b --slots 0", "slots"),
        ("session --gpu rtx4090 -m llama3-8b --ctx 1k --system 2k", "needs a slot"),
        ("session --gpu rtx4090 -m llama3-8b --edit-system 9", "no turn 9 of 8"),
        ("speculate --gpu rtx4090 -m llama3-8b", "name one drafter"),
        ("speculate --gpu rtx4090 -m llama3-8b --mtp", "no MTP layers"),
        ("speculate --gpu rtx4090 -m llama3-8b --ngram 1.5", "ngram: must be from 0 to 1"),
        ("speculate --gpu rtx4090 -m qwen3-32b --draft-model qwen3-0.6b --accepted-share 0.6", "go together"),
    ],
)
def test_bad_input_is_one_clear_line(text: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert says in complaint(text, capfd)


def test_plan_says_what_it_does_not_know(capfd: pytest.CaptureFixture[str]) -> None:
    page = answer("plan --model llama3-8b --min-tps 60 --top 3", capfd)
    assert "rounded launch or street figures" in page
    assert "whose price is not known" in page
    assert "--ram" in page


def test_plan_with_a_tariff(capfd: pytest.CaptureFixture[str]) -> None:
    page = answer('plan --model llama3-8b --gpu rtx3090 --find devices --tariff "0.30 EUR"', capfd)
    assert "EUR/Mtok" in page


def test_sweep_streams_csv(capfd: pytest.CaptureFixture[str]) -> None:
    out = answer("sweep --gpu 'rtx4090,2x rtx3090' -m llama3-8b --quant q4,q8 --ctx 2k..8k", capfd)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 2 * 2 * 3
    assert rows[3]["devices"] == "geforce-rtx-3090+geforce-rtx-3090"


def test_sweep_tells_what_it_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split("sweep --gpu rtx4090,m2-ultra-76 -m llama3-8b --backend CUDA --ctx 1k,8k -p 1k")) == 0
    err = capfd.readouterr().err
    assert "1 points left out" in err
    assert "1 combinations left out: backend: CUDA does not run" in err


def test_sweep_to_a_file_and_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    assert answer(f"sweep --gpu rtx4090 -m llama3-8b --ctx 2k..8k -o {path}", capfd) == ""
    first = path.read_bytes()
    answer(f"sweep --gpu rtx4090 -m llama3-8b --ctx 2k..8k -o {path} --resume", capfd)
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_serve_of_a_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "requests.csv"
    trace.write_text("arrival_s,prompt,output\n0,500,100\n3,700,50\n9,200,80\n", encoding="utf-8")
    page = answer(f"serve --gpu rtx4090 -m llama3-8b --trace {trace} --simulate", capfd)
    assert "By simulation" in page


def test_compare_as_markdown(capfd: pytest.CaptureFixture[str]) -> None:
    text = answer("compare --gpu rtx4090,rtx3090 -m llama3-8b --quant q4 --markdown", capfd)
    assert text.startswith("### Llama 3 8B")
    assert text.count("| GeForce RTX 3090 |") == 2
