"""Which kernels multiply on a CPU, and what follows from them for many columns and for attention."""

from __future__ import annotations

import numpy as np
import pytest

from llmcalc import decode_time, find_device, find_model, prefill_time, weights
from llmcalc.cpu_kernels import kernel

ZEN2, ZEN4, XEON, GRAVITON3, PI4 = (
    "epyc-7702", "ryzen-9-7950x", "xeon-platinum-8480plus", "aws-graviton3", "raspberry-pi-4b",
)  # fmt: skip


@pytest.mark.parametrize(
    ("device", "tensor_type", "era", "expected"),
    [
        # llama.cpp b11434, ggml/src/ggml-cpu/repack.cpp: ggml_repack_get_optimal_repack_type
        (ZEN2, "Q4_0", None, "repacked"),
        (ZEN2, "Q4_K", None, "repacked"),
        (ZEN2, "IQ4_NL", None, "repacked"),
        (ZEN2, "MXFP4", None, "repacked"),
        (ZEN2, "Q2_K", None, "dot"),
        (ZEN4, "Q2_K", None, "repacked"),
        (XEON, "Q2_K", None, "repacked"),
        (XEON, "Q6_K", None, "dot"),
        (XEON, "Q5_K", None, "dot"),
        (GRAVITON3, "Q6_K", None, "repacked"),
        (GRAVITON3, "Q5_K", None, "repacked"),
        (GRAVITON3, "Q2_K", None, "dot"),
        (GRAVITON3, "Q8_0", None, "repacked"),
        # ggml/src/ggml-cpu/llamafile/sgemm.cpp
        (ZEN2, "Q8_0", None, "blocked"),
        (ZEN2, "Q5_0", None, "blocked"),
        (ZEN2, "Q4_1", None, "dot"),
        (ZEN2, "IQ3_S", None, "dot"),
        (GRAVITON3, "Q5_0", None, "dot"),
        (PI4, "Q4_0", None, "dot"),
        (PI4, "F16", None, "blocked"),
        # builds from before the interleaved kernels
        (ZEN4, "Q4_K", "2024H2", "dot"),
        (ZEN4, "Q4_0", "2024H2", "blocked"),
        (GRAVITON3, "Q6_K", "2025H2", "dot"),
    ],
)
def test_kernels_by_instruction_set_type_and_age(device: str, tensor_type: str, era: str | None, expected: str) -> None:
    assert kernel(find_device(device), tensor_type, era=era) == expected


@pytest.mark.parametrize("tensor_type", ["Q4_0", "F16", "Q6_K"])
def test_experts_are_multiplied_column_by_column(tensor_type: str) -> None:
    assert kernel(find_device(ZEN4), tensor_type, experts=True) == "dot"


def test_dot_products_cost_every_column_the_same() -> None:
    """A type without tiles prefills at the rate at which its weights are unpacked, however long the prompt."""
    model = find_model("llama3.2-1b")
    device = find_device(ZEN4)

    def per_token(quant: str, prompt: int) -> float:
        product = prefill_time(model, weights(model, quant), device, "CPU", prompt=prompt, flash_attention=False)
        spent = [one.seconds for one in product.operations if one.kind == "dense" and one.group.flops]
        return float(sum(np.sum(one) for one in spent)) / prompt

    assert per_token("IQ3_S", 512) == pytest.approx(per_token("IQ3_S", 64), rel=0.1)
    assert per_token("IQ3_S", 512) > 2 * per_token("Q4_0", 512)


@pytest.mark.parametrize(("backend", "device", "equal"), [("CPU", ZEN4, False), ("CUDA", "geforce-rtx-4090", True)])
def test_a_cpu_skips_masked_cells_a_gpu_reads_them(backend: str, device: str, equal: bool) -> None:
    model = find_model("llama3.2-1b")
    step = decode_time(
        model, weights(model, "Q4_K_M"), find_device(device), backend, occupied=np.array([1030.0, 1270.0])
    )
    assert (step.seconds[0] == step.seconds[1]) is np.bool_(equal)
