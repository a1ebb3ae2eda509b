"""Compute paths: which peak bounds what, as a truth table read off llama.cpp's sources."""

from __future__ import annotations

import pytest

from llmcalc.compute_paths import attention_path, has_integer_dot, matrix_paths, vector_path
from llmcalc.device_catalog import find_device, list_devices
from llmcalc.errors import InputError
from llmcalc.file_types import FILE_TYPES
from llmcalc.inventory import inventory
from llmcalc.model_catalog import find_model
from llmcalc.operations import prefill_operations
from llmcalc.phase_roofs import model_traits, phase_roofs
from llmcalc.quantization import weights
from llmcalc.run_machine import Conditions

PATHS = [
    # Turing and later multiply quantised weights on int8 matrix units, floats on FP16 ones.
    ("geforce-rtx-4090", "CUDA", "Q4_K", 512, "int8_matrix"),
    ("geforce-rtx-3090", "CUDA", "Q4_0", 9, "int8_matrix"),
    ("geforce-rtx-5090", "CUDA", "MXFP4", 64, "int8_matrix"),
    ("h100-pcie-80gb", "CUDA", "Q8_0", 512, "int8_matrix"),
    ("geforce-rtx-4090", "CUDA", "F16", 512, "fp16_matrix_fp16_accumulate"),
    ("geforce-rtx-4090", "CUDA", "BF16", 512, "bf16_matrix"),
    ("geforce-rtx-4090", "CUDA", "IQ1_M", 512, "fp16_matrix_fp16_accumulate"),
    # Volta has no int8 matrix unit: dp4a for small batches, dequantised FP16 GEMM for large ones.
    ("tesla-v100-pcie-16gb", "CUDA", "Q4_0", 32, "int8_dot"),
    ("tesla-v100-pcie-16gb", "CUDA", "Q4_0", 512, "fp16_matrix_fp16_accumulate"),
    # Pascal: dp4a, and FP16 at 1/64 of the FP32 rate, so floats run in FP32. P100 has no dp4a but fast FP16.
    ("tesla-p40", "CUDA", "Q4_0", 512, "int8_dot"),
    ("tesla-p40", "CUDA", "F16", 512, "fp32"),
    ("tesla-p100-pcie-16gb", "CUDA", "Q4_0", 512, "fp16"),
    # GTX 16 has Turing's instructions but not its units.
    ("geforce-gtx-1660", "CUDA", "Q4_0", 512, "fp32"),
    # AMD
    ("radeon-rx-7900-xtx", "ROCm", "Q4_0", 512, "int8_matrix"),
    ("radeon-rx-7900-xtx", "ROCm", "Q6_K", 64, "int8_matrix"),
    ("radeon-rx-7900-xtx", "ROCm", "Q6_K", 512, "fp16_matrix"),
    ("instinct-mi100", "ROCm", "Q4_0", 512, "int8_matrix"),
    ("instinct-mi100", "ROCm", "Q4_K", 512, "fp16_matrix"),
    ("instinct-mi300x", "ROCm", "Q4_K", 512, "int8_matrix"),
    ("radeon-rx-6800-xt", "ROCm", "Q4_K", 512, "int8_dot"),
    ("radeon-rx-vega-64", "ROCm", "Q4_0", 512, "fp16"),
    ("radeon-rx-7900-xtx", "Vulkan", "Q4_K", 512, "int8_matrix"),
    ("radeon-rx-9070-xt", "Vulkan", "Q4_K", 512, "fp16_matrix"),
    ("radeon-rx-9070-xt", "Vulkan", "Q4_0", 512, "int8_matrix"),
    ("radeon-rx-6800-xt", "Vulkan", "Q4_0", 512, "int8_dot"),
    ("radeon-rx-580-8gb", "Vulkan", "Q4_0", 512, "fp16"),
    # Vulkan on NVIDIA uses FP16 cooperative matrices for all types; Metal and Intel likewise.
    ("geforce-rtx-4090", "Vulkan", "Q4_0", 512, "fp16_matrix_fp16_accumulate"),
    ("geforce-gtx-1080-ti", "Vulkan", "Q4_0", 512, "int8_dot"),
    # Intel's cooperative matrices are used from Xe2 on.
    ("arc-a770-16gb", "Vulkan", "Q4_0", 512, "fp16"),
    ("arc-a770-16gb", "Vulkan", "F16", 512, "fp16"),
    ("arc-b580", "Vulkan", "Q4_0", 512, "fp16_matrix"),
    ("arc-a770-16gb", "SYCL", "Q4_0", 512, "fp32"),
    ("apple-m2-ultra-76c", "Metal", "Q4_0", 512, "fp16_matrix"),
    ("apple-m5-max-40c", "Metal", "Q4_0", 512, "fp16_matrix"),
    # CPUs
    ("ryzen-9-7950x", "CPU", "Q4_K", 512, "int8_cpu"),
    ("ryzen-9-7950x", "CPU", "BF16", 512, "bf16_cpu"),
    ("ryzen-9-7950x", "CPU", "F16", 512, "fp32"),
    ("epyc-7702", "CPU", "Q4_K", 512, "fp32"),
]


