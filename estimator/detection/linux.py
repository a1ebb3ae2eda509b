"""CPU and memory on Linux: /proc, lscpu, and the firmware's table of memory modules by way of udev, dmidecode or lshw.

Formats: proc(5), lscpu(1), dmidecode(8), lshw(1), systemd's dmi_memory_id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..units import KIB
from .facts import CpuReport, MemoryModule
from .modules import memory_module
from .reading import OddOutputError, load_json, mapping, mappings, size, text_of, whole

CPUINFO: Final = "/proc/cpuinfo"
MEMINFO: Final = "/proc/meminfo"
LSCPU: Final = ("lscpu", "-J")
UDEVADM: Final = ("udevadm", "info", "--query=property", "--path=/sys/devices/virtual/dmi/id")
DMIDECODE: Final = ("dmidecode", "-t", "memory")
LSHW: Final = ("lshw", "-quiet", "-json", "-class", "memory")

_ARM: Final = "0x41"  # implementer


def parse_cpuinfo(text: str) -> CpuReport:
    """/proc/cpuinfo: a block for each thread. ARM kernels give no name of a model there, only numbers."""
    blocks = [_block(block) for block in re.split(r"\n\s*\n", text) if re.search(r"(?m)^processor\s*:", block)]
    if not blocks:
        raise OddOutputError("lists no processor")
    first = blocks[0]
    cores = {(block.get("physical id"), block["core id"]) for block in blocks if "core id" in block}
    sockets = {block["physical id"] for block in blocks if "physical id" in block}
    name = text_of(first.get("model name"))
    return CpuReport(
        names=(name,) if name else (),
        sockets=len(sockets) or None,
        cores=len(cores) or None,
        threads=len(blocks),
        family=_family(first),
        hypervisor="hypervisor" in first.get("flags", "").split(),
    )


def _block(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _family(block: Mapping[str, str]) -> tuple[str, int, int] | None:
    family, model = block.get("cpu family", ""), block.get("model", "")
    if not re.fullmatch(r"\d{1,4}", family) or not re.fullmatch(r"\d{1,4}", model):
        return None
    return block.get("vendor_id", ""), int(family), int(model)


def parse_lscpu(text: str) -> CpuReport:
    """`lscpu -J`: fields that nest since util-linux 2.38."""
    fields = dict(_lscpu_fields(mapping(load_json(text)).get("lscpu")))
    if "CPU(s)" not in fields:
        raise OddOutputError('printed JSON without "CPU(s)"')
    threads, sockets = whole(fields["CPU(s)"]), whole(fields.get("Socket(s)"))
    per_socket = whole(fields.get("Core(s) per socket")) or whole(fields.get("Core(s) per cluster"))
    groups = sockets or whole(fields.get("Cluster(s)"))
    # What the firmware calls the CPU comes second: boards fill it with anything.
    names = (text_of(fields.get(key)) for key in ("Model name", "BIOS Model name"))
    return CpuReport(
        names=tuple(dict.fromkeys(filter(None, names))),
        sockets=sockets,
        cores=per_socket * groups if per_socket and groups else None,
        threads=threads,
        hypervisor="Hypervisor vendor" in fields,
        cache_bytes=size(fields.get("L3 cache")) or size(fields.get("L3")),
    )


def _lscpu_fields(entries: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """Fields in order, the first of each name last, so that a dict keeps it; hybrid ARM chips repeat "Model name"."""
    for entry in reversed(mappings(entries)) if depth < 8 else ():
        yield from _lscpu_fields(entry.get("children", []), depth + 1)
        yield (text_of(entry.get("field")) or "").rstrip(":"), text_of(entry.get("data")) or ""


def arm_core(cpuinfo: str) -> str | None:
    """The server core of a CPU by ARM's part number; None for others, and where kinds of core are mixed."""
    blocks = [_block(block) for block in re.split(r"\n\s*\n", cpuinfo)]
    parts = {(block["CPU implementer"], block.get("CPU part", "")) for block in blocks if "CPU implementer" in block}
    return {
        (_ARM, "0xd0c"): "Neoverse-N1",
        (_ARM, "0xd40"): "Neoverse-V1",
        (_ARM, "0xd4f"): "Neoverse-V2",
    }.get(next(iter(parts))) if len(parts) == 1 else None  # fmt: skip


