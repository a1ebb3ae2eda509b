"""Trace files in their several dialects, and sentences about those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcalc.errors import InputError
from llmcalc.traces import read_trace


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "arrival_s,prompt,output\n5,100,10\n6.5,200,20\n"),
        ("t.csv", "output_tokens,arrival_ms,prompt_tokens\n20,6500,200\n\n10,5000,100\n"),
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,10\n"
            "2023-11-16 18:17:05.4799600,200,20\n",
        ),
        ("t.jsonl", '{"timestamp_ms": 0, "input_length": 100, "output_length": 10}\n'
                    '{"timestamp_ms": 1500, "input_length": 200, "output_length": 20, "hash_ids": [1]}\n'),
        ("t.jsonl", '{"time": "2026-01-01T00:00:00Z", "prompt": 100, "output": 10}\n'
                    '{"time": "2026-01-01T01:00:01.5+01:00", "prompt": 200, "output": 20}\n'),
    ],
)  # fmt: skip
def test_dialects(tmp_path: Path, name: str, text: str) -> None:
    trace = read_trace(written(tmp_path, name, text))
    assert trace.lengths.prompts == (100, 200)
    assert trace.lengths.outputs == (10, 20)
    assert trace.arrivals_s == pytest.approx((0.0, 1.5))
    assert trace.rate_per_s == pytest.approx(1 / 1.5)


def test_lengths_alone(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv", "prompt,output\n3,4\n"))
    assert trace.arrivals_s is None
    assert trace.rate_per_s is None


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.csv", "", "holds no requests"),
        ("t.csv", "prompt,output\n", "holds no requests"),
        ("t.csv", "prompt,answer\n1,2\n", "line 2: has no output column; known names: output, output_tokens"),
        ("t.csv", "prompt,output\n1,2\n1.5,2\n", "line 3, prompt: '1.5' is no whole number"),
        ("t.csv", "prompt,output\n0,2\n", "line 2, prompt: '0' is no whole number of at least 1"),
        ("t.csv", "prompt,output\nmany,2\n", "line 2, prompt: 'many' is no number"),
        ("t.csv", "prompt,output\nnan,2\n", "no finite number"),
        ("t.csv", "timestamp,prompt,output\n12,1,2\n", "timestamp: '12' is no date; name the column arrival_s"),
        (
            "t.jsonl",
            '{"prompt": 1, "output": 2, "arrival_s": 0}\n{"prompt": 1, "output": 2}\n',
            "line 2: has no arrival",
        ),
        ("t.jsonl", "[1, 2]\n", "line 1: must be an object"),
        ("t.jsonl", "{\n", "line 1: is no JSON"),
        ("t.txt", "1 2", "a trace is a .csv or .jsonl file"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_trace(written(tmp_path, name, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
