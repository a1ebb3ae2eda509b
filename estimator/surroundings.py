"""What is around the devices of a system: other computers' devices over RPC, the network, the host's memory and disk.

Imports `system` and `units`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from .errors import InputError
from .system import Link, System
from .units import parse

SLOWEST_BYTES_PER_S: Final = 1e3
FASTEST_BYTES_PER_S: Final = 1e18

_ETHERNET: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:GbE|Gbit/s|Gbps)", re.I)


def surrounded(
    system: System,
    *,
    remote: int = 0,
    network: object = None,
    latency: object = None,
    ram_bandwidth: object = None,
    disk: object = None,
) -> System:
    """`system` with its first `remote` devices behind a network, and figures of the host.

    Raises InputError for network figures where nothing is remote, and for figures that cannot be read.
    """
    if not remote and (network is not None or latency is not None):
        raise InputError("--network: goes with --rpc, which names the devices of other computers")
    host = system.host
    if ram_bandwidth is not None:
        host = replace(host, bandwidth_bytes_per_s=_rate(ram_bandwidth, "ram_bandwidth"))
    if disk is not None:
        host = replace(host, disk_bytes_per_s=_rate(disk, "disk"))
    link = None if network is None else network_link(network)
    if latency is not None:
        seconds = parse(latency, "seconds", "network_latency")
        link = replace(link or TYPICAL_NETWORK, latency_s=seconds)
    return replace(system, host=host, remote=remote, network=link)


TYPICAL_NETWORK: Final = Link("1 Gbit/s network", 0.125e9)  # assumed, and said, where the network is not named


def network_link(rate: object) -> Link:
    """The link of a network by its rate: 10GbE, "1.2 GB/s". Raises InputError for what is none."""
    found = _ETHERNET.fullmatch(rate.strip()) if isinstance(rate, str) else None
    bytes_per_s = float(found[1]) * 1e9 / 8 if found else parse(rate, "bytes_per_s", "network")
    _check_rate(bytes_per_s, "network", rate)
    return Link(f"{bytes_per_s * 8 / 1e9:.3g} Gbit/s network", bytes_per_s)


def _rate(value: object, what: str) -> float:
    rate = parse(value, "bytes_per_s", what)
    _check_rate(rate, what, value)
    return rate


def _check_rate(rate: float, what: str, shown: object) -> None:
    """Refuse what no hardware does: it is a slip of the unit."""
    if not SLOWEST_BYTES_PER_S <= rate <= FASTEST_BYTES_PER_S:
        raise InputError(f"{what}: must be from 1 kB/s to 1000000 TB/s, got {shown}")