@pytest.mark.parametrize(("device", "backend", "tensor_type", "columns", "peak"), PATHS)
def test_matrix_path(device: str, backend: str, tensor_type: str, columns: int, peak: str) -> None:
    ranges = matrix_paths(find_device(device), backend, tensor_type)
    assert next(one.path.peak for one in ranges if columns <= one.columns) == peak


def test_cuda_builds_before_int8_matrix_kernels_dequantised_large_batches() -> None:
    device = find_device("a100-pcie-80gb")
    old, new = (matrix_paths(device, "CUDA", "Q4_K", era) for era in ("2024H1", "2024H2"))
    assert old[-1].path.dequantized and old[-1].path.peak == "fp16_matrix_fp16_accumulate"
    assert not new[-1].path.dequantized and new[-1].path.peak == "int8_matrix"


# Pull requests of llama.cpp date the kernels: 17576, 17156 (RDNA 3, 4), 14624, 14949 (CDNA), 27952 (int8 of Vulkan),
# 10597 and 12135 (Vulkan's matrices and dot products).
AGES = [
    ("radeon-rx-7900-xtx", "ROCm", "Q4_0", 512, "2025H2", "fp16_matrix"),
    ("radeon-rx-7900-xtx", "ROCm", "Q4_0", 32, "2025H2", "int8_dot"),
    ("radeon-rx-7900-xtx", "ROCm", "Q4_0", 512, "2026H1", "int8_matrix"),
    ("radeon-rx-9070-xt", "ROCm", "Q6_K", 512, "2025H2", "fp16_matrix"),
    ("instinct-mi300x", "ROCm", "Q4_K", 512, "2025H1", "fp16_matrix"),
    ("instinct-mi300x", "ROCm", "Q4_K", 512, "2025H2", "int8_matrix"),
    ("radeon-rx-6800-xt", "ROCm", "Q4_0", 512, "2024H1", "int8_dot"),
    ("radeon-8060s", "Vulkan", "Q4_0", 512, "2026H2", "fp16_matrix"),
    ("radeon-8060s", "Vulkan", "Q4_0", 512, None, "int8_matrix"),
    ("instinct-mi300x", "Vulkan", "Q4_0", 512, None, "fp16_matrix"),
    ("geforce-rtx-4090", "Vulkan", "Q4_0", 512, "2024H2", "fp16"),
    ("geforce-rtx-4090", "Vulkan", "F16", 512, "2024H2", "fp16"),
    ("radeon-rx-6800-xt", "Vulkan", "Q4_0", 512, "2024H1", "fp16"),
]


@pytest.mark.parametrize(("device", "backend", "tensor_type", "columns", "era", "peak"), AGES)
def test_builds_use_the_kernels_of_their_time(
    device: str, backend: str, tensor_type: str, columns: int, era: str | None, peak: str
) -> None:
    ranges = matrix_paths(find_device(device), backend, tensor_type, era)
    path = next(one.path for one in ranges if columns <= one.columns)
    assert path.peak == peak
    assert path.dequantized == (backend == "ROCm" and peak == "fp16_matrix")


