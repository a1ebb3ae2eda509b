"""The CPU that runs what lies in host memory: as named, or a stated assumption that is never silent.

Imports `system`; the offload timing takes its CPU from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from .system import Device, System
from .units import GB

# An unnamed host. 8 cores of 32 FP32 FLOP a cycle at 4 GHz, and memory between two channels of DDR4-3200 (51 GB/s) and
# of DDR5-5600 (90 GB/s): what a desktop computer of 2020 to 2025 has.
ASSUMED_CORES: Final = 8  # at least; one for every 8 GB/s where the bandwidth is stated
ASSUMED_FP32_FLOP_PER_S: Final = 32 * 4e9  # of a core
ASSUMED_BYTES_PER_S_A_CORE: Final = 8e9
ASSUMED_BANDWIDTH_BYTES_PER_S: Final = 64e9
ASSUMED_LOG_SD: Final = 0.4  # of the time on an assumed host: a server has four times the memory channels
MOST_UNIFIED_BYTES_PER_S: Final = 200e9  # what the CPU cores draw of a wide unified memory; Apple's take about that
STATED_BANDWIDTH_LOG_SD: Final = 0.15  # where the bandwidth was said, but not the CPU


@dataclass(frozen=True)
class HostCpu:
    """The host's CPU with the extra uncertainty (sd of log time) of what was assumed about it, and the sentence."""

    device: Device
    log_sd: float = 0.0
    note: str | None = None


def host_cpu(system: System) -> HostCpu:
    """The CPU of the host: named, or assumed with as much as is known about its memory."""
    host = system.host
    cpu = host.cpu or next((device for device in system.devices if device.is_cpu), None)
    if cpu is not None:
        stated = host.bandwidth_bytes_per_s
        return HostCpu(cpu if stated is None else replace(cpu, bandwidth_bytes_per_s=stated))
    if host.bandwidth_bytes_per_s is not None:
        assumed = _assumed(host.bandwidth_bytes_per_s)
        rate = f"{host.bandwidth_bytes_per_s / GB:.4g} GB/s"
        note = f"The host's CPU is not named: {assumed.cores} ordinary cores at {rate} are assumed; name it with --cpu."
        return HostCpu(assumed, STATED_BANDWIDTH_LOG_SD, note)
    unified = next((device for device in system.devices if device.unified_memory), None)
    if unified is not None:
        assumed = _assumed(min(unified.bandwidth_bytes_per_s, MOST_UNIFIED_BYTES_PER_S))
        note = f"The CPU beside {unified.name} is assumed: {assumed.cores} ordinary cores on the same memory."
        return HostCpu(assumed, ASSUMED_LOG_SD, note)
    note = (
        f"The host is not named: {ASSUMED_CORES} ordinary cores with {ASSUMED_BANDWIDTH_BYTES_PER_S / GB:.0f} GB/s of "
        f"memory are assumed, hence wide ranges; say it with --cpu or --ram-bandwidth."
    )
    return HostCpu(_assumed(ASSUMED_BANDWIDTH_BYTES_PER_S), ASSUMED_LOG_SD, note)


def _assumed(bandwidth: float) -> Device:
    cores = max(ASSUMED_CORES, round(bandwidth / ASSUMED_BYTES_PER_S_A_CORE))
    peaks = MappingProxyType({"fp32": cores * ASSUMED_FP32_FLOP_PER_S})
    return Device(
        id="assumed-host",
        name="assumed host",
        vendor="",
        kind="cpu",
        device_class="desktop",
        architecture="assumed",
        bandwidth_bytes_per_s=bandwidth,
        peaks_flop_per_s=peaks,
        cores=cores,
    )
