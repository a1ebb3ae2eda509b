"""Up to how many tokens llama.cpp multiplies with a matrix-vector kernel, and what every further token costs there.

Read from llama.cpp b11434: ggml/src/ggml-cuda/mmvq.cu (ggml_cuda_should_use_mmvq, get_mmvq_mmid_max_batch), mmvf.cu and
mmf.cu, ggml-vulkan/ggml-vulkan.cpp (mul_mat_vec_max_cols, ggml_vk_use_mul_mat_vec_id), ggml-metal/
ggml-metal-common.cpp.
Some types change kernels earlier on some devices, where both take as long, so that 8 tokens stand for them all. Where
the kernels change, the rate of a batch may fall; on many-expert models it does (llama.cpp issue 25356).
Imports `cpu_kernels`, `ggml_types`, `build_eras` and `system`.
"""

from __future__ import annotations

from typing import Final

from .build_eras import built_since
from .cpu_kernels import first_columns, kernel
from .ggml_types import FLOAT_TYPES
from .system import Device

VECTOR_TOKENS: Final = 8  # mmvq.cuh: MMVQ_MAX_BATCH_SIZE
# Builds before January 2026 sent experts of two and more tokens to the matrix kernels (llama.cpp pulls 18958, 18918).
EXPERT_VECTORS_ERA: Final = "2026H1"
FEW_ROWS_ERA: Final = "2026H2"  # Metal's matrix kernels of few rows, mmf.cu on all matrix units
METAL_FEW_ROWS: Final = 16
METAL_EXPERT_TOKENS: Final = 31
MMF_TOKENS: Final = 16  # mmf.cu: floats on matrix units, which the reading of the weights hides

# Work of one more column of a matrix-vector kernel, over unpacking the weights once: prompts of 8 tokens on RDNA 3.5
# and batches on GCN (hardware/measurements) say a half. A CPU's dot products unpack them anew, Metal's few-row kernels
# once for eight.
_EXTRA_COLUMN: Final = 0.5
_EXTRA_COLUMN_ANEW: Final = 1.0
_EXTRA_COLUMN_METAL: Final = 1 / 8


def vector_tokens(
    device: Device, backend: str, tensor_type: str, *, experts: bool = False, era: str | None = None
) -> float:
    """Most tokens of a pass that a matrix-vector kernel takes; `era`: half-year of the build, None for today's."""
    if backend == "CPU":
        return first_columns(kernel(device, tensor_type, experts=experts, era=era)) - 1
    if experts and backend == "Metal":
        return METAL_EXPERT_TOKENS
    if experts and (backend, tensor_type) == ("Vulkan", "BF16"):  # no such kernel: tiles for single tokens
        return 0
    if experts:
        return VECTOR_TOKENS if built_since(EXPERT_VECTORS_ERA, era) else 1
    if not built_since(FEW_ROWS_ERA, era):
        return VECTOR_TOKENS
    if backend == "Metal":
        return METAL_FEW_ROWS
    return MMF_TOKENS if _few_columns_are_free(device, backend, tensor_type) else VECTOR_TOKENS


def extra_column(
    device: Device, backend: str, tensor_type: str, *, experts: bool = False, era: str | None = None
) -> float:
    """Work of a further column of a matrix-vector kernel, relative to unpacking the weights once.

    Experts are unpacked anew for each of their tokens.
    """
    if backend == "CPU" or experts:
        return _EXTRA_COLUMN_ANEW
    if built_since(FEW_ROWS_ERA, era):
        if backend == "Metal":
            return _EXTRA_COLUMN_METAL
        if _few_columns_are_free(device, backend, tensor_type):
            return 0.0
    return _EXTRA_COLUMN


def multiplies_on_matrix_units(backend: str, experts: bool, era: str | None = None) -> bool:
    """Whether kernels of few tokens unpack on the vector units and multiply on the matrix units (ggml-metal)."""
    return backend == "Metal" and not experts and built_since(FEW_ROWS_ERA, era)


def outpaced(experts: bool, era: str | None = None) -> bool:
    """Whether the matrix kernels may take longer for some tokens than one after the other would.

    Measured of experts in builds up to 2025 (hardware/measurements, Radeon 8060S: prompts of 8 tokens); their authors
    moved the change of kernels since.
    """
    return experts and not built_since(EXPERT_VECTORS_ERA, era)


def _few_columns_are_free(device: Device, backend: str, tensor_type: str) -> bool:
    """Whether a matrix unit multiplies a few float columns while the weights are read (mmf.cu)."""
    units = "fp16_matrix" in device.peaks_flop_per_s and device.architecture not in ("CDNA 1", "CDNA 2")
    return units and backend in ("CUDA", "ROCm") and tensor_type in FLOAT_TYPES
