"""Windows: CIM classes through PowerShell, or through wmic where there is no PowerShell.

Formats: Microsoft's reference of Win32_VideoController, Win32_Processor, Win32_PhysicalMemory and Win32_ComputerSystem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..units import GIB
from .facts import CpuReport, GpuReport, MemoryModule
from .modules import memory_module
from .reading import OddOutputError, load_json, mapping, mappings, number, size, text_of, vendor_of, whole

_CLASSES: Final = {
    "gpu": ("Win32_VideoController", "Name,AdapterRAM,PNPDeviceID"),
    "cpu": ("Win32_Processor", "Name,NumberOfCores,NumberOfLogicalProcessors,L3CacheSize"),
    "memory": (
        "Win32_PhysicalMemory",
        "Capacity,Speed,ConfiguredClockSpeed,SMBIOSMemoryType,DataWidth,DeviceLocator,BankLabel",
    ),
    "system": ("Win32_ComputerSystem", "TotalPhysicalMemory,PCSystemType,Model,HypervisorPresent"),
}
# Drivers write the size of a card's memory here in full; AdapterRAM has 32 bits.
_REGISTRY: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}\0*"
_SIZE_VALUE: Final = "HardwareInformation.qwMemorySize"

_SCRIPT: Final = (
    "$ErrorActionPreference='SilentlyContinue'; @{"
    + "; ".join(f"{key}=@(Get-CimInstance {name} | Select-Object {fields})" for key, (name, fields) in _CLASSES.items())
    + f"; vram=@(Get-ItemProperty '{_REGISTRY}' | Select-Object DriverDesc,'{_SIZE_VALUE}')"
    + "} | ConvertTo-Json -Depth 4 -Compress"
)
POWERSHELL: Final = ("powershell", "-NoProfile", "-NonInteractive", "-Command", _SCRIPT)
WMIC: Final = {key: ("wmic", "path", name, "get", fields, "/format:csv") for key, (name, fields) in _CLASSES.items()}

_MEMORY_KINDS: Final = {24: "DDR3", 26: "DDR4", 29: "LPDDR3", 30: "LPDDR4", 34: "DDR5", 35: "LPDDR5"}  # SMBIOS 7.18.2
_LAPTOP: Final = 2  # PCSystemType "mobile"
_SATURATED_BYTES: Final = 4 * GIB - (1 << 20) - 1  # AdapterRAM of any card with 4 GiB or more is about this, or wraps


@dataclass(frozen=True)
class WindowsFacts:
    """All that is asked of Windows at once."""

    gpus: tuple[GpuReport, ...]
    cpu: CpuReport
    modules: tuple[MemoryModule, ...]
    total_bytes: float | None
    laptop: bool


def parse_cim(text: str) -> WindowsFacts:
    """The JSON that the PowerShell script prints."""
    data = mapping(load_json(text))
    if not {"gpu", "cpu"} & set(data):
        raise OddOutputError("printed JSON without any of the classes that were asked for")
    return _facts({key: mappings(data.get(key)) for key in (*_CLASSES, "vram")}, "CIM")


def parse_wmic(texts: Mapping[str, str]) -> WindowsFacts:
    """The CSV that wmic prints for each class: blank lines, a header, a line an object."""
    return _facts({key: _wmic_rows(text) for key, text in texts.items()}, "wmic")


def _wmic_rows(text: str) -> list[Mapping[str, Any]]:
    """wmic does not quote: of a line with too many or too few commas nothing can be told."""
    lines = [line.strip("\r\x00\ufeff ") for line in text.splitlines()]
    header, *rows = [line.split(",") for line in lines if line] or [[]]
    return [mapping(dict(zip(header, row, strict=True))) for row in rows if len(row) == len(header)]


def _facts(data: Mapping[str, Sequence[Mapping[str, Any]]], source: str) -> WindowsFacts:
    system = next(iter(data.get("system", ())), {})
    sizes = {text_of(row.get("driverdesc")): size(row.get(_SIZE_VALUE.lower())) for row in data.get("vram", ())}
    modules = map(_module, data.get("memory", ()))
    return WindowsFacts(
        gpus=tuple(_gpu(row, sizes, source) for row in data.get("gpu", ()) if vendor_of(_identity(row))),
        cpu=_cpu(data.get("cpu", ()), system),
        modules=tuple(module for module in modules if module),
        total_bytes=size(system.get("totalphysicalmemory")),
        laptop=whole(system.get("pcsystemtype")) == _LAPTOP,
    )


def _identity(gpu: Mapping[str, Any]) -> str:
    """Name and PCI vendor, as `vendor_of` reads it; "PCI\\VEN_10DE&DEV_2684" is 0x10de."""
    return f"{text_of(gpu.get('name')) or ''} {str(gpu.get('pnpdeviceid', '')).lower().replace('ven_', ' 0x')}"


def _gpu(row: Mapping[str, Any], sizes: Mapping[str | None, float | None], source: str) -> GpuReport:
    name = text_of(row.get("name"))
    adapter = number(row.get("adapterram"))
    small = adapter if adapter is not None and adapter < _SATURATED_BYTES else None
    return GpuReport((name or "display adapter",), vendor_of(_identity(row)), (source,), sizes.get(name) or small)


def _cpu(rows: Sequence[Mapping[str, Any]], system: Mapping[str, Any]) -> CpuReport:
    """Several rows are several sockets."""
    name = text_of(rows[0].get("name")) if rows else None
    caches = [size(row.get("l3cachesize"), "KB") for row in rows]
    return CpuReport(
        names=(name,) if name else (),
        sockets=len(rows) or None,
        cores=_sum(rows, "numberofcores"),
        threads=_sum(rows, "numberoflogicalprocessors"),
        hypervisor="virtual" in (text_of(system.get("model")) or "").lower(),
        cache_bytes=sum(filter(None, caches)) or None,
    )


def _sum(rows: Sequence[Mapping[str, Any]], key: str) -> int | None:
    counts = [whole(row.get(key)) for row in rows]
    return sum(count for count in counts if count) or None


def _module(row: Mapping[str, Any]) -> MemoryModule | None:
    return memory_module(
        size(row.get("capacity")),
        kind=_MEMORY_KINDS.get(whole(row.get("smbiosmemorytype")) or 0),
        speed=number(row.get("configuredclockspeed")) or number(row.get("speed")),
        width=row.get("datawidth"),
        locators=(row.get("banklabel"), row.get("devicelocator")),
    )
