"""How llama.cpp's CPU backend multiplies many columns: in tiles, or by dot products that unpack the weights every time.

Read from llama.cpp b11434, ggml/src/ggml-cpu: repack.cpp (ggml_repack_get_optimal_repack_type: rows of a type are
interleaved for the instruction sets named here; products with experts take one column at a time all the same, see
forward_mul_mat_id), llamafile/sgemm.cpp (tinyBLAS tiles of float types and of blocks with one scale), ggml-cpu.c.
Imports `system`, `ggml_types` and `build_eras`.
"""

from __future__ import annotations

from typing import Final, Literal

from .build_eras import built_since
from .ggml_types import FLOAT_TYPES
from .system import Device

Kernel = Literal["repacked", "blocked", "dot"]

TILED_FROM_COLUMNS: Final = 4  # repack.cpp: fewer rows of activations go through the matrix-vector kernel

# Types with a tinyBLAS kernel, and the first half-year of builds in which a type's rows are interleaved.
_X86_BLOCKED: Final = frozenset({"Q4_0", "Q5_0", "Q8_0", "IQ4_NL"})
_X86_REPACKED: Final = {"Q4_0": "2025H1", "Q4_K": "2025H1", "IQ4_NL": "2025H2", "MXFP4": "2026H1"}
_AVX512_REPACKED: Final = {"Q2_K": "2025H2"}
_ARM_BLOCKED: Final = frozenset({"Q4_0", "Q8_0"})
_ARM_REPACKED: Final = {
    "Q4_0": "2024H2", "IQ4_NL": "2025H1", "Q4_K": "2025H2", "Q5_K": "2026H1", "Q6_K": "2026H1", "Q8_0": "2026H1",
    "MXFP4": "2026H1",
}  # fmt: skip


def kernel(device: Device, tensor_type: str, *, experts: bool = False, era: str | None = None) -> Kernel:
    """What multiplies many columns of a type; `era`: half-year of the build, None for today's.

    "repacked" and "blocked" (tinyBLAS) unpack a weight once for several columns, "dot" for each of them.
    """
    if experts:
        return "dot"
    if tensor_type in FLOAT_TYPES:
        return "blocked"
    blocked, repacked = _types(device)
    since = repacked.get(tensor_type)
    if since is not None and built_since(since, era):
        return "repacked"
    return "blocked" if tensor_type in blocked else "dot"


def is_arm(device: Device) -> bool:
    """Whether a CPU runs the Arm kernels; others run those for x86."""
    simd = device.simd or ""
    return device.isa == "aarch64" or "NEON" in simd or "SVE" in simd


def _types(device: Device) -> tuple[frozenset[str], dict[str, str]]:
    simd = device.simd or ""
    if is_arm(device):
        return (frozenset(), {}) if "no dotprod" in simd else (_ARM_BLOCKED, _ARM_REPACKED)
    return _X86_BLOCKED, _X86_REPACKED | _AVX512_REPACKED if "AVX-512" in simd else _X86_REPACKED
