"""KV cache and state against llama.cpp's own figures, and the rules behind them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import published

from llmcalc.architecture import Attention, CompressedAttention, DenseFfn, Indexer, LatentAttention, Layer, Model
from llmcalc.errors import InputError
from llmcalc.kv_cache import context_bytes, layer_cache, state_elements, window_cells
from llmcalc.workload import KV_TYPES, Workload

DATA = Path(__file__).parent / "data" / "memory"


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def workload(row: dict[str, str]) -> Workload:
    return Workload(
        context=int(row["n_ctx"]),
        parallel=int(row["n_seq"]),
        ubatch=int(row["n_ubatch"]),
        kv_type_k=row["type_k"].upper(),
        kv_type_v=row["type_v"].upper(),
        flash_attention=row["flash_attn"] != "off",
        kv_unified=row["kv_unified"] == "1",
        swa_full=row["swa_full"] == "1",
    )


def test_every_recorded_cpu_run_to_the_byte() -> None:
    recorded = rows("cpu.csv")
    assert len(recorded) == 1617
    wrong = []
    for row in recorded:
        model = published(row["model"])
        if not row["context_bytes"]:
            with pytest.raises(InputError, match="both types must be the same"):
                context_bytes(model, workload(row))
            continue
        cache = context_bytes(model, workload(row))
        state = f"{int(cache.state) / 2**20:.2f}" if row["rs_mib"] else "0"
        if cache.total != int(row["context_bytes"]) or float(state) != float(row["rs_mib"] or 0):
            wrong.append((row, cache))
    assert not wrong


def test_every_recorded_device_run() -> None:
    recorded = rows("device.csv")
    assert len(recorded) == 97
    for row in recorded:
        load = Workload(
            context=int(row["n_ctx"]), parallel=int(row["n_seq_max"]), ubatch=int(row["n_ubatch"]),
            kv_type_k=row["cache_type"].upper(), kv_type_v=row["cache_type"].upper(),
            flash_attention=row["flash_attn"] == "1",
        )  # fmt: skip
        recorded_mib = sum(float(cache.split("/")[0]) for cache in row["caches"].split(";"))
        parts = len(row["caches"].split(";"))
        assert context_bytes(published(row["model"]), load).total / 2**20 == pytest.approx(
            recorded_mib, abs=0.0051 * parts
        )


@pytest.mark.parametrize("name", ["llama3-8b", "gemma3-27b", "qwen3-next-80b-a3b", "deepseek-v3", "mamba-2.8b"])
def test_a_sweep_over_context_is_one_call(name: str) -> None:
    model, load = published(name), Workload(parallel=3)
    lengths = np.array([[1, 255, 256], [257, 5000, 131072]])
    swept = context_bytes(model, load, lengths)
    for index in np.ndindex(lengths.shape):
        one = context_bytes(model, replace(load, context=int(lengths[index])))
        assert np.broadcast_to(swept.total, lengths.shape)[index] == one.total


@given(st.integers(1, 200_000), st.integers(1, 16), st.booleans(), st.sampled_from([None, 128, 1024]))
def test_window_cells_hold_the_window_and_never_exceed_the_stream(
    context: int, parallel: int, unified: bool, window: int | None
) -> None:
    load = Workload(context=context, parallel=parallel, kv_unified=unified)
    cells = window_cells(window, load, context)
    full = load.cells_per_sequence
    assert cells <= full
    assert cells % 256 == 0
    assert cells >= min(full, (window or full) + load.ubatch_tokens(context))
    assert window_cells(window, replace(load, swa_full=True), context) == full


def small(mixer: object, **more: object) -> Model:
    return Model("m", "m", "llama", 1000, 64, (Layer((mixer,), DenseFfn(128)),) * 2, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_bytes_are_proportional_to_heads(kv_type: str) -> None:
    load = Workload(context=1000, kv_type_k=kv_type, kv_type_v=kv_type)
    one = context_bytes(small(Attention(8, 1, 64, 64)), load)
    four = context_bytes(small(Attention(8, 4, 64, 64)), load)
    assert (four.key, four.value) == (4 * one.key, 4 * one.value)


def test_shared_layers_store_nothing() -> None:
    assert context_bytes(small(Attention(8, 2, 64, 64, shares_cache=True)), Workload()).total == 0


def test_without_flash_attention_every_value_is_as_wide_as_the_widest() -> None:
    narrow, wide = Attention(8, 1, 64, 64), Attention(8, 4, 64, 64)
    model = replace(small(narrow), layers=(Layer((narrow,), None), Layer((wide,), None)))
    load = Workload(context=256)
    assert context_bytes(model, load).value == 256 * 2 * 64 * (1 + 4)
    assert context_bytes(model, replace(load, flash_attention=False)).value == 256 * 2 * 64 * (4 + 4)


def test_latent_attention_caches_one_latent_unless_it_is_not_absorbed() -> None:
    latent = LatentAttention(16, 0, 512, 128, 64, 128)
    load = Workload(context=256)
    assert layer_cache(latent, small(latent), load).total == 256 * 576 * 2
    expanded = replace(latent, absorbed=False)
    assert layer_cache(expanded, small(expanded), load).total == 256 * 16 * (192 + 128) * 2


def test_indexer_keys_are_cached_where_the_layer_owns_them() -> None:
    indexer = Indexer(64, 128, 2048)
    latent = LatentAttention(16, 0, 512, 128, 64, 128, indexer=indexer)
    load = Workload(context=256)
    assert layer_cache(latent, small(latent), load).indexer == 256 * 128 * 2
    borrowed = replace(latent, indexer=replace(indexer, owns_weights=False))
    assert layer_cache(borrowed, small(borrowed), load).indexer == 0


def test_compressed_attention_keeps_a_window_and_one_entry_every_ratio_tokens() -> None:
    mixer = CompressedAttention(64, 512, 1024, 1024, 8, 64, 128, 4, Indexer(64, 128, 512))
    cache = layer_cache(mixer, small(mixer), Workload(context=8192))
    assert cache.key == (768 + 2048) * 512 * 2  # window + micro-batch, padded; 8192 / 4
    assert cache.indexer == 2048 * 128 * 2
    assert cache.state == 4 * 2 * (2 * 512 * 8 + 2 * 128 * 8)
    block = replace(mixer, ratio=128, indexer=None)
    assert layer_cache(block, small(block), Workload(context=8192)).key == (768 + 256) * 512 * 2


def test_encoders_have_no_cache() -> None:
    assert (
        context_bytes(
            small(
                Attention(8, 2, 64, 64),
            ),
            Workload(),
        ).total
        > 0
    )
    bert = replace(small(Attention(8, 2, 64, 64)), architecture="bert")
    assert context_bytes(bert, Workload()).total == 0


def test_refusals_say_what_would_be_right() -> None:
    model = small(Attention(8, 2, 80, 80))
    with pytest.raises(InputError, match="needs flash attention"):
        context_bytes(model, Workload(kv_type_v="Q8_0", flash_attention=False))
    with pytest.raises(InputError, match="does not divide m's head size 80"):
        context_bytes(model, Workload(kv_type_k="Q8_0"))
    assert context_bytes(model, Workload(kv_type_k="Q8_0", flash_attention=False)).total > 0  # 160 values a row


@pytest.mark.parametrize(
    ("name", "conv", "state"),
    [  # per layer and sequence, published state sizes
        ("qwen3-next-80b-a3b", 3 * (4096 + 2 * 16 * 128), 128 * 4096),
        ("mamba-2.8b", 3 * 5120, 16 * 5120),
    ],
)
def test_recurrent_state(name: str, conv: int, state: int) -> None:
    model = published(name)
    assert state_elements(model.layers[0].mixers[0], model.hidden) == conv + state
