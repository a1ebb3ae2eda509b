"""Which arithmetic unit llama.cpp keeps busy: the peak that bounds a product, by backend, device and tensor type.

Two regimes. With few columns (decode) a matrix-vector kernel unpacks every weight on the vector units. With many
(prefill) a matrix kernel runs on the unit named here. Read from llama.cpp b11434: ggml/src/ggml-cuda/{ggml-cuda,mmq,
mmvq}.cu, ggml/src/ggml-vulkan/ggml-vulkan.cpp, ggml/src/ggml-metal/ggml-metal-ops.cpp, ggml/src/ggml-cpu, ggml-sycl.
A path that the device has no peak for is never chosen.
Imports `system`, `ggml_types`, `build_eras` and `cpu_kernels`; knows no operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from .build_eras import built_since
from .cpu_kernels import KERNEL_FLOP_PER_CYCLE, flop_per_cycle, has_amx, is_arm, kernel
from .errors import InputError
from .frozen_dataclass import dataclass
from .ggml_types import FLOAT_TYPES
from .system import Device

# First half-years of kernels, by the pull requests of llama.cpp that brought them.
INT8_MMA_ERA: Final = "2024H2"  # CUDA's int8 matrix kernels instead of cuBLAS
MFMA_MMQ_ERA: Final = "2025H2"  # the same on CDNA (14624); Vega 20 no longer goes to rocBLAS
WMMA_MMQ_ERA: Final = "2026H1"  # the same on RDNA 3 and 4 (17156, 17576: the last weeks of 2025)
VULKAN_UNITS_ERA: Final = "2025H1"  # Vulkan's cooperative matrices (10597) and packed integer dot products (12135)
AMD_TILES_ERA: Final = "2026H1"  # tiles of cooperative matrices that fit AMD's GPUs (18749)
# Vulkan's int8 cooperative matrices on RDNA 3 and 4 (27952) came in autumn 2026: of the builds of 2026H2 only the last
# have them, and no measured one.
COOPMAT_INT8_ERA: Final = "2027H1"
_BLAS_COLUMNS: Final = 64  # MMQ_DP4A_MAX_BATCH_SIZE: what has no integer matrix kernels goes to BLAS from here on

_SHORT_BLOCKS: Final = frozenset({"Q2_K", "Q3_K", "Q6_K", "IQ2_XS", "IQ2_S", "NVFP4"})  # 16 weights share a scale
_NOT_COOPERATIVE: Final = frozenset({"Xe-LP", "Xe-LPG", "Xe-LPG+", "Xe-HPG (Alchemist)"})
_NO_MMQ: Final = frozenset({"IQ1_M", "TQ1_0", "TQ2_0"})
_RDNA3_DEQUANTIZED: Final = frozenset({"Q2_K", "Q6_K", "IQ2_XS", "IQ2_S"})
_CDNA_INTEGER: Final = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1"})
_COOPMAT_INT8: Final = frozenset({"Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q6_K"})
_COOPMAT_INT8_RDNA3: Final = _COOPMAT_INT8 | {"Q4_1", "Q5_1", "Q4_K", "Q5_K", "NVFP4"}
# FP32 lanes were doubled there, integer lanes were not; unpacking is integer work.
_HALF_RATE_INTEGERS: Final = frozenset(
    {"Ampere GA10x", "Ampere (Tegra Orin)", "Ada Lovelace", "Hopper", "RDNA 3", "RDNA 3.5", "RDNA 4"}
)

# An integer sum over a block of 32 is converted, multiplied by two scales and added: about 4 vector instructions, which
# count 2 FLOP each against the peak, for 64 operations of the matrix unit. Blocks of 16 need them twice as often.
_SCALING: Final = 8 / 64
_SCALING_SHORT: Final = 8 / 32
# AVX2 and NEON multiply 8-bit integers at twice their FP32 rate; dot-product instructions (VNNI, SDOT) double that. The
# dot products of single rows gain nothing from VNNI (hardware/measurements/cpu-epyc-2core/kernels.csv).
_CPU_INT8_WITHOUT_DOT: Final = 2.0
_CPU_INT8_DOT: Final = 4.0
_CPU_DOT_GAIN: Final = 0.75  # of that doubling in tiles that shuffle and scale as much as they multiply, same source


@dataclass(frozen=True)
class ComputePath:
    """A unit, by its name in `Device.peaks_flop_per_s`, and the rate it gives.

    `scaling`: FP32 operations, a FLOP of the product, that apply block scales to integer sums on the vector units.
    `dequantized`: the weights are first written out as F16 and read back.
    """

    peak: str
    flop_per_s: float
    scaling: float = 0.0
    dequantized: bool = False

    @property
    def unit(self) -> str:
        """The unit's name without its manner of accumulating."""
        return self.peak.removesuffix("_fp16_accumulate")


