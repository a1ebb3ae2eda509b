"""Machines from recorded outputs of their tools: what is found, what it maps to, and what is said about the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machine import MACHINES, RecordedRunner, recorded

from llmcalc.cli import run
from llmcalc.detection import generic_tools, gpu_tools, linux, macos, windows
from llmcalc.detection.catalog_match import Match, Surroundings, match_cpu, match_gpu
from llmcalc.detection.facts import CpuReport, GpuReport, MemoryModule, MemoryReport, PcieLink, pcie_link
from llmcalc.detection.machine import Machine, auto_system, detect_machine
from llmcalc.detection.merge import merge_reports
from llmcalc.detection.modules import memory_module, memory_report
from llmcalc.detection.probes import TIMEOUT_S
from llmcalc.detection.reading import OddOutputError, bus_address, number, size, vendor_of, whole
from llmcalc.detection.runner import LocalRunner, Output
from llmcalc.device_catalog import find_device, list_devices
from llmcalc.errors import InputError
from llmcalc.units import GIB, MIB

# machine → GPUs, CPU, cores, memory in GiB, (channels, MT/s)
FOUND: dict[str, tuple[list[str | None], str | None, int | None, int | None, tuple[float | None, int] | None]] = {
    "desktop-rtx4090": (["geforce-rtx-4090", None], "ryzen-9-7950x", 16, 62, (2, 6000)),
    "server-4x-rtx3090": (["geforce-rtx-3090"] * 4, "epyc-7302", 16, 252, (8, 3200)),
    "desktop-rtx3080-12gb": (["geforce-rtx-3080-12gb", None], "core-i7-12700k", 12, 31, None),
    "windows-laptop-rtx4070": (["geforce-rtx-4070-laptop", None], "core-i7-13700h", 14, 32, (2, 4800)),
    "server-8x-a100": (["a100-sxm4-80gb"] * 8, "epyc-7742", 128, 2016, None),
    "jetson-agx-orin-64gb": (["jetson-agx-orin-64gb"], None, 12, 61, None),
    "jetson-orin-nano-super": (["jetson-orin-nano-super-8gb"], None, None, 7, None),
    "desktop-rx7900xtx": (["radeon-rx-7900-xtx"], "ryzen-7-5800x", 8, 31, (1, 3600)),
    "mini-pc-strix-halo": (["radeon-8060s"], "ryzen-ai-max-plus-395", 16, 31, (4, 8000)),
    "server-8x-mi300x": (["instinct-mi300x"] * 8, "epyc-9654", 192, 2267, (24, 4800)),
    "server-mi250x": (["instinct-mi250x-gcd"] * 2, None, 64, 503, None),
    "mac-intel": ([None, None], None, 8, 32, None),
    "mac-m2-ultra-60": (["apple-m2-ultra-60c"], None, 24, 128, None),
    "mac-m1-old-macos": (["apple-m1-8c"], None, 8, 16, None),
    "mac-m9": ([None], None, 16, 64, None),
    "desktop-arc-a770": (["arc-a770-16gb"], "core-i5-12400", 6, 31, (2, 3200)),
    "desktop-arc-b580": (["arc-b580", None], "core-ultra-5-245k", 14, 46, None),
    "desktop-intel-igpu": (["uhd-graphics-770-ddr5-4800"], "core-i5-12600k", 10, 31, (2, 4800)),
    "windows-laptop-lunar-lake": (["arc-140v-lunar-lake"], "core-ultra-7-258v", 8, 32, (2, 8533)),
    "server-2x-xeon-6338": ([], "xeon-gold-6338", 64, 503, (16, 3200)),
    "raspberry-pi-5": ([], "raspberry-pi-5", 4, 8, None),
    "orange-pi-5": ([], "rockchip-rk3588", None, 15, None),
    "windows-laptop-780m": (["radeon-780m-lpddr5x-7500"], "ryzen-7-7840u", 8, 31, (2, 6400)),
    "windows-wmic-gtx1060": (["geforce-gtx-1060-6gb"], "core-i7-8700k", 6, 16, (2, 2133)),
    "vm-hidden-epyc": ([], None, 2, 24, None),
    "vm-xeon-8-of-56": ([], "xeon-platinum-8480-plus", 8, 63, None),
    "vm-nothing": ([], None, None, None, None),
    "aws-graviton3": ([], "aws-graviton3", 64, 124, None),
    "dgx-spark": (["gb10"], None, None, 120, None),
    "broken-nvidia-driver": (["geforce-rtx-3060-12gb"], "ryzen-5-5600x", 6, 31, None),
    "container-4060ti": (["geforce-rtx-4060-ti-16gb"], "core-i7-14700k", 20, 8, None),
    "laptop-gtx1060": (["geforce-gtx-1060-laptop"], None, 4, 16, None),
    "steam-deck": (["steam-deck-lcd"], None, 4, 14, None),
    "windows-snapdragon-x": (["snapdragon-x-elite-x1e-78-100"], "snapdragon-x-elite-x1e-78-100", 12, 16, (None, 8448)),
    "laptop-780m-lpddr5x": (["radeon-780m-lpddr5x-7500"], "ryzen-7-7840u", 8, 30, (2, 7500)),
    "laptop-meteor-lake": (["arc-igpu-meteor-lake-8xe-lpddr5x-7467"], "core-ultra-7-155h", 14, 30, (2, 7467)),
    "odd-output": ([], None, None, None, None),
}

# machine → a part of a problem that must be there
SAID = [
    ("desktop-rtx4090", "Raphael (seen by lspci) is no entry of the catalog"),
    ("server-4x-rtx3090", "GPU 3, NVIDIA GeForce RTX 3090: limited to 280 W of 350"),
    ("server-4x-rtx3090", "GPU 3, NVIDIA GeForce RTX 3090: its link is PCIe 3.0 x4, the card is made for PCIe 4.0 x16"),
    ("desktop-rtx3080-12gb", "memory channels and speed are unknown: `sudo dmidecode -t memory` shows them"),
    ("desktop-rx7900xtx", "memory gives 28.8 GB/s of the 51.2 that ryzen-7-5800x can have: 1 of 2 channels"),
    ("server-2x-xeon-6338", "2 sockets"),
    ("mac-m1-old-macos", "the number of GPU cores is unknown, all 8 of apple-m1-8c are assumed"),
    ("mac-m9", "Apple M9 Pro is no entry of the catalog (closest: apple-"),
    ("mac-intel", "AMD Radeon Pro 5500M (seen by system_profiler) is no entry"),
    ("vm-hidden-epyc", "the hypervisor hides the model; its cores are Zen 4, as those of epyc-9124"),
    ("vm-hidden-epyc", "the virtual machine does not show them"),
    ("vm-xeon-8-of-56", "the virtual machine has 8 of the 56 cores of xeon-platinum-8480-plus"),
    ("vm-nothing", "/proc/cpuinfo cannot be read"),
    ("vm-nothing", "the size of the memory is unknown"),
    ("broken-nvidia-driver", "nvidia-smi failed with status 9: NVIDIA-SMI has failed because"),
    ("broken-nvidia-driver", "was seen by lspci only, without its memory: geforce-rtx-3060-12gb is assumed"),
    ("windows-wmic-gtx1060", "was seen by wmic only, without its memory"),
    ("container-4060ti", "this container may use 8.0 GiB of the machine's 62.5"),
    ("laptop-gtx1060", "in a laptop it is taken to be geforce-gtx-1060-laptop"),
    ("windows-snapdragon-x", "the firmware does not say which channel a module is on"),
    ("odd-output", "nvidia-smi printed a line that is not 6 values"),
    ("odd-output", "rocminfo printed no block"),
    ("odd-output", "vulkaninfo printed no block"),
]


@cache
def found(name: str) -> Machine:
    return detect_machine(recorded(name))


def test_every_recorded_machine_has_its_expectation() -> None:
    assert sorted(FOUND) == MACHINES


@pytest.mark.parametrize("name", FOUND)
def test_parts_of_recorded_machines(name: str) -> None:
    gpus, cpu, cores, gib, memory = FOUND[name]
    machine = found(name)
    assert [gpu.device.id if gpu.device else None for gpu in machine.gpus] == gpus
    assert (machine.cpu.device.id if machine.cpu.device else None) == cpu
    assert machine.cpu.report.cores == cores
    total = machine.memory.total_bytes
    assert (None if total is None else round(total / GIB)) == gib
    channels, rate = memory or (None, None)
    assert machine.memory.channels == channels
    assert machine.memory.transfers_per_s == (rate and rate * 1e6)
    assert machine.memory.bandwidth_bytes_per_s == (channels and rate and channels * 8 * rate * 1e6)


@pytest.mark.parametrize("name", FOUND)
def test_what_is_not_mapped_has_its_reason(name: str) -> None:
    machine = found(name)
    for gpu in machine.gpus:
        assert (gpu.device is None) == (gpu.reason is not None)
        assert gpu.reason is None or gpu.reason in machine.problems
    part_of_chip = any(
        gpu.report.vendor == "apple" or (gpu.device and gpu.device.kind == "soc") for gpu in machine.gpus
    )
    assert machine.cpu.device or machine.cpu.reason or part_of_chip
    assert all(text and "\n" not in text for text in machine.problems)
    assert len(set(machine.problems)) == len(machine.problems)


@pytest.mark.parametrize(("name", "part"), SAID)
def test_problems_are_said(name: str, part: str) -> None:
    assert any(part in text for text in found(name).problems), found(name).problems


@pytest.mark.parametrize("name", ["desktop-intel-igpu", "mac-m2-ultra-60", "mini-pc-strix-halo", "laptop-meteor-lake"])
def test_nothing_is_said_where_all_is_clear(name: str) -> None:
    assert found(name).problems == ()


@pytest.mark.parametrize("name", MACHINES)
def test_a_tool_that_prints_nonsense_costs_a_sentence_and_no_more(name: str) -> None:
    for command in recorded(name).outputs:
        runner = recorded(name)
        runner.outputs[command] = "<html>502 Bad Gateway</html>"
        assert detect_machine(runner).os == runner.description


@pytest.mark.parametrize("name", MACHINES)
def test_without_any_tool_or_file_there_are_only_problems(name: str) -> None:
    runner = recorded(name)
    runner.outputs.clear()
    runner.files.clear()
    machine = detect_machine(runner)
    assert machine.gpus == () and machine.cpu.device is None and machine.problems
    with pytest.raises(InputError, match="auto: "):
        machine.to_system()


def test_this_machine_is_detected_whatever_it_is() -> None:
    machine = detect_machine()
    assert machine.os
    assert machine.cpu.device is not None or machine.gpus or machine.problems


# The system to estimate with


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("desktop-rtx4090", ["geforce-rtx-4090"]),  # without the GPU inside the CPU
        ("server-4x-rtx3090", ["geforce-rtx-3090"] * 4),
        ("windows-laptop-rtx4070", ["geforce-rtx-4070-laptop"]),
        ("windows-laptop-lunar-lake", ["arc-140v-lunar-lake"]),
        ("desktop-intel-igpu", ["core-i5-12600k"]),  # whose cores compute more than its GPU
        ("raspberry-pi-5", ["raspberry-pi-5"]),
        ("server-2x-xeon-6338", ["xeon-gold-6338"]),
    ],
)
def test_devices_to_estimate_with(name: str, ids: list[str]) -> None:
    assert [device.id for device in found(name).to_system().devices] == ids


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mac-intel", "auto: AMD Radeon Pro 5500M"),
        ("mac-m9", "auto: Apple M9 Pro is no entry"),
        ("vm-hidden-epyc", "auto: CPU AMD EPYC: the hypervisor hides the model"),
        ("vm-nothing", "auto: the CPU's model is unknown"),
    ],
)
def test_nothing_usable_is_an_error_with_the_reason(name: str, part: str) -> None:
    with pytest.raises(InputError) as error:
        auto_system(recorded(name))
    assert str(error.value).startswith(part)


def test_figures_read_from_the_machine_replace_those_of_the_catalog() -> None:
    riser = auto_system(recorded("server-4x-rtx3090")).devices[3]
    assert riser.host_link is not None and riser.host_link.name == "PCIe 3.0 x4"
    assert riser.host_link.bandwidth_bytes_per_s == pytest.approx(3.94e9, rel=1e-3)
    system = auto_system(recorded("desktop-rtx4090"))
    assert system.devices[0].memory_bytes == 24564 * MIB
    assert system.host.bandwidth_bytes_per_s == 2 * 8 * 6000e6
    assert system.host.cpu is not None and system.host.cpu.bandwidth_bytes_per_s == 96e9
    assert any("2 channels of DDR5 at 6,000 MT/s" in note for note in system.host.cpu.notes)


def test_an_integrated_gpu_has_the_memory_that_its_driver_may_use_at_the_speed_of_the_modules() -> None:
    halo = auto_system(recorded("mini-pc-strix-halo")).devices[0]
    assert halo.memory_bytes == 103079215104 + 16604160000
    slower = auto_system(recorded("windows-laptop-780m")).devices[0]
    assert slower.bandwidth_bytes_per_s == 102.4e9 and slower.memory_bytes == 33567000000


def test_of_two_sockets_one_counts() -> None:
    system = auto_system(recorded("server-2x-xeon-6338"))
    assert system.devices[0].cores == 32
    assert system.devices[0].bandwidth_bytes_per_s == system.host.bandwidth_bytes_per_s == 8 * 8 * 3200e6


def test_cores_that_are_not_there_do_not_compute() -> None:
    few = auto_system(recorded("vm-xeon-8-of-56")).devices[0]
    whole_chip = find_device("xeon-platinum-8480-plus")
    assert few.cores == 8
    for path, peak in whole_chip.peaks_flop_per_s.items():
        assert few.peaks_flop_per_s[path] == pytest.approx(peak * 8 / 56)


# Names


def gpu_match(name: str, mib: float | None = None, vendor: str = "nvidia", **more: Any) -> Match:
    memory = None if mib is None else mib * MIB
    return match_gpu(GpuReport((name,), vendor, ("tool",), memory, **more), Surroundings())


@pytest.mark.parametrize(
    ("name", "mib", "id"),
    [
        ("NVIDIA GeForce RTX 3080", 10240, "geforce-rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 12288, "geforce-rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 3080 Ti", 12288, "geforce-rtx-3080-ti"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16384, "geforce-rtx-3080-laptop"),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "geforce-rtx-4060-ti-8gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "geforce-rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 5060 Ti", 16311, "geforce-rtx-5060-ti-16gb"),
        ("NVIDIA GeForce RTX 3060", 12288, "geforce-rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060", 8192, "geforce-rtx-3060-8gb"),
        ("NVIDIA GeForce RTX 3050", 8192, "geforce-rtx-3050-8gb"),
        ("NVIDIA GeForce RTX 3050", 6144, "geforce-rtx-3050-6gb"),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 4096, "geforce-rtx-3050-laptop-4gb"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", 6144, "geforce-rtx-3050-laptop-6gb"),
        ("NVIDIA GeForce RTX 2060", 12288, "geforce-rtx-2060-12gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 22528, "geforce-rtx-2080-ti-22gb-mod"),
        ("NVIDIA GeForce RTX 4090", 24564, "geforce-rtx-4090"),
        ("NVIDIA GeForce RTX 4090", 49140, "geforce-rtx-4090-48gb-mod"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "geforce-rtx-4090-laptop"),
        ("NVIDIA A100-PCIE-40GB", 40960, "a100-pcie-40gb"),
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-32GB-LS", 32768, "tesla-v100-sxm2-32gb"),
        ("Tesla V100-PCIE-16GB", 16160, "tesla-v100-pcie-16gb"),
        ("Tesla T4", 15360, "tesla-t4"),
        ("Tesla P100-PCIE-12GB", 12198, "tesla-p100-pcie-12gb"),
        ("Tesla K80", 11441, "tesla-k80"),
        ("NVIDIA A10G", 23028, "a10g"),
        ("NVIDIA A40", 46068, "a40"),
        ("NVIDIA L4", 23034, "l4"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", 81559, "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", 95830, "h100-nvl-94gb"),
        ("NVIDIA H200", 143771, "h200-sxm-141gb"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96gb"),
        ("NVIDIA B200", 183359, "b200-sxm-180gb"),
        ("NVIDIA RTX A2000", 6138, "rtx-a2000-6gb"),
        ("NVIDIA RTX A2000 12GB", 12282, "rtx-a2000-12gb"),
        ("NVIDIA RTX A6000", 46068, "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "rtx-pro-6000-blackwell"),
        ("GeForce GTX 1060 3GB", 3019, "geforce-gtx-1060-3gb"),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", 8192, None),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", 8192, "geforce-rtx-2070-laptop"),
        ("NVIDIA RTX 2000 Ada Generation Laptop GPU", 8188, None),
        ("GRID V100D-8Q", 8192, None),
        ("NVIDIA GeForce RTX 9999", 65536, None),
    ],
)
def test_names_and_memory_of_nvidia(name: str, mib: float, id: str | None) -> None:
    match = gpu_match(name, mib)
    assert (match.device.id if match.device else None) == id
    assert (match.reason is None) == (id is not None)


@pytest.mark.parametrize(
    ("name", "mib", "id"),
    [
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", None, "radeon-rx-7900-xtx"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", 24560, "radeon-rx-7900-xtx"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", 20464, "radeon-rx-7900-xt"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", 16368, None),  # the GRE and the laptop part
        ("Radeon RX 580 Series (RADV POLARIS10)", 8192, "radeon-rx-580-8gb"),
        ("Radeon Instinct MI50", 32752, "instinct-mi50-32gb"),
        ("AMD Instinct MI300X OAM", 196592, "instinct-mi300x"),
        ("AMD Instinct MI300X VF", 196592, "instinct-mi300x"),
        ("AMD Instinct MI250X / MI250", 65520, None),  # both cards have dies of 64 GB
        ("AMD Radeon 8060S Graphics (RADV GFX1151)", None, "radeon-8060s"),
        ("AMD Radeon Graphics", 512, None),
        ("AMD Custom GPU 0932 (RADV VANGOGH)", None, "steam-deck-oled"),
    ],
)
def test_names_and_memory_of_amd(name: str, mib: float | None, id: str | None) -> None:
    match = gpu_match(name, mib, "amd")
    assert (match.device.id if match.device else None) == id
    assert "/" not in name or id or "may be any of" in (match.reason or "")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", "arc-a770-16gb"),
        ("Intel(R) Arc(tm) B580 Graphics (BMG G21)", "arc-b580"),
        ("Intel(R) Arc(TM) 140V GPU (16GB)", "arc-140v-lunar-lake"),
        ("Intel(R) UHD Graphics 770 (ADL-S GT1)", "uhd-graphics-770-ddr5-4800"),
        ("DG2 [Arc A380]", "arc-a380"),
        ("Intel(R) Arc(TM) Graphics", None),
        ("Intel(R) Iris(R) Xe Graphics", None),
    ],
)
def test_names_of_intel(name: str, id: str | None) -> None:
    match = gpu_match(name, None, "intel")
    assert (match.device.id if match.device else None) == id


def test_the_8_gb_variant_of_a_card_of_16() -> None:
    match = gpu_match("Intel(R) Arc(tm) A770 Graphics (DG2)", 7800, "intel")
    assert match.device is not None and match.device.id == "arc-a770-8gb"


APPLE = [device for device in list_devices() if device.kind == "apple" and device.device_class == "unified"]


@pytest.mark.parametrize("device", APPLE, ids=lambda device: device.id)
def test_every_apple_chip_by_its_number_of_gpu_cores(device: Any) -> None:
    chip = device.name.partition(" (")[0]
    display = {
        "_name": chip,
        "sppci_model": chip,
        "sppci_cores": str(device.units),
        "spdisplays_vendor": "sppci_vendor_Apple",
    }
    for memory in device.memory_options_bytes[:1] + device.memory_options_bytes[-1:]:
        hardware = {
            "chip_type": chip,
            "number_processors": f"proc {device.cores}:4:4",
            "physical_memory": f"{memory / GIB:.0f} GB",
        }
        profile = json.dumps({"SPDisplaysDataType": [display], "SPHardwareDataType": [hardware]})
        runner = RecordedRunner(f"system: Darwin\ndescription: Darwin 25.0.0 arm64\n$ system_profiler …\n{profile}\n")
        machine = detect_machine(runner)
        assert [gpu.device.id for gpu in machine.gpus if gpu.device] == [device.id]
        assert machine.problems == ()
        assert machine.to_system().devices[0].memory_bytes == memory


def test_a_number_of_gpu_cores_that_no_chip_has() -> None:
    match = gpu_match("Apple M4", None, "apple", units=9)
    assert match.device is None and match.reason is not None
    assert "9 GPU cores is no entry of the catalog, which has apple-m4-8c (8), apple-m4-10c (10)" in match.reason


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("AMD Ryzen 9 7950X 16-Core Processor", "ryzen-9-7950x"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "xeon-e5-2680-v4"),
        ("Ampere(R) Altra(R) Max Processor M128-30 CPU @ 3.0GHz", "ampere-altra-max-m128-30"),
        ("Snapdragon(R) X Plus - X1P64100 - Qualcomm(R) Oryon(TM) CPU", "snapdragon-x-plus-x1p-64-100"),
        ("Raspberry Pi 4 Model B Rev 1.4", "raspberry-pi-4b"),
        ("Intel(R) N100", "intel-n100"),
        ("AMD EPYC Processor", None),
        ("AMD EPYC-Milan Processor", None),
        ("Intel(R) Xeon(R) Processor @ 2.60GHz", None),
        ("Intel Xeon Processor (Cascadelake)", None),
        ("QEMU Virtual CPU version 2.5+", None),
        ("AMD EPYC 7R13 Processor", None),
    ],
)
def test_names_of_cpus(name: str, id: str | None) -> None:
    match = match_cpu(CpuReport((name,)), MemoryReport())
    assert (match.device.id if match.device else None) == id
    assert (match.reason is None) == (id is not None)


@pytest.mark.parametrize("rate", [8800e6, 6400e6])
def test_a_cpu_that_is_sold_with_two_kinds_of_memory(rate: float) -> None:
    """MRDIMMs report themselves as DDR5: the rate tells them apart."""
    memory = MemoryReport(None, (MemoryModule(64 * GIB, "DDR5", rate, 64, "A"),))
    match = match_cpu(CpuReport(("Intel(R) Xeon(R) 6980P",)), memory)
    assert match.device is not None and match.device.memory_transfers_per_s == rate


def test_a_gpu_with_other_memory_than_its_entry_keeps_what_it_reports() -> None:
    match = gpu_match("NVIDIA GeForce RTX 3070", 16384)
    assert match.device is not None and match.device.id == "geforce-rtx-3070"
    assert "reports 16.00 GiB where geforce-rtx-3070 has 8.00 GiB" in match.assumptions[0]


# One GPU, several tools


def test_reports_of_one_gpu_are_one() -> None:
    smi = GpuReport(("NVIDIA GeForce RTX 3090",), "nvidia", ("nvidia-smi",), 24 * GIB, bus="0000:01:00.0")
    bus = GpuReport(("GA102 [GeForce RTX 3090]",), "nvidia", ("lspci",), bus="0000:01:00.0")
    inside = GpuReport(("Raphael",), "amd", ("lspci",), bus="0000:15:00.0")
    merged = merge_reports([[smi], [inside, bus]])
    assert [report.sources for report in merged] == [("nvidia-smi", "lspci"), ("lspci",)]
    assert merged[0].memory_bytes == 24 * GIB and merged[0].names[0] == "NVIDIA GeForce RTX 3090"


def test_equal_gpus_without_addresses_stay_as_many() -> None:
    card = GpuReport(("Arc A770",), "intel", ("vulkaninfo",))
    other = replace(card, sources=("clinfo",), memory_bytes=16 * GIB)
    merged = merge_reports([[card, card], [other, other]])
    assert [report.memory_bytes for report in merged] == [16 * GIB] * 2


def test_the_gpu_inside_a_cpu_is_not_the_card_of_the_same_maker() -> None:
    card = GpuReport(("Radeon RX 7900 XTX",), "amd", ("rocm-smi",), 24 * GIB, integrated=False)
    inside = GpuReport(("AMD Radeon Graphics (RADV RAPHAEL)",), "amd", ("vulkaninfo",), integrated=True)
    assert len(merge_reports([[card], [inside]])) == 2


@given(st.lists(st.lists(st.sampled_from(["01", "02", "03"]), unique=True), max_size=4))
def test_as_many_gpus_as_addresses(sources: list[list[str]]) -> None:
    reports = [
        [GpuReport(("x",), "amd", (f"tool {i}",), bus=f"0000:{bus}:00.0") for bus in buses]
        for i, buses in enumerate(sources)
    ]
    merged = merge_reports(reports)
    assert {report.bus for report in merged} == {f"0000:{bus}:00.0" for buses in sources for bus in buses}
    assert len(merged) == len({bus for buses in sources for bus in buses})


# Memory


@pytest.mark.parametrize(
    ("locators", "channels"),
    [
        ([("P0 CHANNEL A", "DIMM 0"), ("P0 CHANNEL B", "DIMM 0")], 2),
        ([("P0 CHANNEL A", "DIMM 0"), ("P0 CHANNEL A", "DIMM 1")], 1),
        ([("BANK 0", "Controller0-ChannelA-DIMM0"), ("BANK 0", "Controller1-ChannelA-DIMM0")], 2),
        ([("BANK 0", "ChannelA-DIMM0"), ("BANK 2", "ChannelB-DIMM0")], 2),
        ([("NODE 0", "DIMM_A1"), ("NODE 0", "DIMM_A2"), ("NODE 0", "DIMM_B1"), ("NODE 0", "DIMM_B2")], 2),
        ([("", "CPU1_DIMM_A1"), ("", "CPU2_DIMM_A1")], 2),
        ([("BANK 0", "DIMM 0"), ("BANK 1", "DIMM 1")], None),
    ],
)
def test_channels_by_what_boards_call_the_slots(locators: list[tuple[str, str]], channels: int | None) -> None:
    modules = [memory_module(16 * GIB, "DDR5", 5600, 64, pair) for pair in locators]
    assert memory_report(None, tuple(m for m in modules if m), None).channels == channels


def test_unnamed_slots_are_channels_up_to_those_of_the_cpu() -> None:
    modules = tuple(MemoryModule(16 * GIB, "DDR4", 3200e6, 64) for _ in range(4))
    assert memory_report(None, modules[:2], 2).channels == 2
    assert memory_report(None, modules, 2).channels is None
    assert memory_report(None, modules, 4).bandwidth_bytes_per_s == 4 * 8 * 3200e6


def test_no_more_channels_than_the_cpu_has() -> None:
    modules = tuple(MemoryModule(16 * GIB, "DDR4", 3200e6, 64, name) for name in "ABCD")
    assert memory_report(None, modules, 2).channels == 2


def test_the_slowest_module_sets_the_rate() -> None:
    modules = (MemoryModule(GIB, "DDR4", 3200e6, 64, "A"), MemoryModule(GIB, "DDR4", 2400e6, 64, "B"))
    assert memory_report(None, modules, None).transfers_per_s == 2400e6
    unknown = (*modules, MemoryModule(GIB, "DDR4", None, 64, "C"))
    assert memory_report(None, unknown, None).bandwidth_bytes_per_s is None


@pytest.mark.parametrize("name", ["desktop-rtx4090", "desktop-intel-igpu"])
def test_dmidecode_and_udev_agree(name: str) -> None:
    """The two print one table of the firmware."""
    modules = linux.parse_udevadm(recorded(name).outputs["udevadm …"])
    blocks = "# dmidecode 3.5\n" + "".join(
        f"\nHandle 0x{i:04X}, DMI type 17, 92 bytes\nMemory Device\n\tData Width: {m.width_bits} bits\n"
        f"\tSize: {m.size_bytes / GIB:.0f} GB\n\tBank Locator: {(m.channel or '').replace('/', ' CHANNEL ').upper()}\n"
        f"\tLocator: DIMM 1\n\tType: {m.kind}\n\tSpeed: 4800 MT/s\n"
        f"\tConfigured Memory Speed: {(m.transfers_per_s or 0) / 1e6:.0f} MT/s\n"
        for i, m in enumerate(modules)
    )
    again = linux.parse_dmidecode(blocks)
    assert [(m.size_bytes, m.kind, m.transfers_per_s, m.width_bits) for m in again] == [
        (m.size_bytes, m.kind, m.transfers_per_s, m.width_bits) for m in modules
    ]


# Links


@pytest.mark.parametrize(
    ("generation", "lanes", "gb_per_s"), [(3, 16, 15.75), (4, 4, 7.88), (4, 16, 31.5), (5, 16, 63.0)]
)
def test_payload_of_links(generation: int, lanes: int, gb_per_s: float) -> None:
    assert PcieLink(generation, lanes).bandwidth_bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=2e-3)


@pytest.mark.parametrize(("generation", "lanes"), [(None, 16), (4, None), (9, 16), (4, 0), (4, 63)])
def test_half_known_links_are_unknown(generation: int | None, lanes: int | None) -> None:
    assert pcie_link(generation, lanes) is None


def test_links_of_the_catalog_are_named_and_counted_alike() -> None:
    links = {
        link.name: link for device in list_devices() if (link := device.host_link) and link.name.startswith("PCIe")
    }
    assert links
    for name, link in links.items():
        generation, lanes = name.removeprefix("PCIe ").split(".0 x")
        ours = PcieLink(int(generation), int(lanes))
        assert ours.name == name
        assert ours.bandwidth_bytes_per_s == pytest.approx(link.bandwidth_bytes_per_s, rel=0.01)


# Readers never fail in another way than they promise

PARSERS: list[Callable[[str], object]] = [
    gpu_tools.parse_nvidia_smi,
    gpu_tools.parse_amd_smi,
    gpu_tools.parse_rocm_smi,
    gpu_tools.parse_rocminfo,
    gpu_tools.parse_xpu_smi,
    gpu_tools.xpu_smi_devices,
    generic_tools.parse_vulkaninfo,
    generic_tools.parse_clinfo,
    generic_tools.parse_lspci,
    linux.parse_cpuinfo,
    linux.parse_lscpu,
    linux.parse_meminfo,
    linux.parse_udevadm,
    linux.parse_dmidecode,
    linux.parse_lshw,
    linux.arm_core,
    macos.parse_displays,
    macos.parse_hardware,
    macos.parse_sysctl,
    windows.parse_cim,
    lambda text: windows.parse_wmic({"gpu": text, "cpu": text, "memory": text, "system": text}),
    lambda text: generic_tools.parse_drm(text, text, text),
    lambda text: generic_tools.parse_device_tree(text, text),
]
KEYS = st.sampled_from(
    ["gpu_data", "asic", "vram", "size", "bus", "card0", "Card Series", "device_list", "device_name", "lscpu", "field",
     "data", "children", "SPDisplaysDataType", "SPHardwareDataType", "sppci_model", "sppci_cores", "gpu", "cpu",
     "memory", "system", "vram", "Name", "AdapterRAM", "Capacity", "id", "value", "unit", "bdf", "device_id",
     "BankLabel"]
)  # fmt: skip
LEAVES = (  # of JSON
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.just("1e999")
    | st.just("9" * 30)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def only_odd_output(text: str) -> None:
    for parse in PARSERS:
        try:
            parse(text)
        except OddOutputError as odd:
            assert str(odd) and "\n" not in str(odd)


@given(VALUES)
def test_json_of_any_shape_is_read_or_odd(value: object) -> None:
    only_odd_output(json.dumps(value))


@given(st.text(alphabet=st.sampled_from("aA0 9:=,\"'[]{}()\n\t\r/.-#GPUxMB\x00é"), max_size=200) | st.text(max_size=80))
def test_text_of_any_kind_is_read_or_odd(text: str) -> None:
    only_odd_output(text)


@given(st.sampled_from(MACHINES), st.data())
def test_outputs_cut_off_anywhere_are_read_or_odd(name: str, data: st.DataObject) -> None:
    texts = sorted(recorded(name).outputs.values())
    if texts:
        text = data.draw(st.sampled_from(texts))[:4000]
        only_odd_output(text[: data.draw(st.integers(0, len(text)))])


def test_absurdly_nested_json_is_odd() -> None:
    with pytest.raises(OddOutputError, match="no readable JSON"):
        gpu_tools.parse_amd_smi("[" * 100_000)


def test_wmic_values_with_commas_are_left_out() -> None:
    facts = windows.parse_wmic({"gpu": "Node,AdapterRAM,Name,PNPDeviceID\nPC,1,NVIDIA GeForce, special,PCI\n"})
    assert facts.gpus == ()


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        ("24 GB", 24 * GIB), ("16384 MB", 16 * GIB), ("1536 MB", 1536 * MIB), ("25753026560", 25753026560),
        ({"value": 196592, "unit": "MB"}, 196592 * MIB), (8589934592, 8 * GIB), ("No Module Installed", None),
        ("[N/A]", None), (None, None), (0, None), (True, None), (-5, None), ("64 MiB (2 instances)", 64 * MIB),
    ],
)  # fmt: skip
def test_sizes(value: object, bytes_: float | None) -> None:
    assert size(value) == bytes_


@pytest.mark.parametrize(
    ("value", "expected"), [("450.00", 450.0), ("16 GT/s", 16.0), ("[N/A]", None), ("-", None), (0, None)]
)
def test_numbers(value: object, expected: float | None) -> None:
    assert number(value) == expected
    assert whole(value) == (None if expected is None else int(expected))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"), ("0000:C1:00.0", "0000:c1:00.0"), ("03:00.0", "0000:03:00.0"),
        ("PCI-E, 0000:03:00.0", "0000:03:00.0"), ("0000000F:01:00.0", "000f:01:00.0"), ("nowhere", None), (None, None),
    ],
)  # fmt: skip
def test_bus_addresses(text: str | None, address: str | None) -> None:
    assert bus_address(text) == address


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("NVIDIA Corporation", "nvidia"), ("Advanced Micro Devices, Inc. [AMD/ATI]", "amd"), ("0x1002", "amd"),
        ("Intel Corporation", "intel"), ("0x8086", "intel"), ("sppci_vendor_Apple", ""), ("Apple M1", "apple"),
        ("ASPEED Technology, Inc.", ""), ("Matrox Electronics Systems Ltd.", ""), ("Red Hat, Inc.", ""),
    ],
)  # fmt: skip
def test_makers(text: str, vendor: str) -> None:
    assert vendor_of(text) == vendor


# Asking


class CountingRunner(RecordedRunner):
    """Also keeps the time limits."""

    def __init__(self, name: str) -> None:
        base = recorded(name)
        self.__dict__.update(base.__dict__)
        self.limits: list[float] = []

    def run(self, command: Sequence[str], timeout_s: float) -> Output | None:
        self.limits.append(timeout_s)
        return super().run(command, timeout_s)


@pytest.mark.parametrize("name", ["desktop-rtx4090", "mac-m2-ultra-60", "windows-laptop-rtx4070"])
def test_every_tool_has_a_time_limit(name: str) -> None:
    runner = CountingRunner(name)
    detect_machine(runner)
    assert runner.limits and all(0 < limit <= 3 * TIMEOUT_S for limit in runner.limits)


def test_slow_tools_are_not_asked_where_the_makers_tool_said_all() -> None:
    runner = recorded("server-4x-rtx3090")
    detect_machine(runner)
    assert not any(command.startswith(("vulkaninfo", "clinfo")) for command in runner.asked)


def test_a_local_tool_that_is_absent_hangs_or_fails() -> None:
    runner = LocalRunner()
    assert runner.run(["no-such-tool-anywhere"], 1.0) is None
    slow = runner.run([sys.executable, "-c", "import time; time.sleep(30)"], 0.2)
    assert slow is not None and slow.failure == "did not answer within 0.2 s"
    failed = runner.run([sys.executable, "-c", "import sys; print('half'); sys.exit('no driver')"], 30.0)
    assert failed == Output("half\n", "failed with status 1: no driver")
    fine = runner.run([sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff ok')"], 30.0)
    assert fine is not None and fine.failure is None and fine.text == "\ufffd ok"


def test_files_that_cannot_be_read_are_none(tmp_path: Any) -> None:
    assert LocalRunner().read(str(tmp_path)) is None
    assert LocalRunner().read(str(tmp_path / "absent")) is None
    assert LocalRunner().read("/proc/\0") is None


# The command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(name: str, *options: str) -> str:
        monkeypatch.setattr("llmcalc.detection.machine.detect_machine", lambda: found(name))
        assert run(["detect", *options]) == 0
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_fits_a_terminal_and_json_is_json(name: str, command: Callable[..., str]) -> None:
    page = command(name)
    machine = found(name)
    data = json.loads(command(name, "--json"))
    assert data["schema"] == "llmcalc.detect/1"
    assert data["problems"] == list(machine.problems)
    assert [gpu["id"] for gpu in data["gpus"]] == FOUND[name][0]
    for gpu in machine.gpus:
        assert gpu.name in page and (gpu.device is None or gpu.device.id in page)
    words = " ".join(page.split())
    assert all(" ".join(text.split()) in words for text in machine.problems)


def test_the_page_of_a_known_machine(command: Callable[..., str]) -> None:
    page = command("desktop-rx7900xtx")
    assert "Radeon RX 7900 XTX, 23.98 GiB" in page and "→ radeon-rx-7900-xtx" in page
    assert "31.26 GiB, DDR4, 1 channel, 3,600 MT/s, 28.8 GB/s" in page
    assert "`--gpu auto` estimates with" in page


def test_a_machine_without_an_entry_says_that_auto_finds_nothing(command: Callable[..., str]) -> None:
    assert "`--gpu auto` finds nothing to estimate with" in command("vm-nothing")
    assert json.loads(command("vm-nothing", "--json"))["auto"] is None
