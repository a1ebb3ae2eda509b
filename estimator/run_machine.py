"""A device as one run uses it: the conditions beside device and model, and what follows from them.

Imports `cpu_kernels`, `vector_limits`, `cache_reads`, `operations` and `roofline`.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Final, Literal

from .build_eras import built_since, years_of
from .cache_reads import CacheTypes, Phase
from .cpu_kernels import Kernel, flop_per_cycle, is_arm, is_interleaved, kernel
from .errors import InputError
from .frozen_dataclass import dataclass
from .ggml_types import FLOAT_TYPES
from .operations import Operation, OperationKind
from .roofline import Factor
from .system import Device
from .vector_limits import vector_tokens

# AMD's former open-source driver, with half the shared memory of others; NVIDIA's without VK_NV_cooperative_matrix2.
VulkanVariant = Literal["amdvlk", "coopmat1"]

TYPICAL_BASE_TO_BOOST: Final = 0.75  # clock of CPUs whose base clock is not known
# Kernels that gather what an indexer selects came in autumn 2026, after all measured builds (ggml_flash_attn_ext_set_
# n_kv_max); those of AMD under ROCm and of CPUs do not, Metal's are for decode.
GATHERING_ERA: Final = "2027H1"
_GATHERING: Final[dict[str, tuple[Phase, ...]]] = {
    "CUDA": ("decode", "prefill"), "Vulkan": ("decode", "prefill"), "Metal": ("decode",),
}  # fmt: skip

_vector_tokens: Final = lru_cache(maxsize=1024)(vector_tokens)


@dataclass(frozen=True)
class Conditions:
    """What decides the kernels beside device and model. `era`: half-year of the build, None for the newest known."""

    backend: str
    era: str | None = None
    engine: str = "llama.cpp"  # or "ollama", "llamafile": they do work of their own for every token
    flash_attention: bool = True
    kv_type_k: str = "F16"
    kv_type_v: str = "F16"
    threads: float | None = None  # CPU backend; None: one a core
    weak_host: bool = False  # a small computer, or few PCIe lanes, behind a GPU: launches are slow
    sockets: float = 1.0  # CPU backend: equal processors that share the work
    vulkan: VulkanVariant | None = None  # drivers that offer less than the usual one

    @cached_property
    def years(self) -> float:
        """Age of the build in years after the reference."""
        return years_of(self.era)

    @property
    def cache_types(self) -> CacheTypes:
        """How attention finds its cache."""
        gathers = _GATHERING.get(self.backend, ()) if built_since(GATHERING_ERA, self.era) else ()
        return CacheTypes(self.kv_type_k, self.kv_type_v, self.flash_attention, gathers)

    def attention_kind(self, wide_heads: bool) -> str:
        """Which family of attention kernels runs."""
        kind = "flash" if self.flash_attention else "plain"
        return kind + ("_wide" if wide_heads else "") + ("" if self.kv_type_k in FLOAT_TYPES else "_quantised")


@dataclass(frozen=True, eq=False)
class RunMachine:
    """A device as one run uses it; `run_machine` gives one object for equal ones, so that it may be a cheap key."""

    device: Device
    conditions: Conditions

    @property
    def backend(self) -> str:
        """llama.cpp's backend."""
        return self.conditions.backend

    @cached_property
    def scope(self) -> str:
        """What factors of a generation under a backend are named by: "CUDA/ada"."""
        return f"{self.backend}/{self.device.generation or 'unknown'}"

    @property
    def cores(self) -> float:
        """CPU cores of all sockets. Raises InputError where they are not known."""
        if self.device.cores is None:
            raise InputError(f"{self.device.id}: its number of cores is not known; add it to the device's YAML entry")
        return self.device.cores * self.conditions.sockets

    @property
    def threads(self) -> float:
        """CPU threads that compute, no more than cores."""
        return min(self.conditions.threads or self.cores, self.cores)

    @cached_property
    def bandwidth(self) -> float:
        """Of the memory, in bytes/s; that of all sockets on the CPU backend."""
        return self.device.bandwidth_bytes_per_s * (self.conditions.sockets if self.backend == "CPU" else 1.0)

    @cached_property
    def capacity(self) -> float:
        """Share of the peaks that the threads have; with all cores busy, clocks fall towards the base clock."""
        if self.backend != "CPU":
            return 1.0
        busy = self.threads / self.cores
        return busy * self.conditions.sockets * math.pow(self._base_to_boost, busy / 2)

    @property
    def _base_to_boost(self) -> float:
        """Clock that a CPU keeps under any load, relative to its highest."""
        device = self.device
        base, boost = device.base_clock_peaks_flop_per_s.get("fp32"), device.peaks_flop_per_s.get("fp32")
        if not (base and boost):  # processors with two kinds of cores have no single figure
            base, boost = device.base_hertz, device.boost_hertz
        return base / boost if base and boost else TYPICAL_BASE_TO_BOOST

    @cached_property
    def vector_flop_per_s(self) -> float:
        """FP32 rate of the vector units, as far as the threads have them."""
        peaks = self.device.peaks_flop_per_s
        rate = peaks.get("fp32", peaks.get("fp16"))
        if rate is None:
            raise InputError(f"{self.device.id}: no vector peak is known (fp32 or fp16); add one to its YAML entry")
        return rate * self.capacity

    @property
    def waiting(self) -> Factor:
        """CPU threads wait for the slowest of them after every operation."""
        return Factor("cpu_threads", math.log(self.threads))

    @property
    def cycles_per_s(self) -> float:
        """Clock cycles of all threads."""
        return self.vector_flop_per_s / flop_per_cycle(self.device)

    def vector_tokens(self, operation: Operation) -> float:
        """Most tokens of a pass that a matrix-vector kernel takes."""
        experts, era = operation.kind == "experts", self.conditions.era
        return _vector_tokens(self.device, self.backend, operation.tensor_type, experts=experts, era=era)

    def cpu_kernel(self, kind: OperationKind, tensor_type: str) -> Kernel:
        """What multiplies many columns on the CPU."""
        return kernel(self.device, tensor_type, experts=kind == "experts", era=self.conditions.era)

    def interleaved(self, tensor_type: str) -> bool:
        """Whether the CPU's kernels, those of single columns too, work on several rows of weights at once."""
        return is_interleaved(self.device, tensor_type, self.conditions.era)

    @property
    def instruction_set(self) -> str:
        """Whose kernels a CPU runs."""
        return "arm" if is_arm(self.device) else "x86"

    def unpack_type(self, tensor_type: str) -> str:
        """Name of the factor for unpacking a type."""
        return f"unpack_type.{self.instruction_set if self.backend == 'CPU' else 'gpu'}.{tensor_type}"

    def years(self, family: str) -> Factor:
        return Factor(f"{family}.{self.backend}", self.conditions.years)


run_machine: Final = lru_cache(maxsize=64)(RunMachine)
