"""Where matrix kernels take over from matrix-vector kernels, by backend, kind of product and age of the build."""

from __future__ import annotations

import math

import pytest

from llmcalc import decode_time, find_device, find_model, weights
from llmcalc.vector_limits import extra_column, vector_tokens


@pytest.mark.parametrize(
    ("device", "backend", "tensor_type", "experts", "era", "tokens"),
    [
        ("rtx4090", "CUDA", "Q4_K", False, None, 8),
        ("rtx4090", "CUDA", "Q4_K", True, None, 8),
        ("rtx4090", "CUDA", "Q4_K", True, "2025H2", 1),
        ("rtx4090", "CUDA", "F16", False, None, 16),
        ("rtx4090", "CUDA", "F16", False, "2025H1", 8),
        ("gtx1080ti", "CUDA", "F16", False, None, 8),
        ("radeon-8060s", "Vulkan", "Q4_K", True, "2025H2", 1),
        ("radeon-8060s", "Vulkan", "Q4_K", True, None, 8),
        ("radeon-8060s", "Vulkan", "BF16", True, None, 0),  # ggml_vk_use_mul_mat_vec_id
        ("radeon-8060s", "Vulkan", "BF16", False, None, 8),
        ("m2-ultra-76", "Metal", "Q4_0", False, "2025H2", 8),
        ("m2-ultra-76", "Metal", "Q4_0", False, None, 16),
        ("m2-ultra-76", "Metal", "Q4_0", True, None, 31),
        ("ryzen-9-7950x", "CPU", "Q4_0", False, None, 3),
        ("ryzen-9-7950x", "CPU", "Q6_K", False, None, 7),
        ("ryzen-9-7950x", "CPU", "Q6_K", False, "2026H1", math.inf),
        ("ryzen-9-7950x", "CPU", "Q8_0", False, None, 1),
        ("ryzen-9-7950x", "CPU", "Q4_0", True, None, math.inf),
    ],
)
def test_tokens_of_matrix_vector_kernels(
    device: str, backend: str, tensor_type: str, experts: bool, era: str | None, tokens: float
) -> None:
    assert vector_tokens(find_device(device), backend, tensor_type, experts=experts, era=era) == tokens


def test_a_cpu_unpacks_for_every_column_and_a_matrix_unit_for_none() -> None:
    assert extra_column(find_device("ryzen-9-7950x"), "CPU", "Q6_K") == 1
    assert extra_column(find_device("rtx4090"), "CUDA", "F16") == 0
    assert 0 < extra_column(find_device("rtx4090"), "CUDA", "Q4_0") < 1
    assert extra_column(find_device("rtx4090"), "CUDA", "Q4_0", experts=True) == 1


def test_experts_of_several_tokens_were_slower_in_builds_before_2026() -> None:
    """Of a Radeon 8060S prompts of 8 tokens took several times as long as today (llama.cpp pull 18918)."""
    model, device = find_model("qwen3-30b-a3b"), find_device("radeon-8060s")

    def seconds(era: str) -> float:
        step = decode_time(model, weights(model, "Q4_K_M"), device, "Vulkan", occupied=512, parallel=8, era=era)
        return float(step.seconds)

    assert seconds("2025H2") > 1.2 * seconds("2026H1")
