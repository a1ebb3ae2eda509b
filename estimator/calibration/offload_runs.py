"""Measured runs of models that are spread over host memory and devices → what their times are predicted from.

What a run does not say about its host is looked up in hardware/measurements/hosts.csv, by the words that it uses for
it; a run whose placement nobody stated cannot be predicted. Imports `measurements`.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

import numpy as np

from ..architecture import Model, MoeFfn
from ..device_catalog import find_device
from ..efficiency import Efficiency
from ..errors import InputError
from ..fit_placements import Task
from ..llama_cpp_fit import llama_cpp_fit
from ..offload_timing import Machine, PlacedTime, decode_placed, missing_share, prefill_placed
from ..offload_timing import Run as Placed
from ..placement import HOST, Placement, Rule, expert_rule, on_host, place, with_rules
from ..quantization import Weights
from ..system import Device, Host, Link, System
from ..units import GIB
from ..workload import Workload
from .measurements import (
    DEFAULT_UBATCH,
    TYPICAL_GENERATED,
    Case,
    UnpredictableError,
    case_of,
    mixture_of,
    mixture_weights,
)
from .runs import Run

FIT_ERA: Final = "2026H1"
TYPICAL_CONTEXT: Final = 4096  # of a run that does not say what it reserved
DRIVER_BYTES: Final = 0.4 * GIB  # memory of a GPU that its driver keeps
OFFLOAD_CLASSES: Final = frozenset({"offload", "multi-device"})
# The runs over RPC are of two Framework Desktops, which have 5 Gbit/s Ethernet; their builds wait for every graph.
RPC_NETWORK: Final = Link("5 Gbit/s network", 0.625e9)
ASYNC_RPC_ERA: Final = "2026H2"
_ENGINES: Final = ("llama.cpp", "llama-server")
_RULES: Final = re.compile(r"\bot=\"?([^;\"]+)")
_NO_OP_OFFLOAD: Final = re.compile(r"\bnopo 1")
_THREADS: Final = re.compile(r"; (\d+) threads$")
_HYBRID_LAYERS: Final = re.compile(r"ffn of layers (\d+)-(\d+) on CPU")


class KnownHost(NamedTuple):
    """A host as runs describe it."""

    pattern: str
    cpu: Device
    memory_bytes: float | None


@dataclass(frozen=True)
class PlacedCase:
    """A run with everything resolved: what to time, and the measured seconds (of a decode step or of the prompt)."""

    run: Run
    case: Case
    placed: Placed

    @property
    def seconds(self) -> float:
        """Measured."""
        return self.case.seconds

    def predicted(self, efficiency: Efficiency | None = None) -> PlacedTime:
        """The run's phase time."""
        run = self.run
        if run.phase == "prefill":
            ubatch = float(min(run.n_ubatch or DEFAULT_UBATCH, run.n_prompt))
            return prefill_placed(
                self.placed, np.array([float(run.n_prompt)]), np.array([float(run.n_depth)]), ubatch, efficiency
            )
        occupied = np.array([run.n_depth + (run.n_gen or TYPICAL_GENERATED) / 2 + 1.0])
        return decode_placed(self.placed, occupied, np.array([float(run.n_parallel)]), efficiency)


def placed_case(run: Run, assume_host: bool = False, assume_fit: bool = False) -> PlacedCase:
    """`run`, resolved. Raises UnpredictableError with the reason in a few words.

    `assume_host`: take an ordinary host where none is stated, which is good enough to order settings. `assume_fit`:
    where no placement is stated, take the one that llama.cpp's --fit would choose.
    """
    _check(run)
    devices = run.device_count or 1
    alone = replace(
        run,
        class_="clean-single",
        n_cpu_moe=None,
        ngl=None,
        device_count=1,
        type_k=_first(run.type_k),
        type_v=_first(run.type_v),
    )
    try:
        case = case_of(alone)
    except InputError as reason:
        raise UnpredictableError(str(reason)) from None
    file, scale = _weights(run, case.model)
    host = known_host(run.device_detail or "")
    memory = host.memory_bytes if host else None
    system = System((case.device,) * devices, Host(host.cpu if host else None, memory))
    if _over_network(run):
        system = replace(system, remote=devices - 1, network=RPC_NETWORK)
    try:
        placement = _placement(run, case, file, devices)
    except _NoPlacementError:
        if not assume_fit or host is None:
            raise UnpredictableError("placement not stated") from None
        placement = _fitted(run, case, file, system)
    conditions = replace(case.conditions, threads=None)
    machine = Machine(system, case.conditions.backend, conditions, threads=run.threads or _stated_threads(run))
    on_host_too = HOST in placement.slots or any(device == HOST for _, device in placement.moved)
    if on_host_too and host is None and not assume_host:
        raise UnpredictableError("host not stated")
    placed = Placed(case.model, file, placement, machine, scale)
    if missing_share(placed):
        raise UnpredictableError("read from a disk that is not stated")
    return PlacedCase(run, case, placed)


def _stated_threads(run: Run) -> int | None:
    stated = _THREADS.search(run.notes or "")
    return int(stated[1]) if stated else None


def _first(cache_type: str | None) -> str | None:
    """Some sources write "q8_0/q8_0" into one column."""
    return cache_type.split("/")[0] if cache_type else cache_type


