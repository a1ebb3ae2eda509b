"""Device generations: what efficiency factors are shared by, and which llama.cpp backends run on what.

Imports nothing. The tables are read off the vendors' architecture names as the hardware catalog spells them.
"""

from __future__ import annotations

from typing import Final

GENERATIONS: Final[dict[str, str]] = {
    # NVIDIA
    "Kepler": "kepler",
    "Maxwell": "maxwell",
    "Pascal": "pascal",
    "Volta": "volta",
    "Volta (Tegra Xavier)": "volta",
    "Turing": "turing",
    "Turing (no tensor cores)": "turing",
    "Ampere GA10x": "ampere",
    "Ampere (Tegra Orin)": "ampere",
    "Ampere GA100": "ampere-dc",
    "Ada Lovelace": "ada",
    "Hopper": "hopper",
    "Blackwell RTX": "blackwell",
    "Blackwell": "blackwell-dc",
    "Blackwell Ultra": "blackwell-dc",
    "Blackwell (Tegra Thor)": "blackwell-dc",
    # AMD GPUs
    "GCN 4 (Polaris)": "gcn",
    "GCN 5 (Vega 10)": "vega",
    "GCN 5.1 (Vega 20)": "vega",
    "RDNA 1": "rdna1",
    "RDNA 2": "rdna2",
    "RDNA 3": "rdna3",
    "RDNA 3.5": "rdna3",
    "RDNA 4": "rdna4",
    "CDNA 1": "cdna1",
    "CDNA 2": "cdna2",
    "CDNA 3": "cdna3",
    "CDNA 4": "cdna4",
    # Intel GPUs
    "Xe-LP": "xe-lp",
    "Xe-LPG": "xe-lpg",
    "Xe-LPG+": "xe-lpg-plus",
    "Xe-HPG (Alchemist)": "alchemist",
    "Xe2-HPG (Battlemage)": "battlemage",
    "Xe2-LPG": "battlemage",
    "Xe3-LPG": "xe3-lpg",
    "Xe-HPC (Ponte Vecchio)": "ponte-vecchio",
    "Gaudi 2": "gaudi",
    "Gaudi 3": "gaudi",
    # Apple; the phone chips have the GPU cores of the M series named here
    "Apple A14": "apple-m1",
    "Apple A15": "apple-m2",
    "Apple A16": "apple-m2",
    "Apple A17": "apple-m3",
    "Apple A18": "apple-m4",
    "Apple A19": "apple-m5",
    "Apple M1": "apple-m1",
    "Apple M2": "apple-m2",
    "Apple M3": "apple-m3",
    "Apple M4": "apple-m4",
    "Apple M5": "apple-m5",
    # x86 CPUs
    "Zen 1": "zen1",
    "Zen 2": "zen2",
    "Zen 3": "zen3",
    "Zen 4": "zen4",
    "Zen 4c": "zen4",
    "Zen 5": "zen5",
    "Zen 5c": "zen5",
    "Zen 5 mobile": "zen5-mobile",
    "Broadwell-EP": "broadwell",
    "Kaby Lake-R": "skylake",
    "Coffee Lake": "skylake",
    "Comet Lake": "skylake",
    "Skylake-X": "skylake-avx512",
    "Skylake-SP": "skylake-avx512",
    "Cascade Lake-X": "cascade-lake",
    "Cascade Lake": "cascade-lake",
    "Rocket Lake": "ice-lake",
    "Tiger Lake": "ice-lake",
    "Ice Lake-SP": "ice-lake",
    "Alder Lake": "golden-cove",
    "Raptor Lake": "golden-cove",
    "Alder Lake-N": "gracemont",
    "Meteor Lake": "redwood-cove",
    "Lunar Lake": "lion-cove",
    "Arrow Lake": "lion-cove",
    "Sapphire Rapids": "sapphire-rapids",
    "Emerald Rapids": "sapphire-rapids",
    "Granite Rapids": "granite-rapids",
    "Sierra Forest": "crestmont",
    # ARM CPUs
    "Cortex-A72": "cortex-a72",
    "Cortex-A76": "cortex-a76",
    "Cortex-X3": "cortex-x3",
    "Cortex-X4": "cortex-x4",
    "Oryon": "oryon",
    "Neoverse N1": "neoverse-n1",
    "Neoverse V1": "neoverse-v1",
    "Neoverse V2": "neoverse-v2",
}

_BY_VENDOR: Final[dict[str, tuple[str, ...]]] = {
    "nvidia": ("CUDA", "Vulkan"),
    "amd": ("ROCm", "Vulkan"),
    "intel": ("Vulkan", "SYCL"),
    "apple": ("Metal",),
    "qualcomm": ("CPU", "OpenCL", "Vulkan"),
    "broadcom": ("CPU",),
    "rockchip": ("CPU",),
    "mediatek": ("CPU",),
}
_ANY: Final = ("CUDA", "ROCm", "Vulkan", "SYCL", "OpenCL")
# ROCm has dropped Polaris and never supported RDNA 1; Gaudi has no backend in llama.cpp.
_BY_GENERATION: Final[dict[str, tuple[str, ...]]] = {"gcn": ("Vulkan",), "rdna1": ("Vulkan", "ROCm"), "gaudi": ()}


def backends(vendor: str, kind: str, architecture: str, integrated: bool) -> tuple[str, ...]:
    """llama.cpp's backends that run on a device, the usual one first; a vendor unknown here may have any of the GPU's.

    Integrated AMD GPUs put Vulkan first, because ROCm supports few of them.
    """
    if kind == "cpu":
        return ("CPU",)
    generation = GENERATIONS.get(architecture, "")
    if generation in _BY_GENERATION:
        return _BY_GENERATION[generation]
    if vendor == "amd" and integrated:
        return ("Vulkan", "ROCm")
    return _BY_VENDOR.get(vendor, _ANY)
