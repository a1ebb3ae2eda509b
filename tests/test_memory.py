"""Per-device plans against recorded runs of llama.cpp, and what they say about fitting."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from published_models import published

from llmcalc.errors import InputError
from llmcalc.memory import (
    DEVICE_RESERVE_BYTES,
    HOST_RESERVE_BYTES,
    MemoryPlan,
    default_placement,
    memory_plan,
    model_bytes,
    usable_memory,
)  # fmt: skip
from llmcalc.placement import HOST, on_host, place
from llmcalc.placement_settings import PlacementSettings, placement_of
from llmcalc.quantization import Weights, weights
from llmcalc.system import Device, Host, System
from llmcalc.units import GIB
from llmcalc.workload import Workload

DATA = Path(__file__).parent / "data" / "memory"


def gpu(memory_gib: float | None = 24, **more: object) -> Device:
    memory = None if memory_gib is None else memory_gib * GIB
    fields = {"vendor": "nvidia", "kind": "gpu", "device_class": "desktop", **more}
    return Device("gpu", "GPU", architecture="a", bandwidth_bytes_per_s=1e12, memory_bytes=memory, **fields)  # type: ignore[arg-type]


@cache
def made(name: str, file_type: str) -> Weights:
    return weights(published(name), file_type)


def test_model_bytes_of_every_recorded_file() -> None:
    with (DATA / "cpu.csv").open(encoding="utf-8") as file:
        recorded = {(r["model"], r["quant"].split(".")[-1], r["model_bytes"]) for r in csv.DictReader(file)}
    recorded = {row for row in recorded if row[2]}
    assert len(recorded) == 48
    for name, file_type, expected in recorded:
        model = published(name)
        assert model_bytes(model, made(name, file_type), on_host(model)) == {HOST: int(expected)}


FIELDS = ("context", "parallel", "k", "v", "fa", "ubatch", "unified", "swa_full", "gpu_layers", "outputs", "batch")
RUN = re.compile(r"(\S+) devices=(\S+) ([^|]+)\|(.*)")
PART = re.compile(r"(\S+) model=(\d+) context=(\d+) compute=(\d+);")


def recorded_runs() -> Iterator[tuple[str, str, dict[str, str], dict[str, tuple[int, ...]]]]:
    for line in (DATA / "recorded_no_alloc.txt").read_text(encoding="utf-8").splitlines():
        match = RUN.fullmatch(line)
        assert match is not None, line
        name, split, settings, parts = match.groups()
        bytes_by_part = {part[1]: tuple(map(int, part.groups()[1:])) for part in PART.finditer(parts)}
        yield name, split, dict(zip(FIELDS, settings.split(), strict=True)), bytes_by_part


def planned(name: str, split: str, settings: dict[str, str]) -> MemoryPlan:
    model = published(name)
    load = workload_of(settings)
    shares = [float(share) for share in split.split(",")]
    placement = on_host(model) if split == "0" else place(model, int(settings["gpu_layers"]), shares)
    return memory_plan(model, made(name, "F16"), load, placement=placement)


def workload_of(settings: dict[str, str]) -> Workload:
    return Workload(
        context=int(settings["context"]), parallel=int(settings["parallel"]), ubatch=int(settings["ubatch"]),
        batch=int(settings["batch"]), kv_type_k=settings["k"].upper(), kv_type_v=settings["v"].upper(),
        flash_attention=settings["fa"] == "1", kv_unified=settings["unified"] == "1",
        swa_full=settings["swa_full"] == "1", all_logits=settings["outputs"] == "0",
    )  # fmt: skip


@pytest.mark.slow
def test_recorded_runs_device_by_device() -> None:
    """Contexts, micro-batches, sequences, cache types, partial offload and splits that no other table has."""
    figures = 0
    for name, split, settings, expected in recorded_runs():
        plan = planned(name, split, settings)
        parts = {"CPU" if part.device == "Host" else f"GPU{part.device[-1]}": part for part in plan.devices}
        assert parts.keys() == expected.keys()
        for key, figure in expected.items():
            part = parts[key]
            assert (part.model_bytes, part.context_bytes, part.compute_bytes) == figure, (name, split, settings, key)
            figures += 1
    assert figures > 1300


OVERRIDE = re.compile(r"(\S+) devices=(\d) -ngl (\d+)(?: -ts (\S+))?(?: -ot (\S+))?( -nkvo)?(?: -sm none -mg (\d))?")


def overridden(command: str, settings: str) -> tuple[MemoryPlan, str]:
    match = OVERRIDE.fullmatch(command)
    assert match is not None, command
    name, count, ngl, split, rules, on_host_cache, main = match.groups()
    devices = tuple(gpu(None) for _ in range(int(count)))
    asked = PlacementSettings(
        ngl=int(ngl),
        tensor_split=tuple(map(float, split.split(","))) if split and main is None else (),
        overrides=(rules,) if rules else (),
        kv_offload=on_host_cache is None,
        split_mode="layer" if main is None else "none",
        main_gpu=None if main is None else int(main),
    )
    model = published(name)
    placement = placement_of(asked, model, System(devices), "CUDA")
    load = workload_of(dict(zip(FIELDS, settings.split(), strict=True)))
    return memory_plan(model, made(name, "F16"), load, placement=placement), rules or ""


def test_recorded_runs_with_placement_options() -> None:
    """Weights and caches to the byte; buffers to a few hundred bytes where whole feed-forward blocks or caches move."""
    figures = 0
    for line in (DATA / "recorded_overrides.txt").read_text(encoding="utf-8").splitlines():
        command, settings, recorded = line.split(" ;; ")
        plan, rules = overridden(command, settings)
        parts = {"CPU" if part.device == "Host" else f"GPU{part.device[-1]}": part for part in plan.devices}
        for key, model, context, compute in (match.groups() for match in PART.finditer(recorded)):
            assert (parts[key].model_bytes, parts[key].context_bytes) == (int(model), int(context)), line
            if not PARTIAL_BLOCKS.search(rules):
                assert parts[key].compute_bytes == pytest.approx(int(compute), abs=2000), line
                figures += 1
    assert figures > 100


# Rules that take a part of a block or attention away: buffers then depend on where every single operation runs.
PARTIAL_BLOCKS = re.compile(r"attn|embd|output|ffn_up\|ffn_down|^ffn_gate_exps|2\[0-9\]\\.=")


def test_tied_embeddings_are_loaded_twice_when_offloaded() -> None:
    model, file = published("qwen3-0.6b"), made("qwen3-0.6b", "Q8_0")
    embedding = next(q.bytes for q in file.tensors if q.tensor.name == "token_embd.weight")
    offloaded = model_bytes(model, file, place(model))
    assert offloaded == {0: file.bytes, HOST: embedding}
    untied = published("llama3-8b")
    offloaded = model_bytes(untied, made("llama3-8b", "Q4_K_M"), place(untied))
    assert sum(offloaded.values()) == made("llama3-8b", "Q4_K_M").bytes


def test_the_plan_adds_up() -> None:
    model, file = published("qwen3-next-80b-a3b"), made("qwen3-next-80b-a3b", "Q4_K_M")
    plan = memory_plan(model, file, Workload(context=8192, parallel=2), System((gpu(24), gpu(48))))
    assert plan.total_bytes == sum(part.total_bytes for part in plan.devices)
    assert plan.total_bytes == (
        plan.loaded_bytes + plan.kv_cache_bytes + plan.recurrent_state_bytes + plan.compute_bytes + plan.output_bytes
    )
    assert sum(part.context_bytes for part in plan.devices) == plan.kv_cache_bytes + plan.recurrent_state_bytes
    assert plan.weights_bytes == file.bytes
    assert plan.placement.slots.count(1) == pytest.approx(2 * plan.placement.slots.count(0), abs=2)


@pytest.mark.parametrize(("memory_gib", "fits"), [(24, True), (6, True), (5, False)])
def test_verdict_and_margin(memory_gib: float, fits: bool) -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    plan = memory_plan(model, file, Workload(context=4096), System((gpu(memory_gib),)))
    device = plan.devices[0]
    assert device.usable_bytes == memory_gib * GIB - DEVICE_RESERVE_BYTES
    assert device.margin_bytes == device.usable_bytes - device.total_bytes == plan.margin_bytes
    assert plan.fits is fits
    assert plan.share is not None
    assert (plan.share <= 1) is fits


def test_the_host_must_hold_its_part_too() -> None:
    model, file = published("llama3-70b"), made("llama3-70b", "Q4_K_M")
    system = System((gpu(24),), Host(memory_bytes=16 * GIB))
    plan = memory_plan(model, file, Workload(), system, place(model, 20))
    assert plan.devices[0].fits
    assert not plan.host.fits
    assert plan.fits is False


def test_without_gpus_everything_is_on_the_host() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    cpu = gpu(64, kind="cpu", vendor="amd")
    for system in (System((cpu,)), System((), Host(memory_bytes=64 * GIB))):
        plan = memory_plan(model, file, Workload(), system)
        assert plan.placement == on_host(model)
        assert plan.host.capacity_bytes == 64 * GIB
        assert plan.host.usable_bytes == 64 * GIB - HOST_RESERVE_BYTES
        assert plan.fits


def test_unknown_capacity_gives_no_verdict() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    plan = memory_plan(model, file, Workload(), System((gpu(None),)))
    assert (plan.fits, plan.margin_bytes, plan.capacity_bytes, plan.share) == (None, None, None, None)


def test_unified_memory_holds_both_parts() -> None:
    model, file = published("qwen3-0.6b"), made("qwen3-0.6b", "Q8_0")
    apple = gpu(16, kind="apple", vendor="apple")
    plan = memory_plan(model, file, Workload(), System((apple,)))
    device = plan.devices[0]
    assert device.shared_bytes == plan.host.total_bytes > 0
    assert plan.margin_bytes == device.usable_bytes - device.total_bytes - plan.host.total_bytes


@pytest.mark.parametrize(("memory_gib", "share"), [(16, 2 / 3), (32, 2 / 3), (36, 0.75), (192, 0.75)])
def test_apples_wired_limit(memory_gib: float, share: float) -> None:
    capacity, usable = usable_memory(gpu(memory_gib, kind="apple", vendor="apple"))
    assert usable == int(capacity * share)  # type: ignore[operator]


def test_extras_are_named_and_outside_the_totals() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    load = Workload(context=131072, kv_type_k="Q8_0", kv_type_v="Q8_0")
    nvidia = memory_plan(model, file, load, System((gpu(48),)))
    apple = memory_plan(model, file, load, System((gpu(48, kind="apple", vendor="apple"),)))
    assert [extra.name for extra in nvidia.extras] == ["driver context", "attention scratch"]
    assert apple.extras == ()
    assert nvidia.total_bytes == apple.total_bytes
    plain = memory_plan(model, file, replace(load, kv_type_k="F16", kv_type_v="F16"), System((gpu(48),)))
    assert [extra.name for extra in plain.extras] == ["driver context"]


def test_default_placement_splits_by_memory() -> None:
    model = published("llama3-8b")
    assert default_placement(model, System((gpu(30), gpu(10)))) == place(model, split=(3, 1))


def test_a_placement_needs_its_devices() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    with pytest.raises(InputError, match="uses device 1, but the system has 1"):
        memory_plan(model, file, Workload(), System((gpu(),)), place(model, split=(1, 1)))


def test_the_copy_of_host_weights_is_the_largest_tensor_there() -> None:
    model, file = published("qwen3-30b-a3b"), made("qwen3-30b-a3b", "Q4_K_M")
    system = System((gpu(24),))
    some = placement_of(PlacementSettings(n_cpu_moe=10), model, system, "CUDA")
    plan = memory_plan(model, file, Workload(), system, some)
    assert plan.host_copy_bytes == max(
        q.bytes for q in file.tensors if q.tensor.role == "expert" and q.tensor.layer < 10
    )
    assert memory_plan(model, file, Workload(), system).host_copy_bytes == 0


def test_split_matrices_share_weights_and_caches() -> None:
    model, file = published("llama3-8b"), made("llama3-8b", "Q4_K_M")
    system = System((gpu(24), gpu(24)))
    asked = PlacementSettings(split_mode="tensor", tensor_split=(3, 1))
    plan = memory_plan(model, file, Workload(context=8192), system, placement_of(asked, model, system, "CUDA"))
    alone = memory_plan(model, file, Workload(context=8192), System((gpu(24),)))
    first, second, _ = plan.devices
    assert first.model_bytes == pytest.approx(3 * second.model_bytes, rel=1e-6)
    assert first.context_bytes + second.context_bytes == pytest.approx(alone.devices[0].context_bytes, rel=1e-6)
