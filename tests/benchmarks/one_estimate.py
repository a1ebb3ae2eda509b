"""What one estimate costs, and how that grows; run: python tests/benchmarks/one_estimate.py

Milliseconds of an estimate by names and of one whose request is resolved already (at most 1 ms for a dense model of 32
layers), and of a first one in a fresh process, without imports. Then how the cost of the resolved one grows with the
layers of the model, the devices that share it and the prompts it is asked for: ratios of calls made in turn, so that a
busy machine slows both. What is remembered from one call to the next is what callers find remembered too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llmcalc import Model, estimate, estimate_request, find_model, resolve

REPEATS = 200
JOB: dict[str, Any] = {"gpu": "rtx4090", "model": "llama3-8b", "quant": "q4", "ctx": "32k"}
FIRST = """
import time, numpy, yaml, llmcalc.estimation
start = time.perf_counter()
llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="32k")
print(time.perf_counter() - start)
"""


def milliseconds(calls: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """The best time of each call; all are made in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def layered(model: Model, layers: int) -> Model:
    """The model with so many layers, all like its first."""
    return replace(model, id=f"{model.id}-{layers}", layers=model.layers[:1] * layers)


def resolved(**asked: Any) -> Callable[[], object]:
    """An estimate whose names are resolved beforehand."""
    request = resolve(**(JOB | asked))
    return lambda: estimate_request(request)


def main() -> None:
    """Print a line a case."""
    done = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True)
    print(f"first in a process: {1e3 * float(done.stdout):.1f} ms")
    for name, cost in milliseconds({"by names": lambda: estimate(**JOB), "resolved": resolved()}).items():
        print(f"{name}: {cost:.2f} ms (at most 1)")
    model = find_model("llama3-8b")
    ladders: dict[str, dict[str, Callable[[], object]]] = {
        "layers": {str(n): resolved(model=layered(model, n)) for n in (8, 32, 128, 512)},
        "devices": {str(n): resolved(gpu=["rtx4090"] * n) for n in (1, 2, 4, 8)},
        "prompts": {str(n): resolved(ctx="128k", prompt=list(range(1, 100 * n, 100))) for n in (1, 10, 100, 1000)},
    }
    for what, calls in ladders.items():
        costs = milliseconds(calls, REPEATS // 4)
        first = next(iter(costs.values()))
        print(f"{what}: {', '.join(f'{count} {cost / first:.2f} times' for count, cost in costs.items())}")


if __name__ == "__main__":
    main()
