"""Macs: `system_profiler` and `sysctl`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .facts import CpuReport, GpuReport
from .reading import OddOutputError, load_json, mapping, mappings, size, text_of, vendor_of, whole

SYSTEM_PROFILER: Final = ("system_profiler", "SPDisplaysDataType", "SPHardwareDataType", "-json")
SYSCTL: Final = (
    "sysctl", "hw.memsize", "hw.physicalcpu", "hw.logicalcpu", "hw.packages", "hw.model", "machdep.cpu.brand_string",
)  # fmt: skip


def parse_displays(text: str) -> tuple[GpuReport, ...]:
    """`system_profiler -json`: GPUs, with the number of cores of Apple's."""
    data = mapping(load_json(text))
    if "spdisplaysdatatype" not in data:
        raise OddOutputError('printed JSON without "SPDisplaysDataType"')
    chip = text_of(_hardware(data).get("chip_type"))
    gpus = [gpu for gpu in mappings(data["spdisplaysdatatype"]) if text_of(gpu.get("sppci_model") or gpu.get("_name"))]
    return tuple(_gpu(gpu, chip) for gpu in gpus)


def _hardware(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(mappings(data.get("sphardwaredatatype"))), {})


def _gpu(gpu: Mapping[str, Any], chip: str | None) -> GpuReport:
    name = text_of(gpu.get("sppci_model") or gpu.get("_name")) or ""
    vendor = vendor_of(text_of(gpu.get("spdisplays_vendor")) or "") or vendor_of(name)
    names = dict.fromkeys([name, *([chip] if chip and vendor == "apple" else [])])
    return GpuReport(
        names=tuple(names),
        vendor=vendor,
        sources=("system_profiler",),
        memory_bytes=size(gpu.get("spdisplays_vram") or gpu.get("_spdisplays_vram")),
        units=whole(gpu.get("sppci_cores")),
        integrated=vendor == "apple" or "builtin" in str(gpu.get("sppci_bus", "")).lower(),
    )


def parse_hardware(text: str) -> tuple[CpuReport, float | None]:
    """`system_profiler -json`: the chip or CPU, its cores, and bytes of memory."""
    hardware = _hardware(mapping(load_json(text)))
    name = text_of(hardware.get("chip_type")) or text_of(hardware.get("cpu_type"))
    cores = re.search(r"\d{1,4}", str(hardware.get("number_processors", "")))
    report = CpuReport((name,) if name else (), cores=int(cores[0]) or None if cores else None)
    return report, size(hardware.get("physical_memory"))


def parse_sysctl(text: str) -> tuple[CpuReport, float | None]:
    """`sysctl name …`: lines "name: value"; names that this Mac does not have are left out."""
    fields = dict(re.findall(r"(?m)^([\w.]+)\s*[:=]\s*(.*?)\s*$", text))
    if not fields:
        raise OddOutputError('printed no line of the form "hw.memsize: …"')
    name = text_of(fields.get("machdep.cpu.brand_string"))
    report = CpuReport(
        names=(name,) if name else (),
        sockets=whole(fields.get("hw.packages")),
        cores=whole(fields.get("hw.physicalcpu")),
        threads=whole(fields.get("hw.logicalcpu")),
    )
    return report, size(fields.get("hw.memsize"))
