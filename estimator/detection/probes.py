"""Asking a machine: which tool, in which order, and what is kept of its answer. Facts and problems, no catalog.

A tool that is not installed is normal; one that fails or prints something odd is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from . import generic_tools as generic
from . import gpu_tools as gpu
from . import linux, macos, windows
from .facts import CpuReport, GpuReport, MemoryModule
from .merge import merge_cpus, merge_reports
from .reading import OddOutputError
from .runner import Runner

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
_SLOW_TIMEOUT_S: Final = 30.0  # PowerShell and system_profiler start slowly on a cold disk

_DMI: Final = "/sys/class/dmi/id"
_DEVICE_TREE: Final = "/proc/device-tree"
_LAPTOP_CHASSIS: Final = frozenset(
    {"8", "9", "10", "14", "31", "32"}
)  # SMBIOS 7.4.1: portable, notebook, convertible …
_MEMORY_LIMIT: Final = "/sys/fs/cgroup/memory.max"
_BUS_SOURCES: Final = frozenset({"lspci", "/sys/class/drm"})


@dataclass(frozen=True)
class Findings:
    """What the tools of a machine say, merged."""

    os: str
    board: str | None = None
    laptop: bool = False
    gpus: tuple[GpuReport, ...] = ()
    cpu: CpuReport = field(default_factory=CpuReport)
    memory_bytes: float | None = None
    available_bytes: float | None = None
    modules: tuple[MemoryModule, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class Inquiry:
    """A machine being asked, and the problems met so far."""

    runner: Runner
    problems: list[str] = field(default_factory=list)

    def ask(self, command: Sequence[str], parse: Callable[[str], T], timeout_s: float = TIMEOUT_S) -> T | None:
        """What `parse` makes of the output of `command`; None where the tool is absent or gives nothing usable."""
        output = self.runner.run(command, timeout_s)
        if output is None:
            return None
        if output.failure is not None:
            self.problems.append(f"{command[0]} {output.failure}")
            return None
        return self.understand(command[0], parse, output.text)

    def understand(self, source: str, parse: Callable[[str], T], text: str) -> T | None:
        """What `parse` makes of `text`; None, and a problem, where it is not as the format says."""
        try:
            return parse(text)
        except OddOutputError as odd:
            self.problems.append(f"{source} {odd}")
            return None


def probe(runner: Runner) -> Findings:
    """Everything that the tools of this machine tell. Raises nothing for tools that are absent, fail or print oddly."""
    return {"Darwin": _probe_mac, "Windows": _probe_windows}.get(runner.system, _probe_linux)(Inquiry(runner))


def _probe_linux(inquiry: Inquiry) -> Findings:
    runner = inquiry.runner
    compatible = (runner.read(f"{_DEVICE_TREE}/compatible") or "").split("\x00")
    board = _board(runner)
    cpu = _linux_cpu(inquiry, board, compatible)
    meminfo = runner.read(linux.MEMINFO)
    return Findings(
        os=runner.description,
        board=board,
        laptop=(runner.read(f"{_DMI}/chassis_type") or "").strip() in _LAPTOP_CHASSIS,
        gpus=_linux_gpus(inquiry, board, compatible),
        cpu=cpu,
        memory_bytes=_linux_memory(inquiry, meminfo),
        available_bytes=linux.available_bytes(meminfo or ""),
        modules=_linux_modules(inquiry, cpu),
        problems=tuple(inquiry.problems),
    )


def _board(runner: Runner) -> str | None:
    """What the device tree or the firmware calls the machine."""
    model = (runner.read(f"{_DEVICE_TREE}/model") or "").strip("\x00 \n")
    named = [(runner.read(f"{_DMI}/{key}") or "").strip() for key in ("sys_vendor", "product_name")]
    return model[:200] or " ".join(filter(None, named))[:200] or None


def _linux_gpus(inquiry: Inquiry, board: str | None, compatible: Sequence[str]) -> tuple[GpuReport, ...]:
    jetson = generic.parse_device_tree(board or "", " ".join(compatible))
    bus = [inquiry.ask(generic.LSPCI, generic.parse_lspci) or (), _drm(inquiry.runner)]
    makers = [
        (jetson,) if jetson else (),
        inquiry.ask(gpu.NVIDIA_SMI, gpu.parse_nvidia_smi) or (),
        inquiry.ask(gpu.AMD_SMI, gpu.parse_amd_smi) or (),
        inquiry.ask(gpu.ROCM_SMI, gpu.parse_rocm_smi) or (),
        inquiry.ask(gpu.ROCMINFO, gpu.parse_rocminfo) or (),
        *_intel_gpus(inquiry),
    ]
    # These start every driver, which takes seconds: only for GPUs of which their maker's tool says too little.
    seen = merge_reports([*makers, *bus])
    known = seen and all(each.memory_bytes and not _BUS_SOURCES.issuperset(each.sources) for each in seen)
    general = [] if known else _general_tools(inquiry)
    return merge_reports([*makers, *general, *bus])


def _general_tools(inquiry: Inquiry) -> list[tuple[GpuReport, ...]]:
    return [
        inquiry.ask(generic.VULKANINFO, generic.parse_vulkaninfo) or (),
        inquiry.ask(generic.CLINFO, generic.parse_clinfo) or (),
    ]


def _intel_gpus(inquiry: Inquiry) -> list[tuple[GpuReport, ...]]:
    """xpu-smi lists GPUs, and tells the memory of each only when asked about it."""
    listed = inquiry.ask(gpu.XPU_SMI, lambda text: (gpu.parse_xpu_smi(text), gpu.xpu_smi_devices(text)))
    if listed is None:
        return []
    details = [inquiry.ask((*gpu.XPU_SMI, "-d", str(id)), gpu.parse_xpu_smi) or () for id in listed[1]]
    return [listed[0], tuple(report for reports in details for report in reports)]


def _drm(runner: Runner) -> tuple[GpuReport, ...]:
    cards = []
    for path in runner.glob(generic.DRM_PATTERN):
        folder = path.rsplit("/", 1)[0]
        sizes = [runner.read(f"{folder}/mem_info_{kind}_total") for kind in ("vram", "gtt")]
        cards.append(generic.parse_drm(runner.read(path) or "", *sizes))
    return tuple(card for card in cards if card)


def _linux_cpu(inquiry: Inquiry, board: str | None, compatible: Sequence[str]) -> CpuReport:
    text = inquiry.runner.read(linux.CPUINFO)
    report = inquiry.understand(linux.CPUINFO, linux.parse_cpuinfo, text) if text else None
    if text is None:
        inquiry.problems.append(f"{linux.CPUINFO} cannot be read")
    merged = merge_cpus(report or CpuReport(), inquiry.ask(linux.LSCPU, linux.parse_lscpu) or CpuReport())
    if merged.family is not None:
        return merged
    return merge_cpus(CpuReport(_arm_names(text or "", board, compatible)), merged)


def _arm_names(cpuinfo: str, board: str | None, compatible: Sequence[str]) -> tuple[str, ...]:
    """What may name an ARM chip: Amazon's by its core, boards by their device tree."""
    graviton = {"Neoverse-N1": "Graviton2", "Neoverse-V1": "Graviton3", "Neoverse-V2": "Graviton4"}
    core = linux.arm_core(cpuinfo)
    amazon = graviton.get(core or "") if (board or "").startswith("Amazon EC2") else None
    hardware = re.search(r"(?m)^Hardware\s*:\s*(.+?)\s*$", cpuinfo)
    chips = [text.partition(",")[2] for text in compatible if "," in text]
    tree = [board, *chips] if chips and board else []
    return tuple(dict.fromkeys(filter(None, [amazon, *tree, hardware[1] if hardware else None])))


