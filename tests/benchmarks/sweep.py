"""Points a second of a sweep, and the memory it takes; run: python tests/benchmarks/sweep.py [points, default 10000000]

Three shapes: axes that share figures (what most sweeps are), one long axis without any, and many contexts, each of
which is planned byte by byte. With the rows as CSV text and without.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from llmcalc.parameter_sweep import Sweep, sweep
from llmcalc.sweep_output import local_blocks

LARGEST = 10_000_000
SHAPES: dict[str, Callable[[int], dict[str, str]]] = {
    "shared": lambda n: {"ctx": "256k", "parallel": "1", "prompt": "1..1000+1", "occupied": f"0..{n // 1000 - 1}+1"},
    "one axis": lambda n: {"ctx": "16M", "occupied": f"0..{n - 1}+1"},
    "contexts": lambda n: {"quant": "q4,q8", "gpu": "rtx4090,rtx3090,gb10,rx7900xtx", "ctx": f"1k..{n // 8}k+1k"},
}


def asked(shape: str, points: int) -> Sweep:
    """A sweep of about so many points."""
    usual: dict[str, Any] = {"model": "llama3-8b", "quant": "q4", "gpu": "rtx4090", "output": 1}
    return sweep(**(usual | SHAPES[shape](points)))


def seconds(one: Sweep, text: bool) -> float:
    """Wall time to make all rows."""
    start = time.perf_counter()
    for _ in local_blocks(one, "csv") if text else one.blocks():
        pass
    return time.perf_counter() - start


def main() -> None:
    """Print a line a shape and size."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else LARGEST
    for shape in SHAPES:
        points = 1000
        while points <= largest:
            one = asked(shape, points)
            bare, text = seconds(one, False), seconds(one, True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{shape:9} {one.points:>11,} points: {one.points / bare:>11,.0f} a second, "
                f"{one.points / text:>9,.0f} as CSV; at most {peak:,.0f} MiB so far"
            )
            points *= 10
            if shape == "contexts" and points > 10_000:
                break


if __name__ == "__main__":
    main()
