"""Batched decode: what adding sequences does to one of them and to all together, and where kernels change."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from llmcalc.compute_paths import VECTOR_COLUMNS
from llmcalc.memory_limits import max_parallel
from llmcalc.multi_device import decode_on
from llmcalc.request import Request, resolve
from llmcalc.request_times import RequestTimes
from llmcalc.step_times import batch_s

GPUS = ["rtx4090", "rtx3060-12gb", "gtx1080ti", "rx7900xtx", "m2-ultra-76", "arc-a770-16gb"]
MODELS = ["llama3-8b", "qwen3-30b-a3b", "gemma3-27b"]


def aggregate(request: Request, parallel: NDArray[np.float64], occupied: float = 2000.0) -> NDArray[np.float64]:
    return decode_on(request, np.full(parallel.shape, occupied), None, parallel).tokens_per_s


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", MODELS)
def test_aggregate_never_falls_within_a_kernel_and_one_sequence_never_gains(gpu: str, model: str) -> None:
    # At 9 sequences a matrix-matrix kernel takes over, which needs many columns to be at its best: there the sum may
    # fall, as measured (qwen3-30b-a3b on a Radeon 8060S: 173 tokens/s for 8 sequences, 130 for 16).
    request = resolve(gpu=gpu, model=model, quant="q4", ctx=8192)
    for parallel in (np.arange(1.0, VECTOR_COLUMNS + 1), np.arange(VECTOR_COLUMNS + 1.0, 129)):
        together = aggregate(request, parallel)
        assert (np.diff(together) > -1e-9 * together[:-1]).all()
        assert (np.diff(together / parallel) < 1e-9).all()


@pytest.mark.parametrize("gpu", ["rtx4090", "rtx3090", "h100-sxm5-80gb"])
def test_aggregate_grows_until_memory_runs_out(gpu: str) -> None:
    request = resolve(gpu=gpu, model="llama3-8b", quant="q4", ctx=4096)
    most = max_parallel(request.model, request.weights, request.workload, request.system).value
    assert 30 < most <= 256
    together = aggregate(request, np.arange(1.0, most + 1), 4000.0)
    assert (np.diff(together) > 0).all()
    beyond = (
        resolve(gpu=gpu, model="llama3-8b", quant="q4", ctx=4096 * (most + 1), parallel=most + 1)
        if most < 256
        else None
    )
    if beyond is not None:
        from llmcalc.memory import memory_plan

        assert memory_plan(beyond.model, beyond.weights, beyond.workload, beyond.system).fits is False


def test_weights_are_read_once_and_the_cache_once_a_sequence() -> None:
    request = resolve(gpu="rtx4090", model="llama3-8b", quant="q4", ctx=8192)
    bytes_of = decode_on(request, np.full(2, 2048.0), None, np.array([1.0, 8.0])).main.required_bytes
    one, eight = np.asarray(bytes_of, float)
    cache = 2048 * 32 * 8 * 128 * 2 * 2
    assert eight - one == pytest.approx(7 * cache, rel=0.01)


def test_experts_are_read_by_how_many_are_reached() -> None:
    request = resolve(gpu="rtx4090", model="qwen3-30b-a3b", quant="q4", ctx=8192)
    parallel = np.array([1.0, 2.0, 8.0, 256.0])
    reads = decode_on(request, np.full(4, 1.0), None, parallel).main
    experts = next(op for op in reads.operations if op.kind == "experts")
    share = np.asarray(experts.bytes, float) / np.asarray(experts.bytes, float)[0]
    reached = 128 * (1 - (1 - 8 / 128) ** parallel) / 8
    assert share[:3] == pytest.approx(reached[:3], rel=0.05)


def test_verifying_a_draft_reads_the_cache_once() -> None:
    times = RequestTimes(resolve(gpu="rtx4090", model="llama3-8b", quant="q4", ctx=32768))
    drafted = float(np.asarray(batch_s(times, 4.0, 1.0, 30000.0)))
    apart = float(np.asarray(times.decode_s(4.0, 30000.0)))
    assert float(np.asarray(times.decode_s(1.0, 30000.0))) < drafted < apart
