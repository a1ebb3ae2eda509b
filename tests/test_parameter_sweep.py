"""Sweeps: the rows are the estimates of every combination, however they are cut into blocks and tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llmcalc.parameter_sweep as engine
from llmcalc.errors import InputError
from llmcalc.estimation import estimate
from llmcalc.parameter_sweep import COLUMNS, Grid, Sweep, sweep


def small() -> Sweep:
    return sweep(
        model="llama3-8b,qwen3-30b-a3b",
        gpu="rtx4090,2x rtx3090",
        quant="q4",
        ctx="4k..32k",
        parallel="1,4",
        prompt="everyday,2k",
        occupied="full,1k",
        kv_type="f16,q8_0",
    )


def test_rows_are_estimates() -> None:
    table = small().table()
    assert set(table) == set(COLUMNS)
    for i in range(0, len(table["ctx"]), 17):
        row = {name: values[i] for name, values in table.items()}
        e = estimate(
            gpu=str(row["devices"]).split("+"),
            model=str(row["model"]),
            quant="q4",
            ctx=int(row["ctx"]),
            parallel=int(row["parallel"]),
            prompt=int(row["prompt"]),
            kv_type_k=str(row["kv_type_k"]),
            kv_type_v=str(row["kv_type_v"]),
        )
        assert row["fits"] == e.memory.fits
        assert row["total_bytes"] == e.memory.total_bytes
        assert row["margin_bytes"] == e.memory.margin_bytes
        assert row["prefill_s"] == pytest.approx(e.prefill[0].seconds)
        assert row["prefill_tokens_per_s"] == pytest.approx(e.prefill[0].tokens_per_s)
        assert (row["prefill_low_80"], row["prefill_high_80"]) == pytest.approx(e.prefill[0].interval_80)
        assert row["prefill_bound"] == e.prefill[0].bound
        assert row["ttft_s"] == pytest.approx(e.latency.ttft_s)
        full = e.decode[-1]
        if row["occupied"] == full.occupied_tokens:
            assert row["decode_tokens_per_s"] == pytest.approx(full.tokens_per_s)
            assert row["aggregate_tokens_per_s"] == pytest.approx(full.aggregate_tokens_per_s)
            assert row["decode_ceiling_tokens_per_s"] == pytest.approx(full.ceiling_tokens_per_s)
            assert (row["decode_low_80"], row["decode_high_80"]) == pytest.approx(full.interval_80)
            assert row["decode_bound"] == full.bound


def test_every_possible_combination_once() -> None:
    asked = small()
    table, blocks = asked.table(), list(asked.blocks())
    assert asked.cells == 8
    assert asked.points == 8 * 4 * 2 * 2 * 2
    assert len(table["ctx"]) == asked.points - sum(block.left_out for block in blocks)
    room = table["ctx"] // table["parallel"]
    assert (table["prompt"] + 256 <= room).all()
    assert (table["occupied"] < room).all()
    keys = {tuple(str(table[name][i]) for name in (*engine.SETTINGS, *engine.COUNTS)) for i in range(len(table["ctx"]))}
    assert len(keys) == len(table["ctx"])


@pytest.mark.parametrize(("rows", "largest"), [(7, 1 << 18), (64, 1), (1 << 16, 1), (5, 8)])
def test_blocks_and_tables_change_nothing(rows: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small().table()
    monkeypatch.setattr(engine, "ROWS", rows)
    monkeypatch.setattr(engine, "LARGEST_TABLE", largest)
    cut = small().table()
    for name in COLUMNS:
        if whole[name].dtype.kind == "f":
            np.testing.assert_allclose(cut[name], whole[name], rtol=1e-12)
        else:
            assert (cut[name] == whole[name]).all()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
@settings(max_examples=30)
def test_grids_number_their_points(shape: list[int], data: st.DataObject) -> None:
    grid = Grid({f"axis{i}": np.arange(n) * 10 for i, n in enumerate(shape)})
    points = np.arange(grid.size)
    positions = grid.positions(points)
    assert (grid.points(positions) == points).all()
    chosen = data.draw(st.lists(st.sampled_from(list(grid.counts)), unique=True, min_size=1))
    part = grid.part([name for name in grid.counts if name in chosen])
    values = part.values(part.positions(part.points(positions)))
    for name in chosen:
        assert (values[name] == positions[name] * 10).all()


def test_only_what_is_wanted_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(engine, "prefill_columns", never)
    monkeypatch.setattr(engine, "first_columns", never)
    table = sweep(
        gpu="rtx4090", model="llama3-8b", ctx="1k..8k", columns=("ctx", "decode_tokens_per_s"), output=1
    ).table()
    assert list(table) == ["ctx", "decode_tokens_per_s"]
    assert table["ctx"].tolist() == [1024, 2048, 4096, 8192]
    assert (np.diff(table["decode_tokens_per_s"]) < 0).all()


def test_layers_and_experts_are_axes() -> None:
    table = sweep(
        gpu="rtx3090", cpu="ryzen-9-7950x", ram="64GiB", model="llama3-8b", quant="q4", ngl="0..32+16,all"
    ).table()
    assert table["ngl"].tolist()[:3] == [0, 16, 32]
    assert np.isnan(table["ngl"].astype(float)[3])
    assert (np.diff(table["decode_tokens_per_s"]) > 0).all()


def test_unknown_memory_is_unknown() -> None:
    table = sweep(cpu="ryzen-9-7950x", model="llama3-8b", quant="q4").table()
    assert np.isnan(table["fits"]).all()
    assert np.isnan(table["margin_bytes"]).all()


def test_impossible_cells_say_why() -> None:
    asked = sweep(gpu="rtx4090,m2-ultra-76", model="llama3-8b", backend="CUDA")
    reasons = [block.problem for block in asked.blocks()]
    assert reasons[0] is None
    assert "CUDA does not run" in str(reasons[1])
    with pytest.raises(InputError, match="unknown device"):
        sweep(gpu="rtx4091", model="llama3-8b").table()
    with pytest.raises(InputError, match="raise --ctx"):
        sweep(gpu="rtx4090", model="llama3-8b", ctx=512, prompt=512).table()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"parallel": "1..300"}, "parallel: must be from 1 to 256"),
        ({"ctx": 0}, "ctx: must be from 1"),
        ({"prompt": "0"}, "prompt: must be from 1"),
        ({"columns": ("ctx", "speed")}, "columns: speed"),
        ({"gpu": "rtx4090", "cpu": "a,b"}, "only one"),
    ],
)
def test_bad_axes(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        sweep(**({"gpu": "rtx4090", "model": "llama3-8b"} | given))  # type: ignore[arg-type]
