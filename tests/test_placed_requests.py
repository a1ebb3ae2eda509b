"""Realistic requests with a placement: more memory, faster links and more layers on GPUs never make it slower."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from llmcalc.estimation import estimate_request
from llmcalc.multi_device import decode_on, prefill_on
from llmcalc.placement_settings import PlacementSettings
from llmcalc.request import Request, resolve
from llmcalc.units import GIB

HOST: dict[str, Any] = {"cpu": "ryzen-9-5950x", "ram": "64GiB"}


def decode(request: Request) -> float:
    return float(decode_on(request, np.array([1025.0])).tokens_per_s[0])


def prefill(request: Request) -> float:
    return float(prefill_on(request, np.array([2048.0])).tokens_per_s[0])


def rising(values: list[float], slack: float = 0.01) -> bool:
    return all(later >= earlier * (1 - slack) for earlier, later in pairwise(values))


def placed(model: str = "llama3-70b", **settings: Any) -> Request:
    return resolve(model=model, quant="q4", gpu="rtx3090", settings=PlacementSettings(**settings), **HOST)


def test_more_layers_on_the_gpu_are_faster() -> None:
    each = [placed(ngl=ngl) for ngl in (1, 10, 20, 40, 60, 80, 81)]
    assert rising([decode(one) for one in each])
    assert rising([prefill(one) for one in each])


def test_fewer_experts_on_the_host_are_faster() -> None:
    each = [placed("qwen3-30b-a3b", n_cpu_moe=n) for n in (48, 36, 24, 12, 1)]
    assert rising([decode(one) for one in each])
    assert rising([prefill(one) for one in each])


def test_all_experts_on_the_host_by_three_names() -> None:
    ways: tuple[dict[str, Any], ...] = ({"cpu_moe": True}, {"n_cpu_moe": 48}, {"overrides": (r"\.ffn_.*_exps=CPU",)})
    speeds = [(decode(one), prefill(one)) for one in (placed("qwen3-30b-a3b", **way) for way in ways)]
    assert speeds[1] == pytest.approx(speeds[0])
    assert speeds[2] == pytest.approx(speeds[0])


@pytest.mark.parametrize("slower", [{"kv_offload": False}, {"op_offload": False}])
def test_keeping_work_on_the_host_slows_prefill(slower: dict[str, Any]) -> None:
    assert prefill(placed(ngl=40, **slower)) < prefill(placed(ngl=40))


def test_a_faster_and_nearer_network_is_faster() -> None:
    around = [("10 MB/s", "30ms"), ("1GbE", "1ms"), ("1GbE", "100us"), ("10GbE", "100us"), ("100GbE", "10us")]
    each = [
        resolve(
            model="llama3-70b", quant="q4", rpc=["rtx3090"], gpu="rtx3090",
            surroundings={"network": rate, "latency": time}, **HOST,
        )
        for rate, time in around
    ]  # fmt: skip
    assert rising([decode(one) for one in each], 0.0)
    assert rising([prefill(one) for one in each], 0.0)
    local = resolve(model="llama3-70b", quant="q4", gpu=["rtx3090", "rtx3090"], **HOST)
    assert decode(each[-1]) < decode(local)


def test_a_cpu_with_too_little_memory_reads_from_disk() -> None:
    def one(**given: Any) -> Request:
        return resolve(model="llama3-70b", quant="q4", cpu="ryzen-5-5600x", **given)

    roomy, tight = one(ram="64GiB"), one(ram="16GiB")
    assert roomy.placement is None
    assert decode(tight) < 0.2 * decode(roomy)
    drives = [one(ram="16GiB", surroundings={"disk": rate}) for rate in ("0.5GB/s", "2GB/s", "7GB/s")]
    assert rising([decode(request) for request in drives], 0.0)
    assert decode(drives[1]) == pytest.approx(decode(tight))
    assert estimate_request(tight).decode[0].bound == "memory"  # a disk is one: no link is crossed


def test_unified_memory_is_the_hosts() -> None:
    small, whole = (resolve(model="gpt-oss-120b", gpu="strix-halo", ram=size) for size in ("64GiB", "128GiB"))
    assert small.devices[0].memory_bytes == 64 * GIB
    assert whole.devices[0].memory_bytes == 128 * GIB
    card = resolve(model="llama3-8b", gpu="rtx3090", ram="8GiB").devices[0]
    assert (card.memory_bytes or 0) > 20 * GIB


def test_remote_devices_run_their_own_backend() -> None:
    mixed = resolve(model="llama3-70b", quant="q4", gpu="m2-ultra-76", rpc=["rtx3090"])
    assert mixed.backend == "Metal"
    alone = resolve(model="llama3-70b", quant="q4", gpu="m2-ultra-76")
    assert decode(mixed) == pytest.approx(decode(alone), rel=0.25)
