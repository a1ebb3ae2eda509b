"""The estimate as a whole: its JSON contract, figures that follow from each other, orders that physics demands."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llmcalc
from llmcalc.errors import InputError
from llmcalc.report.explain import operation_table
from llmcalc.report.json import as_dict
from llmcalc.report.layout import Style, duration, rate
from llmcalc.report.tables import csv_text, markdown
from llmcalc.report.text import page
from llmcalc.units import gib

DEVICES = ["rtx4090", "rtx3060", "p40", "h100", "7900xtx", "mi300x", "b580", "m2-ultra-76", "m4-max", "strix-halo"]
MODELS = [
    "llama3-8b",
    "qwen3-30b-a3b",
    "gemma3-27b",
    "deepseek-v2-lite",
    "gpt-oss-20b",
    "qwen3-next-80b-a3b",
    "mamba-1.4b",
]


@pytest.fixture(scope="module")
def main_job() -> llmcalc.Estimate:
    return llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="32k")


def test_bytes_of_the_main_job(main_job: llmcalc.Estimate) -> None:
    assert main_job.memory.weights_bytes == 4_912_898_048  # llama-quantize: Q4_K_M of this model
    assert main_job.memory.kv_cache_bytes == 32 * 8 * (128 + 128) * 2 * 32768
    assert main_job.memory.fits is True


def test_json_contract(main_job: llmcalc.Estimate) -> None:
    d = json.loads(json.dumps(main_job.to_dict(), allow_nan=False))
    assert d["schema"] == "llmcalc.estimate/1"
    sizes = {
        f"{name}_bytes" for name in ("weights", "kv_cache", "recurrent_state", "compute", "output", "total", "capacity")
    }
    assert {*sizes, "fits", "devices"} <= set(d["memory"])
    assert {"device", "model_bytes", "context_bytes", "compute_bytes"} <= set(d["memory"]["devices"][0])
    both = {"tokens_per_s", "ceiling_tokens_per_s", "bound", "intensity_flop_per_byte", "interval_80"}
    assert all({"prompt_tokens", "cached_tokens", "seconds", *both} <= set(p) for p in d["prefill"])
    assert all(
        {"occupied_tokens", "parallel", "aggregate_tokens_per_s", "tpot_s", *both} <= set(x) for x in d["decode"]
    )
    assert {"ttft_s", "end_to_end_s"} <= set(d["latency"])
    assert all(isinstance(note, str) for note in d["notes"])
    assert d["inputs"]["devices"] == ["geforce-rtx-4090"]
    assert d["inputs"]["model"] == "llama3-8b"


def test_figures_follow_from_each_other(main_job: llmcalc.Estimate) -> None:
    e = main_job
    for p in e.prefill:
        assert p.tokens_per_s == pytest.approx((p.prompt_tokens - p.cached_tokens) / p.seconds)
    for d in e.decode:
        assert d.tokens_per_s == pytest.approx(1 / d.tpot_s)
        assert d.aggregate_tokens_per_s == pytest.approx(d.parallel * d.tokens_per_s)
    t = e.latency
    assert t.ttft_s == pytest.approx(t.queue_s + t.tokenisation_s + t.prefill_s + t.first_step_s)
    assert t.end_to_end_s == pytest.approx(t.ttft_s + (t.output_tokens - 1) * t.itl_s)
    m = e.memory
    assert m.total_bytes == sum(part.total_bytes for part in m.devices)
    assert sum(part.context_bytes for part in m.devices) == m.kv_cache_bytes + m.recurrent_state_bytes
    assert [d.occupied_tokens for d in e.decode] == [0, 1024 + 128, 32767]
    assert [p.prompt_tokens for p in e.prefill] == [1024, 32768 - 256]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gpu", DEVICES)
def test_orders_that_physics_demands(gpu: str, model: str) -> None:
    e = llmcalc.estimate(gpu=gpu, model=model, ctx="16k")
    for x in (*e.prefill, *e.decode):
        wide, narrow = x.interval_95, x.interval_80
        assert 0 < wide[0] < narrow[0] < x.tokens_per_s <= narrow[1] <= wide[1] <= x.ceiling_tokens_per_s
        assert x.tokens_per_s < x.ceiling_tokens_per_s
        assert x.bound in ("memory", "compute", "launch")
    speeds = [d.tokens_per_s for d in e.decode]
    assert speeds == sorted(speeds, reverse=True)
    assert e.decode[0].tokens_per_s < e.weights_ceiling_tokens_per_s
    assert e.prefill[0].seconds < e.prefill[-1].seconds


def check_batch_against_single(gpu: str, model: str, context: int, parallel: int, cached: int) -> None:
    ask = {"gpu": gpu, "model": model, "output": 16, "prompt": 256}
    e = llmcalc.estimate(**ask, ctx=context * parallel, parallel=parallel, cached_prefix=min(cached, 256))
    one = llmcalc.estimate(**ask, ctx=context)
    assert math.isfinite(e.latency.end_to_end_s)
    for many, single in zip(e.decode, one.decode, strict=True):
        assert many.aggregate_tokens_per_s >= single.aggregate_tokens_per_s * 0.999
        assert many.tokens_per_s <= single.tokens_per_s * 1.001
    assert e.latency.prefill_s <= one.latency.prefill_s * 1.001


@settings(max_examples=40, deadline=None)
@given(
    gpu=st.sampled_from(DEVICES),
    model=st.sampled_from(MODELS),
    context=st.integers(512, 200_000),
    parallel=st.integers(1, 64),
    cached=st.integers(0, 512),
)
def test_any_workload_gives_finite_ordered_figures(
    gpu: str, model: str, context: int, parallel: int, cached: int
) -> None:
    check_batch_against_single(gpu, model, context, parallel, cached)


def test_nine_sequences_of_experts_on_pascal() -> None:
    check_batch_against_single("p40", "gpt-oss-20b", 4096, 9, 0)


def test_more_bandwidth_and_smaller_types_are_never_slower() -> None:
    base = llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q8")
    faster = llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q8", figures={"bandwidth": "2 TB/s"})
    smaller = llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q4_0")
    assert faster.decode[0].tokens_per_s > base.decode[0].tokens_per_s
    assert smaller.decode[0].tokens_per_s > base.decode[0].tokens_per_s
    assert smaller.memory.weights_bytes < base.memory.weights_bytes


def test_configured_context_costs_memory_and_no_time() -> None:
    short = llmcalc.estimate(gpu="rtx4090", model="llama3.1-8b", ctx="8k", prompt=1024)
    long = llmcalc.estimate(gpu="rtx4090", model="llama3.1-8b", ctx="64k", prompt=1024)
    assert long.memory.kv_cache_bytes == 8 * short.memory.kv_cache_bytes
    assert long.decode[1].tpot_s == pytest.approx(short.decode[1].tpot_s)
    assert long.prefill[0].seconds == pytest.approx(short.prefill[0].seconds)


def test_arguments_may_be_text_numbers_or_pint_quantities() -> None:
    ask = {"model": "llama3-8b", "gpu": "custom"}
    as_text = llmcalc.estimate(**ask, figures={"bandwidth": "1.2 TB/s", "memory": "48 GiB", "fp16": "100 TFLOPS"})
    as_numbers = llmcalc.estimate(**ask, figures={"bandwidth": 1.2e12, "memory": 48 * 2**30, "fp16": 100e12})
    quantities = {
        "bandwidth": pint.Quantity(1.2, "terabyte/second"),
        "memory": pint.Quantity(48, "gibibyte"),
        "fp16": pint.Quantity(100e12, "1/second"),
    }
    as_pint = llmcalc.estimate(**ask, figures=quantities)
    assert as_text.decode == as_numbers.decode == as_pint.decode
    ttft = as_text.quantity(as_text.latency.ttft_s, "seconds")
    assert ttft.to("ms").magnitude == pytest.approx(as_text.latency.ttft_s * 1e3)


def test_custom_device_uses_what_was_typed() -> None:
    e = llmcalc.estimate(
        gpu="custom", model="llama3-8b", figures={"bandwidth": "1 TB/s", "memory": "24 GiB", "fp16": "100 TFLOPS"}
    )
    assert e.weights_ceiling_tokens_per_s == pytest.approx(1e12 / 4.617e9, rel=0.01)  # without the input embedding
    assert e.memory.capacity_bytes == 24 * 2**30


def test_one_device_of_two_halves_is_no_faster_than_one_whole() -> None:
    one = llmcalc.estimate(gpu="rtx3090", model="llama3-8b")
    two = llmcalc.estimate(gpu=["rtx3090", "rtx3090"], model="llama3-8b")
    assert one.decode[0].tpot_s < two.decode[0].tpot_s < 1.03 * one.decode[0].tpot_s  # the way between them
    assert two.prefill[-1].seconds < one.prefill[-1].seconds
    assert two.memory.capacity_bytes == 2 * (one.memory.capacity_bytes or 0)


def test_printed_figures_are_those_of_the_result(main_job: llmcalc.Estimate) -> None:
    e = main_job
    text = "\n".join(page(e, Style(80)))
    for p in e.prefill:
        assert rate(p.tokens_per_s) in text
        assert duration(p.seconds) in text
    for d in e.decode:
        assert rate(d.tokens_per_s) in text
        assert duration(d.tpot_s) in text
    for size in (e.memory.weights_bytes, e.memory.kv_cache_bytes, e.memory.total_bytes):
        assert gib(size) in text
    for t in (e.latency.ttft_s, e.latency.itl_s, e.latency.end_to_end_s):
        assert duration(t) in text
    assert text == repr(e)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_prose_keeps_to_the_width_and_colour_changes_nothing(main_job: llmcalc.Estimate, width: int) -> None:
    plain = page(main_job, Style(width), explain=True)
    colored = page(main_job, Style(width, color=True), explain=True)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored] == plain
    assert max(map(len, page(main_job, Style(80)))) <= 80
    prose = [line for line in plain if line.startswith("  · ")]
    assert prose
    assert all(len(line) <= width for line in prose)


def test_explained_operations_add_up(main_job: llmcalc.Estimate) -> None:
    for time in (main_job.prefill_time.main, main_job.decode_time.main):
        parts = [np.broadcast_to(operation.seconds, time.seconds.shape) for operation in time.operations]  # type: ignore[union-attr]
        assert np.allclose(np.sum(parts, axis=0), time.seconds)
        assert len(operation_table(time, 0)) > 4
    text = "\n".join(page(main_job, Style(), explain=True))
    assert "operation by operation" in text
    assert "Efficiency factors" in text


def test_markdown_csv_and_html_hold_the_same_figures(main_job: llmcalc.Estimate) -> None:
    e = main_job
    rows = list(csv.DictReader(io.StringIO(csv_text(e))))
    assert [row["phase"] for row in rows] == ["prefill"] * len(e.prefill) + ["decode"] * len(e.decode)
    assert float(rows[0]["tokens_per_s"]) == e.prefill[0].tokens_per_s
    assert float(rows[-1]["seconds"]) == e.decode[-1].tpot_s
    for text in (markdown(e), e._repr_html_()):
        assert rate(e.decode[0].tokens_per_s) in text
        assert gib(e.memory.weights_bytes) in text
    assert "<table>" in e._repr_html_()


def test_does_not_fit_is_an_answer() -> None:
    e = llmcalc.estimate(gpu="rtx3060", model="llama3-70b")
    assert e.memory.fits is False
    assert any("does not fit" in note for note in e.notes)
    assert as_dict(e)["memory"]["fits"] is False


def test_a_config_file_is_a_model(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False, "rope_theta": 500000.0,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert llmcalc.estimate(gpu="rtx4090", model=str(path)).memory.weights_bytes == 4_912_898_048


def test_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    from llmcalc.importers.gguf_writer import write_header

    model = llmcalc.find_model("smollm2-135m")
    path = tmp_path / "model.gguf"
    write_header(model, llmcalc.weights(model, "q4_1"), path)
    e = llmcalc.estimate(gpu="rtx4090", model=path)
    assert e.memory.weights_bytes == llmcalc.weights(model, "q4_1").bytes
    with pytest.raises(InputError, match="leave --quant out"):
        llmcalc.estimate(gpu="rtx4090", model=path, quant="q8")


def test_names_of_files_carry_their_quantisation() -> None:
    e = llmcalc.estimate(gpu="rtx4090", model="Meta-Llama-3-8B-Instruct-Q6_K.gguf")
    assert e.request.model.id == "llama3-8b"
    assert e.request.quantisation == "Q6_K"


def test_check_command_asks_for_what_is_predicted(main_job: llmcalc.Estimate) -> None:
    assert "-p 1024,32512" in main_job.check_command
    assert "-d 0,1152,32767" in main_job.check_command
    many = llmcalc.estimate(gpu="rtx4090", model="llama3-8b", ctx="32k", parallel=4)
    assert many.check_command.startswith("llama-batched-bench")
    assert "-npl 1,4" in many.check_command


@pytest.mark.parametrize(("model", "said"), [("llama3-8b", ""), ("gemma3-27b", "twice"), ("glm-4.5", "without")])
def test_the_parts_of_memory_that_are_shown_make_its_total(model: str, said: str) -> None:
    e = llmcalc.estimate(gpu="h100", model=model, ctx="8k")
    m = e.to_dict()["memory"]
    parts = ("loaded", "kv_cache", "recurrent_state", "compute", "output")
    assert m["total_bytes"] == sum(m[f"{part}_bytes"] for part in parts)
    assert m["loaded_bytes"] == sum(part["model_bytes"] for part in m["devices"])
    line = next((line for line in page(e, Style(200)) if line.strip().startswith("loaded ")), "")
    assert said in line and bool(line) == bool(said) == (m["loaded_bytes"] != m["weights_bytes"])
    assert not line or gib(m["loaded_bytes"]) in line
