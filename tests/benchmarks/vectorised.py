"""What a point of a sweep costs, against the one-line ceiling; run: python tests/benchmarks/vectorised.py

For sweeps over occupied context, number of sequences and prompt length: points a second, and how many times the cost of
`bandwidth / bytes` over arrays of the same length a point takes (at most 50 times at 10⁶ points).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from llmcalc import decode_seconds, find_device, find_model, prefill_seconds, weights

SIZES = (10**3, 10**4, 10**5, 10**6)
REPEATS = 5


def seconds(call: Callable[[], object]) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print a line a sweep and size."""
    device, model = find_device("rtx4090"), find_model("llama3-8b")
    file = weights(model, "q4")
    bandwidth = device.bandwidth_bytes_per_s

    def context(points: NDArray[np.float64]) -> object:
        return decode_seconds(model, file, device, "CUDA", occupied=points)

    def parallel(points: NDArray[np.float64]) -> object:
        return decode_seconds(model, file, device, "CUDA", occupied=1024.0, parallel=points)

    def prompt(points: NDArray[np.float64]) -> object:
        return prefill_seconds(model, file, device, "CUDA", prompt=points)

    sweeps = {"context": (context, 32768), "parallel": (parallel, 256), "prompt": (prompt, 32768)}
    for name, (sweep, largest) in sweeps.items():
        for size in SIZES:
            points = np.ceil(np.linspace(1, largest, size))
            need = points * 131072.0 + file.bytes
            mine, ceiling = seconds(lambda s=sweep, p=points: s(p)), seconds(lambda n=need: bandwidth / n)  # type: ignore[misc]
            rate = size / mine
            print(
                f"{name:8} {size:>9,} points: {rate:>12,.0f} points/s, {mine / ceiling:7.1f} times the ceiling's cost"
            )


if __name__ == "__main__":
    main()
