"""Tools that list GPUs of every maker: Vulkan, OpenCL, the PCI bus, the kernel's files, the device tree."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from .facts import GpuReport
from .reading import OddOutputError, bus_address, number, size, text_of, vendor_of

VULKANINFO: Final = ("vulkaninfo", "--summary")
CLINFO: Final = ("clinfo", "--raw")
LSPCI: Final = ("lspci", "-Dmm")
DRM_PATTERN: Final = "/sys/class/drm/card[0-9]*/device/uevent"

_GPU_CLASSES: Final = ("vga compatible controller", "3d controller", "display controller", "processing accelerators")


def parse_vulkaninfo(text: str) -> tuple[GpuReport, ...]:
    """`vulkaninfo --summary`: a block "GPUn:" for each device and driver; software devices do not count."""
    if "GPU0" not in text and "Devices:" not in text:
        raise OddOutputError('printed no block "Devices:"')
    blocks = re.split(r"(?m)^GPU\d+:\s*$", text)[1:]
    gpus = [dict(re.findall(r"(?m)^\s*(\w+)\s*=[ \t]*(.*?)\s*$", block)) for block in blocks]
    real = [gpu for gpu in gpus if not gpu.get("deviceType", "").endswith("_CPU")]
    return tuple(_vulkan_gpu(gpu) for gpu in _of_first_driver(real) if text_of(gpu.get("deviceName")))


def _of_first_driver(gpus: list[dict[str, str]]) -> list[dict[str, str]]:
    """A GPU is listed once by each driver installed for it: those of the first driver of a vendor."""
    drivers: dict[str, str] = {}
    return [
        gpu
        for gpu in gpus
        if drivers.setdefault(gpu.get("vendorID", ""), gpu.get("driverID", "")) == gpu.get("driverID", "")
    ]


def _vulkan_gpu(gpu: Mapping[str, str]) -> GpuReport:
    kind = gpu.get("deviceType", "")
    name = text_of(gpu["deviceName"]) or ""
    integrated = True if kind.endswith("INTEGRATED_GPU") else False if kind.endswith("DISCRETE_GPU") else None
    return GpuReport((name,), vendor_of(gpu.get("vendorID", "")), ("vulkaninfo",), integrated=integrated)


def parse_clinfo(text: str) -> tuple[GpuReport, ...]:
    """`clinfo --raw`: lines "[PLATFORM/n] KEY value"; processors that are no GPU do not count."""
    devices: dict[str, dict[str, str]] = {}
    for tag, key, value in re.findall(r"(?m)^\s*\[(\w+/\d+)\]\s+(CL_\w+)[ \t]*(.*?)\s*$", text):
        devices.setdefault(tag, {}).setdefault(key, value)
    if not devices and "CL_PLATFORM" not in text and "#PLATFORMS" not in text:
        raise OddOutputError("printed no line of the form [PLATFORM/0] CL_DEVICE_NAME …")
    gpus = [
        device | {"vendorID": device.get("CL_DEVICE_VENDOR", ""), "driverID": tag.partition("/")[0]}
        for tag, device in devices.items()
        if "GPU" in device.get("CL_DEVICE_TYPE", "") and text_of(device.get("CL_DEVICE_NAME"))
    ]
    return tuple(map(_opencl_gpu, _of_first_driver(gpus)))


def _opencl_gpu(gpu: Mapping[str, str]) -> GpuReport:
    names = (text_of(gpu.get(key)) for key in ("CL_DEVICE_BOARD_NAME_AMD", "CL_DEVICE_NAME"))
    bus = gpu.get("CL_DEVICE_PCI_BUS_INFO_KHR") or gpu.get("CL_DEVICE_TOPOLOGY_AMD")
    unified = gpu.get("CL_DEVICE_HOST_UNIFIED_MEMORY", "")
    integrated = {"CL_TRUE": True, "CL_FALSE": False}.get(unified)
    memory = size(gpu.get("CL_DEVICE_GLOBAL_MEM_SIZE"))
    return GpuReport(
        names=tuple(filter(None, names)),
        vendor=vendor_of(gpu.get("CL_DEVICE_VENDOR", "")),
        sources=("clinfo",),
        memory_bytes=None if integrated else memory,
        borrowed_bytes=memory if integrated else None,
        bus=bus_address(bus),
        integrated=integrated,
    )


def parse_lspci(text: str) -> tuple[GpuReport, ...]:
    """`lspci -Dmm`: address, class, vendor and device, quoted; display chips of servers do not count."""
    gpus = []
    for line in text.splitlines():
        try:
            cells = shlex.split(line)
        except ValueError:
            raise OddOutputError(f"printed a line with an open quote: {line.strip()[:80]!r}") from None
        vendor = vendor_of(cells[2]) if len(cells) > 3 and cells[1].lower() in _GPU_CLASSES else ""
        name = text_of(cells[3]) if vendor else None
        if name:
            gpus.append(GpuReport((name,), vendor, ("lspci",), bus=bus_address(cells[0])))
    return tuple(gpus)


def parse_drm(uevent: str, vram: str | None, gtt: str | None) -> GpuReport | None:
    """The kernel's files of one graphics card; None for one that is on no PCI bus or of no maker of GPUs.

    amdgpu counts the memory of the card (`mem_info_vram_total`) and the host memory it may map (`mem_info_gtt_total`).
    """
    fields = dict(line.split("=", 1) for line in uevent.splitlines() if "=" in line)
    vendor_id, _, device_id = fields.get("PCI_ID", "").partition(":")
    vendor, bus = vendor_of(f"0x{vendor_id}"), bus_address(fields.get("PCI_SLOT_NAME"))
    if not vendor or bus is None:
        return None
    return GpuReport(
        names=(f"PCI device {vendor_id}:{device_id}".lower(),),
        vendor=vendor,
        sources=("/sys/class/drm",),
        memory_bytes=number(vram),
        borrowed_bytes=number(gtt),
        bus=bus,
    )


def parse_device_tree(model: str, compatible: str) -> GpuReport | None:
    """The GPU of a Jetson board, which no other tool names; None for other boards."""
    if "nvidia,tegra" not in compatible:
        return None
    name = re.sub(r"(?i)\b(?:engineering reference|developer kit)\b", " ", model.replace("\x00", " "))
    name = re.sub(r"^Jetson-AGX$", "Jetson AGX Xavier", " ".join(name.split()))
    name = name if "jetson" in name.lower() else re.sub(r"(?i)^(?:nvidia )?", "NVIDIA Jetson ", name, count=1)
    return GpuReport((name,), "nvidia", ("device tree",), integrated=True)
