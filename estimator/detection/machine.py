"""The machine: what was found, which catalog entries that is, and the `System` to estimate with.

Imports `probes`, `catalog_match` and the vocabulary of `system`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..device_catalog import with_cores
from ..errors import InputError
from ..system import Device, Host, Link, System
from ..units import GB
from .catalog_match import Surroundings, match_cpu, match_gpu
from .facts import CpuReport, GpuReport, MemoryReport, PcieLink
from .modules import memory_report
from .probes import Findings, probe
from .runner import LocalRunner, Runner
from .spellings import is_inside_cpu

_NEARLY: Final = 0.9  # a power limit or a count of cores below this share of the entry's is worth a sentence


@dataclass(frozen=True)
class DetectedGpu:
    """A GPU, and the catalog entry that it is, or the reason why it is none."""

    device: Device | None
    report: GpuReport
    reason: str | None = None

    @property
    def name(self) -> str:
        """As its driver calls it."""
        return self.report.names[0]

    @property
    def integrated(self) -> bool:
        """Whether it shares the memory of the host: by its entry, else by what tools say, else by its name."""
        if self.device is not None:
            return self.device.unified_memory
        if self.report.integrated is not None:
            return self.report.integrated
        return any(is_inside_cpu(name, self.report.vendor) for name in self.report.names)

    @property
    def memory_bytes(self) -> float | None:
        """Memory of its own, or of an integrated one what is set aside for it; None where it was not reported."""
        return self.report.memory_bytes

    @property
    def link(self) -> PcieLink | None:
        """Its PCIe link, where a tool tells."""
        return self.report.link


@dataclass(frozen=True)
class DetectedCpu:
    """The CPUs, and the catalog entry of one of them, or the reason why there is none."""

    device: Device | None
    report: CpuReport
    reason: str | None = None

    @property
    def name(self) -> str | None:
        """As the system calls it; None where nothing does."""
        return next(iter(self.report.names), None)


@dataclass(frozen=True)
class Machine:
    """What was found. `problems` says, a sentence each, what could not be seen or mapped, and what was assumed."""

    os: str
    board: str | None
    gpus: tuple[DetectedGpu, ...]
    cpu: DetectedCpu
    memory: MemoryReport
    available_bytes: float | None = None
    problems: tuple[str, ...] = ()

    def to_system(self) -> System:
        """The machine to estimate with: its discrete GPUs, else its integrated ones, else its CPU.

        Figures read from the machine (memory, its speed, cores, links) replace the catalog's, and notes say so. Raises
        InputError where no device is in the catalog, or where a discrete GPU is not and none other is.
        """
        cpu = self.host_cpu
        host = Host(cpu, self.memory.total_bytes, self._socket_bandwidth())
        discrete = [gpu for gpu in self.gpus if not gpu.integrated]
        mapped = [gpu for gpu in discrete or self.gpus if gpu.device]
        slower = [gpu for gpu in mapped if not discrete and cpu and _is_slower(gpu.device, cpu)]
        if mapped and mapped != slower:
            return System(tuple(self._accelerator(gpu) for gpu in mapped if gpu not in slower), host)
        if cpu is None or (discrete and not mapped):
            raise InputError(self._nothing_usable())
        notes = [f"{gpu.name} has a lower FP32 peak than the CPU, which is taken to run the model." for gpu in slower]
        return System((replace(cpu, notes=(*cpu.notes, *notes)),), host)

    def _nothing_usable(self) -> str:
        discrete = [gpu.reason for gpu in self.gpus if not gpu.integrated]
        reasons = [reason for reason in discrete or [gpu.reason for gpu in self.gpus] if reason]
        reasons += [self.cpu.reason] if self.cpu.reason else []
        said = "; ".join(reasons[:2]) or "neither a GPU nor the CPU's model could be read; name one with --gpu or --cpu"
        return f"auto: {said} (`llmcalc detect` shows what was found)"

    def _accelerator(self, gpu: DetectedGpu) -> Device:
        device = gpu.device
        assert device is not None
        if device.unified_memory:
            return self._sharing(device, gpu.report)
        link = gpu.link
        return replace(
            device,
            memory_bytes=gpu.memory_bytes or device.memory_bytes,
            host_link=device.host_link if link is None else Link(link.name, link.bandwidth_bytes_per_s),
        )

    def _sharing(self, device: Device, report: GpuReport) -> Device:
        """A GPU in the host's memory: as much of it as its driver may use, at the speed that was read."""
        own, borrowed = report.memory_bytes, report.borrowed_bytes
        usable = (own or 0.0) + borrowed if borrowed is not None else self.memory.total_bytes
        rate = self.memory.bandwidth_bytes_per_s if device.kind == "apu" and not device.memory_options_bytes else None
        return _at_rate(replace(device, memory_bytes=usable or device.memory_bytes), rate, self.memory)

    @property
    def cache_bytes(self) -> float | None:
        """Last-level cache of all sockets: the larger of what the system and the entry say, if either does."""
        of_entry = (self.cpu.device.cache_bytes or 0.0) if self.cpu.device else 0.0
        return max(self.cpu.report.cache_bytes or 0.0, of_entry * (self.cpu.report.sockets or 1)) or None

    @property
    def host_cpu(self) -> Device | None:
        """One socket, with all of the memory; with the cores that are there, where they are fewer than the entry's."""
        device = self.cpu.device
        if device is None:
            return None
        device = replace(device, memory_bytes=self.memory.total_bytes or device.memory_bytes)
        cores = self.cpu.report.cores
        sockets = self.cpu.report.sockets or 1
        if cores and device.cores and cores // sockets < device.cores:
            device = with_cores(device, max(cores // sockets, 1))
        return _at_rate(device, self._socket_bandwidth(), self.memory)

    def _socket_bandwidth(self) -> float | None:
        bandwidth = self.memory.bandwidth_bytes_per_s
        return None if bandwidth is None else bandwidth / (self.cpu.report.sockets or 1)


def _is_slower(gpu: Device | None, cpu: Device) -> bool:
    """Whether an integrated GPU of a CPU computes less than its cores; unknown peaks decide nothing."""
    peaks = [device.peaks_flop_per_s.get("fp32") for device in (gpu, cpu) if device]
    return gpu is not None and gpu.device_class == "igpu" and None not in peaks and peaks[0] < peaks[1]  # type: ignore[operator]


def _at_rate(device: Device, bandwidth: float | None, memory: MemoryReport) -> Device:
    if bandwidth is None or memory.channels is None or memory.transfers_per_s is None:
        return device
    read = f"{memory.channels:g} channels of {memory.kind or 'memory'} at {memory.transfers_per_s / 1e6:,.0f} MT/s"
    note = f"Bandwidth {bandwidth / GB:.1f} GB/s from the memory of this machine: {read}."
    return replace(device, bandwidth_bytes_per_s=bandwidth, notes=(*device.notes, note))


def detect_machine(runner: Runner | None = None) -> Machine:
    """The machine that `runner` asks, by default this one. Raises nothing for what it cannot see: that is a problem."""
    return machine_of(probe(runner or LocalRunner()))


def machine_of(found: Findings) -> Machine:
    """Findings mapped to the catalog."""
    unscaled = MemoryReport(found.memory_bytes, found.modules)
    cpu = match_cpu(found.cpu, unscaled)
    memory = memory_report(found.memory_bytes, found.modules, _most_channels(cpu.device, found.cpu))
    around = Surroundings(memory, found.cpu.names, found.laptop)
    matches = [match_gpu(report, around) for report in found.gpus]
    gpus = tuple(
        DetectedGpu(match.device, report, match.reason) for match, report in zip(matches, found.gpus, strict=True)
    )
    # A Mac's or a board's CPU is part of a chip that has been dealt with already.
    part = any(gpu.report.vendor == "apple" or (gpu.device and gpu.device.kind == "soc") for gpu in gpus)
    host = DetectedCpu(cpu.device, found.cpu, None if part else cpu.reason)
    machine = Machine(found.os, found.board, gpus, host, memory, found.available_bytes)
    said = [*found.problems, *(text for match in matches for text in (match.reason, *match.assumptions) if text)]
    said += [host.reason] if host.reason else []
    return replace(machine, problems=tuple(dict.fromkeys([*said, *_differences(machine)])))


def _most_channels(device: Device | None, cpu: CpuReport) -> int | None:
    return device.memory_channels * (cpu.sockets or 1) if device and device.memory_channels else None


def _differences(machine: Machine) -> list[str]:
    """Where the machine is not what its entries say."""
    several = len(machine.gpus) > 1
    said = [
        text
        for i, gpu in enumerate(machine.gpus)
        for text in _gpu_differences(gpu, f"GPU {i}, {gpu.name}" if several else gpu.name)
    ]
    report, device = machine.cpu.report, machine.cpu.device
    if machine.memory.total_bytes is None:
        said.append("the size of the memory is unknown; name it with --ram")
    if (report.sockets or 1) > 1 and device is not None:
        said.append(f"{report.sockets} sockets: an estimate counts the cores and the bandwidth of one")
    if device and device.cores and report.cores and report.cores < _NEARLY * device.cores:
        where = "the virtual machine has" if report.hypervisor else "the system shows"
        said.append(f"{where} {report.cores} of the {device.cores} cores of {device.id}; others may use its bandwidth")
    if machine.memory.modules and machine.memory.bus_bits is None:
        said.append("memory channels are unknown: the firmware does not say which channel a module is on")
    return said + _slow_memory(machine)


def _gpu_differences(gpu: DetectedGpu, name: str) -> list[str]:
    said = []
    device, limit, link = gpu.device, gpu.report.power_limit_watts, gpu.link
    if device and device.power_watts and limit and limit < _NEARLY * device.power_watts:
        said.append(f"{name}: limited to {limit:.0f} W of {device.power_watts:.0f}, which slows down prefill")
    if (
        device
        and link
        and device.host_link
        and link.bandwidth_bytes_per_s < 0.55 * device.host_link.bandwidth_bytes_per_s
    ):
        said.append(f"{name}: its link is {link.name}, the card is made for {device.host_link.name}")
    return said


def _slow_memory(machine: Machine) -> list[str]:
    """Memory that is much slower than the CPU could have it: a channel without a module, or a low setting."""
    bandwidth, device = machine.memory.bandwidth_bytes_per_s, machine.cpu.device
    if bandwidth is None or device is None:
        return []
    possible = device.bandwidth_bytes_per_s * (machine.cpu.report.sockets or 1)
    if bandwidth >= 0.75 * possible:
        return []
    return [
        f"memory gives {bandwidth / GB:.1f} GB/s of the {possible / GB:.1f} that {device.id} can have: "
        f"{machine.memory.channels:g} of {_most_channels(device, machine.cpu.report) or '?'} channels at "
        f"{(machine.memory.transfers_per_s or 0) / 1e6:,.0f} MT/s"
    ]


def auto_system(runner: Runner | None = None) -> System:
    """This machine to estimate with. Raises InputError where nothing that the catalog knows was found."""
    return detect_machine(runner).to_system()
