"""How fast tensors cross between the memories of a machine: PCIe, NVLink, a network, one shared memory.

Rates are payload in one direction. What is reached of them, and what a hand-over costs beyond its bytes, are the named
constants here; measured runs of hardware/measurements/public_runs.csv with weights in host memory are behind them.
Imports `placement`, `surroundings` and `system`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from .placement import HOST
from .surroundings import TYPICAL_NETWORK
from .system import Device, Link, System

LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
LOAD_MODES: Final = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")

# Payload of one PCIe lane, bytes/s: signalling rate × coding (8b/10b, 128b/130b; generation 6 as its flits carry).
PCIE_LANE_BYTES_PER_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
TYPICAL_LINK: Final = Link("PCIe 4.0 x16", 31.5e9)  # assumed, and said, where a card's link is not known

# Shares of the link that copies of weights reach. Best case: 88 % (PCIe 5.0 x16, pinned: OpenCL-Benchmark, stas00's
# ml-engineering). Two CUDA machines that copy experts for every micro-batch reach 0.74 (RTX A6000, PCIe 4.0) and about
# the same (RTX 3060, PCIe 4.0); three others 0.55 (Quadro RTX 5000, PCIe 3.0), 0.45 (RTX 2060 Laptop), 0.9 of x8 3.0
# (RTX A1000); Vulkan 0.35 (RX 6700 XT) and 0.3 (Arc B580).
PINNED_SHARE: Final = 0.78
PAGEABLE_SHARE: Final = 0.58  # mapped files go through a staging buffer
VULKAN_SHARE: Final = 0.36
SHARED_MEMORY_SHARE: Final = 0.4  # a copy within one memory reads and writes it
PEER_SHARE: Final = 0.85  # NVLink 4 reaches 88 %, NVSwitch all-reduce 80 % (stas00)
NETWORK_SHARE: Final = 0.9  # TCP payload of a link

# Seconds of one hand-over beyond its bytes.
HOST_HANDOVER_S: Final = 25e-6  # device → host or back: wait for the stream, copy, wake the threads
VULKAN_HANDOVER_S: Final = 100e-6  # fences; from the slope of a sweep of --n-cpu-moe on an RX 6700 XT
PEER_HANDOVER_S: Final = 20e-6  # device → device: event, copy
ALL_REDUCE_S: Final = 25e-6  # of one all-reduce between devices of one machine
NETWORK_LATENCY_S: Final = 200e-6  # round trip of a local Ethernet with TCP; a visit of a remote device takes one
# Of each half of that round trip: packing, copying and waking the other end. Seven settings over loopback take 0.4 to
# 3 ms more a token than the same model in one process, of which the wire explains 0.15 (tests/data/rpc/loopback.csv).
RPC_HANDOVER_S: Final = 0.4e-3
TYPICAL_DISK_BYTES_PER_S: Final = 2e9  # page faults of a mapped file on an NVMe drive; assumed, and said

_PCIE: Final = re.compile(r"PCIe (\d)\.\d x(\d+)")
_GENERATION: Final = re.compile(r"(\d)\.\d")


@dataclass(frozen=True)
class Crossing:
    """What crossing between two memories costs: seconds = hand-over + bytes / rate."""

    name: str
    bytes_per_s: float
    handover_s: float
    assumed: bool = False

    def seconds(self, n_bytes: float) -> float:
        """Time of one crossing."""
        return self.handover_s + n_bytes / self.bytes_per_s


def host_link(device: Device, system: System) -> tuple[Link, bool]:
    """The link of a device to the host, no faster than the host CPU offers, and whether it is assumed."""
    link = device.host_link or TYPICAL_LINK
    found = _PCIE.fullmatch(link.name)
    cpu = system.host.cpu
    offered = _GENERATION.match(cpu.pcie) if cpu is not None and cpu.pcie else None
    if found is not None and offered is not None and int(offered[1]) < int(found[1]):
        generation, lanes = int(offered[1]), int(found[2])
        link = Link(f"PCIe {generation}.0 x{lanes}", PCIE_LANE_BYTES_PER_S[generation] * lanes)
    return link, device.host_link is None


def weight_copies(device: Device, system: System, backend: str, load_mode: LoadMode = "auto") -> Crossing:
    """Copies of host weights to a device for large batches."""
    if device.unified_memory:
        return Crossing("shared memory", device.bandwidth_bytes_per_s * SHARED_MEMORY_SHARE, HOST_HANDOVER_S)
    link, assumed = host_link(device, system)
    pinned = load_mode in ("none", "dio")
    share = VULKAN_SHARE if backend == "Vulkan" else PINNED_SHARE if pinned else PAGEABLE_SHARE
    return Crossing(link.name, link.bandwidth_bytes_per_s * share, HOST_HANDOVER_S, assumed)


def crossing(source: int, target: int, system: System, backend: str) -> Crossing:
    """From one place to another, HOST or an index of the system's devices."""
    ends = [i for i in (source, target) if i != HOST]
    if any(i < system.remote for i in ends):
        network = system.network or TYPICAL_NETWORK
        latency = NETWORK_LATENCY_S if network.latency_s is None else network.latency_s
        visits = sum(i < system.remote for i in ends)  # two: from one remote device to another, through the client
        rate = network.bandwidth_bytes_per_s * NETWORK_SHARE / visits
        handover = visits * (latency / 2 + RPC_HANDOVER_S)
        return Crossing(network.name, rate, handover, system.network is None)
    if len(ends) == 2:
        return _between_devices(system.devices[source], system.devices[target], system)
    device = system.devices[ends[0]]
    handover = VULKAN_HANDOVER_S if backend == "Vulkan" else HOST_HANDOVER_S
    if device.unified_memory:
        return Crossing("shared memory", device.bandwidth_bytes_per_s * SHARED_MEMORY_SHARE, handover)
    link, assumed = host_link(device, system)
    return Crossing(link.name, link.bandwidth_bytes_per_s * PINNED_SHARE, handover, assumed)


def _between_devices(first: Device, second: Device, system: System) -> Crossing:
    """NVLink and its like if both have it; else through the host's PCIe, at the slower link's rate."""
    if first.peer_link is not None and second.peer_link is not None:
        peer = min(first.peer_link, second.peer_link, key=lambda link: link.bandwidth_bytes_per_s)
        return Crossing(peer.name, peer.bandwidth_bytes_per_s * PEER_SHARE, PEER_HANDOVER_S)
    links = [host_link(device, system) for device in (first, second)]
    slower, assumed = min(links, key=lambda found: found[0].bandwidth_bytes_per_s)
    return Crossing(slower.name, slower.bandwidth_bytes_per_s * PINNED_SHARE, PEER_HANDOVER_S, assumed)