def parse_meminfo(text: str) -> float:
    """/proc/meminfo: bytes of MemTotal, which is less than what is installed by what firmware and kernel keep."""
    match = re.search(r"(?m)^MemTotal:\s*(\d{1,15}) kB", text)
    if match is None or not int(match[1]):
        raise OddOutputError("has no line MemTotal")
    return int(match[1]) * KIB


def available_bytes(text: str) -> float | None:
    """/proc/meminfo: bytes that can be taken without swapping."""
    match = re.search(r"(?m)^MemAvailable:\s*(\d{1,15}) kB", text)
    return int(match[1]) * KIB if match else None


def parse_udevadm(text: str) -> tuple[MemoryModule, ...]:
    """`udevadm info` of the firmware's table, which needs no special rights: MEMORY_DEVICE_n_KEY=value."""
    devices: dict[str, dict[str, str]] = {}
    for id, key, value in re.findall(r"(?m)^(?:E: ?)?MEMORY_DEVICE_(\d+)_(\w+)=(.*?)\s*$", text):
        devices.setdefault(id, {})[key] = value
    modules = (
        memory_module(
            size(device.get("SIZE")),
            kind=device.get("TYPE"),
            speed=device.get("CONFIGURED_SPEED_MTS") or device.get("SPEED_MTS"),
            width=device.get("DATA_WIDTH"),
            locators=(device.get("BANK_LOCATOR"), device.get("LOCATOR")),
        )
        for device in devices.values()
    )
    return tuple(filter(None, modules))


def parse_dmidecode(text: str) -> tuple[MemoryModule, ...]:
    """`dmidecode -t memory`: a block "Memory Device" for each slot, empty ones with "No Module Installed"."""
    blocks = re.split(r"(?m)^Memory Device\s*$", text)[1:]
    if not blocks and "dmidecode" not in text:
        raise OddOutputError('printed no block "Memory Device"')
    devices = [dict(re.findall(r"(?m)^\s+([\w ]+):[ \t]*(.*?)\s*$", block.split("\nHandle ")[0])) for block in blocks]
    modules = (
        memory_module(
            size(device.get("Size")),
            kind=device.get("Type"),
            speed=text_of(device.get("Configured Memory Speed"))
            or text_of(device.get("Configured Clock Speed"))
            or device.get("Speed"),
            width=device.get("Data Width"),
            locators=(device.get("Bank Locator"), device.get("Locator")),
        )
        for device in devices
    )
    return tuple(filter(None, modules))


def parse_lshw(text: str) -> tuple[MemoryModule, ...]:
    """`lshw -json -class memory`: banks with description, size, clock (Hz) and slot."""
    banks = [node for node in mappings(load_json(text)) if str(node.get("id", "")).startswith("bank")]
    return tuple(filter(None, map(_lshw_module, banks)))


def _lshw_module(bank: Mapping[str, Any]) -> MemoryModule | None:
    description = text_of(bank.get("description")) or ""
    kind = re.search(r"\b(?:LP)?DDR\d\w?\b", description)
    # "DIMM DDR4 Synchronous 3200 MHz (0.3 ns)": the firmware's rate, which is of transfers, labelled as a clock.
    speed = re.search(r"(\d{3,5}) M(?:Hz|T/s)", description)
    return memory_module(
        size(bank.get("size")),
        kind=kind[0] if kind else None,
        speed=speed[1] if speed else None,
        width=bank.get("width"),
        locators=(bank.get("slot"),),
    )
