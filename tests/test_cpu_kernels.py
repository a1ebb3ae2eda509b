"""Which kernels multiply on a CPU, and what follows from them for many columns and for attention."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from llmcalc import decode_time, find_device, find_model, prefill_time, weights
from llmcalc.attention_roofs import PREFETCHED_CELL_BYTES, ROW_LATENCY_S
from llmcalc.cpu_kernels import SCALAR_CYCLES, VALUE_CYCLES, is_interleaved, kernel, score_cycles
from llmcalc.efficiency import correction_prior
from llmcalc.ggml_types import FLOAT_TYPES
from llmcalc.inventory import inventory
from llmcalc.operations import decode_operations
from llmcalc.phase_roofs import model_traits, phase_roofs
from llmcalc.run_machine import Conditions

ZEN2, ZEN4, ICE_LAKE, XEON, GRAVITON3, PI4 = (
    "epyc-7702", "ryzen-9-7950x", "xeon-platinum-8380", "xeon-platinum-8480plus", "aws-graviton3", "raspberry-pi-4b",
)  # fmt: skip


@pytest.mark.parametrize(
    ("device", "tensor_type", "era", "expected"),
    [
        # llama.cpp b11434, ggml/src/ggml-cpu/repack.cpp: ggml_repack_get_optimal_repack_type
        (ZEN2, "Q4_0", None, "repacked"),
        (ZEN2, "Q4_K", None, "repacked"),
        (ZEN2, "IQ4_NL", None, "repacked"),
        (ZEN2, "MXFP4", None, "repacked"),
        (ZEN2, "Q2_K", None, "tiled"),
        (ZEN4, "Q2_K", None, "repacked"),
        (XEON, "Q2_K", None, "repacked"),
        (XEON, "IQ4_NL", None, "repacked"),
        # ggml/src/ggml-cpu/amx/common.h: qtype_has_amx_kernels
        (XEON, "Q4_0", None, "amx"),
        (XEON, "Q6_K", None, "amx"),
        (ICE_LAKE, "Q4_0", None, "repacked"),
        # ggml/src/ggml-cpu/tiled/tiled.cpp: what is not interleaved, on x86
        (ICE_LAKE, "Q6_K", None, "tiled"),
        (XEON, "Q3_K", None, "tiled"),
        (ZEN2, "IQ3_S", None, "tiled"),
        (ZEN2, "TQ2_0", None, "dot"),
        (GRAVITON3, "Q6_K", None, "repacked"),
        (GRAVITON3, "Q5_K", None, "repacked"),
        (GRAVITON3, "Q2_K", None, "dot"),
        (GRAVITON3, "Q8_0", None, "repacked"),
        # ggml/src/ggml-cpu/llamafile/sgemm.cpp
        (ZEN2, "Q8_0", None, "blocked"),
        (ZEN2, "Q5_0", None, "blocked"),
        (ZEN2, "Q4_1", None, "dot"),
        (GRAVITON3, "Q5_0", None, "dot"),
        (PI4, "Q4_0", None, "dot"),
        (PI4, "F16", None, "blocked"),
        # builds from before the interleaved kernels
        (ZEN4, "Q4_K", "2024H2", "dot"),
        (ZEN4, "Q4_0", "2024H2", "blocked"),
        (ICE_LAKE, "Q6_K", "2026H1", "dot"),
        (GRAVITON3, "Q6_K", "2025H2", "dot"),
    ],
)
def test_kernels_by_instruction_set_type_and_age(device: str, tensor_type: str, era: str | None, expected: str) -> None:
    assert kernel(find_device(device), tensor_type, era=era) == expected


@pytest.mark.parametrize("tensor_type", ["Q4_0", "F16", "Q4_K", "Q8_0"])
def test_experts_are_multiplied_column_by_column(tensor_type: str) -> None:
    assert kernel(find_device(ZEN4), tensor_type, experts=True) == "dot"


@pytest.mark.parametrize("tensor_type", ["Q6_K", "IQ4_XS"])
def test_experts_of_tiled_types_share_their_weights(tensor_type: str) -> None:
    assert kernel(find_device(ZEN4), tensor_type, experts=True) == "tiled"
    assert kernel(find_device(ZEN4), tensor_type, experts=True, era="2026H1") == "dot"
    assert kernel(find_device(GRAVITON3), tensor_type, experts=True) == "dot"


def test_dot_products_cost_every_column_the_same() -> None:
    """A type without tiles prefills at the rate at which its weights are unpacked, however long the prompt."""
    model = find_model("llama3.2-1b")
    device = find_device(ZEN4)

    def per_token(quant: str, prompt: int) -> float:
        product = prefill_time(model, weights(model, quant), device, "CPU", prompt=prompt, flash_attention=False)
        spent = [one.seconds for one in product.operations if one.kind == "dense" and one.group.flops]
        return float(sum(np.sum(one) for one in spent)) / prompt

    assert per_token("Q4_1", 512) == pytest.approx(per_token("Q4_1", 64), rel=0.1)
    assert per_token("Q4_1", 512) > 2 * per_token("Q4_0", 512)


@pytest.mark.parametrize(("backend", "device", "equal"), [("CPU", ZEN4, False), ("CUDA", "geforce-rtx-4090", True)])
def test_a_cpu_skips_masked_cells_a_gpu_reads_them(backend: str, device: str, equal: bool) -> None:
    model = find_model("llama3.2-1b")
    step = decode_time(
        model, weights(model, "Q4_K_M"), find_device(device), backend, occupied=np.array([1030.0, 1270.0])
    )
    assert (step.seconds[0] == step.seconds[1]) is np.bool_(equal)


KERNELS = Path(__file__).parents[1] / "hardware/measurements/cpu-epyc-2core/kernels.csv"
BUILDS = [("avx512", ZEN4), ("avx2", ZEN2)]


class Measured(NamedTuple):
    """One kernel on one thread of a virtual CPU of Zen 4, its weights in cache."""

    build: str
    tensor_type: str
    interleaved: bool
    experts: bool
    columns: int


@cache
def measured() -> dict[Measured, float]:
    """GFLOP/s."""
    with KERNELS.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["threads"] == "1" and int(row["rows"]) < 65536]
    return {
        Measured(
            row["build"],
            row["tensor_type"],
            row["interleaved"] == "yes",
            row["experts"] != "0",
            int(row["columns"]),
        ): float(row["gflop_per_s"])
        for row in rows
    }


@pytest.mark.parametrize(("build", "device"), BUILDS)
def test_rows_are_interleaved_of_the_types_that_a_real_build_interleaves(build: str, device: str) -> None:
    of_build = [key for key in measured() if key.build == build]
    types = {key.tensor_type for key in of_build}
    interleaved = {name for name in types if is_interleaved(find_device(device), name)}
    assert interleaved == {key.tensor_type for key in of_build if key.interleaved}


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize(("build", "device"), BUILDS)
def test_measured_kernels_gain_from_many_columns_as_they_are_said_to(build: str, device: str, experts: bool) -> None:
    """Interleaved rows of some types are as fast alone; few columns of F32 are bound by reading, not by arithmetic."""
    for key, rate in measured().items():
        on = find_device(device)
        used = not key.interleaved and not is_interleaved(on, key.tensor_type) and key.tensor_type != "F32"
        if key[:1] != (build,) or key.experts is not experts or key.columns != 512 or not used:
            continue
        single = measured()[key._replace(columns=2 if experts else 1)]
        gains = kernel(on, key.tensor_type, experts=experts) != "dot"
        assert (rate > 1.15 * single) is gains, (key, rate / single)


def test_beliefs_about_unpacking_are_what_was_measured() -> None:
    def rate(build: str, name: str) -> float:
        return measured()[Measured(build, name, False, False, 1)]

    for name in sorted({key.tensor_type for key in measured()}):
        ratios = [rate(build, "Q4_K") / rate(build, name) for build in ("avx512", "avx2")]
        wider = 2.0 if name in FLOAT_TYPES else 1.0  # counted against FP32, not against twice as many bytes
        expected = float(np.mean(np.log(ratios))) - math.log(wider)
        assert correction_prior(f"unpack_type.x86.{name}").mean == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(
    ("device", "value_dim", "alone"),
    [  # llama.cpp b11434, ggml/src/ggml-cpu/simd-mappings.h: GGML_F16_STEP
        (XEON, 64, 64),
        (XEON, 128, 0),
        (XEON, 192, 64),
        (ZEN4, 64, 0),
        (ZEN4, 80, 16),
        (ZEN2, 96, 0),
        (GRAVITON3, 80, 16),
    ],
)
def test_values_beyond_whole_vectors_are_weighed_one_by_one(device: str, value_dim: int, alone: int) -> None:
    assert score_cycles(find_device(device), value_dim) == VALUE_CYCLES * value_dim + SCALAR_CYCLES * alone


def test_query_heads_read_a_long_cache_each_for_itself() -> None:
    """Four heads share one of the cache, which stays in a core's own cache while it is short."""
    model, device = find_model("llama3.1-8b"), find_device(ZEN4)
    occupied = np.array([1024.0, 2048.0, 61440.0, 122880.0])
    step = decode_time(model, weights(model, "Q4_K_M"), device, "CPU", occupied=occupied).seconds
    near, far = (step[1] - step[0]) / 1024, (step[3] - step[2]) / 61440
    assert 2 < far / near < 5
    plain = decode_time(
        model, weights(model, "Q4_K_M"), device, "CPU", occupied=occupied, flash_attention=False
    ).seconds
    assert (plain[3] - plain[2]) / 61440 == pytest.approx((plain[1] - plain[0]) / 1024, rel=0.2)


