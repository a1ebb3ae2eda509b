"""Time of our GGUF header reader against the gguf package's own, on a file with a large vocabulary.

    python tests/benchmarks/gguf_header.py [FILE.gguf]

Without a file, one with the vocabulary of Gemma 3 (262 144 entries with scores and types) is made, without weights.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf

from llmcalc.importers.gguf_header import read_header

VOCABULARY = 262_144


def make(path: Path) -> None:
    """Writes a header with a tokenizer and no tensors."""
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_token_list([f"token{i}".encode() for i in range(VOCABULARY)])
    writer.add_token_scores([-float(i) for i in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def best_seconds(read: Callable[[Path], object], path: Path, repeats: int) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        read(path)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(read: Callable[[Path], object], path: Path) -> int:
    """The most memory that Python objects and arrays took during one run."""
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main(path: Path) -> None:
    """Prints times, memory and their ratios."""
    ours, theirs = best_seconds(read_header, path, 20), best_seconds(gguf.GGUFReader, path, 1)
    memory = peak_bytes(read_header, path)
    print(f"llmcalc          {ours * 1e3:10.2f} ms   peak {memory / 1e6:8.2f} MB")
    print(f"gguf.GGUFReader  {theirs * 1e3:10.2f} ms")
    print(f"ratio            {theirs / ours:10.0f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "vocabulary.gguf"
            make(made)
            main(made)