def _linux_memory(inquiry: Inquiry, meminfo: str | None) -> float | None:
    """MemTotal, or what the container may use of it."""
    total = inquiry.understand(linux.MEMINFO, linux.parse_meminfo, meminfo) if meminfo else None
    limit = (inquiry.runner.read(_MEMORY_LIMIT) or "").strip()
    if total is None or not re.fullmatch(r"\d{1,18}", limit) or not 0 < int(limit) < total:
        return total
    inquiry.problems.append(f"this container may use {int(limit) / 2**30:.1f} GiB of the machine's {total / 2**30:.1f}")
    return float(limit)


def _linux_modules(inquiry: Inquiry, cpu: CpuReport) -> tuple[MemoryModule, ...]:
    """From udev, which anybody may read, else from tools that want root."""
    for command, parse in (
        (linux.UDEVADM, linux.parse_udevadm),
        (linux.DMIDECODE, linux.parse_dmidecode),
        (linux.LSHW, linux.parse_lshw),
    ):
        output = inquiry.runner.run(command, TIMEOUT_S)
        # Without rights these fail, or print less: what is missing is said once, below.
        modules = inquiry.understand(command[0], parse, output.text) if output and not output.failure else None
        if modules:
            return modules
    inquiry.problems.append(_no_modules(cpu))
    return ()


