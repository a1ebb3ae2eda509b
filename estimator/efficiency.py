"""Efficiency factors with their uncertainty: how far real kernels stay behind the datasheet.

Every factor is a Gaussian in log space that stretches a time. Machine factors form a hierarchy, backend → generation →
device: a device without runs has its generation's factors and a wider interval, a generation without runs those of its
backend. Corrections (tensor types, experts, attention kernels, age of the build …) are shared by all machines. The
values are fitted on hardware/measurements by `python -m llmcalc.calibration.fit_corpus` and shipped as efficiency.yaml.
Imports `efficiency_text`, `ggml_types`, `roofline` and `system`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from .efficiency_text import CORRECTIONS, LEVELS, parse
from .errors import InputError
from .frozen_dataclass import dataclass
from .ggml_types import FLOAT_TYPES
from .roofline import Factor
from .system import Device

SCHEMA: Final = "llmcalc.efficiency/1"


class Gaussian(NamedTuple):
    """Mean and standard deviation of a log factor."""

    mean: float
    sd: float

    def widened(self, *sds: float) -> Gaussian:
        """The same mean with independent deviations added to the uncertainty."""
        return Gaussian(self.mean, math.hypot(self.sd, *sds))


class MachineFactor(NamedTuple):
    """A factor that every machine has its own value of: prior of a backend, spread of generations and of devices."""

    prior: Gaussian
    generation_sd: float
    device_sd: float


MACHINE_FACTORS: Final[dict[str, MachineFactor]] = {
    # Time of reading weights over bytes / bandwidth.
    "memory": MachineFactor(Gaussian(0.15, 0.3), 0.15, 0.08),
    # FLOP-equivalents of the vector units to unpack and multiply one weight of type Q4_K.
    "unpack": MachineFactor(Gaussian(2.5, 0.7), 0.3, 0.1),
    # Picojoules per weight: what a power limit leaves of matrix-vector products.
    "unpack_energy": MachineFactor(Gaussian(4.8, 0.5), 0.3, 0.0),
    # Microseconds between the starts of two kernels.
    "launch": MachineFactor(Gaussian(0.8, 0.7), 0.35, 0.12),
    # Time of matrix products over FLOPs / peak.
    "matrix": MachineFactor(Gaussian(0.8, 0.5), 0.3, 0.1),
    # Picojoules per FLOP of matrix products.
    "matrix_energy": MachineFactor(Gaussian(1.0, 0.5), 0.3, 0.0),
    # Time of reading the cache in decode over bytes / bandwidth.
    "attention_read": MachineFactor(Gaussian(0.3, 0.5), 0.3, 0.15),
    # Time of prompt attention over FLOPs / peak.
    "attention_compute": MachineFactor(Gaussian(1.0, 0.7), 0.45, 0.2),
    # Time of moving activations in a prompt over bytes / bandwidth.
    "activation": MachineFactor(Gaussian(0.4, 0.4), 0.25, 0.1),
    # Typical over actual rate at which one CPU core draws from memory.
    "core_memory": MachineFactor(Gaussian(0.0, 0.5), 0.4, 0.3),
}
_CPU_UNPACK: Final = Gaussian(2.0, 0.35)  # 1.83 on Zen 4 (hardware/measurements/cpu-epyc-2core/kernels.csv)
ABSOLUTE_FACTORS: Final = frozenset({"unpack_energy", "matrix_energy"})  # no deviation of single devices

# Priors of corrections, by the first part of their names.
CORRECTION_PRIORS: Final[dict[str, Gaussian]] = {
    "unpack_type": Gaussian(0.5, 0.35),
    "unpack_backend_type": Gaussian(0.0, 0.3),
    "no_integer_dot": Gaussian(0.3, 0.3),
    "matrix_type": Gaussian(0.0, 0.15),
    "matrix_backend_type": Gaussian(0.0, 0.15),
    "matrix_unit": Gaussian(0.0, 0.3),
    # Of Arm, relative to x86: 20 FLOP a cycle on an Apple M4 (llama.cpp pulls 18096, 18888 and 17494).
    "cpu_unpack": Gaussian(0.5, 0.3),
    "cpu_threads": Gaussian(0.07, 0.05),
    "cpu_interleaved": Gaussian(-0.25, 0.25),
    "cpu_tiles": Gaussian(0.0, 0.3),
    "cpu_tiles_type": Gaussian(0.0, 0.3),
    "matrix_generation_unit": Gaussian(0.0, 0.15),
    "coopmat_tiles": Gaussian(0.4, 0.15),  # 1.36 to 1.76 times on RDNA 3.5 (llama.cpp pull 18749)
    "vulkan_matrix": Gaussian(0.3, 0.4),  # coopmat1: 1.35 times on an RTX 3090 (pull 12135, comments)
    "vulkan_attention": Gaussian(0.7, 0.7),
    "saturation": Gaussian(4.0, 0.7),
    "saturation_units": Gaussian(0.3, 0.3),
    "experts": Gaussian(0.15, 0.25),
    "experts_matrix": Gaussian(0.1, 0.25),
    "attention_read_kind": Gaussian(0.3, 0.5),
    "attention_read_generation": Gaussian(0.0, 0.2),
    "attention_sharers": Gaussian(0.1, 0.15),
    "attention_vector": Gaussian(1.5, 0.7),
    "attention_vector_generation": Gaussian(0.0, 0.3),
    "attention_kind": Gaussian(0.0, 0.5),
    "attention_generation": Gaussian(0.0, 0.3),
    "scan": Gaussian(2.0, 1.0),
    "scan_generation": Gaussian(0.0, 0.3),
    "launch_prefill": Gaussian(0.3, 0.4),
    "launch_experts": Gaussian(0.0, 0.25),
    "launch_recurrent": Gaussian(0.0, 0.25),
    "launch_units": Gaussian(0.0, 0.3),
    "launch_weak_host": Gaussian(0.5, 0.5),
    "wide_memory": Gaussian(0.3, 0.2),
    "host": Gaussian(0.0, 0.7),
    "era_memory": Gaussian(0.0, 0.04),
    "era_unpack": Gaussian(0.0, 0.12),
    "era_matrix": Gaussian(0.0, 0.12),
    "era_attention": Gaussian(0.0, 0.15),
    "era_activation": Gaussian(0.0, 0.1),
    "era_launch": Gaussian(-0.1, 0.12),
}

# Work of unpacking and multiplying a weight relative to Q4_K, from reading the kernels: 32 bits hold 8 weights of
# Q4_0, which two masks and two dot products use up, but 4 of Q8_0 and 2 of F16, which have no dot product; K types add
# minima and scales of sub-blocks, IQ types a look-up (llama.cpp b11434, ggml/src/ggml-cuda/vecdotq.cuh and mmvf.cu).
_UNPACK_TYPES: Final = {
    "Q4_0": -0.5, "Q4_1": -0.4, "MXFP4": -0.1, "IQ4_NL": 0.0, "Q4_K": 0.0, "Q8_0": 0.1, "IQ4_XS": 0.2, "Q5_K": 0.2,
    "Q5_0": 0.3, "Q5_1": 0.3, "Q6_K": 0.4, "Q2_K": 0.4, "Q3_K": 0.5, "IQ1_S": 0.4, "IQ1_M": 0.5, "IQ2_XXS": 0.4,
    "IQ2_XS": 0.4, "IQ2_S": 0.4, "IQ3_XXS": 0.4, "IQ3_S": 0.4, "F16": 0.8, "BF16": 0.8, "F32": 0.8,
}  # fmt: skip
# A CPU's prompt attention walks the cache cell by cell, far from its vector rate; in decode it is counted in cycles.
# The rest is from measured kernels (hardware/measurements/cpu-epyc-2core/kernels.csv): interleaved rows keep a third of
# the peak busy, tinyBLAS less, the tiles of tiled.cpp half; experts scatter what they gathered.
_PRIOR_MEANS: Final = {
    "attention_vector.CPU.flash": 0.0,
    "attention_vector.CPU.flash_quantised": 0.5,
    "attention_kind.CPU.flash": 1.0,
    "cpu_tiles.x86.repacked": 0.1,
    "cpu_tiles.x86.blocked": 0.45,
    "cpu_tiles.x86.tiled": -0.1,
    "cpu_tiles.x86.float": -0.5,
    "cpu_tiles.x86.float_2024": 0.2,
    "cpu_tiles.x86.amx": 2.2,  # twice the rate of AVX-512, of 16 times the peak (llama.cpp pull 8998, comments)
    "experts_matrix.CPU": 0.5,
    "vulkan_matrix.amdvlk.dense": 1.0,  # half the shared memory of other drivers, so no large tiles (AMDVLK issue 420)
    "vulkan_attention.amdvlk.flash_wide": 1.8,  # and no matrix units at all
    "matrix_unit.Vulkan.fp32": 1.0,  # BF16 without BF16 matrix units: converted value by value
    "matrix_unit.CUDA.fp16": -0.4,  # cuBLAS keeps vector units busier than MMQ does integer units
    # 1.2 to 1.35 times FP16's rate on RDNA 3.5, as fast on RDNA 4, scaling included (pull 27952).
    "matrix_unit.Vulkan.int8_matrix": -0.4,
    "matrix_generation_unit.Vulkan/rdna4.int8_matrix": 0.4,
    "saturation.CPU.repacked": 0.2,
    "saturation.CPU.blocked": -0.7,
    "saturation.CPU.tiled": 2.0,
    "saturation.CPU.amx": 2.0,
}
# Measured on x86, to unpack a weight relative to Q4_K and for many columns relative to the kernel's other types.
_X86_UNPACK_TYPES: Final = {
    "Q2_K": -0.15, "Q3_K": 0.3, "Q4_K": 0.0, "Q5_K": 0.35, "Q6_K": 0.05, "Q4_0": 0.35, "Q4_1": 0.4, "Q5_0": 0.55,
    "Q5_1": 0.55, "Q8_0": 0.3, "IQ4_NL": 0.45, "IQ4_XS": 0.35, "MXFP4": 0.45, "IQ3_S": 1.3, "IQ3_XXS": 1.15,
    "IQ2_S": 0.8, "IQ2_XS": 0.8, "IQ2_XXS": 0.8, "IQ1_S": 0.8, "IQ1_M": 0.8, "TQ1_0": 0.15, "TQ2_0": -0.55,
    "F16": -0.2, "BF16": -0.25, "F32": -0.25,
}  # fmt: skip
_X86_TILES: Final = {"repacked.Q2_K": 0.55, "blocked.Q5_0": 0.1, "blocked.Q8_0": -0.2, "tiled.Q4_K": -0.15}
_X86_TYPE_SD: Final = 0.2
# Eight cores of an Apple M4 reach 73 FLOP a cycle each on interleaved rows of Q8_0, 42 on Q6_K, of 256 that matrix
# instructions of 8-bit integers offer (same pulls).
_ARM_TILES: Final = Gaussian(0.3, 0.25)
_CPU_CODE_BOOK_EXTRA: Final = 0.5  # GPUs keep code books in fast memory, CPUs gather from cache
# Arm's tiles of K types scale the sums of 16 or 32 values: on Graviton3 Q6_K takes 1.9 times as long as Q4_0 (llama.cpp
# pull requests 29256 and 18458).
_ARM_SUB_BLOCK_SCALES: Final = 0.5
_CPU_FLOAT_EXTRA: Final = -0.8  # floats are what a CPU's vector units are for


def machine_prior(name: str, backend: str) -> Gaussian:
    """What is believed of a machine factor of a backend before any run was seen."""
    return _CPU_UNPACK if (name, backend) == ("unpack", "CPU") else MACHINE_FACTORS[name].prior


def correction_prior(name: str) -> Gaussian:
    """What is believed of a correction before any run was seen."""
    family, *rest = name.split(".")
    prior = CORRECTION_PRIORS[family]
    if rest[:1] == ["x86"] and family in ("unpack_type", "cpu_tiles_type"):
        return _measured_on_x86(family, *rest[1:])
    if family == "unpack_type":
        return prior._replace(mean=_unpack_mean(*rest))
    if family == "cpu_tiles" and rest[0] == "arm":
        return _ARM_TILES
    if family == "cpu_tiles_type" and rest[-1].endswith("_K"):
        return prior._replace(mean=_ARM_SUB_BLOCK_SCALES)
    return prior._replace(mean=_PRIOR_MEANS.get(name, prior.mean))


def _measured_on_x86(family: str, *rest: str) -> Gaussian:
    """What a tensor type costs the kernels of x86."""
    if family == "cpu_tiles_type":
        return Gaussian(_X86_TILES.get(".".join(rest), CORRECTION_PRIORS[family].mean), _X86_TYPE_SD)
    mean = _X86_UNPACK_TYPES.get(rest[-1])
    return CORRECTION_PRIORS[family] if mean is None else Gaussian(mean, _X86_TYPE_SD)


def _unpack_mean(processor: str, tensor_type: str) -> float:
    mean = _UNPACK_TYPES.get(tensor_type, CORRECTION_PRIORS["unpack_type"].mean)
    if processor == "arm":
        mean += _CPU_CODE_BOOK_EXTRA if tensor_type.startswith(("IQ1", "IQ2", "IQ3")) else 0.0
        mean += _CPU_FLOAT_EXTRA if tensor_type in FLOAT_TYPES else 0.0
    return mean


Factors = Mapping[str, Gaussian]
Levels = Mapping[str, Mapping[str, Factors]]  # backends, hardware, generations, devices


@dataclass(frozen=True)
class MachineFactors:
    """The factors of one machine, and where they come from.

    Those of a user's own calibration hold corrections of this machine too, and how its runs tie factors together.
    """

    values: Factors
    origin: str
    measured: bool  # runs of this very device are behind them
    covariances: Mapping[tuple[str, str], float] = field(default_factory=dict)  # of pairs of factors


class FactorValues(dict[str, Gaussian]):
    """Machine factors and corrections by name; a correction is looked up when it is asked for."""

    def __init__(self, machine: MachineFactors, efficiency: Efficiency) -> None:
        super().__init__(machine.values)
        self._machine, self._efficiency = machine, efficiency
        self._multiples: dict[tuple[Factor, ...], float] = {}

    def __missing__(self, name: str) -> Gaussian:
        self[name] = found = self._efficiency.correction(name)
        return found

    def origin(self, name: str) -> str:
        """What a factor is known from."""
        if name in self._machine.values:
            return self._machine.origin
        return "all runs" if name in self._efficiency.corrections else "no runs: prior alone"

    def multiple(self, factors: tuple[Factor, ...]) -> float:
        """By what `factors` stretch a time together."""
        if factors not in self._multiples:
            self._multiples[factors] = math.exp(sum(power * self[name].mean for name, power in factors))
        return self._multiples[factors]


@dataclass(frozen=True, eq=False)
class Efficiency:
    """All fitted factors. `generations` and `devices` are keyed "CUDA/ada", "CUDA/geforce-rtx-4090" and hold totals."""

    backends: Mapping[str, Factors] = field(default_factory=dict)
    hardware: Mapping[str, Factors] = field(default_factory=dict)  # by generation: deviations common to its backends
    generations: Mapping[str, Factors] = field(default_factory=dict)
    devices: Mapping[str, Factors] = field(default_factory=dict)
    corrections: Factors = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)  # sd of log time of single runs, by "decode/CUDA"
    quantiles: Mapping[str, float] = field(default_factory=dict)  # deviations that hold left-out runs: "decode/0.80"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    calibrated: Mapping[str, MachineFactors] = field(default_factory=dict)  # a user's own machines, keyed as `devices`

    def machine(self, backend: str, device: Device) -> MachineFactors:
        """The factors of `device` under `backend`, from the closest level that runs were seen of."""
        return _of_machine(self, backend, device)[0]

    def values(self, backend: str, device: Device) -> FactorValues:
        """Those factors and the corrections; every name has a value."""
        return _of_machine(self, backend, device)[1]

    def _closest(self, backend: str, device: Device) -> MachineFactors:
        own = self.calibrated.get(f"{backend}/{device.id}")
        if own is not None:
            return own
        measured = self.devices.get(f"{backend}/{device.id}")
        if measured is not None:
            return MachineFactors(_complete(measured, backend), f"runs of {device.id} on {backend}", True)
        generation = device.generation or ""
        found = self.generations.get(f"{backend}/{generation}")
        if found is not None:
            known = _complete(found, backend)
            widened = {name: value.widened(MACHINE_FACTORS[name].device_sd) for name, value in known.items()}
            return MachineFactors(widened, f"other {generation} devices on {backend}", False)
        values = self._from_backend(backend, generation)
        return MachineFactors(
            values, f"other devices on {backend}" if backend in self.backends else "no runs: priors alone", False
        )

    def correction(self, name: str) -> Gaussian:
        """A correction as fitted; its prior where no run told anything of it."""
        return self.corrections.get(name) or correction_prior(name)

    def sd_of_runs(self, phase: str, backend: str) -> float:
        """Spread of single runs about a perfectly known machine, in log time."""
        return self.spread.get(f"{phase}/{backend}", self.spread.get(phase, 0.1))

    def quantile(self, phase: str, level: float, backend: str = "") -> float:
        """Deviations on either side that hold a share `level` of the runs; of a backend if its devices were many."""
        anywhere = self.quantiles.get(f"{phase}/{level:.2f}")
        found = self.quantiles.get(f"{phase}/{backend}/{level:.2f}", anywhere)
        return found if found is not None else _normal_quantile(level)

    def with_machine(self, backend: str, device_id: str, factors: MachineFactors) -> Efficiency:
        """The same with other factors for one machine: a user's own calibration."""
        return replace(self, calibrated={**self.calibrated, f"{backend}/{device_id}": factors})

    def _from_backend(self, backend: str, generation: str) -> Factors:
        base, deviation = self.backends.get(backend, {}), self.hardware.get(generation, {})
        values: dict[str, Gaussian] = {}
        for name, level in MACHINE_FACTORS.items():
            mean, sd = base.get(name, machine_prior(name, backend))
            shift = deviation.get(name, Gaussian(0.0, level.generation_sd))
            values[name] = Gaussian(mean + shift.mean, math.hypot(sd, shift.sd, level.generation_sd, level.device_sd))
        return values


