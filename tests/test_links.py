"""Links between memories, the host around them, and the network to other computers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmcalc.device_catalog import find_device
from llmcalc.errors import InputError
from llmcalc.host import ASSUMED_BANDWIDTH_BYTES_PER_S, MOST_UNIFIED_BYTES_PER_S, host_cpu
from llmcalc.links import HOST_HANDOVER_S, NETWORK_LATENCY_S, RPC_HANDOVER_S, crossing, host_link, weight_copies
from llmcalc.placement import HOST
from llmcalc.surroundings import surrounded
from llmcalc.system import Host, Link, System

CARD, CPU = find_device("rtx4090"), find_device("ryzen-9-9900x")
OLD_CPU = replace(CPU, pcie="3.0")
BARE = System((CARD,))


def test_the_slower_end_decides() -> None:
    assert host_link(CARD, System((CARD,), Host(CPU)))[0].name == "PCIe 4.0 x16"
    slow, assumed = host_link(CARD, System((CARD,), Host(OLD_CPU)))
    assert (slow.name, assumed) == ("PCIe 3.0 x16", False)
    assert slow.bandwidth_bytes_per_s == pytest.approx(15.76e9)


def test_an_unknown_link_is_said_to_be_assumed() -> None:
    assert host_link(replace(CARD, host_link=None), BARE)[1]


def test_pinned_memory_copies_faster() -> None:
    pinned, mapped = (weight_copies(CARD, BARE, "CUDA", mode) for mode in ("none", "auto"))
    assert mapped.bytes_per_s < pinned.bytes_per_s < 31.5e9


def test_devices_meet_over_nvlink_if_both_have_it() -> None:
    linked = replace(CARD, peer_link=Link("NVLink", 300e9))
    assert crossing(0, 1, System((linked, linked)), "CUDA").name == "NVLink"
    assert crossing(0, 1, System((linked, CARD)), "CUDA").name == "PCIe 4.0 x16"


def test_remote_devices_are_behind_the_network() -> None:
    system = surrounded(System((CARD, CARD)), remote=1, network="10GbE")
    there = crossing(0, 1, system, "CUDA")
    assert there.name == "10 Gbit/s network"
    assert there.handover_s == pytest.approx(NETWORK_LATENCY_S / 2 + RPC_HANDOVER_S)
    assert there.bytes_per_s < 1.25e9
    assert crossing(1, HOST, system, "CUDA").handover_s == HOST_HANDOVER_S
    assert crossing(0, HOST, surrounded(System((CARD,)), remote=1), "CUDA").assumed


def test_between_remote_devices_everything_goes_through_the_client() -> None:
    system = surrounded(System((CARD, CARD)), remote=2, network="10GbE", latency="1ms")
    onward, back = crossing(0, 1, system, "CUDA"), crossing(1, HOST, system, "CUDA")
    assert onward.handover_s == pytest.approx(2 * back.handover_s)
    assert onward.bytes_per_s == pytest.approx(back.bytes_per_s / 2)


def test_a_crossing_costs_a_hand_over_and_its_bytes() -> None:
    way = crossing(0, HOST, BARE, "CUDA")
    assert way.seconds(0) == way.handover_s
    assert way.seconds(1e9) == pytest.approx(way.handover_s + 1e9 / way.bytes_per_s)


def test_network_figures_need_a_remote_device() -> None:
    with pytest.raises(InputError, match="goes with --rpc"):
        surrounded(BARE, network="10GbE")


def test_latency_alone_leaves_the_rate() -> None:
    system = surrounded(System((CARD,)), remote=1, latency="50us")
    assert system.network is not None
    assert system.network.latency_s == pytest.approx(50e-6)


def test_the_named_cpu_is_the_host() -> None:
    assert host_cpu(System((CARD,), Host(CPU))).device == CPU
    stated = host_cpu(System((CARD,), Host(CPU, bandwidth_bytes_per_s=5e10)))
    assert stated.device.bandwidth_bytes_per_s == 5e10
    assert stated.note is None


def test_an_unnamed_host_is_never_silent() -> None:
    unknown = host_cpu(BARE)
    assert unknown.note is not None
    assert "assumed" in unknown.note
    assert unknown.device.bandwidth_bytes_per_s == ASSUMED_BANDWIDTH_BYTES_PER_S
    stated = host_cpu(surrounded(BARE, ram_bandwidth="90 GB/s"))
    assert stated.device.bandwidth_bytes_per_s == pytest.approx(9e10)
    assert stated.note is not None
    assert unknown.log_sd > stated.log_sd > 0


def test_unified_memory_is_the_hosts_too() -> None:
    apple = find_device("m2-ultra-76")
    assert host_cpu(System((apple,))).device.bandwidth_bytes_per_s == MOST_UNIFIED_BYTES_PER_S
    small = replace(apple, bandwidth_bytes_per_s=1e11)
    assert host_cpu(System((small,))).device.bandwidth_bytes_per_s == 1e11
    assert weight_copies(apple, System((apple,)), "Metal").name == "shared memory"


def test_a_wide_memory_has_more_cores_on_it() -> None:
    assert host_cpu(surrounded(BARE, ram_bandwidth="400 GB/s")).device.cores == 50
    assert host_cpu(surrounded(BARE, ram_bandwidth="20 GB/s")).device.cores == 8
