"""Tools of GPU makers: how each is asked, and what its output says. Text in, reports out.

Formats: nvidia-smi --help-query-gpu; ROCm documentation of amd-smi, rocm-smi and rocminfo; XPU Manager user guide.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .facts import GpuReport, pcie_generation, pcie_link
from .reading import OddOutputError, bus_address, load_json, mapping, mappings, number, size, text_of, whole

_NVIDIA_FIELDS: Final = (
    "name", "memory.total", "pci.bus_id", "pcie.link.gen.max", "pcie.link.width.current", "power.limit",
)  # fmt: skip
NVIDIA_SMI: Final = ("nvidia-smi", f"--query-gpu={','.join(_NVIDIA_FIELDS)}", "--format=csv,noheader,nounits")
AMD_SMI: Final = ("amd-smi", "static", "--asic", "--bus", "--vram", "--json")
ROCM_SMI: Final = ("rocm-smi", "--showproductname", "--showbus", "--showmeminfo", "vram", "gtt", "--json")
ROCMINFO: Final = ("rocminfo",)
XPU_SMI: Final = ("xpu-smi", "discovery", "-j")


def parse_nvidia_smi(text: str) -> tuple[GpuReport, ...]:
    """One line a GPU: name, MiB, bus, PCIe generation and lanes, watts."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and "no devices were found" in lines[0].lower():
        return ()
    return tuple(_nvidia_gpu(line) for line in lines)


def _nvidia_gpu(line: str) -> GpuReport:
    cells = [cell.strip() for cell in line.split(",")]
    name = text_of(cells[0])
    if len(cells) != len(_NVIDIA_FIELDS) or name is None:
        raise OddOutputError(f"printed a line that is not {len(_NVIDIA_FIELDS)} values: {line.strip()[:80]!r}")
    return GpuReport(
        names=(name,),
        vendor="nvidia",
        sources=("nvidia-smi",),
        memory_bytes=size(cells[1], "MiB"),
        bus=bus_address(cells[2]),
        link=pcie_link(whole(cells[3]), whole(cells[4])),
        power_limit_watts=number(cells[5]),
    )


def parse_amd_smi(text: str) -> tuple[GpuReport, ...]:
    """`amd-smi static`: a list of GPUs, since ROCm 7 under "gpu_data"."""
    data = load_json(text)
    gpus = mappings(mapping(data).get("gpu_data", data))
    if not any("asic" in gpu for gpu in gpus):
        raise OddOutputError('printed JSON without any "asic"')
    return tuple(_amd_smi_gpu(gpu) for gpu in gpus if "asic" in gpu)


def _amd_smi_gpu(gpu: Any) -> GpuReport:
    asic, bus, vram = mapping(gpu["asic"]), mapping(gpu.get("bus")), mapping(gpu.get("vram"))
    isa = text_of(asic.get("target_graphics_version"))
    names = (text_of(asic.get("market_name")), isa)
    sizes = [size(value, "MB") for key, value in vram.items() if "size" in key]
    return GpuReport(
        names=tuple(filter(None, names)) or ("AMD GPU",),
        vendor="amd",
        sources=("amd-smi",),
        memory_bytes=next(filter(None, sizes), None),
        units=whole(asic.get("num_compute_units")),
        isa=isa,
        bus=bus_address(bus.get("bdf")),
        link=pcie_link(pcie_generation(number(bus.get("max_pcie_speed"))), whole(bus.get("max_pcie_width"))),
    )


def parse_rocm_smi(text: str) -> tuple[GpuReport, ...]:
    """`rocm-smi --json`: "card0" … with keys whose capitals changed over the versions."""
    cards = {key: mapping(card) for key, card in mapping(load_json(text)).items() if re.fullmatch(r"card\d+", key)}
    if not cards:
        raise OddOutputError('printed JSON without any "card0"')
    return tuple(_rocm_smi_gpu(cards[key]) for key in sorted(cards, key=lambda key: int(key[4:12])))


def _rocm_smi_gpu(card: Any) -> GpuReport:
    isa = text_of(card.get("gfx version"))
    said = [text_of(card.get(key)) for key in ("card series", "card model", "product name", "device name")]
    names = [name for name in said if name and not re.fullmatch(r"0x[0-9a-fA-F]+", name)]
    return GpuReport(
        names=tuple(dict.fromkeys([*names, *([isa] if isa else [])])) or ("AMD GPU",),
        vendor="amd",
        sources=("rocm-smi",),
        memory_bytes=size(card.get("vram total memory (b)")),
        borrowed_bytes=size(card.get("gtt total memory (b)")),
        isa=isa,
        bus=bus_address(card.get("pci bus")),
    )


def parse_rocminfo(text: str) -> tuple[GpuReport, ...]:
    """`rocminfo`: a block "Agent n" for each processor, of which those of type GPU count."""
    blocks = re.split(r"(?m)^\s*Agent \d+\s*$", text)[1:]
    if not blocks:
        raise OddOutputError('printed no block "Agent 1"')
    gpus = [block for block in blocks if re.search(r"(?m)^\s*Device Type:\s*GPU\b", block)]
    return tuple(_rocminfo_gpu(block) for block in gpus)


def _rocminfo_gpu(block: str) -> GpuReport:
    isa, name = _after(block, "Name"), _after(block, "Marketing Name")
    pools = [size(each, "KB") for each in re.findall(r"(?m)^\s*Size:\s*(\d{1,15})\(0x[0-9a-f]+\) KB", block)]
    address = whole(_after(block, "BDFID"))
    return GpuReport(
        names=tuple(dict.fromkeys(filter(None, (name, isa)))) or ("AMD GPU",),
        vendor="amd",
        sources=("rocminfo",),
        memory_bytes=max(filter(None, pools), default=None),
        units=whole(_after(block, "Compute Unit")),
        isa=isa if isa and isa.startswith("gfx") else None,
        bus=_bus_of_number(address) if address is not None and address < 1 << 16 else None,
        integrated=True if "APU" in (_after(block, "Memory Properties") or "").split() else None,
    )


def _after(block: str, key: str) -> str | None:
    match = re.search(rf"(?m)^\s*{key}:[ \t]*(\S.*?)\s*$", block)
    return text_of(match[1]) if match else None


def _bus_of_number(number: int) -> str:
    """Bus, device and function packed into 16 bits."""
    return f"0000:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"


def parse_xpu_smi(text: str) -> tuple[GpuReport, ...]:
    """`xpu-smi discovery -j`: "device_list"; or, with `-d N`, one device with more fields."""
    data = mapping(load_json(text))
    devices = [device for device in mappings(data.get("device_list", data)) if "device_name" in device]
    if not devices:
        raise OddOutputError('printed JSON without any "device_name"')
    return tuple(
        GpuReport(
            names=(text_of(device["device_name"]) or "Intel GPU",),
            vendor="intel",
            sources=("xpu-smi",),
            memory_bytes=size(device.get("memory_physical_size_byte")),
            bus=bus_address(device.get("pci_bdf_address")),
            link=pcie_link(whole(device.get("pcie_generation")), whole(device.get("pcie_max_link_width"))),
        )
        for device in devices
        if device.get("device_function_type", "physical") == "physical"
    )


def xpu_smi_devices(text: str) -> list[int]:
    """The device numbers of `xpu-smi discovery -j`."""
    devices = mappings(mapping(load_json(text)).get("device_list"))
    return [id for id in (_count(device.get("device_id")) for device in devices) if id is not None]


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 64 else None
