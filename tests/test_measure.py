"""Roofs measured with numpy: what the kernels do, how bytes and FLOPs are counted, and what they are compared with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machine import recorded

from llmcalc.cli import run
from llmcalc.detection import measure
from llmcalc.detection.machine import Machine, detect_machine
from llmcalc.detection.measure import (
    ARRAYS_MOVED,
    Bandwidth,
    CpuRoofs,
    Kernel,
    MatrixRate,
    array_bytes,
    compare,
    matrix_rate,
    measure_bandwidth,
    measure_cpu,
    thread_counts,
    usable_cores,
)
from llmcalc.errors import InputError
from llmcalc.units import GIB, MIB

ROOFS = CpuRoofs(
    (Bandwidth("read", 1, 20e9), Bandwidth("copy", 1, 18e9), Bandwidth("read", 2, 41e9), Bandwidth("triad", 2, 48e9)),
    (MatrixRate(1, 100e9), MatrixRate(2, 190e9)),
    256 << 20,
)


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that advances by `seconds` whenever it is read."""
    times: Iterator[float] = (seconds * i for i in range(10**9))
    return lambda: next(times)


def vectors(n: int) -> list[measure.Vector]:
    return [np.zeros(n, np.float32), np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32)]


@pytest.mark.parametrize("n", [8, measure._BLOCK, 2 * measure._BLOCK + 6])
def test_kernels_compute_what_they_are_named_for(n: int) -> None:
    target, a, b = vectors(n)
    measure.copy(target, a)
    assert np.array_equal(target, a)
    measure.triad(target, a, b)
    assert np.array_equal(target, a + np.float32(3) * b)


