"""How llama.cpp's CPU backend multiplies many columns: in tiles, or by dot products that unpack the weights every time.

Read from llama.cpp b11434, ggml/src/ggml-cpu: repack.cpp (ggml_repack_get_optimal_repack_type: rows of a type are
interleaved for the instruction sets named here; products with experts take one column at a time all the same, see
forward_mul_mat_id), amx/mmq.cpp, tiled/tiled.cpp (types of 256 weights a block on x86, experts too; llama.cpp pull
27851), llamafile/sgemm.cpp (tinyBLAS tiles of float types and of blocks with one scale), ggml-cpu.c.
Imports `system`, `ggml_types` and `build_eras`.
"""

from __future__ import annotations

from typing import Final, Literal

from .build_eras import built_since
from .ggml_types import FLOAT_TYPES
from .system import Device

Kernel = Literal["amx", "repacked", "tiled", "blocked", "dot"]

# Fewer columns go through the matrix-vector kernel: repack.cpp (forward_mul_mat), tiled.cpp (ggml_tiled_min_batch),
# sgemm.cpp (llamafile_sgemm).
_FIRST_COLUMNS: Final[dict[Kernel, float]] = {"amx": 2, "repacked": 4, "tiled": 8, "blocked": 2, "dot": float("inf")}
TILE_COLUMNS: Final = 16  # tiled-kernel.h, TILED_MICRO: the last tile takes as long as a full one
TILED_ERA: Final = "2026H2"
FLOAT_TILES_ERA: Final = "2025H1"  # larger tiles of F16 and BF16 (llama.cpp pull 10714)
KERNEL_FLOP_PER_CYCLE: Final = 32.0  # FP32, of the 256-bit registers that dot products are written for
# Flash attention, a value of V: in vectors (Zen 4 with heads of 64, 128 and 256 values: 1.1, 0.9 and 0.5, beside what
# rows are waited for), and one by one besides (Emerald Rapids, heads of 64: 4 to 7, counted at its base clock); from
# hardware/measurements, cpu-epyc-2core and cpu-xeon-2core.
VALUE_CYCLES: Final = 1.0
SCALAR_CYCLES: Final = 6.0

# Types with a tinyBLAS kernel, and the first half-year of builds in which a type's rows are interleaved.
_X86_BLOCKED: Final = frozenset({"Q4_0", "Q5_0", "Q8_0", "IQ4_NL"})
_X86_REPACKED: Final = {"Q4_0": "2025H1", "Q4_K": "2025H1", "IQ4_NL": "2025H2", "MXFP4": "2026H1"}
_AVX512_REPACKED: Final = {"Q2_K": "2025H2"}
_X86_TILED: Final = frozenset({
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S",
    "IQ1_M",
})  # fmt: skip
# amx/common.h, qtype_has_amx_kernels: plain products where both the core and the build have AMX.
_AMX: Final = frozenset({"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"})
AMX_ERA: Final = "2025H1"  # the K types; Q4_0 and Q4_1 had it half a year before
_ARM_BLOCKED: Final = frozenset({"Q4_0", "Q8_0"})
_ARM_REPACKED: Final = {
    "Q4_0": "2024H2", "IQ4_NL": "2025H1", "Q4_K": "2025H2", "Q5_K": "2026H1", "Q6_K": "2026H1", "Q8_0": "2026H1",
    "MXFP4": "2026H1",
}  # fmt: skip


def kernel(device: Device, tensor_type: str, *, experts: bool = False, era: str | None = None) -> Kernel:
    """What multiplies many columns of a type; `era`: half-year of the build, None for today's.

    "dot" unpacks a weight for every column, the others once for several; "blocked" is tinyBLAS.
    """
    if tensor_type in _AMX and has_amx(device) and not experts and built_since(AMX_ERA, era):
        return "amx"
    if is_interleaved(device, tensor_type, era):
        return "dot" if experts else "repacked"
    if tensor_type in _X86_TILED and not is_arm(device) and built_since(TILED_ERA, era):
        return "tiled"
    blocked = tensor_type in FLOAT_TYPES or tensor_type in _types(device)[0]
    return "blocked" if blocked and not experts else "dot"


def is_interleaved(device: Device, tensor_type: str, era: str | None = None) -> bool:
    """Whether rows of a type are interleaved when a model is loaded, which kernels of single columns use too."""
    since = _types(device)[1].get(tensor_type)
    return since is not None and built_since(since, era)


def has_amx(device: Device) -> bool:
    """Whether a CPU has matrix units (AMX), which are assumed to be used: releases of llama.cpp do."""
    return "AMX" in (device.simd or "")


def first_columns(kernel: Kernel) -> float:
    """The fewest columns that a kernel of many columns takes."""
    return _FIRST_COLUMNS[kernel]


def is_arm(device: Device) -> bool:
    """Whether a CPU runs the Arm kernels; others run those for x86."""
    simd = device.simd or ""
    return device.isa == "aarch64" or "NEON" in simd or "SVE" in simd


def flop_per_cycle(device: Device) -> float:
    """FP32 operations of a (performance) core a cycle; those of 256-bit registers where it is not known."""
    return device.fp32_flop_per_cycle_core[0] if device.fp32_flop_per_cycle_core else KERNEL_FLOP_PER_CYCLE


def half_step(device: Device) -> int:
    """Half-precision values that a loop of flash attention takes at once (simd-mappings.h, GGML_F16_STEP)."""
    simd = device.simd or ""
    if "AVX-512" in simd:
        return 128 if "FP16" in simd or has_amx(device) else 64  # all cores with AMX have AVX512-FP16
    return 32


def score_cycles(device: Device, value_dim: int) -> float:
    """Cycles of flash attention for one score of one head in decode: every cell that is not masked is walked alone.

    Values of V beyond whole vector steps are added one by one (ggml/src/ggml-cpu/ops.cpp, vec.h: ggml_vec_mad_f16).
    """
    return VALUE_CYCLES * value_dim + SCALAR_CYCLES * (value_dim % half_step(device))


def _types(device: Device) -> tuple[frozenset[str], dict[str, str]]:
    simd = device.simd or ""
    if is_arm(device):
        return (frozenset(), {}) if "no dotprod" in simd else (_ARM_BLOCKED, _ARM_REPACKED)
    return _X86_BLOCKED, _X86_REPACKED | _AVX512_REPACKED if "AVX-512" in simd else _X86_REPACKED