@dataclass(frozen=True)
class PathRange:
    """The path of products of up to `columns` columns; the ranges of a tensor type follow one another."""

    columns: float
    path: ComputePath


def vector_path(device: Device, backend: str, tensor_type: str = "F32") -> ComputePath:
    """What unpacks the weights of matrix-vector products, and runs everything elementwise."""
    peaks = device.peaks_flop_per_s
    if backend == "CPU":
        return _cpu_dot(device, tensor_type)
    name = _first(device, ("fp32", "fp16"), backend)
    return ComputePath(name, peaks[name] * (0.5 if device.architecture in _HALF_RATE_INTEGERS else 1.0))


def has_integer_dot(device: Device) -> bool:
    """Whether 8-bit dot products are single instructions; without them each is several."""
    return bool({"int8_dot", "int8_matrix"} & device.peaks_flop_per_s.keys())


def attention_path(device: Device, backend: str, era: str | None = None) -> ComputePath:
    """The unit of prompt attention: FP16 matrix where a kernel uses it, else the vector units at their faster rate.

    Pascal's FP16 runs at 1/64 of its FP32 rate, and its kernels compute in FP32 (ggml/src/ggml-cuda/fattn-tile.cu).
    """
    if backend == "CPU":
        return _path(device, backend, ("fp32",))
    vector = sorted(("fp16", "fp32"), key=lambda name: -device.peaks_flop_per_s.get(name, 0.0))
    return _path(device, backend, (*_matrix_units(device, backend, era), *vector))


def matrix_paths(device: Device, backend: str, tensor_type: str, era: str | None = None) -> tuple[PathRange, ...]:
    """The paths of products with more columns than a matrix-vector kernel takes, by number of columns.

    `era`: half-year of the build ("2024H1"); None: today's. Raises InputError if the device lacks every peak in
    question.
    """
    if backend == "CPU":
        return _always(_cpu_tiles(device, tensor_type, era))
    if backend == "Metal":
        return _always(_path(device, backend, ("fp16_matrix", "fp16", "fp32")))
    if tensor_type in FLOAT_TYPES or backend not in _QUANTIZED:
        return _always(_float_path(device, backend, tensor_type, era))
    return _QUANTIZED[backend](device, tensor_type, era)


def _cuda(device: Device, tensor_type: str, era: str | None) -> tuple[PathRange, ...]:
    """MMQ on int8 matrix units from Turing on, on dp4a before; large batches of Volta go to cuBLAS, dequantised."""
    has = device.peaks_flop_per_s
    gemm = _gemm(device, "CUDA")
    if "int8_matrix" not in has and device.isa == "sm_75":  # GTX 16 runs matrix instructions on its vector units
        return _always(_path(device, "CUDA", ("fp32",)))
    if tensor_type in _NO_MMQ or not has_integer_dot(device):
        return _always(gemm)
    matrix = "fp16_matrix" in has
    integer = _integer(device, "int8_matrix" if "int8_matrix" in has else "int8_dot", tensor_type)
    if matrix and ("int8_matrix" not in has or not built_since(INT8_MMA_ERA, era)):
        return PathRange(_BLAS_COLUMNS - 1, integer), PathRange(float("inf"), gemm)
    return _always(integer)


def _rocm(device: Device, tensor_type: str, era: str | None) -> tuple[PathRange, ...]:
    """MMQ on RDNA 4 and CDNA 3; RDNA 3 and CDNA 1/2 leave some types to hipBLAS; dp4a where there is no matrix unit.

    Before integer matrix kernels came to a generation, its larger batches went to hipBLAS, dequantised.
    """
    if tensor_type in _NO_MMQ or not has_integer_dot(device):
        return _always(_gemm(device, "ROCm"))
    peaks, architecture = device.peaks_flop_per_s, device.architecture
    if not built_since(_MMQ_ERAS.get(architecture, ""), era):
        integer = _integer(device, "int8_dot" if "int8_dot" in peaks else "int8_matrix", tensor_type)
        return PathRange(_BLAS_COLUMNS - 1, integer), PathRange(float("inf"), _gemm(device, "ROCm"))
    integer = _integer(device, "int8_matrix" if "int8_matrix" in peaks else "int8_dot", tensor_type)
    rdna3 = architecture.startswith("RDNA 3") and tensor_type in _RDNA3_DEQUANTIZED
    old_cdna = architecture in ("CDNA 1", "CDNA 2") and tensor_type not in _CDNA_INTEGER
    if rdna3 or old_cdna:
        return PathRange(128, integer), PathRange(float("inf"), _gemm(device, "ROCm"))
    return _always(integer)


