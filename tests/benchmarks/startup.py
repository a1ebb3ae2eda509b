"""How long commands take to start, against importing their dependencies alone; run: python tests/benchmarks/startup.py

Pairs are run in turn, so that a busy machine slows both, and the medians' ratio (or difference) is printed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 15
MAIN_JOB = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--quant", "q4", "--ctx", "32k"]
LLMCALC = [sys.executable, "-c", "import sys; from llmcalc.cli import main; main()"]
PAIRS = {
    "estimate": (LLMCALC + MAIN_JOB, [sys.executable, "-c", "import numpy, click, yaml"], "at most 1.6 times"),
    "--help": ([*LLMCALC, "--help"], [sys.executable, "-c", "import click"], "at most 1.3 times, and 50 ms more"),
}


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print a line a pair."""
    for name, (ours, base, bar) in PAIRS.items():
        runs = [(seconds(ours), seconds(base)) for _ in range(REPEATS)][1:]
        mine, theirs = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name}: {mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms: {mine / theirs:.2f} times ({bar})")


if __name__ == "__main__":
    main()
