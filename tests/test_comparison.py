"""Comparisons: every combination once, named by what differs, with the estimates of `estimate`."""

from __future__ import annotations

import json

import pytest

from llmcalc.comparison import compare
from llmcalc.errors import InputError
from llmcalc.estimation import estimate
from llmcalc.report.comparison import comparison_markdown, comparison_page
from llmcalc.report.layout import Style


def test_entries_are_the_estimates_themselves() -> None:
    result = compare(gpu="rtx4090,2x rtx3090", model="llama3-8b", quant="q4,q8", ctx="16k")
    expected = [
        estimate(gpu=gpu, model="llama3-8b", quant=quant, ctx="16k", prompt=1024)
        for quant in ("q4", "q8")
        for gpu in (["rtx4090"], ["rtx3090", "rtx3090"])
    ]
    assert [e.to_dict()["decode"] for e in result.estimates] == [e.to_dict()["decode"] for e in expected]
    assert [e.latency for e in result.estimates] == [e.latency for e in expected]
    assert result.names == (
        "Q4_K_M · GeForce RTX 4090",
        "Q4_K_M · 2x GeForce RTX 3090",
        "Q8_0 · GeForce RTX 4090",
        "Q8_0 · 2x GeForce RTX 3090",
    )
    assert result.same == "Llama 3 8B · CUDA · context 16,384 · prompt 1,024"


def test_names_tell_settings_apart() -> None:
    result = compare(gpu="rtx4090", model="llama3-8b", ctx="8k,32k", kv_type="f16,q8_0/q4_0", parallel="1,4")
    assert len(set(result.names)) == len(result.names) == 8
    assert result.names[0] == "KV F16 · context 8,192 · 1 sequence"


def test_the_machine_tells_its_backend() -> None:
    result = compare(gpu="rtx4090,m2-ultra-76", model="llama3-8b", quant="q4")
    assert result.names == ("GeForce RTX 4090", "Apple M2 Ultra (76-core GPU)")
    assert "CUDA" not in result.same
    both = compare(gpu="rtx4090", model="llama3-8b", quant="q4", backend="CUDA,Vulkan")
    assert both.names == ("CUDA", "Vulkan")


@pytest.mark.parametrize("width", [80, 100])
def test_pages_keep_to_the_width(width: int) -> None:
    result = compare(gpu="rtx4090,2x rtx3090,rtx-pro-6000-blackwell", model="llama3-70b", quant="q4,iq2_xs", ctx="32k")
    lines = comparison_page(result, Style(width))
    assert max(map(len, lines)) <= width
    assert any("lacks" in line for line in lines)
    assert any("does not run like this" in line for line in lines)


def test_the_last_column_is_a_multiple_of_the_first() -> None:
    result = compare(gpu="rtx4090,rtx3090", model="llama3-8b", quant="q4")
    ratio = result.estimates[1].decode[1].tokens_per_s / result.estimates[0].decode[1].tokens_per_s
    assert any(line.endswith(f"{ratio:.2f}") for line in comparison_page(result, Style()))
    assert result.to_dict()["entries"][1]["decode_relative"] == ratio


def test_markdown_json_html() -> None:
    result = compare(gpu="rtx4090,rtx3090", model="llama3-8b", quant="q4", sensitivity=True)
    text = comparison_markdown(result)
    assert text.count("| GeForce RTX 4090 |") == 2
    assert "| +10 % memory bandwidth |" in text
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["entries"][0]["estimate"]["schema"] == "llmcalc.estimate/1"
    changes = {one["change"]: one["decode"] for one in data["entries"][0]["sensitivity"]}
    assert changes["+10 % memory bandwidth"] > 0
    assert result._repr_html_().count("<table>") == 2


def test_impossible_combinations_are_named_and_left_out() -> None:
    result = compare(gpu="rtx4090,m2-ultra-76", model="llama3-8b", quant="q4", backend="CUDA")
    assert len(result.estimates) == 1
    assert result.problems == ("backend: CUDA does not run on Apple M2 Ultra (76-core GPU); it has Metal",)
    assert "left out" in repr(result)
    with pytest.raises(InputError, match="do not fit"):
        compare(gpu="rtx4090", model="llama3-8b", ctx=1024, prompt=1000)
    with pytest.raises(InputError, match="llmcalc sweep"):
        compare(gpu="rtx4090", model="llama3-8b", ctx="1k..1M+1k")