_MMQ_ERAS: Final = {
    **dict.fromkeys(("CDNA 1", "CDNA 2", "CDNA 3", "CDNA 4", "GCN 5.1 (Vega 20)"), MFMA_MMQ_ERA),
    **dict.fromkeys(("RDNA 3", "RDNA 3.5", "RDNA 4"), WMMA_MMQ_ERA),
}


def _vulkan(device: Device, tensor_type: str, era: str | None) -> tuple[PathRange, ...]:
    """Cooperative matrices in FP16, int8 on RDNA 3 and 4 for some types; packed integer dot products without them."""
    has = device.peaks_flop_per_s
    if tensor_type in _cooperative_int8(device) and built_since(COOPMAT_INT8_ERA, era):
        return _always(_integer(device, "int8_matrix", tensor_type))
    matrix = _matrix_units(device, "Vulkan", era)
    if not matrix and "int8_dot" in has and built_since(VULKAN_UNITS_ERA, era):
        return _always(_integer(device, "int8_dot", tensor_type))
    return _always(_path(device, "Vulkan", (*matrix, "fp16", "fp32")))


def _cooperative_int8(device: Device) -> frozenset[str]:
    """Tensor types that Vulkan multiplies as 8-bit integers on a device's matrix units."""
    if "int8_matrix" not in device.peaks_flop_per_s:
        return frozenset()
    if device.architecture.startswith("RDNA 3"):
        return _COOPMAT_INT8_RDNA3
    return _COOPMAT_INT8 if device.architecture == "RDNA 4" else frozenset()


def _matrix_units(device: Device, backend: str, era: str | None) -> tuple[str, ...]:
    """FP16 matrix peaks that a backend uses. Vulkan has no use for them in old builds, nor of Intel's GPUs before Xe2
    (ggml-vulkan.cpp, ggml_vk_khr_cooperative_matrix_support)."""
    cooperative = built_since(VULKAN_UNITS_ERA, era) and device.architecture not in _NOT_COOPERATIVE
    return _fp16_matrix(device) if backend != "Vulkan" or cooperative else ()


def _sycl(device: Device, tensor_type: str, era: str | None) -> tuple[PathRange, ...]:
    """Weights are dequantised for a GEMM, in F32 unless the build says otherwise."""
    path = _path(device, "SYCL", ("fp32",))
    return _always(ComputePath(path.peak, path.flop_per_s, dequantized=True))


_QUANTIZED: Final[dict[str, Callable[[Device, str, str | None], tuple[PathRange, ...]]]] = {
    "CUDA": _cuda,
    "ROCm": _rocm,
    "Vulkan": _vulkan,
    "SYCL": _sycl,
}


def _float_path(device: Device, backend: str, tensor_type: str, era: str | None = None) -> ComputePath:
    """A GEMM on float weights; cuBLAS is asked for FP16 accumulation of F16 weights."""
    if backend == "SYCL" or tensor_type == "F32":
        return _path(device, backend, ("tf32_matrix", "fp32") if backend in ("CUDA", "ROCm") else ("fp32", "fp16"))
    if tensor_type == "BF16":
        matrix = backend in ("CUDA", "ROCm") or device.vendor == "nvidia"
        return _path(device, backend, ("bf16_matrix", "fp32") if matrix else ("fp32", "fp16"))
    slow = device.peaks_flop_per_s.get("fp16", 0.0) < device.peaks_flop_per_s.get("fp32", 0.0)
    vector = ("fp32", "fp16") if slow else ("fp16", "fp32")  # Pascal GP10x runs FP16 at 1/64 of its FP32 rate
    return _path(device, backend, (*_matrix_units(device, backend, era), *vector))


