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

_ETHERNET: Final = re.compile(r"([\d.]+)\s*(?:GbE|Gbit/s|Gbps)", re.I)


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
        host = replace(host, bandwidth_bytes_per_s=parse(ram_bandwidth, "bytes_per_s", "ram_bandwidth"))
    if disk is not None:
        host = replace(host, disk_bytes_per_s=parse(disk, "bytes_per_s", "disk"))
    link = None if network is None else _network(network)
    if latency is not None:
        seconds = parse(latency, "seconds", "network_latency")
        link = replace(link or TYPICAL_NETWORK, latency_s=seconds)
    return replace(system, host=host, remote=remote, network=link)


TYPICAL_NETWORK: Final = Link("1 Gbit/s network", 0.125e9)  # assumed, and said, where the network is not named


def _network(rate: object) -> Link:
    found = _ETHERNET.fullmatch(rate.strip()) if isinstance(rate, str) else None
    if found:
        return Link(f"{float(found[1]):g} Gbit/s network", float(found[1]) * 1e9 / 8)
    bytes_per_s = parse(rate, "bytes_per_s", "network")
    return Link(f"{bytes_per_s * 8 / 1e9:.3g} Gbit/s network", bytes_per_s)
