"""Why is it slow? Likely causes, ranked by how well each explains what was measured, with the command that would tell.

Each cause leaves its own mark: a power limit slows prefill and hardly decode, a missing memory channel the other way
round; a cache on the host shows at depth only; layers on the CPU slow everything. A cause's likelihood is how common it
is times how much of its mark is there; facts that the run states count more than marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from ..build_eras import NEWEST_ERA
from ..system import Device
from ..units import GIB
from .achieved import Achieved
from .measurements import Case
from .runs import Run

NORMAL: Final = 0.85  # of the estimate: what is above it needs no explanation
VERY_SLOW: Final = 0.5
DEEP: Final = 4096
SHALLOW: Final = 1024
LEAST: Final = 0.04  # likelihood below which a cause is not worth a line
UNKNOWN: Final = 0.5  # how far a mark is there that nobody measured


@dataclass(frozen=True)
class Symptoms:
    """Medians of measured over estimated rates of one machine, and what its runs state. None: not measured."""

    decode: float | None = None
    prefill: float | None = None
    deep: float | None = None  # decode at depth over decode without, each as a share of its estimate
    outside: bool = False  # below the 80 % range of the estimate
    noise: float = 0.0
    falling: bool = False
    cases: tuple[Case, ...] = field(default=(), repr=False)

    @property
    def slow(self) -> bool:
        """Whether there is anything to explain."""
        shares = [share for share in (self.decode, self.prefill, self.deep) if share is not None]
        return self.outside and any(share < NORMAL for share in shares)


@dataclass(frozen=True)
class Cause:
    """A likely cause: 0–1, what speaks for it, and the command that would tell."""

    name: str
    likelihood: float
    evidence: tuple[str, ...]
    command: str


def symptoms_of(judged: Sequence[Achieved]) -> Symptoms:
    """What the runs of one machine show together."""
    single = [each for each in judged if each.case.run.n_parallel == 1]
    decode = [each for each in single if each.case.phase.phase == "decode"]
    shallow = _median([each for each in decode if each.case.run.n_depth <= SHALLOW])
    deep = _median([each for each in decode if each.case.run.n_depth >= DEEP])
    runs = [each.case.run for each in judged]
    return Symptoms(
        decode=shallow if shallow is not None else deep,
        prefill=_median([each for each in single if each.case.phase.phase == "prefill"]),
        deep=deep / shallow if deep is not None and shallow is not None else None,
        outside=any(each.tokens_per_s < each.estimate_interval_80[0] for each in judged),
        noise=max((run.t_s_std / run.t_s for run in runs if run.t_s_std is not None), default=0.0),
        falling=any(len(run.samples_t_s) >= 3 and run.samples_t_s[-1] < 0.93 * run.samples_t_s[0] for run in runs),
        cases=tuple(each.case for each in judged),
    )


def _median(judged: Sequence[Achieved]) -> float | None:
    return median(each.of_estimate for each in judged) if judged else None


def causes(symptoms: Symptoms, device: Device) -> tuple[Cause, ...]:
    """Causes of slowness, the likeliest first; none where nothing is slow."""
    if not symptoms.slow:
        return ()
    found = [cause for test in _TESTS if (cause := test(symptoms, device)) is not None and cause.likelihood >= LEAST]
    return tuple(sorted(found, key=lambda cause: -cause.likelihood))


def offload_cause(run: Run) -> Cause:
    """What is known of a run whose layers, experts or cache were partly on the host."""
    evidence = []
    if run.ngl is not None:
        evidence.append(f"the run says -ngl {run.ngl}")
    if run.n_cpu_moe:
        evidence.append(f"the run says --n-cpu-moe {run.n_cpu_moe}")
    return Cause(
        "layers or the cache were left to the CPU",
        0.95,
        tuple(evidence) or ("the run says that part of the model or of the cache was on the host",),
        "llama-bench -m FILE -ngl 99 -p 512 -n 64    (with a smaller file or context if it does not fit)",
    )


def _low(share: float | None) -> float:
    """How slow, 0 to 1."""
    return UNKNOWN if share is None else min(max((NORMAL - share) / (NORMAL - VERY_SLOW), 0.0), 1.0)


def _normal(share: float | None) -> float:
    return UNKNOWN if share is None else 1.0 - _low(share)


def _on_cpu(symptoms: Symptoms) -> bool:
    return symptoms.cases[0].conditions.backend == "CPU"


def _both(symptoms: Symptoms) -> tuple[str, ...]:
    shares = (("decode", symptoms.decode), ("prefill", symptoms.prefill))
    return tuple(f"{what} reaches {share:.0%} of the estimate" for what, share in shares if share is not None)


def _needed_bytes(case: Case) -> float:
    """Weights, or all bytes that a decode step reads where there is a cache to speak of."""
    weights = case.run.weights_bytes
    return weights if weights else float(case.phase.required_bytes)


def _spilled(symptoms: Symptoms, device: Device) -> Cause | None:
    if _on_cpu(symptoms):
        return None
    need, memory = max(map(_needed_bytes, symptoms.cases)), device.memory_bytes
    likelihood, evidence = 0.35 * _low(symptoms.decode) * _low(symptoms.prefill), list(_both(symptoms))
    if memory and need > 0.92 * memory:
        likelihood = 0.9
        evidence.insert(0, f"{need / GIB:.1f} GiB of weights on a device with {memory / GIB:.0f} GiB")
    elif memory and need < 0.5 * memory:
        likelihood *= 0.3
    tell = {"nvidia": "nvidia-smi", "amd": "rocm-smi --showmeminfo vram"}.get(device.vendor, "llama-cli -v")
    command = f"{tell}    (while it runs: is the memory full?), llama-bench -m FILE -ngl 99"
    return Cause("layers spilled to the CPU or to shared memory", likelihood, tuple(evidence), command)


def _swapped(symptoms: Symptoms, device: Device) -> Cause | None:
    need, memory = max(map(_needed_bytes, symptoms.cases)), device.memory_bytes
    crawling = symptoms.decode is not None and symptoms.decode < 0.15
    short = bool(memory) and need > 0.9 * (memory or 0.0) and (_on_cpu(symptoms) or device.unified_memory)
    if not (crawling or short):
        return None
    evidence = [*_both(symptoms)]
    if short and memory:
        evidence.insert(0, f"{need / GIB:.1f} GiB of weights in {memory / GIB:.0f} GiB of memory")
    tell = "vm_stat 1" if device.vendor == "apple" else "vmstat 1"
    return Cause(
        "the model does not stay in memory: swapped, or read from disk again and again",
        0.9 if short else 0.4,
        tuple(evidence),
        f"{tell}    (while it runs: si and bi should be near 0)",
    )


def _single_channel(symptoms: Symptoms, device: Device) -> Cause | None:
    if not (_on_cpu(symptoms) or device.device_class in ("igpu", "apu")) or device.vendor == "apple":
        return None
    likelihood = 0.6 * _low(symptoms.decode) * _normal(symptoms.prefill)
    half = symptoms.decode is not None and 0.35 <= symptoms.decode <= 0.65
    evidence = [*_both(symptoms)] + (["half of the bandwidth is what one of two channels gives"] if half else [])
    return Cause(
        "memory runs on one channel or at a low speed",
        likelihood * (1.3 if half else 1.0),
        tuple(evidence),
        "sudo llmcalc detect    (shows modules, channels and speed; so does: sudo dmidecode -t memory)",
    )


def _threads(symptoms: Symptoms, device: Device) -> Cause | None:
    if not _on_cpu(symptoms):
        return None
    used = {case.run.threads for case in symptoms.cases if case.run.threads}
    cores = device.cores
    likelihood, evidence = 0.25 * max(_low(symptoms.decode), _low(symptoms.prefill)), list(_both(symptoms))
    if used and cores and max(used) > cores:
        likelihood = 0.7
        evidence.insert(0, f"{max(used)} threads on {cores} cores: they wait for each other")
    elif used and cores and max(used) <= cores / 2:
        likelihood = 0.6
        evidence.insert(0, f"{max(used)} threads on {cores} cores: the rest is idle")
    elif used and cores:
        likelihood *= 0.5
    counts = f"{max(cores // 2, 1)},{cores}" if cores else "4,8,16"
    return Cause("the number of threads", likelihood, tuple(evidence), f"llama-bench -m FILE -t {counts} -p 512 -n 64")


def _cache_on_host(symptoms: Symptoms, device: Device) -> Cause | None:
    if _on_cpu(symptoms) or symptoms.deep is None:
        return None
    return Cause(
        "the KV cache is on the host",
        0.5 * _low(symptoms.deep) * _normal(symptoms.decode),
        (
            f"at depth, decode reaches {symptoms.deep:.0%} of what it should of its rate without depth",
            *_both(symptoms),
        ),
        f"llama-bench -m FILE -nkvo 0 -p 0 -n 32 -d 0,{DEEP},16384",
    )


def _no_flash_attention(symptoms: Symptoms, device: Device) -> Cause | None:
    off = [case for case in symptoms.cases if case.run.flash_attn == "0"]
    unsaid = [case for case in symptoms.cases if case.run.flash_attn is None]
    if not off and not unsaid:
        return None
    mark = max(_low(symptoms.deep) if symptoms.deep is not None else 0.0, 0.5 * _low(symptoms.prefill))
    evidence = ["the run says -fa 0" if off else "the run does not say whether it was on"]
    if symptoms.deep is not None:
        evidence.append(f"at depth, decode reaches {symptoms.deep:.0%} of what it should of its rate without depth")
    return Cause(
        "flash attention is off",
        (0.5 if off else 0.3) * mark,
        tuple(evidence),
        f"llama-bench -m FILE -fa 0,1 -p 512,4096 -n 32 -d 0,{DEEP}",
    )


def _power(symptoms: Symptoms, device: Device) -> Cause | None:
    if _on_cpu(symptoms) and not symptoms.falling:
        likelihood = 0.2 * _low(symptoms.prefill)
    else:
        likelihood = 0.5 * _low(symptoms.prefill) * (0.3 + 0.7 * _normal(symptoms.decode))
    likelihood *= 1.3 if device.device_class == "laptop" else 1.0
    evidence = list(_both(symptoms))
    if symptoms.falling:
        likelihood = min(likelihood + 0.25, 0.9)
        evidence.insert(0, "repetitions become slower one after the other")
    tell = {
        "nvidia": "nvidia-smi -q -d POWER,CLOCK,PERFORMANCE    (while it runs)",
        "amd": "rocm-smi --showpower --showclocks    (while it runs)",
        "apple": "sudo powermetrics --samplers gpu_power -i 1000    (and: pmset -g | grep lowpower)",
    }.get(device.vendor, "turbostat    (while it runs)")
    return Cause("a power or temperature limit holds clocks down", likelihood, tuple(evidence), tell)


def _build(symptoms: Symptoms, device: Device) -> Cause | None:
    likelihood, evidence = 0.25 * max(_low(symptoms.prefill), 0.6 * _low(symptoms.decode)), list(_both(symptoms))
    backend = symptoms.cases[0].conditions.backend
    usual = device.backends[:1]
    if usual and backend != usual[0]:
        likelihood = max(likelihood, 0.15) * 2
        evidence.insert(0, f"it ran on {backend}; {usual[0]} is the usual backend of {device.name}")
    eras = {case.run.era for case in symptoms.cases if case.run.era}
    if eras and int(max(eras)[:4]) < int(NEWEST_ERA[:4]):
        likelihood *= 1.4
        evidence.insert(0, f"the build is of {max(eras)[:4]}")
    if any(case.conditions.engine != "llama.cpp" for case in symptoms.cases):
        evidence.insert(0, f"measured through {symptoms.cases[0].conditions.engine}")
        likelihood *= 1.4
    return Cause(
        "the build: its backend, its age, or what it was compiled without",
        likelihood,
        tuple(evidence),
        "llama-bench --list-devices; llama-cli --version    (is the device listed, is the build recent?)",
    )


def _link(symptoms: Symptoms, device: Device) -> Cause | None:
    if _on_cpu(symptoms) or device.kind != "gpu" or device.unified_memory:
        return None
    tell = {
        "nvidia": "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv    (under load)",
        "amd": "rocm-smi --showbus; lspci -vv | grep LnkSta",
    }.get(device.vendor, "lspci -vv | grep LnkSta")
    return Cause(
        "a narrow PCIe link (×4, ×1, a riser, a dock)",
        0.15 * max(_low(symptoms.prefill), _low(symptoms.decode)),
        (*_both(symptoms), "with the whole model on one device little crosses the link, so it is rarely this alone"),
        tell,
    )


def _other_load(symptoms: Symptoms, device: Device) -> Cause | None:
    if symptoms.noise < 0.05:
        return None
    slow = max(_low(symptoms.decode), _low(symptoms.prefill))
    tell = {"nvidia": "nvidia-smi", "amd": "rocm-smi"}.get(device.vendor) if not _on_cpu(symptoms) else None
    return Cause(
        "something else was running",
        min(4 * symptoms.noise, 0.6) * slow,
        (f"repetitions vary by up to {symptoms.noise:.0%}",),
        f"{tell or 'top'}    (before it runs), llama-bench … -r 10",
    )


_TESTS: Final[tuple[Callable[[Symptoms, Device], Cause | None], ...]] = (
    _spilled,
    _swapped,
    _single_channel,
    _threads,
    _cache_on_host,
    _no_flash_attention,
    _power,
    _build,
    _link,
    _other_load,
)
