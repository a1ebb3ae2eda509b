"""The roofs of the CPU, measured with numpy: memory bandwidth by number of threads, and FP32 matrix products.

The kernels are those of the STREAM benchmark (copy, triad) and a read-only one. numpy lets go of the interpreter's lock
in each of them, so that threads of this process run side by side. Imports numpy alone of the heavy packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..errors import InputError
from ..units import GIB, MIB
from .machine import Machine

Kernel = Literal["read", "copy", "triad"]
Vector = np.ndarray[Any, np.dtype[np.float32]]
Clock = Callable[[], float]

# Bytes that cross the memory bus for each byte of an array, as STREAM counts them: a cache line that is written counts
# once, though most CPUs read it first.
ARRAYS_MOVED: Final[dict[Kernel, int]] = {"read": 1, "copy": 2, "triad": 3}

BUDGET_S: Final = 55.0
MATRIX_ROWS: Final = 2048
_MATRIX_SHARE: Final = 0.2  # of the budget
_START_S: Final = 20.0  # that an interpreter with numpy may take to start on a slow disk
_REPEATS: Final = 10
_FEWEST_REPEATS: Final = 2
_BLOCK: Final = 1 << 18  # elements: the triad's intermediate result stays in the L2 cache
_CACHES: Final = 4  # arrays are so many times the last-level cache
_SMALLEST_BYTES: Final = 256 * MIB
_LARGEST_BYTES: Final = 2 * GIB
_SCALAR: Final = np.float32(3.0)
# Every library that numpy may be built with, by its own variable.
_BLAS_THREADS: Final = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True)
class Bandwidth:
    """The best rate of one kernel on so many threads."""

    kernel: Kernel
    threads: int
    bytes_per_s: float


@dataclass(frozen=True)
class MatrixRate:
    """The best rate of an FP32 matrix product on so many threads."""

    threads: int
    flop_per_s: float


@dataclass(frozen=True)
class CpuRoofs:
    """What was measured, and on arrays of which size."""

    bandwidths: tuple[Bandwidth, ...]
    matrix_rates: tuple[MatrixRate, ...]
    array_bytes: int
    load_before: float | None = None  # threads that were running already, over the last minute

    def best(self, kernel: Kernel) -> Bandwidth:
        """The fastest of a kernel over the numbers of threads."""
        return max((each for each in self.bandwidths if each.kernel == kernel), key=lambda each: each.bytes_per_s)

    @property
    def best_bandwidth(self) -> Bandwidth:
        """The fastest of all kernels."""
        return max(self.bandwidths, key=lambda each: each.bytes_per_s)

    @property
    def best_matrix_rate(self) -> MatrixRate | None:
        """The fastest matrix product; None where none could be measured."""
        return max(self.matrix_rates, key=lambda each: each.flop_per_s, default=None)


@dataclass(frozen=True)
class Share:
    """A measured roof beside the one that the figures of a device promise."""

    what: str
    measured: float
    promised: float
    source: str

    @property
    def share(self) -> float:
        """Measured ÷ promised."""
        return self.measured / self.promised


def thread_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4 … and all of the cores; at most seven of them, the small ones left out."""
    counts = [1 << i for i in range(cores.bit_length()) if 1 << i < cores]
    return (*counts[:1], *counts[1:][-5:], cores) if counts else (1,)


def array_bytes(cache_bytes: float | None, available_bytes: float | None) -> int:
    """Size of each of the three arrays: well beyond the cache, within an eighth of the memory that is free.

    Raises InputError where so little memory is free that the cache would be measured.
    """
    wanted = min(max(_SMALLEST_BYTES, _CACHES * (cache_bytes or 0.0)), _LARGEST_BYTES)
    size = int(wanted if available_bytes is None else min(wanted, available_bytes / 8))
    if size < max(2 * (cache_bytes or 0.0), _SMALLEST_BYTES / 4):
        raise InputError(f"too little memory is free to measure its bandwidth: {size / MIB:.0f} MiB an array")
    return size - size % (4 * _BLOCK)


def read(source: Vector) -> None:
    """Read a vector: the reduction that keeps up best with memory."""
    np.bitwise_or.reduce(source.view(np.uint64))


def copy(target: Vector, source: Vector) -> None:
    """target = source."""
    np.copyto(target, source)


def triad(target: Vector, a: Vector, b: Vector) -> None:
    """target = a + 3 · b, block by block, so that the product does not go through memory."""
    product = np.empty(min(_BLOCK, len(target)), np.float32)
    for start in range(0, len(target), _BLOCK):
        block = slice(start, start + _BLOCK)
        scaled = product[: len(target[block])]
        np.multiply(b[block], _SCALAR, out=scaled)
        np.add(a[block], scaled, out=target[block])


_KERNELS: Final[dict[Kernel, Callable[..., None]]] = {"read": read, "copy": copy, "triad": triad}


