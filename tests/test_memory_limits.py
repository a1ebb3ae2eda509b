"""The longest context, the most sequences and the best file type that still fit: each fits, the next does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from published_models import published
from test_memory import gpu, made

from llmcalc.errors import InputError
from llmcalc.memory import memory_plan
from llmcalc.memory_limits import best_file_type, fitting_weights, max_context, max_parallel
from llmcalc.memory_summary import memory_report
from llmcalc.system import System
from llmcalc.workload import Workload


@pytest.mark.parametrize("name", ["llama3-8b", "gemma3-12b", "qwen3-30b-a3b", "deepseek-v2-lite"])
@pytest.mark.parametrize("load", [Workload(), Workload(parallel=3, kv_type_k="Q8_0", kv_type_v="Q8_0")])
def test_the_longest_context(name: str, load: Workload) -> None:
    model, file, system = published(name), made(name, "Q4_K_M"), System((gpu(22),))
    limit = max_context(model, file, load, system, limit=1 << 22)
    at_limit = memory_plan(model, file, replace(load, context=limit.value), system)
    beyond = memory_plan(model, file, replace(load, context=limit.value + 256 * load.streams), system)
    assert at_limit.margin_bytes == limit.margin_bytes >= 0
    assert beyond.fits is False


def test_the_models_own_limit_ends_the_search() -> None:
    model, file = published("qwen3-0.6b"), made("qwen3-0.6b", "Q8_0")
    assert model.max_context is not None
    assert max_context(model, file, Workload(), System((gpu(80),))).value == model.max_context
    assert max_context(model, file, Workload(parallel=2), System((gpu(80),))).value == 2 * model.max_context


def test_nothing_fits() -> None:
    model, file = published("llama3-70b"), made("llama3-70b", "Q4_K_M")
    limit = max_context(model, file, Workload(), System((gpu(24),)))
    assert limit.value == 0
    assert limit.margin_bytes < 0
    assert best_file_type(model, ["Q4_K_M", "Q8_0"], Workload(), System((gpu(24),))) is None


@pytest.mark.parametrize("unified", [False, True])
def test_the_most_sequences(unified: bool) -> None:
    model, file, system = published("llama3-8b"), made("llama3-8b", "Q4_K_M"), System((gpu(16),))
    load = Workload(context=8192, kv_unified=unified)
    limit = max_parallel(model, file, load, system)
    fitting = replace(load, parallel=limit.value, context=8192 * limit.value)
    beyond = replace(load, parallel=limit.value + 1, context=8192 * (limit.value + 1))
    assert limit.value > 4
    assert memory_plan(model, file, fitting, system).margin_bytes == limit.margin_bytes
    assert memory_plan(model, file, beyond, system).fits is False


def test_the_best_file_type() -> None:
    model, system = published("llama3-8b"), System((gpu(7),))
    types = ["Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K", "F16", "Q2_K"]
    best = best_file_type(model, types, Workload(context=8192), system)
    assert best is not None
    assert best.file_type == "Q5_K_M"
    larger = [f for f in fitting_weights(model, types, Workload(context=8192), system) if f.margin_bytes < 0]
    assert [fitting.file_type for fitting in larger] == ["F16", "Q8_0", "Q6_K"]


def test_unknown_memory_cannot_be_searched() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    with pytest.raises(InputError, match="capacity of the devices is unknown"):
        max_context(model, file, Workload(), System((gpu(None),)))


def test_of_a_device_whose_memory_is_unknown_nothing_is_said_to_fit() -> None:
    report = memory_report(model="llama3-8b", gpus=[replace(gpu(24), memory_bytes=None)])
    assert report.plan.fits is None
    assert report.max_context is None
