"""What tools report, each in its own words, before anything is looked up in the catalog. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Payload of one lane in one direction after line coding (PCIe base specifications): 8b/10b to generation 2, 128b/130b
# from 3 to 5, 242/256 of a flit in 6.
_LANE_BYTES_PER_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.9846e9, 4: 1.9692e9, 5: 3.9385e9, 6: 7.5625e9}
_GENERATION_OF_GT_PER_S: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_CHANNEL_BITS: Final = 64


@dataclass(frozen=True)
class PcieLink:
    """The link between a GPU and the host: the generation that both support, and the lanes in use."""

    generation: int
    lanes: int

    @property
    def name(self) -> str:
        """As the catalog writes it: "PCIe 4.0 x16"."""
        return f"PCIe {self.generation}.0 x{self.lanes}"

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Payload in one direction."""
        return _LANE_BYTES_PER_S[self.generation] * self.lanes


def pcie_link(generation: int | None, lanes: int | None) -> PcieLink | None:
    """A link of known generation and width; None where a tool does not know one of them."""
    if generation not in _LANE_BYTES_PER_S or lanes not in (1, 2, 4, 8, 12, 16, 32):
        return None
    return PcieLink(generation, lanes)


def pcie_generation(gt_per_s: float | None) -> int | None:
    """The generation whose lanes run at this rate."""
    return None if gt_per_s is None else _GENERATION_OF_GT_PER_S.get(gt_per_s)


@dataclass(frozen=True)
class GpuReport:
    """One GPU as one tool describes it; merged, as all of them do."""

    names: tuple[str, ...]  # what it is called, the best source first
    vendor: str  # nvidia, amd, intel, apple, qualcomm; "" where nobody says
    sources: tuple[str, ...]  # the tools that saw it
    memory_bytes: float | None = None  # its own; of an integrated GPU, what is set aside for it
    borrowed_bytes: float | None = None  # host memory that it may use besides
    units: int | None = None  # GPU cores, CUs
    isa: str | None = None
    bus: str | None = None  # "0000:01:00.0"
    link: PcieLink | None = None
    integrated: bool | None = None
    power_limit_watts: float | None = None


@dataclass(frozen=True)
class CpuReport:
    """The processors of a machine. `names` are all that may say which model it is, the best source first."""

    names: tuple[str, ...] = ()
    sockets: int | None = None
    cores: int | None = None  # of all sockets
    threads: int | None = None
    family: tuple[str, int, int] | None = None  # x86: vendor, family, model
    hypervisor: bool = False
    cache_bytes: float | None = None  # last level, of all sockets


@dataclass(frozen=True)
class MemoryModule:
    """One populated module, or one soldered chip."""

    size_bytes: float
    kind: str | None = None  # DDR5, LPDDR5 …
    transfers_per_s: float | None = None  # as configured, else as rated
    width_bits: int | None = None
    channel: str | None = None  # what tells its channel from the others, where the firmware does


@dataclass(frozen=True)
class MemoryReport:
    """The host's memory: modules and what follows from them."""

    total_bytes: float | None = None
    modules: tuple[MemoryModule, ...] = ()
    bus_bits: int | None = None  # of all channels together

    @property
    def kind(self) -> str | None:
        """Type of the modules, where all are of one."""
        kinds = {module.kind for module in self.modules}
        return next(iter(kinds)) if len(kinds) == 1 else None

    @property
    def transfers_per_s(self) -> float | None:
        """Rate of the slowest module, which all of them run at."""
        rates = [module.transfers_per_s for module in self.modules]
        known = [rate for rate in rates if rate is not None]
        return min(known) if known and len(known) == len(rates) else None

    @property
    def channels(self) -> float | None:
        """Channels of 64 bits, as datasheets count them."""
        return None if self.bus_bits is None else self.bus_bits / _CHANNEL_BITS

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """bus_bits / 8 × transfers_per_s."""
        if self.bus_bits is None or self.transfers_per_s is None:
            return None
        return self.bus_bits / 8 * self.transfers_per_s