def test_rows_of_wide_cells_arrive_at_the_latency_of_memory() -> None:
    """Each score of heads of 128 values, by the bytes of a cell."""
    with (KERNELS.parent / "strides.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["sharers"] == "1"]
    alone = min(float(row["ns_per_score"]) for row in rows)
    for row in rows:
        waited = float(row["ns_per_score"]) - alone
        wide = int(row["cell_bytes"]) >= PREFETCHED_CELL_BYTES
        assert (waited > 20) is wide and waited * 1e-9 < ROW_LATENCY_S, row


@pytest.mark.parametrize(
    ("model", "device", "waits"),
    [  # heads of 128 values take two steps of 64 (Zen 4), one of 128 (Sapphire Rapids: AVX512-FP16)
        ("llama3.1-8b", ZEN4, True),
        ("llama3.1-8b", XEON, False),
        ("llama3.2-1b", ZEN4, False),  # heads of 64 values
        ("llama3.2-1b", ZEN2, True),  # steps of 32
        ("qwen2.5-1.5b", ZEN4, False),  # two heads of the cache: cells of 1 KiB
    ],
)
def test_heads_that_are_walked_in_several_steps_wait_for_their_rows(model: str, device: str, waits: bool) -> None:
    found, on = find_model(model), find_device(device)
    occupied = 4096.0
    phase = decode_operations(found, inventory(found, weights(found, "Q4_0")), occupied=occupied)
    (attention,) = [one for one in phase.operations if one.kind == "attention"]
    groups = phase_roofs(phase, on, Conditions("CPU"), model_traits(found))
    (cycles,) = [roof.amount for group in groups if group.kind == "attention" for roof in group.roofs[1:]]
    counted = score_cycles(on, attention.value_dim) * attention.scores
    assert cycles > 1.3 * counted if waits else cycles == counted


def test_hybrid_cpus_fall_towards_their_base_clock() -> None:
    """Catalogs give them no peak at the base clock: their two kinds of cores have no one figure."""
    laptop, model = find_device("core-ultra-7-155h"), find_model("llama3.2-1b")
    assert "fp32" not in laptop.base_clock_peaks_flop_per_s and laptop.base_hertz

    def prompt(base_hertz: float) -> float:
        device = replace(laptop, id=f"{base_hertz}", base_hertz=base_hertz)
        return float(prefill_time(model, weights(model, "Q4_0"), device, "CPU", prompt=512).seconds)

    assert prompt(laptop.base_hertz) > 1.2 * prompt(3 * laptop.base_hertz)
