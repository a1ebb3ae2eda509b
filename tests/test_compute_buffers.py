"""Compute and output buffers against llama.cpp's own figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from published_models import published
from test_kv_cache import rows, workload

from llmcalc.compute_buffers import compute_bytes, output_bytes, representative_layers
from llmcalc.graphs.allocator import PIPELINE_COPIES, buffer_bytes
from llmcalc.graphs.compute_graph import build_graph
from llmcalc.placement import HOST, on_host, place
from llmcalc.workload import Workload

DATA = Path(__file__).parent / "data" / "memory"
MIB = 2**20


@pytest.mark.slow
def test_every_recorded_cpu_run_to_the_byte() -> None:
    wrong = []
    for row in rows("cpu.csv"):
        if not row["compute_bytes"]:
            continue
        model, load = published(row["model"]), workload(row)
        compute = compute_bytes(model, on_host(model), load)
        if compute != {HOST: int(row["compute_bytes"])}:
            wrong.append((row, compute))
        assert output_bytes(model, load) / MIB == pytest.approx(float(row["output_mib"]), abs=0.0051)
    assert not wrong


def test_every_recorded_device_run_as_exactly_as_it_is_printed() -> None:
    for row in rows("device.csv"):
        vocab = 262144 if row["model"].startswith("gemma3") else None
        model = published(row["model"], 512 if row["vocab"] == "512" else vocab)
        load = Workload(
            context=int(row["n_ctx"]), parallel=int(row["n_seq_max"]), ubatch=int(row["n_ubatch"]),
            kv_type_k=row["cache_type"].upper(), kv_type_v=row["cache_type"].upper(),
            flash_attention=row["flash_attn"] == "1",
        )  # fmt: skip
        placement = place(model, int(row["n_gpu_layers"]))
        compute = compute_bytes(model, placement, load, build="separate-embeddings")
        assert compute[HOST] / MIB == pytest.approx(float(row["host_compute_mib"]), abs=0.0151)
        assert compute.get(0, 0) / MIB == pytest.approx(float(row["device_compute_mib"]), abs=0.0151)


def test_a_sweep_over_context_is_one_call() -> None:
    model, load = published("gemma3-4b"), Workload(ubatch=300, parallel=2)
    lengths = np.array([[1, 255, 299, 300], [301, 512, 5000, 131072]])
    swept = compute_bytes(model, place(model), load, lengths)
    for index in np.ndindex(lengths.shape):
        one = compute_bytes(model, place(model), replace(load, context=int(lengths[index])))
        assert {device: swept[device][index] for device in swept} == one


def test_layers_that_repeat_may_be_left_out() -> None:
    assert representative_layers("a" * 52) == [0, 1, 2, 3]
    assert representative_layers("a" * 53) == [0, 1, 2, 3, 4]  # a multiple of 6 is left out
    assert representative_layers("x" + "a" * 50 + "y") == [0, 1, 2, 3, 4, 5, 6, 7, 8, 51]
    pattern = "aaab" * 10
    assert "".join(pattern[i] for i in representative_layers(pattern)) == "aaab" * 4
    assert representative_layers("abcdefgh") == list(range(8))


@pytest.mark.parametrize(
    "name", ["llama3-70b", "gemma3-27b", "qwen3-next-80b-a3b", "nemotron-h-8b", "granite-4.0-1b", "falcon-7b"]
)
@pytest.mark.parametrize(
    "load",
    [
        Workload(8192),
        Workload(32768, kv_type_k="Q8_0", kv_type_v="Q8_0", all_logits=False),
        Workload(4096, parallel=2, ubatch=256, flash_attention=False),
    ],
)
def test_they_make_no_difference(name: str, load: Workload) -> None:
    model = published(name)
    for placement in (place(model), place(model, 9), place(model, split=(1, 1))):
        graph = build_graph(model, placement, load, load.context)
        whole = buffer_bytes(graph, PIPELINE_COPIES if placement.pipelined else 1)
        assert compute_bytes(model, placement, load) == whole


def test_a_server_that_asks_for_few_logits_reserves_few() -> None:
    model = published("gemma3-1b")
    everything = compute_bytes(model, place(model), Workload())[0]
    server = compute_bytes(model, place(model), Workload(all_logits=False))[0]
    assert everything - server > 400 * MIB


def test_quantised_caches_cost_scratch_on_cuda() -> None:
    model = published("llama3-8b")
    load = Workload(context=131072, kv_type_k="Q8_0", kv_type_v="Q8_0")
    plain = compute_bytes(model, place(model), load)[0]
    scratch = compute_bytes(model, place(model), load, attention_scratch=True)[0]
    copies = 2 * 131072 * 1024 * 2  # F16 K and V of one layer
    assert 0.5 * copies < scratch - plain < 2 * copies  # less what other phases cover, more by fragmentation
    unquantised = Workload(context=131072)
    assert compute_bytes(model, place(model), unquantised) == compute_bytes(
        model, place(model), unquantised, attention_scratch=True
    )