def _check(run: Run) -> None:
    if run.class_ not in OFFLOAD_CLASSES:
        raise UnpredictableError("neither offload nor several devices")
    if run.engine.lower() not in _ENGINES:
        raise UnpredictableError("other engine")
    if run.phase not in ("prefill", "decode"):
        raise UnpredictableError("prompt and generation in one rate")
    if not run.hardware_id or (run.class_ == "offload" and not run.model_id):
        raise UnpredictableError("device not named" if not run.hardware_id else "model not named")
    if run.class_ == "multi-device" and (run.device_count or 1) < 2:
        raise UnpredictableError("number of devices not stated")


def _weights(run: Run, model: Model) -> tuple[Weights, float]:
    """The weights by rule, and the true size over theirs."""
    try:
        made = mixture_weights(model, *mixture_of(run, model))
    except InputError:
        raise UnpredictableError("quantisation that llama-quantize refuses") from None
    return made, 1.0 if run.weights_bytes is None else run.weights_bytes / made.bytes


def _placement(run: Run, case: Case, file: Weights, devices: int) -> Placement:
    model = case.model
    if run.class_ == "multi-device":
        return with_rules(model, _several(run, model, devices), _rules(run, model))
    slots = len(model.layers) + len(model.draft_layers) + 1
    rules = _rules(run, model)
    if run.ngl is None and not rules:
        raise _NoPlacementError
    placement = place(model, None if run.ngl is None else min(run.ngl, slots)) if run.ngl != 0 else on_host(model)
    placement = with_rules(model, placement, rules)
    if not rules and HOST not in placement.slots:
        raise _NoPlacementError
    return replace(placement, op_offload=not _NO_OP_OFFLOAD.search(run.notes or ""))


class _NoPlacementError(Exception):
    """The run does not say what is on the host."""


def _fitted(run: Run, case: Case, file: Weights, system: System) -> Placement:
    """What --fit, which is on by default since the end of 2025, would do in the memory that the driver leaves."""
    if (run.era or "") < FIT_ERA:
        raise UnpredictableError("placement not stated")
    device = system.devices[0]
    free = replace(device, memory_bytes=max((device.memory_bytes or 0) - DRIVER_BYTES, 0))
    context = max(TYPICAL_CONTEXT, run.n_depth + run.n_prompt + run.n_gen + 1)
    task = Task(case.model, file, Workload(context=context), replace(system, devices=(free,)), case.conditions.backend)
    return llama_cpp_fit(task).plan.placement


def _several(run: Run, model: Model, devices: int) -> Placement:
    equal = (1.0,) * devices
    if run.split_mode == "tensor":
        return replace(place(model), split=tuple(1 / devices for _ in range(devices)))
    if run.split_mode == "row":
        raise UnpredictableError("row split")
    return replace(place(model, split=equal), pipelining=not _over_network(run) or (run.era or "") >= ASYNC_RPC_ERA)


def _over_network(run: Run) -> bool:
    return "over RPC" in (run.device_detail or "")


def _rules(run: Run, model: Model) -> list[Rule]:
    stated = _RULES.search(run.notes or "")
    hybrid = _HYBRID_LAYERS.search(run.device_detail or "")
    if stated:
        return [_rule(part) for part in stated[1].split(",")]
    if hybrid:
        layers = "|".join(map(str, range(int(hybrid[1]), int(hybrid[2]) + 1)))
        return [(rf"blk\.({layers})\.ffn_.*_exps", HOST)]
    if not run.n_cpu_moe:
        return []
    if not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        raise UnpredictableError("experts of a dense model")
    return [expert_rule(min(run.n_cpu_moe, model.n_layers))]


def _rule(text: str) -> Rule:
    pattern, _, where = text.strip().strip('"').rpartition("=")
    if where.upper() != "CPU":
        raise UnpredictableError("override to another device")
    return pattern, HOST


@lru_cache(maxsize=1)
def _known_hosts() -> tuple[KnownHost, ...]:
    table = files("llmcalc.hardware").joinpath("measurements/hosts.csv").read_text(encoding="utf-8")
    hosts = []
    for row in csv.DictReader(table.splitlines()):
        cpu = _fewer_cores(find_device(row["cpu"]), int(row["cores"]), float(row["bandwidth_gb_per_s"]) * 1e9)
        memory = float(row["memory_gib"]) * GIB if row["memory_gib"] else None
        hosts.append(KnownHost(row["pattern"], cpu, memory))
    return tuple(hosts)


def _fewer_cores(cpu: Device, cores: int, bandwidth: float) -> Device:
    share = cores / (cpu.cores or cores)
    peaks = {name: peak * share for name, peak in cpu.peaks_flop_per_s.items()}
    base = {name: peak * share for name, peak in cpu.base_clock_peaks_flop_per_s.items()}
    return replace(
        cpu, cores=cores, bandwidth_bytes_per_s=bandwidth, peaks_flop_per_s=peaks, base_clock_peaks_flop_per_s=base
    )


def known_host(description: str) -> KnownHost | None:
    """The host that a run's description names."""
    return next((host for host in _known_hosts() if host.pattern in description), None)