def _gemm(device: Device, backend: str) -> ComputePath:
    path = _float_path(device, backend, "F16")
    return ComputePath(path.peak, path.flop_per_s, dequantized=True)


def _cpu_floats(device: Device) -> ComputePath:
    """The FP32 units of CPU cores, where their own peaks are known."""
    if not device.is_cpu:
        raise InputError(f"{device.id}: the peaks of its CPU cores are not known, only those of its GPU")
    return _path(device, "CPU", ("fp32",))


def _cpu_bytes(device: Device, dot: bool = True) -> ComputePath:
    """8-bit integers on the vector units; `dot`: with the core's dot-product instructions, if it has any."""
    floats = _cpu_floats(device)
    if not dot or "int8_cpu" not in device.peaks_flop_per_s:
        return replace(floats, flop_per_s=floats.flop_per_s * _CPU_INT8_WITHOUT_DOT)
    if has_amx(device):  # whose rate the peak is
        return replace(floats, flop_per_s=floats.flop_per_s * _CPU_INT8_DOT)
    return _path(device, "CPU", ("int8_cpu",))


def _cpu_tiles(device: Device, tensor_type: str, era: str | None) -> ComputePath:
    """The rate of each kernel of many columns.

    Tiles of interleaved rows and of tinyBLAS gain nothing from registers of 512 bit: they are written for 256, or bound
    by shuffles and conversions, of which Intel's cores start one of that width a cycle. tiled.cpp has dot-product
    instructions with AVX-512 only.
    """
    floats = _cpu_floats(device)
    if tensor_type in FLOAT_TYPES:
        halves = tensor_type == "BF16" and not has_amx(device)  # whose rate the peak would be
        path = _path(device, "CPU", ("bf16_cpu", "fp32")) if halves else floats
        return replace(path, flop_per_s=path.flop_per_s * _narrowed(device))
    tiles = kernel(device, tensor_type, era=era)
    if tiles == "amx":
        return _path(device, "CPU", ("int8_cpu", "fp32"))
    if tiles == "tiled":
        return _cpu_bytes(device, dot="AVX-512" in (device.simd or ""))
    path = _cpu_bytes(device)
    gained = _CPU_DOT_GAIN if "int8_cpu" in device.peaks_flop_per_s and not is_arm(device) else 1.0
    return replace(path, flop_per_s=path.flop_per_s * _narrowed(device) * gained)


def _cpu_dot(device: Device, tensor_type: str) -> ComputePath:
    """Dot products of single rows: written for registers of 256 bit, however wide the cores are (ggml-cpu/arch)."""
    floats = _cpu_floats(device)
    if tensor_type in FLOAT_TYPES:
        return floats
    has_dot = is_arm(device) and "int8_cpu" in device.peaks_flop_per_s
    per_float = _CPU_INT8_DOT if has_dot else _CPU_INT8_WITHOUT_DOT
    return replace(floats, flop_per_s=floats.flop_per_s * per_float * _narrowed(device))


def _narrowed(device: Device) -> float:
    """What registers of 256 bit leave of a core's rate."""
    return min(1.0, KERNEL_FLOP_PER_CYCLE / flop_per_cycle(device))


def _integer(device: Device, peak: str, tensor_type: str) -> ComputePath:
    scaling = _SCALING_SHORT if tensor_type in _SHORT_BLOCKS else _SCALING
    return ComputePath(peak, device.peaks_flop_per_s[peak], scaling)


def _fp16_matrix(device: Device) -> tuple[str, ...]:
    """FP16 matrix peaks, if any; llama.cpp accumulates in FP16 where NVIDIA's units are faster that way."""
    names = ("fp16_matrix_fp16_accumulate", "fp16_matrix") if device.vendor == "nvidia" else ("fp16_matrix",)
    return tuple(name for name in names if name in device.peaks_flop_per_s)


def _always(path: ComputePath) -> tuple[PathRange, ...]:
    return (PathRange(float("inf"), path),)


def _path(device: Device, backend: str, names: Sequence[str]) -> ComputePath:
    name = _first(device, names, backend)
    return ComputePath(name, device.peaks_flop_per_s[name])


def _first(device: Device, names: Sequence[str], backend: str) -> str:
    for name in names:
        if name in device.peaks_flop_per_s:
            return name
    raise InputError(
        f"{device.id}: no compute peak is known that llama.cpp's {backend} backend would use"
        f" ({', '.join(names)}); add one to the device's YAML entry"
    )