@lru_cache(maxsize=64)
def _of_machine(efficiency: Efficiency, backend: str, device: Device) -> tuple[MachineFactors, FactorValues]:
    machine = efficiency._closest(backend, device)
    return machine, FactorValues(machine, efficiency)


def _complete(factors: Factors, backend: str) -> Factors:
    return {name: factors.get(name, machine_prior(name, backend)) for name in MACHINE_FACTORS}


def _normal_quantile(level: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(0.5 + level / 2)


@lru_cache(maxsize=1)
def shipped() -> Efficiency:
    """The factors that come with the package, each machine's read when it is asked for."""
    content = parse(Path(__file__).with_name("efficiency.yaml").read_text(encoding="utf-8"), Gaussian)
    return _efficiency(content.head, content.levels, content.corrections)


def from_mapping(data: Mapping[str, Any]) -> Efficiency:
    """Factors from the content of an efficiency file; InputError for another schema."""
    levels = {name: {key: _factors(one) for key, one in data.get(name, {}).items()} for name in LEVELS}
    return _efficiency(data, levels, _factors(data.get(CORRECTIONS, {})))


def _efficiency(
    head: Mapping[str, Any], levels: Mapping[str, Mapping[str, Factors]], corrections: Factors
) -> Efficiency:
    if head.get("schema") != SCHEMA:
        raise InputError(f"efficiency factors: expected schema {SCHEMA!r}, got {head.get('schema')!r}")
    return Efficiency(
        backends=levels["backends"],
        hardware=levels["hardware"],
        generations=levels["generations"],
        devices=levels["devices"],
        corrections=corrections,
        spread=head.get("spread", {}),
        quantiles={str(level): value for level, value in head.get("quantiles", {}).items()},
        provenance=head.get("provenance", {}),
    )


def to_mapping(efficiency: Efficiency) -> dict[str, Any]:
    """The content of an efficiency file, plain lists and numbers."""
    levels = {level: {key: _lists(factors) for key, factors in getattr(efficiency, level).items()} for level in LEVELS}
    return {
        "schema": SCHEMA,
        "provenance": dict(efficiency.provenance),
        "quantiles": dict(efficiency.quantiles),
        "spread": dict(efficiency.spread),
        **levels,
        CORRECTIONS: _lists(efficiency.corrections),
    }


def _factors(data: Mapping[str, Iterable[float]]) -> Factors:
    return {name: Gaussian(*map(float, value)) for name, value in data.items()}


def _lists(factors: Factors) -> dict[str, list[float]]:
    return {name: [value.mean, value.sd] for name, value in factors.items()}
