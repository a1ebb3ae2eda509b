"""How long commands take to start, against importing their dependencies alone; run: python tests/benchmarks/startup.py

Pairs are run in turn, so that a busy machine slows both, and the medians' ratio is printed. Let the environment not
forbid compiled modules (PYTHONDONTWRITEBYTECODE), and run it twice: the first run compiles them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

REPEATS = 15
MAIN_JOB = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--quant", "q4", "--ctx", "32k"]
LLMCALC = [sys.executable, "-c", "import sys; from llmcalc.cli import main; main()"]
DEPENDENCIES = [sys.executable, "-c", "import numpy, click, yaml"]
CLICK = [sys.executable, "-c", "import click"]


class Pair(NamedTuple):
    """A command, what it is compared with, and the bar for their ratio."""

    ours: list[str]
    theirs: list[str]
    bar: str
    environment: Mapping[str, str] = {}


def completion(words: str) -> Pair:
    """What the shell runs when the tabulator is pressed behind `words`."""
    asked = {"_LLMCALC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    return Pair(LLMCALC, CLICK, "at most 1.3 times", asked)


PAIRS = {
    "estimate": Pair(LLMCALC + MAIN_JOB, DEPENDENCIES, "at most 1.6 times"),
    "--help": Pair([*LLMCALC, "--help"], CLICK, "at most 1.3 times, and 50 ms more"),
    "completing a command": completion("llmcalc es"),
    "completing an option": completion("llmcalc estimate --gp"),
    "completing a device": completion("llmcalc estimate --gpu rtx40"),
    "completing a model": completion("llmcalc estimate --model llama3"),
}


def seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    return time.perf_counter() - start


def main() -> None:
    """Print a line a pair."""
    for name, (ours, theirs, bar, environment) in PAIRS.items():
        runs = [(seconds(ours, environment), seconds(theirs, {})) for _ in range(REPEATS)][1:]
        mine, base = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name}: {mine * 1e3:.0f} ms against {base * 1e3:.0f} ms: {mine / base:.2f} times ({bar})")


if __name__ == "__main__":
    main()
