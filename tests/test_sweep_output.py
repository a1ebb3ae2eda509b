"""Rows as text and files: complete, readable, resumable."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import llmcalc.parameter_sweep as engine
from llmcalc.errors import InputError
from llmcalc.parameter_sweep import Sweep, sweep
from llmcalc.sweep_output import (
    Format,
    Made,
    Progress,
    Resumed,
    format_of,
    local_blocks,
    open_sink,
    resume,
    write_sweep,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ROWS", 16)


def asked(ctx: str = "2k..32k", **given: object) -> Sweep:
    return sweep(model="llama3-8b", gpu="rtx4090,rtx3090", quant="q4,q8", ctx=ctx, parallel="1..4", **given)  # type: ignore[arg-type]


def write(one: Sweep, path: Path | None, form: Format, again: bool = False) -> tuple[Progress, bytes]:
    out = io.BytesIO()
    first = resume(path, one, form) if again and path else Resumed()
    sink = open_sink(path, out, one, form, first)
    done = write_sweep(one, local_blocks(one, form, first.blocks), sink, form, first=first)
    return done, path.read_bytes() if path and path.exists() else out.getvalue()


def test_csv_holds_the_table() -> None:
    done, text = write(asked(), None, "csv")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    table = asked().table()
    assert len(rows) == done.rows == len(table["ctx"])
    assert list(rows[0]) == list(asked().columns)
    for name in ("decode_tokens_per_s", "prefill_low_80", "ttft_s"):
        np.testing.assert_allclose([float(row[name]) for row in rows], table[name], rtol=1e-5)
    for name in ("ctx", "parallel", "total_bytes", "margin_bytes"):
        assert [int(row[name]) for row in rows] == table[name].tolist()
    assert [row["fits"] for row in rows] == ["true" if fits else "false" for fits in table["fits"]]
    assert [row["decode_bound"] for row in rows] == table["decode_bound"].tolist()
    assert {row["ngl"] for row in rows} == {""}


def test_json_lines_hold_the_same() -> None:
    rows = [json.loads(line) for line in write(asked(), None, "jsonl")[1].decode().splitlines()]
    texts = list(csv.DictReader(io.StringIO(write(asked(), None, "csv")[1].decode())))
    assert len(rows) == len(texts)
    for row, text in zip(rows, texts, strict=True):
        assert row["fits"] is (text["fits"] == "true")
        assert row["ngl"] is None
        assert row["devices"] == text["devices"]
        assert row["decode_tokens_per_s"] == float(text["decode_tokens_per_s"])
        assert row["flash_attention"] is True


def test_unknown_is_empty_or_null() -> None:
    one = sweep(cpu="ryzen-9-7950x", model="llama3-8b", columns=("model", "fits", "margin_bytes", "ctx"))
    assert write(one, None, "csv")[1] == b"model,ctx,fits,margin_bytes\nllama3-8b,8192,,\n"
    assert json.loads(write(one, None, "jsonl")[1]) == {
        "model": "llama3-8b", "ctx": 8192, "fits": None, "margin_bytes": None
    }  # fmt: skip


def test_settings_alone_are_rows_too() -> None:
    one = sweep(gpu="rtx4090", model="llama3-8b", parallel="1,2", columns=("model", "devices"))
    assert write(one, None, "csv")[1] == b"model,devices\n" + b"llama3-8b,geforce-rtx-4090\n" * 2


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_file_is_taken_up_again(form: Format, after: int, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{form}"
    one = asked()
    expected = write(asked(), None, form)

    def interrupted() -> Iterator[Made]:
        for made in local_blocks(one, form):
            if made.number == after:
                raise KeyboardInterrupt
            yield made

    sink = open_sink(path, io.BytesIO(), one, form, Resumed())
    with pytest.raises(KeyboardInterrupt):
        write_sweep(one, interrupted(), sink, form)
    assert not path.exists()
    part = path.with_name(path.name + ".part")
    assert part.read_bytes() == expected[1][: part.stat().st_size]
    with part.open("ab") as stream:
        stream.write(b"half a row")
    done, whole = write(one, path, form, again=True)
    assert whole == expected[1]
    assert (done.rows, done.left_out) == (expected[0].rows, expected[0].left_out)
    assert list(tmp_path.iterdir()) == [path]


def test_another_sweep_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    one = asked()
    sink = open_sink(path, io.BytesIO(), one, "csv", Resumed())
    made = local_blocks(one, "csv")

    def two() -> Iterator[Made]:
        yield next(made)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_sweep(one, two(), sink, "csv")
    with pytest.raises(InputError, match="of another sweep"):
        resume(path, asked(ctx="2k..64k"), "csv")
    path.with_name("rows.csv.part.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="damaged"):
        resume(path, one, "csv")


def test_what_is_left_out_is_counted() -> None:
    one = sweep(model="llama3-8b", gpu="rtx4090,m2-ultra-76", backend="CUDA", ctx="1k,8k", prompt=1024)
    done, _ = write(one, None, "csv")
    assert (done.rows, done.left_out) == (1, 1)
    assert list(done.problems.values()) == [1]
    assert "Apple" in next(iter(done.problems))


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    done, _ = write(asked(), path, "parquet")
    read = parquet.read_table(path)
    table = asked().table()
    assert read.num_rows == done.rows
    assert read.column_names == list(asked().columns)
    np.testing.assert_array_equal(read["decode_tokens_per_s"].to_numpy(), table["decode_tokens_per_s"])
    assert read["fits"].to_pylist() == [bool(fits) for fits in table["fits"]]
    assert read["model"].to_pylist() == table["model"].tolist()
    with pytest.raises(InputError, match="parquet needs a file"):
        write(asked(), None, "parquet")


def test_formats_by_name() -> None:
    assert [format_of(Path(name)) for name in ("a.csv", "a.JSONL", "a.parquet")] == ["csv", "jsonl", "parquet"]
    with pytest.raises(InputError, match=r"write \.csv"):
        format_of(Path("a.txt"))
