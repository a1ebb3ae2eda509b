"""Machines: devices with their roofs, the links between them, and the host around them.

Imports `errors` and `generations`; knows nothing of models. `device_catalog` makes devices of catalog entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal

from .errors import InputError
from .frozen_dataclass import dataclass
from .generations import GENERATIONS, backends

DeviceKind = Literal["gpu", "apu", "apple", "soc", "cpu"]

# Compute paths a peak can be given for. Matrix rates are dense, with FP32 accumulation unless the name says otherwise.
# Where the CPU cores run the model, "fp32" is theirs and "fp32_gpu" that of the GPU beside them.
COMPUTE_PATHS = (
    "fp64", "fp32", "fp16", "fp16_matrix", "fp16_matrix_fp16_accumulate", "bf16_matrix", "tf32_matrix", "fp8_matrix",
    "fp8_matrix_fp16_accumulate", "int8_matrix", "int8_dot", "int4_matrix", "fp4_matrix", "bf16_cpu", "int8_cpu",
    "fp32_gpu",
)  # fmt: skip


@dataclass(frozen=True)
class Link:
    """A connection to the host or to a peer; the rate is payload, one direction."""

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float | None = None  # of a message there and back, where it matters: networks


@dataclass(frozen=True)
class Device:
    """One processor with one memory. Unknown figures are None (or absent from `peaks`), never guessed."""

    id: str
    name: str
    vendor: str
    kind: DeviceKind
    device_class: str  # desktop, laptop, workstation, datacenter, server, unified, apu, igpu, embedded, phone, sbc
    architecture: str  # as the vendor names it: "Ada Lovelace", "RDNA 3", "Zen 4"
    bandwidth_bytes_per_s: float
    memory_bytes: float | None = None  # the largest option sold, or what the user chose
    memory_options_bytes: tuple[float, ...] = ()
    memory_type: str | None = None
    isa: str | None = None  # sm_89, gfx1100, apple8, x86-64 …
    release_year: int | None = None
    peaks_flop_per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # by compute path
    base_clock_peaks_flop_per_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # CPUs
    derived_peaks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # path → formula
    units: int | None = None  # SMs, CUs, Xe-cores, GPU cores
    shader_cores: int | None = None
    cache_bytes: float | None = None  # last level
    cores: int | None = None  # CPU cores, of all kinds
    core_name: str | None = None  # CPU microarchitecture
    base_hertz: float | None = None
    boost_hertz: float | None = None
    simd: str | None = None
    fp32_flop_per_cycle_core: tuple[float, ...] = ()  # CPU: by kind of core, the fastest first
    memory_bus_bits: int | None = None
    memory_transfers_per_s: float | None = None  # of one pin
    memory_channels: int | None = None
    power_watts: float | None = None
    host_link: Link | None = None
    peer_link: Link | None = None  # NVLink, Infinity Fabric
    pcie: str | None = None  # what a CPU offers: "5.0 x128"
    price_usd: float | None = None
    confidence: str | None = None  # A two sources agree, B one, C pre-launch or leaked
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.id, self.bandwidth_bytes_per_s, self.memory_bytes, self.cores))  # what users change

    @property
    def generation(self) -> str | None:
        """What efficiency factors are keyed by, such as "ada" or "zen4"; None for an architecture unknown here."""
        return GENERATIONS.get(self.architecture)

    @property
    def backends(self) -> tuple[str, ...]:
        """llama.cpp's backends that run on it, the usual one first; empty where it has none."""
        integrated = self.kind == "apu" and self.device_class != "datacenter"
        return backends(self.vendor, self.kind, self.architecture, integrated)

    @property
    def default_backend(self) -> str:
        """The backend that people use on it. Raises InputError where llama.cpp has none."""
        if not self.backends:
            raise InputError(f"{self.id}: llama.cpp has no backend for {self.architecture}")
        return self.backends[0]

    @property
    def is_cpu(self) -> bool:
        """Whether llama.cpp's CPU backend is the usual one on it: CPUs, and ARM chips without a supported GPU."""
        return self.backends[:1] == ("CPU",)

    @property
    def unified_memory(self) -> bool:
        """Whether GPU and host share one memory."""
        return self.kind in ("apple", "apu", "soc")


@dataclass(frozen=True)
class Host:
    """The computer around the devices: its CPU and memory."""

    cpu: Device | None = None
    memory_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    disk_bytes_per_s: float | None = None  # where the model files are


@dataclass(frozen=True)
class System:
    """Devices in the order llama.cpp would list them (those of RPC servers first), and the host."""

    devices: tuple[Device, ...]
    host: Host = Host()
    remote: int = 0  # how many of the devices, from the first, are in other computers
    network: Link | None = None  # to those
