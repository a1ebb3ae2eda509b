"""Placements that cannot be meant or that memory has no room for: each is said in one line of its own."""

from __future__ import annotations

import pytest

from llmcalc.cli import run

HOST = "--cpu ryzen-5-5600x --ram 32GiB"
ONE = f"--gpu rtx3060 {HOST}"
TWO = f"--gpu rtx3090 --gpu rtx3060 {HOST}"

REFUSED = [
    # flags that contradict each other
    (f"estimate {ONE} -m qwen3-30b-a3b --cpu-moe --n-cpu-moe 3", "--cpu-moe and --n-cpu-moe contradict"),
    (f"estimate {TWO} -m llama3-8b -sm none -ts 1,1", "--tensor-split and --split-mode none contradict"),
    (f"estimate {TWO} -m llama3-8b -sm tensor -ngl 5", "--split-mode tensor: splits whole models"),
    (f"estimate {TWO} -m llama3-8b -sm tensor -nkvo", "--split-mode tensor: splits whole models"),
    (f"estimate {ONE} -m llama3-8b --flash-attn off --kv-type-v q8_0", "needs flash attention"),
    (f"estimate {ONE} -m llama3-8b --network 10GbE", "--network: goes with --rpc"),
    (f"fit {ONE} -m llama3-8b -ngl 3", "leave out -ngl"),
    (f"offload {ONE} -m llama3-8b --csv --json", "exclude each other"),
    (f"offload {ONE} -m llama3-8b -ngl 5", "-ngl, --n-cpu-moe and --cpu-moe are what is varied"),
    (f"offload {ONE} -m llama3-8b --n-cpu-moe 5", "leave them out"),
    (f"offload {ONE} -m qwen3-30b-a3b --cpu-moe", "leave them out"),
    # flags that the model or the machine has nothing for
    (f"estimate {ONE} -m llama3-8b --cpu-moe", "--cpu-moe: llama3-8b has no experts"),
    (f"estimate {ONE} -m llama3-8b --n-cpu-moe 3", "--n-cpu-moe: llama3-8b has no experts"),
    (f"estimate {ONE} -m qwen3-30b-a3b --n-cpu-ffn 3", "--n-cpu-ffn: qwen3-30b-a3b has no dense feed-forwards"),
    (f"estimate {TWO} -m olmoe-1b-7b -sm tensor", "does not split olmoe models"),
    ("estimate --cpu ryzen-5-5600x -m llama3-8b -ngl 5", "there is no GPU"),
    ("offload --cpu ryzen-5-5600x -m llama3-8b", "there is no GPU"),
    (f"estimate {ONE} -m llama3-8b -mg 1", "--main-gpu: there is no GPU 1"),
    # splits
    (f"estimate {ONE} -m llama3-8b -ts 1,1", "2 shares (1,1) for 1 GPU"),
    (f"estimate {TWO} -m llama3-8b -ts 0,0", "not all 0"),
    (f"estimate {TWO} -m llama3-8b -ts 1,-1", "shares must be from 0"),
    (f"estimate {TWO} -m llama3-8b -ts half,half", "no list of proportions"),
    # regular expressions
    (f"estimate {ONE} -m llama3-8b -ot nothing=CPU", "'nothing' matches no tensor of llama3-8b"),
    (f"estimate {ONE} -m llama3-8b -ot ffn_(=CPU", "is no regular expression"),
    (f"estimate {ONE} -m llama3-8b -ot ffn=GPU3", "'GPU3' is no device here; known: CPU, GPU0"),
    (f"estimate {ONE} -m llama3-8b -ot ffn", "not of the form REGEX=DEVICE"),
    # nothing left to choose from
    (f"fit {ONE} -m llama3-8b -q q4 --ctx 64k --contexts 4k --prompt 8k", "contexts: none of them holds the prompt"),
]


@pytest.mark.parametrize(("line", "says"), REFUSED)
def test_what_cannot_be_meant_is_refused_in_one_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert says in captured.err


SAID = [
    (f"estimate {TWO} -m llama3-8b -ts 0.5,0.2", "does not sum to 1; llama.cpp takes it as proportions: 71%, 29%"),
    (f"estimate {TWO} -m llama3-8b -mg 1", "--main-gpu changes nothing with --split-mode layer"),
    (f"estimate {TWO} -m llama3-8b -sm row", "llama.cpp b11434 has no row split for CUDA"),
    (f"estimate {TWO} -m llama3-70b -ts 1,1", "geforce-rtx-3060-12gb lacks"),
    (f"estimate {ONE} -m llama3-70b -ngl 60", "geforce-rtx-3060-12gb lacks"),
    (f"estimate {ONE} -m qwen3-235b-a22b --cpu-moe", "do not fit its memory: they are read from disk"),
    (f"fit {ONE} -m qwen3-8b -q q4 --min-tps 900", "Nothing that fits reaches 900 tokens/s of decode; the fastest"),
    ("fit --gpu rtx3060 --ram 8GiB -m deepseek-v3 -q q4", "Nothing fits, whatever the quantisation and placement"),
]


@pytest.mark.parametrize(("line", "says"), SAID)
def test_what_is_odd_or_lacks_memory_is_said(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 0
    assert says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("count", [1, 3])
def test_shorthands_may_match_nothing_in_dense_first_layers(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The first three layers of this mixture are dense; llama.cpp takes such a count without a word."""
    assert run(["estimate", "--gpu", "rtx3060", "-m", "deepseek-v3", "--n-cpu-moe", str(count)]) == 0
    assert capsys.readouterr().err == ""