@pytest.mark.parametrize("kernel", ["read", "copy", "triad"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bandwidth_counts_the_bytes_of_every_array_once(kernel: Kernel, threads: int) -> None:
    arrays = vectors(3 * measure._BLOCK)
    result = measure_bandwidth(kernel, threads, arrays, 0.0, ticking(0.5))
    assert result == Bandwidth(kernel, threads, ARRAYS_MOVED[kernel] * arrays[0].nbytes / 0.5)


@pytest.mark.parametrize("kernel", ["copy", "triad"])
def test_threads_share_out_all_of_the_arrays(kernel: Kernel) -> None:
    target, a, b = vectors(12 * 1024)
    measure_bandwidth(kernel, 5, [target, a, b], 0.0, ticking(1.0))
    assert np.array_equal(target, a if kernel == "copy" else a + np.float32(3) * b)


@pytest.mark.parametrize(("budget_s", "runs"), [(0.0, 2), (3.5, 3), (5.5, 5), (1e9, 10)])
def test_repetitions_fill_the_budget_and_no_more(budget_s: float, runs: int) -> None:
    done: list[int] = []
    best = measure._best(lambda: done.append(1), budget_s, ticking(1.0))
    assert (len(done), best) == (runs, 1.0)


def test_a_product_of_matrices_counts_two_flops_a_multiply_add() -> None:
    assert matrix_rate(64, 0.0, ticking(0.25)) == 2 * 64**3 / 0.25


@given(st.integers(1, 512))
def test_threads_from_one_to_all_cores(cores: int) -> None:
    counts = thread_counts(cores)
    assert counts[0] == 1 and counts[-1] == cores and len(counts) <= 7
    assert list(counts) == sorted(set(counts))


@given(st.floats(0, 2 * GIB) | st.none(), st.floats(0, 64 * GIB) | st.none())
def test_arrays_are_beyond_the_cache_and_within_free_memory(cache: float | None, free: float | None) -> None:
    try:
        size = array_bytes(cache, free)
    except InputError:
        assert (free is not None and free / 8 < max(2 * (cache or 0), 256 * MIB)) or (cache or 0) > GIB
        return
    assert size >= 2 * (cache or 0) - 4 * measure._BLOCK
    assert 63 * MIB <= size <= 2 * GIB
    assert free is None or size <= free / 8


def test_measuring_asks_for_cores_that_this_process_may_use() -> None:
    assert usable_cores(None) >= 1 and usable_cores(1) == 1
    assert usable_cores(10**6) == usable_cores(None)


def test_measuring_this_machine_on_small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MATRIX_ROWS", 32)
    told: list[tuple[str, float]] = []
    roofs = measure_cpu(2, 1 << 20, 0.2, lambda what, share: told.append((what, share)))
    assert {(each.kernel, each.threads) for each in roofs.bandwidths} == {
        (kernel, threads) for kernel in ARRAYS_MOVED for threads in (1, 2)
    }
    assert all(each.bytes_per_s > 0 for each in roofs.bandwidths)
    assert [each.threads for each in roofs.matrix_rates] == [1, 2]
    assert [share for _, share in told] == sorted(share for _, share in told) and 0 <= told[-1][1] < 1
    assert roofs.best_bandwidth.bytes_per_s == max(roofs.best(kernel).bytes_per_s for kernel in ARRAYS_MOVED)


def machine(name: str) -> Machine:
    return detect_machine(recorded(name))


def test_bandwidth_is_compared_with_that_of_the_modules() -> None:
    shares = compare(ROOFS, machine("desktop-rx7900xtx"))
    assert (shares[0].promised, shares[0].share) == (28.8e9, 48e9 / 28.8e9)


def test_without_modules_bandwidth_is_compared_with_the_entry_and_peaks_with_the_cores_that_are_there() -> None:
    bandwidth, boost, base = compare(ROOFS, machine("vm-xeon-8-of-56"))
    entry = machine("vm-xeon-8-of-56").cpu.device
    assert entry is not None
    assert (bandwidth.promised, bandwidth.source) == (entry.bandwidth_bytes_per_s, entry.id)
    assert boost.promised == pytest.approx(entry.peaks_flop_per_s["fp32"] * 8 / 56)
    assert base.promised == pytest.approx(entry.base_clock_peaks_flop_per_s["fp32"] * 8 / 56)
    assert "8 cores at base clock" in base.source and base.measured == 190e9


def test_both_sockets_count() -> None:
    one = machine("server-2x-xeon-6338").host_cpu
    assert one is not None
    bandwidth, boost, _ = compare(ROOFS, machine("server-2x-xeon-6338"))
    assert bandwidth.promised == 2 * one.bandwidth_bytes_per_s
    assert boost.promised == 2 * one.peaks_flop_per_s["fp32"]


def test_a_mac_is_compared_with_the_bandwidth_of_its_chip_but_not_with_the_peaks_of_its_gpu() -> None:
    assert [(share.what, share.promised) for share in compare(ROOFS, machine("mac-m2-ultra-60"))] == [
        ("memory bandwidth", 819.2e9)
    ]


def test_an_unknown_machine_is_compared_with_nothing() -> None:
    assert compare(ROOFS, machine("vm-hidden-epyc")) == ()


def test_the_command_prints_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("llmcalc.detection.machine.detect_machine", lambda: machine("vm-xeon-8-of-56"))
    monkeypatch.setattr(measure, "measure_cpu", lambda *args, **kwargs: ROOFS)
    assert run(["detect", "--measure"]) == 0
    page = capsys.readouterr().out
    assert "Measured on the CPU" in page and "48.0 GB/s" in page and "190 GFLOPS" in page
    assert "16%  of 307 GB/s: xeon-platinum-8480-plus" in page
    assert run(["detect", "--measure", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["measured"]
    assert data["bandwidth"][0] == {"kernel": "read", "threads": 1, "bytes_per_s": 20e9}
    assert data["shares"][0]["share"] == 48e9 / data["shares"][0]["promised"]


def test_too_little_memory_is_one_sentence() -> None:
    with pytest.raises(InputError, match="too little memory is free to measure its bandwidth: 32 MiB an array"):
        array_bytes(32 * MIB, 256 * MIB)