@pytest.mark.parametrize(("device", "era", "peak"), [
    ("arc-a770-16gb", None, "fp16"), ("arc-b580", None, "fp16_matrix"), ("radeon-8060s", "2024H2", "fp16"),
    ("radeon-8060s", "2025H1", "fp16_matrix"),
])  # fmt: skip
def test_attention_runs_on_matrix_units_where_vulkan_uses_them(device: str, era: str | None, peak: str) -> None:
    assert attention_path(find_device(device), "Vulkan", era).peak == peak


def test_dequantised_paths_say_so() -> None:
    volta = matrix_paths(find_device("tesla-v100-pcie-16gb"), "CUDA", "Q4_0")
    assert [one.path.dequantized for one in volta] == [False, True]
    assert all(one.path.dequantized for one in matrix_paths(find_device("arc-a770-16gb"), "SYCL", "Q4_0"))


def test_short_blocks_are_scaled_twice_as_often() -> None:
    device = find_device("geforce-rtx-4090")
    long, short = (matrix_paths(device, "CUDA", name)[0].path.scaling for name in ("Q4_0", "Q6_K"))
    assert short == 2 * long > 0
    assert matrix_paths(device, "CUDA", "F16")[0].path.scaling == 0


@pytest.mark.parametrize(
    ("device", "share"), [("geforce-rtx-3090", 0.5), ("a100-pcie-80gb", 1.0), ("geforce-rtx-4090", 0.5)]
)
def test_unpacking_runs_at_the_integer_rate(device: str, share: float) -> None:
    found = find_device(device)
    assert vector_path(found, "CUDA", "Q4_0").flop_per_s == share * found.peaks_flop_per_s["fp32"]


def test_integer_dot_products() -> None:
    assert has_integer_dot(find_device("tesla-p40"))
    assert not has_integer_dot(find_device("tesla-p100-pcie-16gb"))


@pytest.mark.parametrize(
    ("device", "share"),
    [("epyc-7702", 2.0), ("ryzen-9-7950x", 2.0), ("aws-graviton3", 4.0), ("xeon-platinum-8468", 2.0 / 2)],
)
def test_cpus_multiply_bytes_in_256_bit_registers(device: str, share: float) -> None:
    found = find_device(device)
    fp32 = found.peaks_flop_per_s["fp32"]
    assert vector_path(found, "CPU", "Q4_0").flop_per_s == share * fp32
    assert vector_path(found, "CPU", "F16").flop_per_s == fp32


def test_the_cpu_of_a_chip_whose_gpu_alone_is_known_is_refused() -> None:
    with pytest.raises(InputError, match="CPU cores are not known"):
        matrix_paths(find_device("apple-m2-max-30c"), "CPU", "Q4_0")


def test_every_device_of_the_catalog_uses_only_peaks_that_it_has() -> None:
    types = {file_type.default.name for file_type in FILE_TYPES.values()}
    checked = 0
    for device in list_devices():
        for backend in device.backends:
            try:
                paths = [one.path for name in types for one in matrix_paths(device, backend, name)]
                paths += [attention_path(device, backend), vector_path(device, backend)]
            except InputError:
                continue
            checked += 1
            assert all(path.peak in device.peaks_flop_per_s and path.flop_per_s > 0 for path in paths)
    assert checked > 400


def test_experts_that_blas_multiplies_one_by_one_choose_kernels_by_their_own_tokens() -> None:
    """512 tokens of which 128 experts get 32 each: too few for hipBLAS (ggml-cuda.cu, ggml_cuda_mul_mat_id)."""
    model, device = find_model("qwen3-30b-a3b"), find_device("radeon-rx-7900-xtx")
    file = inventory(model, weights(model, "Q4_0"))

    def peaks(tokens: int, era: str) -> set[str]:
        phase = prefill_operations(model, file, prompt=tokens, ubatch=tokens)
        groups = phase_roofs(phase, device, Conditions("ROCm", era=era), model_traits(model))
        return {roof.path for group in groups if group.kind == "experts" for roof in group.roofs} - {
            "bandwidth",
            "power",
        }

    assert peaks(512, "2025H2") == {"int8_dot"}
    assert peaks(4096, "2025H2") == {"fp16_matrix"}
    assert peaks(4096, "2026H1") == {"int8_matrix"}