def _no_modules(cpu: CpuReport) -> str:
    if cpu.hypervisor:
        return "memory channels and speed are unknown: the virtual machine does not show them"
    if cpu.family is None:
        return "memory channels and speed are unknown: this board has no table of memory modules"
    return "memory channels and speed are unknown: `sudo dmidecode -t memory` shows them, so does this command as root"


def _probe_mac(inquiry: Inquiry) -> Findings:
    both = inquiry.ask(
        macos.SYSTEM_PROFILER,
        lambda text: (macos.parse_displays(text), macos.parse_hardware(text)),
        _SLOW_TIMEOUT_S,
    )
    if both is None:
        inquiry.problems.append("GPU and memory of this Mac are unknown: system_profiler gave nothing")
    gpus, (profiled, physical) = both or ((), (CpuReport(), None))
    # It ends with an error where one name is not known, after printing the others.
    output = inquiry.runner.run(macos.SYSCTL, TIMEOUT_S)
    asked = inquiry.understand("sysctl", macos.parse_sysctl, output.text) if output and output.text.strip() else None
    kernel, memory_bytes = asked or (CpuReport(), None)
    cpu = merge_cpus(kernel, profiled)
    if not gpus and any(name.startswith("Apple") for name in cpu.names):
        gpus = (GpuReport(cpu.names, "apple", ("sysctl",), integrated=True),)
    return Findings(
        inquiry.runner.description, None, False, gpus, cpu, memory_bytes or physical, problems=tuple(inquiry.problems)
    )


def _probe_windows(inquiry: Inquiry) -> Findings:
    facts = inquiry.ask(windows.POWERSHELL, windows.parse_cim, _SLOW_TIMEOUT_S) or _ask_wmic(inquiry)
    nvidia = inquiry.ask(gpu.NVIDIA_SMI, gpu.parse_nvidia_smi) or ()
    intel = _intel_gpus(inquiry)
    listed = facts.gpus if facts else ()
    gpus = merge_reports([nvidia, *intel, listed])
    if any(each.memory_bytes is None for each in gpus) or not gpus:
        gpus = merge_reports([nvidia, *intel, listed, *_general_tools(inquiry)])
    if facts is None:
        inquiry.problems.append("CPU and memory are unknown: neither PowerShell nor wmic gave anything")
        return Findings(inquiry.runner.description, gpus=gpus, problems=tuple(inquiry.problems))
    if not facts.modules:
        inquiry.problems.append("memory channels and speed are unknown: Windows lists no memory modules")
    return Findings(
        os=inquiry.runner.description,
        laptop=facts.laptop,
        gpus=gpus,
        cpu=facts.cpu,
        memory_bytes=facts.total_bytes,
        modules=facts.modules,
        problems=tuple(inquiry.problems),
    )


def _ask_wmic(inquiry: Inquiry) -> windows.WindowsFacts | None:
    texts: dict[str, str] = {}
    for key, command in windows.WMIC.items():
        text = inquiry.ask(command, str)
        if text is not None:
            texts[key] = text
    return windows.parse_wmic(texts) if texts else None