def measure_cpu(
    cores: int,
    size_bytes: int,
    budget_s: float = BUDGET_S,
    progress: Callable[[str, float], None] = lambda what, share: None,
    clock: Clock = time.perf_counter,
) -> CpuRoofs:
    """Bandwidths of the three kernels on 1 … `cores` threads, and FP32 products on one and on all of them.

    Ends within about `budget_s`: every measurement has its share of it and at least two repetitions. `progress` is told
    what comes next and the share that is done.
    """
    load = _load()
    counts = thread_counts(cores)
    plan: list[tuple[Kernel, int]] = [(kernel, threads) for threads in counts for kernel in ARRAYS_MOVED]
    each_s = budget_s * (1 - _MATRIX_SHARE) / len(plan)
    vectors = _vectors(size_bytes, counts[-1])
    bandwidths = []
    for i, (kernel, threads) in enumerate(plan):
        progress(f"{kernel} on {threads} thread{'s' if threads > 1 else ''}", (1 - _MATRIX_SHARE) * i / len(plan))
        bandwidths.append(measure_bandwidth(kernel, threads, vectors, each_s, clock))
    del vectors
    rates = []
    for i, threads in enumerate(dict.fromkeys((1, cores))):
        progress(f"FP32 matrix product on {threads}", 1 - _MATRIX_SHARE / (i + 1))
        rates.append(_matrix_rate_of_process(threads, budget_s * _MATRIX_SHARE / 2))
    return CpuRoofs(tuple(bandwidths), tuple(rate for rate in rates if rate), size_bytes, load)


def _load() -> float | None:
    """Threads that want to run, averaged over the last minute; None where the system does not count them."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _vectors(size_bytes: int, threads: int) -> tuple[Vector, Vector, Vector]:
    """Three arrays, written by the threads that will use them: pages lie near the core that touches them first."""
    arrays = tuple(np.empty(size_bytes // 4, np.float32) for _ in range(3))
    with ThreadPoolExecutor(threads) as pool:
        for array in arrays:
            list(pool.map(lambda part: part.fill(1.0), np.array_split(array, threads)))
    return arrays[0], arrays[1], arrays[2]


def measure_bandwidth(
    kernel: Kernel, threads: int, vectors: Sequence[Vector], budget_s: float, clock: Clock = time.perf_counter
) -> Bandwidth:
    """The best rate of `kernel` over vectors that the threads share out."""
    run = _KERNELS[kernel]
    used = vectors[: ARRAYS_MOVED[kernel]]
    parts = list(zip(*(np.array_split(vector, threads) for vector in used), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(lambda: list(pool.map(lambda part: run(*part), parts)), budget_s, clock)
    return Bandwidth(kernel, threads, ARRAYS_MOVED[kernel] * vectors[0].nbytes / seconds)


def _best(run: Callable[[], object], budget_s: float, clock: Clock) -> float:
    """The shortest time of `run`, which is repeated while the budget lasts."""
    times: list[float] = []
    while len(times) < _FEWEST_REPEATS or (len(times) < _REPEATS and sum(times) + min(times) < budget_s):
        start = clock()
        run()
        times.append(max(clock() - start, 1e-9))
    return min(times)


def matrix_rate(rows: int, budget_s: float, clock: Clock = time.perf_counter) -> float:
    """FLOP/s of an FP32 product of two square matrices, 2 · rows³ FLOPs, on the threads that numpy's library takes."""
    a = np.full((rows, rows), 0.5, np.float32)
    out = np.empty_like(a)
    return 2.0 * rows**3 / _best(lambda: np.matmul(a, a, out=out), budget_s, clock)


def _matrix_rate_of_process(threads: int, budget_s: float) -> MatrixRate | None:
    """`matrix_rate` in a process of its own, because libraries read the number of threads when they are loaded."""
    code = f"from {__name__} import matrix_rate; print(matrix_rate({MATRIX_ROWS}, {budget_s / 2}))"
    environment = {**os.environ, **dict.fromkeys(_BLAS_THREADS, str(threads))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            encoding="utf-8",
            timeout=max(4 * budget_s, _START_S),
            env=environment,
        )
        return MatrixRate(threads, float(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def usable_cores(cores: int | None) -> int:
    """Cores to measure on: all that the machine has, within those that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(cores or allowed, allowed), 1)


def compare(roofs: CpuRoofs, machine: Machine) -> tuple[Share, ...]:
    """Measured roofs beside what the memory modules imply, or else the catalog's entry, and beside its FP32 peaks.

    Bandwidth and peaks are those of all sockets, and of the cores that are there.
    """
    sockets = machine.cpu.report.sockets or 1
    shared = next((gpu.device for gpu in machine.gpus if gpu.device and gpu.device.unified_memory), None)
    device = machine.host_cpu or shared
    shares = []
    implied = machine.memory.bandwidth_bytes_per_s
    if implied is not None:
        source = "channels × rate of the modules"
        shares.append(Share("memory bandwidth", roofs.best_bandwidth.bytes_per_s, implied, source))
    elif device is not None:
        promised = device.bandwidth_bytes_per_s * (sockets if device.is_cpu else 1)
        shares.append(Share("memory bandwidth", roofs.best_bandwidth.bytes_per_s, promised, device.id))
    rate = roofs.best_matrix_rate
    if device is None or not device.is_cpu or rate is None:
        return tuple(shares)
    # No CPU keeps its boost clock on all cores; base clock is the floor.
    for clock, peaks in (("boost", device.peaks_flop_per_s), ("base", device.base_clock_peaks_flop_per_s)):
        if "fp32" in peaks:
            cores = f"{device.id}, {(device.cores or 0) * sockets} cores at {clock} clock"
            shares.append(Share("FP32 product", rate.flop_per_s, peaks["fp32"] * sockets, cores))
    return tuple(shares)
