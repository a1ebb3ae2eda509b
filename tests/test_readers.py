"""Readers of benchmark output: every format of one run gives the same run, and bad lines are named."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.calibration.readers import ReadResult, read_runs
from llmcalc.calibration.readers.eras import era
from llmcalc.calibration.readers.model_labels import architecture, file_quantisation, split_label
from llmcalc.calibration.readers.model_match import shape
from llmcalc.calibration.readers.resolve import ResolvedRun, Resolver, Unresolved, resolve
from llmcalc.calibration.readers.sources import MAX_BYTES
from llmcalc.calibration.runs import COLUMNS, Run, to_row
from llmcalc.errors import InputError

DATA = Path(__file__).parent / "data" / "readers"
FORMATS = ("json", "jsonl", "csv", "sql", "md")
CORPUS = Path(__file__).parent.parent / "hardware" / "measurements" / "public_runs.csv"


def one(text: str) -> Run:
    result = read_runs(text)
    assert result.problems == ()
    assert len(result.runs) == 1
    return result.runs[0]


def settings_of(run: Run) -> dict[str, object]:
    """What a run says of itself, without where it was read and how fast it was."""
    skipped = {"id", "origin", "t_s", "t_s_std", "samples_t_s", "date", "params_exact"}
    return {
        f.name: getattr(run, f.name) for f in fields(run) if f.name not in skipped and getattr(run, f.name) is not None
    }


# llama-bench


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_of_llama_bench_gives_the_same_run(format: str) -> None:
    result = read_runs(DATA / f"llama-bench.{format}")
    assert result.problems == ()
    assert [(run.phase, run.n_prompt, run.n_gen, run.n_depth) for run in result.runs] == [
        ("prefill", 16, 0, 0), ("decode", 0, 4, 0),
    ]  # fmt: skip
    full = read_runs(DATA / "llama-bench.json").runs
    for run, reference in zip(result.runs, full, strict=True):
        said, expected = settings_of(run), settings_of(reference)
        for name in ("weights_gib", "params_b"):
            assert said.pop(name) == pytest.approx(expected.pop(name), rel=1e-4)
        assert said == {name: expected[name] for name in said}
        assert run.params_exact == (format != "md")


def test_a_table_without_all_columns_says_what_it_has() -> None:
    run = read_runs(DATA / "llama-bench.md").runs[0]
    assert settings_of(run) == {
        "era": "2026H2", "engine": "llama.cpp", "build": "b11434 (11434)", "backend": "CPU", "device_count": 1,
        "model_label": "llama 256M", "quant": "Q4_1", "weights_gib": pytest.approx(92.10 / 1024),
        "params_b": pytest.approx(0.13452), "threads": 2, "phase": "prefill", "n_prompt": 16, "n_gen": 0, "n_depth": 0,
        "n_parallel": 1, "architecture": "llama",
    }  # fmt: skip
    assert (run.t_s, run.t_s_std) == (151.83, 47.92)


def test_rates_and_samples_are_those_printed() -> None:
    run = read_runs(DATA / "llama-bench.json").runs[0]
    assert (run.t_s, run.t_s_std, run.samples_t_s) == (111.165764, 21.781655, (100.319, 96.9371, 136.241))
    assert (run.weights_bytes, run.n_params, run.device_detail) == (96576768, 134515008, "Intel(R) Xeon(R) Processor")
    assert (run.date, run.model_file, run.flash_attn) == (
        "2026-11-30",
        "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "auto",
    )


@pytest.mark.parametrize("format", ["json", "md"])
def test_depth_is_what_the_cache_holds_before_the_test(format: str) -> None:
    runs = read_runs(DATA / f"llama-bench-depth.{format}").runs
    assert [(run.n_prompt, run.n_gen, run.n_depth) for run in runs] == [
        (16, 0, 0), (0, 4, 0), (16, 0, 32), (0, 4, 32),
    ]  # fmt: skip


RECORD = {"model_type": "llama 8B Q4_K - Medium", "n_prompt": 512, "n_gen": 0, "avg_ts": 100.0}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        # Late 2023: booleans for backends, f16_kv for the cache types, a label with "mostly".
        ({"cuda": True, "metal": False, "gpu_info": "NVIDIA GeForce RTX 3090", "f16_kv": True,
          "model_type": "llama 7B mostly Q4_0"}, {"backend": "CUDA", "type_k": "f16", "quant": "Q4_0"}),
        ({"cuda": "1", "gpu_info": "AMD Radeon RX 7900 XTX"}, {"backend": "ROCm"}),
        ({"cuda": 0, "vulkan": 0, "blas": 1, "cpu_info": "X"}, {"backend": "CPU", "device_detail": "X"}),
        ({"cuda": "0", "vulkan": "1"}, {"backend": "Vulkan"}),
        # Later: one field for backends.
        ({"backends": "CUDA"}, {"backend": "CUDA", "device_count": None}),
        ({"backends": "Metal,BLAS"}, {"backend": "Metal"}),
        ({"backends": "MTL"}, {"backend": "Metal"}),
        ({"backends": "CUDA", "devices": "none", "cpu_info": "X"}, {"backend": "CPU", "device_detail": "X"}),
        ({"backends": "CUDA,Vulkan"}, {"backend": None}),
        ({"backends": "CUDA,Vulkan", "devices": "Vulkan0"}, {"backend": "Vulkan"}),
        ({"flash_attn": True}, {"flash_attn": "1"}),
        ({"flash_attn": "0"}, {"flash_attn": "0"}),
        ({"flash_attn": -1}, {"flash_attn": "auto"}),
        ({"flash_attn": "auto"}, {"flash_attn": "auto"}),
        ({"build_commit": "8cf6b42", "build_number": 5943}, {"build": "8cf6b42 (5943)", "era": "2025H2"}),
        ({"build_commit": "unknown", "build_number": 0, "test_time": "2024-02-03T10:00:00Z"},
         {"build": None, "era": "2024H1", "date": "2024-02-03"}),
        # What rules a run out of clean single-device runs.
        ({"backends": "CUDA", "gpu_info": "A, A"}, {"class_": "multi-device", "device_count": 2, "device_detail": "A"}),
        ({"backends": "CUDA", "gpu_info": "A, B", "split_mode": "none", "main_gpu": 1},
         {"class_": None, "device_count": 1, "device_detail": "B"}),
        ({"backends": "CUDA", "gpu_info": "A, B", "devices": "CUDA0"}, {"device_detail": "A", "device_count": 1}),
        ({"backends": "CUDA", "gpu_info": "A, B", "tensor_split": "0.00/1.00"}, {"device_detail": "B"}),
        ({"backends": "CUDA,RPC", "gpu_info": "A"}, {"class_": "multi-device"}),
        ({"backends": "CUDA", "n_cpu_moe": 12}, {"class_": "offload"}),
        ({"backends": "CUDA", "n_gpu_layers": 0}, {"class_": "offload"}),
        ({"backends": "CPU", "n_gpu_layers": 0}, {"class_": None}),
        ({"backends": "CUDA", "tensor_buft_overrides": "exps=CPU"}, {"class_": "offload"}),
        ({"backends": "CUDA", "no_kv_offload": "1"}, {"class_": "offload"}),
        ({"mla_attn": 3, "fused_moe": 1}, {"engine": "ik_llama.cpp", "class_": "other-engine"}),
        # The rate from whatever a version printed.
        ({"avg_ts": None, "avg_ns": 5_120_000_000}, {"t_s": pytest.approx(100)}),
        ({"n_gen": 128}, {"phase": "mixed"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["json", "csv"])
def test_fields_of_all_versions(extra: dict[str, object], expected: dict[str, object], shape: str) -> None:
    record = RECORD | extra
    if shape == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(record), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerow({name: int(value) if isinstance(value, bool) else value for name, value in record.items()})
        run = one(text.getvalue())
    else:
        run = one(json.dumps(record))
    assert {name: getattr(run, name) for name in expected} == expected


def test_the_rate_comes_from_samples_where_no_mean_is_printed() -> None:
    run = one(json.dumps(RECORD | {"avg_ts": None, "samples_ns": [5_120_000_000, 2_560_000_000]}))
    assert (run.t_s, run.t_s_std, run.samples_t_s) == (150.0, pytest.approx(70.71, rel=1e-3), (100.0, 200.0))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"avg_ts": 0}, "zero"),
        ({"avg_ts": "fast"}, "not a number"),
        ({"avg_ts": float("inf")}, "not a number"),
        ({"avg_ts": float("nan")}, "not a number"),
        ({"avg_ts": 1e300}, "not possible"),
        ({"avg_ts": -3}, "negative"),
        ({"n_prompt": 0}, "no test"),
        ({"n_prompt": -512}, "negative"),
        ({"n_prompt": 512.5}, "not a whole number"),
        ({"n_prompt": 10**30}, "not a whole number"),
        ({"n_depth": "deep"}, "not a number"),
        ({"stddev_ts": 1e6}, "spread"),
        ({"flash_attn": "perhaps"}, "not a flag"),
        ({"backends": "CUDA", "gpu_info": "A, B", "split_mode": "none", "main_gpu": 7}, "only 2 are listed"),
    ],
)
def test_senseless_records_are_problems(bad: dict[str, object], reason: str) -> None:
    text = "\n".join([json.dumps(RECORD), json.dumps(RECORD | bad), json.dumps(RECORD)])
    result = read_runs(text)
    assert len(result.runs) == 2
    [problem] = result.problems
    assert problem.line == 2
    assert reason in problem.reason


def test_sql_dumps_without_column_names() -> None:
    create = "CREATE TABLE IF NOT EXISTS test (\n  model_type TEXT,\n  n_prompt INTEGER,\n  avg_ts REAL\n);\n"
    run = one(create + "INSERT INTO \"test\" VALUES('O''Brien 8B Q8_0',512,99.5);\n")
    assert (run.model_label, run.quant, run.n_prompt, run.t_s) == ("O'Brien 8B", "Q8_0", 512, 99.5)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT INTO llama_bench (n_prompt, avg_ts) VALUES ('512');", "1 values for 2 columns"),
        ("INSERT INTO llama_bench (n_prompt, avg_ts) VALUES ('512', '9", "malformed or cut off"),
        ("INSERT INTO llama_bench VALUES ('512', '9');", "names no columns"),
        ("INSERT INTO people (name) VALUES ('x');", "no llama-bench test"),
    ],
)
def test_malformed_sql(statement: str, reason: str) -> None:
    [problem] = read_runs(f"-- dump\n{statement}\n").problems
    assert problem.line == 2
    assert reason in problem.reason


def test_a_json_file_that_was_cut_off_keeps_its_whole_objects() -> None:
    text = (DATA / "llama-bench-depth.json").read_text()
    ends = [index + 1 for index in range(len(text)) if text[index] == "}"]
    for cut in range(0, len(text), 97):
        result = read_runs(text[:cut] + " ")
        assert len(result.runs) == sum(end <= cut for end in ends)
        assert len(result.problems) == 1


def test_a_bad_csv_line_is_named_and_the_others_count() -> None:
    header, first, second = (DATA / "llama-bench.csv").read_text().splitlines()
    text = "\n".join([header, first, "llama-bench: benchmark 2/2: starting", '"b11434","114', second, '"only one"', ""])
    result = read_runs(text)
    assert [run.origin.line for run in result.runs if run.origin] == [2, 5]
    assert [(problem.line, problem.reason) for problem in result.problems] == [
        (4, "a quoted value in this line is not closed"), (6, "1 values where the header has 42 columns"),
    ]  # fmt: skip


def test_bytes_that_tools_of_windows_write(tmp_path: Path) -> None:
    text = (DATA / "llama-bench.md").read_text(encoding="utf-8")
    expected = read_runs(text).runs
    for encoding in ("utf-16", "utf-8-sig", "cp1252"):
        path = tmp_path / encoding
        path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        runs = read_runs(path).runs
        assert [(run.t_s, run.t_s_std) for run in runs] == [(run.t_s, run.t_s_std) for run in expected]


# Markdown from issues and chats


def test_a_pasted_issue() -> None:
    result = read_runs(DATA / "pasted-issue.md")
    assert [
        (run.phase, run.n_prompt, run.n_gen, run.n_depth, run.t_s, run.t_s_std, run.build, run.quant)
        for run in result.runs
    ] == [
        ("prefill", 512, 0, 0, 12345.67, 80.10, "8cf6b42 (5943)", "Q4_K_M"),
        ("decode", 0, 128, 4096, 130.76, 0.11, "8cf6b42 (5943)", "Q4_K_M"),
        ("prefill", 512, 0, 0, 5012.34, 21.07, "abc1234 (1500)", "Q4_0"),
        ("decode", 0, 128, 0, 150.20, 0.40, "abc1234 (1500)", "Q4_0"),
        ("mixed", 512, 128, 0, 88.10, 1.20, None, "Q4_K_M"),
    ]  # fmt: skip
    assert [problem.line for problem in result.problems] == [21, 31]
    last = result.runs[-1]
    assert (last.ngl, last.n_ubatch, last.type_k, last.type_v, last.flash_attn) == (20, 2048, "q8_0", "q8_0", "0")


def test_devices_of_the_log_belong_to_the_run_that_printed_them() -> None:
    runs = read_runs(DATA / "pasted-issue.md").runs
    card = "NVIDIA GeForce RTX 4090"
    assert [run.device_detail for run in runs] == [card, card, None, None, None]


HEAD = "| model | size | params | backend | ngl | test | t/s |\n|---|---|---|---|---|---|---|\n"
ROW = "| llama 8B Q8_0 | 7.95 GiB | 8.03 B | CUDA | 99 | {test} | {rate} |"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("pp512", (512, 0, 0)), ("pp 512", (512, 0, 0)), ("tg128", (0, 128, 0)), ("tg 128", (0, 128, 0)),
        ("pp512+tg128", (512, 128, 0)), ("tg128 @ d4096", (0, 128, 4096)), ("pp512+tg32 @ d100", (512, 32, 100)),
        ("**tg128@d64**", (0, 128, 64)), ("`pp8`", (8, 0, 0)),
    ],
)  # fmt: skip
def test_names_of_tests(test: str, expected: tuple[int, int, int]) -> None:
    run = one(HEAD + ROW.format(test=test, rate="1.00 ± 0.10"))
    assert (run.n_prompt, run.n_gen, run.n_depth) == expected


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("5012.34 ± 21.07", (5012.34, 21.07)), ("5012.34", (5012.34, None)), ("1,234.56 ± 1.00", (1234.56, 1.0)),
        ("12.5 +/- 0.5", (12.5, 0.5)), ("12.5 &plusmn; 0.5", (12.5, 0.5)), ("12.5 ± nan", (12.5, None)),
        ("12.50 Â± 0.50", (12.5, 0.5)), ("12.50 ┬▒ 0.50", (12.5, 0.5)), ("12.5 t/s", (12.5, None)),
    ],
)  # fmt: skip
def test_rates_with_deviations(rate: str, expected: tuple[float, float | None]) -> None:
    run = one(HEAD + ROW.format(test="tg128", rate=rate))
    assert (run.t_s, run.t_s_std) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW.format(test="tg128", rate="fast"), "not tokens per second"),
        (ROW.format(test="tg128", rate="151,83 ± 1"), "not tokens per second"),
        (ROW.format(test="tg128", rate="0.00 ± 0.00"), "zero"),
        (ROW.format(test="gen", rate="1.00"), "not a test"),
        (ROW.format(test="@ d5", rate="1.00"), "not a test"),
        ("| llama | CUDA | tg128 | 1.00 |", "4 cells where the table's header has 7"),
        (ROW.replace("GiB", "GB").format(test="tg128", rate="1.00"), "not a size"),
        (ROW.replace("8.03 B", "many").format(test="tg128", rate="1.00"), "not a count"),
    ],
)
def test_a_bad_row_is_named_and_the_others_count(row: str, reason: str) -> None:
    good = ROW.format(test="pp512", rate="10.00 ± 1.00")
    result = read_runs(f"Look:\n{HEAD}{good}\n{row}\n{good}\n")
    assert len(result.runs) == 2
    [problem] = result.problems
    assert problem.line == 5
    assert reason in problem.reason


@pytest.mark.parametrize("separator", [" | ", "\t"])
def test_tables_without_outer_pipes_and_with_tabs(separator: str) -> None:
    header = separator.join(["model", "size", "params", "backend", "threads", "test", "t/s"])
    row = separator.join(["qwen2 1B Q8_0", "500.00 MiB", "494.03 M", "CPU", "8", "tg128", "20.00 ± 0.10"])
    run = one(f"{header}\n{row}\n")
    assert (run.threads, run.weights_gib, run.params_b) == (8, 500 / 1024, 0.49403)


def test_a_table_that_compares_two_builds_gives_a_run_for_each() -> None:
    text = (
        "| GPU | Model | Test | t/s master | t/s faster | Speedup |\n|---|---|---|---|---|---|\n"
        "| RTX 3090 | llama 8B Q4_0 | pp512 | 4000.50 | 4400.55 | 1.10 |\n"
    )
    runs = read_runs(text).runs
    assert [(run.build, run.t_s, run.model_label) for run in runs] == [
        ("master", 4000.5, "llama 8B"), ("faster", 4400.55, "llama 8B"),
    ]  # fmt: skip


def test_a_build_line_speaks_of_the_table_before_it_only() -> None:
    table = HEAD + ROW.format(test="tg128", rate="1.00")
    runs = read_runs(f"{table}\n\nprose\n\n{table}\n\nbuild: 8cf6b42 (5943)\n\n{table}\n").runs
    assert [run.build for run in runs] == [None, "8cf6b42 (5943)", None]


def test_a_row_without_its_header_is_reported() -> None:
    [problem] = read_runs(ROW.format(test="tg128", rate="1.00 ± 0.10")).problems
    assert "without the table's header" in problem.reason


# llama-batched-bench


def test_batched_bench_tells_single_stream_from_aggregate() -> None:
    result = read_runs(DATA / "batched-bench.md")
    assert result.problems == ()
    assert [(run.phase, run.n_prompt, run.n_gen, run.n_depth, run.n_parallel, run.t_s) for run in result.runs] == [
        ("prefill", 32, 0, 0, 1, 97.01), ("decode", 0, 8, 32, 1, 67.30),
        ("aggregate", 32, 0, 0, 2, 140.51), ("aggregate", 0, 8, 32, 2, 70.48),
        ("aggregate", 32, 0, 0, 4, 113.17), ("aggregate", 0, 8, 32, 4, 94.77),
    ]  # fmt: skip
    assert {(run.threads, run.n_batch, run.n_ubatch, run.flash_attn) for run in result.runs} == {(2, 2048, 512, "auto")}
    assert [run.class_ for run in result.runs] == [None, None, *["batched"] * 4]


LINE = {"n_kv_max": 4096, "n_ubatch": 512, "pp": 64, "tg": 8, "pl": 4, "n_kv": 288, "t_pp": 2.0, "t_tg": 0.5}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"speed_pp": 128.0, "speed_tg": 64.0}, [("aggregate", 4, 128.0), ("aggregate", 4, 64.0)]),
        ({"is_pp_shared": 1, "speed_pp": 32.0, "speed_tg": 64.0}, [("prefill", 1, 32.0), ("aggregate", 4, 64.0)]),
        ({"is_pp_shared": 1}, [("prefill", 1, 32.0), ("aggregate", 4, 64.0)]),
        ({"is_tg_separate": 1}, [("aggregate", 4, 128.0), ("decode", 1, 64.0)]),
        ({"tg": 0}, [("aggregate", 4, 128.0)]),
    ],
)
def test_batched_bench_lines(extra: dict[str, object], expected: list[tuple[str, int, float]]) -> None:
    runs = read_runs(json.dumps(LINE | extra)).runs
    assert [(run.phase, run.n_parallel, run.t_s) for run in runs] == expected


def test_sweep_bench_has_one_stream_at_growing_depth() -> None:
    text = (
        "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n|---|---|---|---|---|---|---|\n"
        "|   512 |    128 |   1024 |    2.000 |   256.00 |    4.000 |    32.00 |\n"
    )
    assert [(run.phase, run.n_depth, run.n_parallel, run.t_s) for run in read_runs(text).runs] == [
        ("prefill", 1024, 1, 256.0), ("decode", 1024, 1, 32.0),
    ]  # fmt: skip


# Timings of llama-cli and llama-server


def test_the_log_of_a_command_line_run() -> None:
    result = read_runs(DATA / "llama-completion.log")
    assert result.problems == ()
    prefill, decode = result.runs
    assert (prefill.phase, prefill.n_prompt, prefill.t_s) == ("prefill", 6, pytest.approx(272.45, rel=1e-3))
    assert (decode.phase, decode.n_gen, decode.n_depth, decode.t_s) == (
        "decode",
        15,
        6,
        pytest.approx(150.65, rel=1e-4),
    )
    assert (decode.backend, decode.threads, decode.n_ubatch, decode.type_k, decode.flash_attn) == (
        "CPU",
        2,
        512,
        "f16",
        "auto",
    )
    assert (decode.model_label, decode.quant, decode.params_b) == ("llama 256M", "Q4_1", pytest.approx(0.13452))
    assert decode.model_file == "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_server_s_log_its_responses_and_its_streams_agree() -> None:
    log = read_runs(DATA / "llama-server.log")
    assert log.problems == ()
    assert [(run.phase, run.n_prompt, run.n_gen) for run in log.runs] == [
        ("prefill", 13, 0), ("decode", 0, 24), ("prefill", 33, 0), ("decode", 0, 8), ("prefill", 1, 0),
        ("decode", 0, 8),
    ]  # fmt: skip
    answer = read_runs(DATA / "server-completion.json")
    stream = read_runs(DATA / "server-chat.sse")
    assert answer.problems == stream.problems == ()
    for logged, answered in zip(log.runs[:4], (*answer.runs, *stream.runs), strict=True):
        assert (logged.n_gen, logged.n_depth) == (answered.n_gen, answered.n_depth)
        assert logged.t_s == pytest.approx(answered.t_s, rel=1e-3)


def test_a_prompt_from_the_cache_counts_as_depth() -> None:
    assert read_runs(DATA / "llama-server.log").runs[5].n_depth == 33
    timings = {"cache_n": 900, "prompt_n": 100, "prompt_ms": 50.0, "predicted_n": 64, "predicted_ms": 630.0}
    prefill, decode = read_runs(json.dumps({"content": "…", "timings": timings})).runs
    assert (prefill.n_prompt, prefill.n_depth, prefill.t_s) == (100, 900, 2000.0)
    assert (decode.n_depth, decode.t_s) == (1000, pytest.approx(63 / 0.630))


def test_decode_is_recomputed_from_steps_whatever_was_printed() -> None:
    timings = {"prompt_n": 8, "prompt_ms": 4.0, "predicted_n": 5, "predicted_ms": 100.0, "predicted_per_second": 50.0}
    assert read_runs(json.dumps({"timings": timings})).runs[1].t_s == 40.0
    assert read_runs(json.dumps({"timings": timings | {"draft_n": 7}})).runs[1].class_ == "speculative"


@pytest.mark.parametrize(
    ("line", "n", "rate"),
    [
        (
            "llama_print_timings:        eval time =    1000.00 ms /   100 runs   (   10.00 ms per token,   1.0 t/s)",
            100,
            100.0,
        ),
        ("llama_perf_context_print:        eval time =    1000.00 ms /   100 runs   (   10.00 ms per", 100, 100.0),
        ("common_perf_print:        eval time =    1000.00 ms /   100 runs   (", 100, 100.0),
        ("       eval time =    1000.00 ms /   101 tokens (   10.00 ms per token", 101, 100.0),
        ("generation eval time =    1000.00 ms /   101 runs   (   10.00 ms per token", 101, 100.0),
        ("slot print_timing: id  0 | task 7 |        eval time =    1000.00 ms /   101 tokens (", 101, 100.0),
    ],
)
def test_timing_lines_of_all_versions(line: str, n: int, rate: float) -> None:
    prompt = (
        line.replace("generation eval", "eval").replace("       eval", "prompt eval").replace(" 1000.00", "  500.00")
    )
    prompt = prompt if "prompt eval" in prompt else "prompt eval time     =     500.00 ms /   101 tokens"
    prefill, decode = read_runs(f"{prompt}\n{line}\n").runs
    assert (prefill.phase, prefill.n_prompt, prefill.t_s) == ("prefill", prefill.n_prompt, prefill.n_prompt / 0.5)
    assert (decode.n_gen, decode.n_depth, decode.t_s) == (n, prefill.n_prompt, rate)


def test_requests_that_shared_the_server_are_no_single_stream() -> None:
    text = "\n".join([
        "slot launch_slot_: id  0 | task 1 | processing task",
        "slot launch_slot_: id  1 | task 2 | processing task",
        "slot print_timing: id  0 | task 1 |        eval time =    1000.00 ms /   101 tokens (",
        "slot      release: id  0 | task 1 | stop processing: n_tokens = 120, truncated = 0",
        "slot      release: id  1 | task 2 | stop processing: n_tokens = 120, truncated = 0",
        "slot launch_slot_: id  0 | task 3 | processing task",
        "slot print_timing: id  0 | task 3 |        eval time =    1000.00 ms /   101 tokens (",
    ])  # fmt: skip
    result = read_runs(text)
    assert [run.t_s for run in result.runs] == [100.0]
    assert [problem.line for problem in result.problems] == [3]


def test_speculative_decoding_is_told_by_the_next_line() -> None:
    text = "       eval time =    1000.00 ms /   101 tokens (\ndraft acceptance = 0.70000 (   70 accepted /   100"
    assert one(text).class_ == "speculative"


def test_a_model_split_between_card_and_host_is_offload() -> None:
    text = (
        "load_tensors: offloaded 20/33 layers to GPU\n"
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11000 MiB free\n"
        "llama_perf_context_print:        eval time =    1000.00 ms /   100 runs   (\n"
    )
    run = one(text)
    assert (run.class_, run.ngl, run.backend, run.device_detail) == ("offload", 20, "CUDA", "NVIDIA GeForce RTX 3060")


@pytest.mark.parametrize(
    ("lines", "backend", "device"),
    [
        ("ggml_cuda_init: found 1 ROCm devices:\n  Device 0: AMD Radeon RX 7900 XTX, gfx1100 (0x1100), VMM: no", "ROCm",
         "AMD Radeon RX 7900 XTX"),
        ("ggml_vulkan: Found 1 Vulkan devices:\nggml_vulkan: 0 = AMD Radeon 780M (RADV PHOENIX) (radv) | uma: 1",
         "Vulkan", "AMD Radeon 780M (RADV PHOENIX)"),
        ("ggml_metal_init: GPU name:   Apple M2 Ultra", "Metal", "Apple M2 Ultra"),
        ("|  0| [level_zero:gpu:0]|  Intel Arc A770 Graphics|   12.55|    512|", "SYCL", "Intel Arc A770 Graphics"),
    ],
)  # fmt: skip
def test_devices_in_log_lines(lines: str, backend: str, device: str) -> None:
    run = one(f"{lines}\nllama_print_timings:        eval time =    1000.00 ms /   100 runs   (\n")
    assert (run.backend, run.device_detail, run.device_count) == (backend, device, 1)


def test_the_rate_of_a_prompt_of_unknown_length_is_reported() -> None:
    result = read_runs("[ Prompt: 512.3 t/s | Generation: 45.6 t/s ]")
    assert [(run.phase, run.t_s) for run in result.runs] == [("decode", 45.6)]
    assert "length" in result.problems[0].reason


# Ollama


def test_ollama_text_and_api() -> None:
    prefill, decode = read_runs(DATA / "ollama-verbose.txt").runs
    assert (prefill.engine, prefill.n_prompt, prefill.t_s) == ("ollama", 26, 200.0)
    assert (decode.n_gen, decode.n_depth, decode.t_s) == (150, 26, pytest.approx(149 / 62.5))
    api = read_runs(DATA / "ollama-api.json")
    assert api.problems == ()
    assert [(run.phase, run.t_s, run.model_label, run.quant) for run in api.runs] == [
        ("prefill", 200.0, "llama3.2:3b-instruct-q4_K_M", "Q4_K_M"),
        ("decode", 100.0, "llama3.2:3b-instruct-q4_K_M", "Q4_K_M"),
    ]


def test_ollama_with_a_cached_prompt() -> None:
    run = one("eval count:           11 token(s)\neval duration:        1h0m1s\neval rate:            0.00 tokens/s\n")
    assert (run.n_depth, run.t_s, run.notes) == (0, pytest.approx(10 / 3601), "prompt length not stated")


# Measurement files


def test_the_corpus_survives_reading_and_writing() -> None:
    with CORPUS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    result = read_runs(CORPUS)
    assert result.problems == ()
    numbers = {"weights_gib", "params_b", "t_s", "t_s_std"}
    for row, run in zip(rows, result.runs, strict=True):
        written = to_row(run)
        assert {k: v for k, v in written.items() if k not in numbers} == {
            k: v for k, v in row.items() if k not in numbers
        }
        assert all(float(written[name] or 0) == float(row[name] or 0) for name in numbers)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_in_our_columns(delimiter: str) -> None:
    text = delimiter.join(["phase", "t_s", "n_gen", "class", "model_id"]) + "\n"
    rows = ["decode|12.5|128|clean-single|llama3-8b", "decode|fast|128||x", "walk|1|2||x", "decode|1|2|dirty|x"]
    result = read_runs(text + "\n".join(row.replace("|", delimiter) for row in rows))
    assert [(run.t_s, run.class_, run.model_id) for run in result.runs] == [(12.5, "clean-single", "llama3-8b")]
    assert [problem.line for problem in result.problems] == [3, 4, 5]


values = st.none() | st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=8)


@given(
    phase=st.sampled_from(["prefill", "decode", "mixed", "aggregate"]),
    rate=st.floats(1e-3, 1e6),
    tokens=st.tuples(*[st.integers(0, 10**6)] * 3),
    label=values.filter(lambda text: text is None or text.strip() == text),
    flash=st.sampled_from([None, "0", "1", "auto"]),
)
def test_a_run_survives_a_measurement_file(
    phase: str, rate: float, tokens: tuple[int, int, int], label: str | None, flash: str | None
) -> None:
    n_prompt, n_gen, n_depth = tokens
    run = Run(
        phase=phase, t_s=rate, n_prompt=n_prompt, n_gen=n_gen, n_depth=n_depth, model_label=label, flash_attn=flash
    )  # type: ignore[arg-type]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerow(to_row(run))
    assert replace(one(text.getvalue()), origin=None, id=None) == run


# Sources


def test_a_folder_is_read_with_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "a.txt").write_text((DATA / "llama-bench.json").read_text())
    (tmp_path / "deeper" / "b").write_text((DATA / "llama-bench.md").read_text())
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x00\x00\x00")
    (tmp_path / "notes.txt").write_text("nothing here\n")
    result = read_runs(tmp_path)
    assert len(result.runs) == 4
    assert {(Path(problem.file).name, problem.reason) for problem in result.problems} == {
        ("model.gguf", "not a text file"), ("notes.txt", "no benchmark output that is known here"),
    }  # fmt: skip


def test_streams_texts_paths_and_several_of_them() -> None:
    path = DATA / "llama-bench.csv"
    runs = read_runs(path).runs
    for source in (path.open(), path.read_text(), str(path), io.StringIO(path.read_text())):
        assert [replace(run, id=None, origin=None) for run in read_runs(source).runs] == [
            replace(run, id=None, origin=None) for run in runs
        ]
    both = read_runs([path, DATA / "llama-bench.json"]).runs
    assert len(both) == 4
    assert len({run.id for run in both}) == 4


@pytest.mark.parametrize("bad", ["missing.json", "nul\x00byte"])
def test_files_that_cannot_be_read(tmp_path: Path, bad: str) -> None:
    with pytest.raises(InputError):
        read_runs(tmp_path / bad)


def test_files_that_are_no_text_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\x00\x01")
    with pytest.raises(InputError, match="not a text file"):
        read_runs(binary)
    monkeypatch.setattr("llmcalc.calibration.readers.sources.MAX_BYTES", 100)
    with pytest.raises(InputError, match="larger than"):
        read_runs(DATA / "llama-bench.json")


def test_several_formats_in_one_text() -> None:
    names = [
        *(f"llama-bench.{format}" for format in FORMATS),
        "batched-bench.md",
        "ollama-verbose.txt",
        "server-chat.sse",
    ]
    separate = [run for name in names for run in read_runs(DATA / name).runs]
    text = "\n\nand now\n\n".join((DATA / name).read_text() for name in names)
    assert [(run.phase, run.t_s) for run in read_runs(text).runs] == [(run.phase, run.t_s) for run in separate]


# Nothing else escapes

TEXTS = [path.read_text() for path in sorted(DATA.iterdir())]
PIECES = [line + "\n" for text in TEXTS for line in text.splitlines()]


def check(result: ReadResult, n_lines: int) -> None:
    for run in result.runs:
        assert 0 < run.t_s < 1e9
        assert run.n_prompt >= 0 and run.n_gen >= 0 and run.n_depth >= 0
        assert (run.phase == "aggregate") == (run.n_parallel > 1)
        assert run.origin and 1 <= run.origin.line <= n_lines
        to_row(run)
    for problem in result.problems:
        assert 0 <= problem.line <= n_lines
        str(problem).encode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=40), max_size=25))
def test_any_mixture_of_lines_is_read_without_an_exception(pieces: list[str]) -> None:
    text = "".join(pieces)
    check(read_runs(io.StringIO(text)), len(text.splitlines()) or 1)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(TEXTS), st.lists(st.tuples(st.floats(0, 1), st.text(max_size=6), st.integers(0, 40)), max_size=8)
)
def test_damaged_output_is_read_without_an_exception(text: str, damages: list[tuple[float, str, int]]) -> None:
    for place, inserted, removed in damages:
        at = int(place * len(text))
        text = text[:at] + inserted + text[at + removed :]
    check(read_runs(io.StringIO(text)), len(text.splitlines()) or 1)


NAMES = (
    "n_prompt", "n_gen", "avg_ts", "samples_ts", "backends", "gpu_info", "main_gpu", "split_mode", "pp", "tg", "pl",
    "speed_tg", "timings", "prompt_ms", "predicted_ms", "predicted_n", "eval_count", "eval_duration", "model",
    "model_type", "choices", "test_time",
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    max_leaves=30,
)


@given(anything)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_read_without_an_exception(value: object) -> None:
    text = json.dumps([value])
    check(read_runs(io.StringIO(text)), 1)


@pytest.mark.parametrize(
    "text",
    [
        "{\n" * 20_000,
        '{"a":\n' * 20_000,
        '{"x":[\n' * 900 + '{"a":1},\n' * 5_000,
        '{"a":' * 100_000,
        '{"n_prompt":' + "9" * 5000 + "}",
        "[" * 100_000,
        "|" * 100_000,
        "> " * 100_000,
        "INSERT INTO t (n_prompt) VALUES (" + "''" * 100_000,
        "phase,t_s\n" + '"\n' * 20_000,
        "prompt eval time = " + " " * 100_000,
    ],
    ids=range(11),
)
def test_texts_made_to_take_for_ever(text: str) -> None:
    result = read_runs(text)
    assert result.runs == ()
    assert len(result.problems) <= 202


# Labels, eras


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("llama 8B Q4_K - Medium", ("llama 8B", "Q4_K_M")),
        ("qwen3moe 30B.A3B Q4_K - Small", ("qwen3moe 30B.A3B", "Q4_K_S")),
        ("llama 7B mostly Q4_0", ("llama 7B", "Q4_0")),
        ("gpt-oss 20B MXFP4 MoE", ("gpt-oss 20B", "MXFP4_MOE")),
        ("llama 1B all F32", ("llama 1B", "F32")),
        ("qwen2 ?B IQ2_XS - 2.3125 bpw", ("qwen2 ?B", "IQ2_XS")),
        ("llama 8B Q4_K - Medium (guessed)", ("llama 8B", "Q4_K_M")),
        ("llama 8B", ("llama 8B", None)),
        ("", ("", None)),
    ],
)
def test_labels(label: str, expected: tuple[str, str | None]) -> None:
    assert split_label(label) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        (r"C:\models\Qwen3-30B-A3B-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("llama3.2:3b-instruct-q4_K_M", "Q4_K_M"),
        ("gemma-3-270m-F16.gguf", "F16"),
        ("ggml-model.gguf", None),
    ],
)
def test_quantisation_in_file_names(path: str, expected: str | None) -> None:
    assert file_quantisation(path) == expected


def test_a_dynamic_mixture_is_told_by_the_file_name_alone() -> None:
    file = {"model_filename": "Qwen3-8B-UD-Q4_K_XL.gguf"}
    assert one(json.dumps(RECORD | file)).quant == "UD-Q4_K_XL"
    assert one(json.dumps(RECORD | {"model_filename": "renamed-Q8_0.gguf"})).quant == "Q4_K_M"


@pytest.mark.parametrize(
    ("number", "date", "expected"),
    [(1742, None, "2023H2"), (1743, None, "2024H1"), (11434, "2020-01-01", "2026H2"), (None, "2025-06-30", "2025H1"),
     (None, "2025-07", "2025H2"), (0, None, None), (None, "yesterday", None)],
)  # fmt: skip
def test_eras(number: int | None, date: str | None, expected: str | None) -> None:
    assert era(number, date) == expected


# Which device and which model


def bench(**extra: object) -> Run:
    gpu = {"backends": "CUDA", "gpu_info": "NVIDIA GeForce RTX 4090"}
    record = {"model_type": "llama 8B Q4_K - Medium", "n_gen": 128, "avg_ts": 100.0, "n_gpu_layers": 99}
    return one(json.dumps(gpu | record | extra))


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    return Resolver()


@pytest.mark.parametrize(
    ("extra", "model"),
    [
        ({"model_n_params": 8030261312, "model_size": 4912898048}, "llama3"),
        # A size class says layers, not size: Mistral Small, NeMo and Llama 2 13B all print "llama 13B".
        ({"model_type": "llama 13B Q4_K - Medium", "model_n_params": 12247782400, "model_size": 1}, "mistral-nemo"),
        ({"model_type": "llama 13B Q4_K - Medium", "model_n_params": 23572403200, "model_size": 1}, "mistral-small"),
        ({"model_type": "qwen3 4B Q8_0", "model_n_params": 4022468096, "model_size": 4274448384}, "qwen3-4b"),
        # RoPE factors that a conversion leaves out, MTP blocks that it keeps.
        ({"model_n_params": 8030261248, "model_size": 1}, "llama3"),
        (
            {"model_type": "glm4moe 106B.A12B Q4_K - Medium", "model_n_params": 110468824832, "model_size": 1},
            "glm-4.5-air",
        ),
        # Without parameters the file name decides.
        ({"model_filename": "Qwen3-4B-Q8_0.gguf"}, "qwen3-4b"),
    ],
)
def test_models_are_matched_by_parameters(resolver: Resolver, extra: dict[str, object], model: str) -> None:
    found = resolver.resolve(bench(**extra))
    assert isinstance(found, ResolvedRun)
    assert found.model.id.startswith(model)
    assert (found.run.model_id, found.run.hardware_id, found.run.class_) == (
        found.model.id,
        "geforce-rtx-4090",
        "clean-single",
    )


@pytest.mark.parametrize(
    ("params", "model"), [("8.03 B", "llama3-8b"), ("6.74 B", "llama1-7b"), ("70.55 B", "llama3-70b")]
)
def test_printed_parameters_are_enough_where_shapes_agree(resolver: Resolver, params: str, model: str) -> None:
    table = HEAD + ROW.replace("8.03 B", params).format(test="tg128", rate="1.00")
    found = resolver.resolve(replace(one(table), hardware_id="geforce-rtx-4090"))
    assert isinstance(found, ResolvedRun)
    assert found.model.id == model


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"model_n_params": 123456789, "model_size": 1}, "no model in the catalog"),
        ({}, "without parameters"),
        ({"model_type": None}, "does not say which model"),
        ({"gpu_info": ""}, "does not say which GPU"),
        ({"gpu_info": "NVIDIA GeForce RTX 9999 Ti"}, "not in the catalog"),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3090"}, "several different devices"),
        ({"backends": "CPU", "cpu_info": "Intel(R) Xeon(R) Processor"}, "may be any of"),
        ({"model_type": "llama 8B", "model_n_params": 8030261312, "model_size": 1}, "quantised"),
    ],
)
def test_what_cannot_be_resolved_says_why(resolver: Resolver, extra: dict[str, object], reason: str) -> None:
    found = resolver.resolve(bench(**extra))
    assert isinstance(found, Unresolved)
    assert reason in found.reason
    assert "\n" not in found.reason


def test_overrides_win() -> None:
    run = bench(gpu_info="something", model_type="unknown")
    found = resolve(run, gpu="RTX 3090", model="qwen3-8b", quant="Q8_0")
    assert isinstance(found, ResolvedRun)
    assert (found.device.id, found.model.id, found.run.quant) == ("geforce-rtx-3090", "qwen3-8b", "Q8_0")
    with pytest.raises(InputError):
        resolve(run, gpu="no such card")


@pytest.mark.parametrize(
    ("backend", "description", "device"),
    [
        ("CUDA", "NVIDIA GeForce RTX 4060 Laptop GPU", "geforce-rtx-4060-laptop"),
        ("CUDA", "NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Vulkan", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "radeon-rx-7900-xtx"),
        ("Vulkan", "Radeon 8060S Graphics (RADV GFX1151)", "radeon-8060s"),
        ("SYCL", "Intel(R) Arc(TM) B580 Graphics", "arc-b580"),
        ("CPU", "13th Gen Intel(R) Core(TM) i9-13900K", "core-i9-13900k"),
        ("CPU", "AMD Ryzen 9 7950X 16-Core Processor", "ryzen-9-7950x"),
    ],
)
def test_devices_as_drivers_name_them(resolver: Resolver, backend: str, description: str, device: str) -> None:
    run = bench(backends=backend, gpu_info=description, cpu_info=description, model_filename="Qwen3-4B-Q8_0.gguf")
    found = resolver.resolve(run)
    assert isinstance(found, ResolvedRun)
    assert found.device.id == device


def test_a_chip_that_does_not_tell_its_cores_is_said_to_be_assumed(resolver: Resolver) -> None:
    run = bench(backends="Metal", gpu_info="Apple M3 Max", model_filename="Qwen3-4B-Q8_0.gguf")
    found = resolver.resolve(run)
    assert isinstance(found, ResolvedRun)
    assert found.run.notes is not None and found.device.id in found.run.notes
    named = resolve(run, gpu=found.device.id)
    assert isinstance(named, ResolvedRun)
    assert named.run.notes is None


@pytest.mark.parametrize(("ngl", "expected"), [(99, "clean-single"), (36, "offload"), (-1, "clean-single")])
def test_layers_left_on_the_host_are_offload(resolver: Resolver, ngl: int, expected: str) -> None:
    found = resolver.resolve(bench(n_gpu_layers=ngl, model_filename="Qwen3-8B-Q8_0.gguf"))
    assert isinstance(found, ResolvedRun)
    assert found.run.class_ == expected


def test_the_corpus_resolves_by_its_ids(resolver: Resolver) -> None:
    runs = [run for run in read_runs(CORPUS).runs if run.class_ == "clean-single"]
    found = [resolver.resolve(run) for run in runs]
    assert [each.run.id for each in found if isinstance(each, Unresolved)] == []


def test_labels_and_parameters_of_the_corpus_never_lead_to_another_shape(resolver: Resolver) -> None:
    runs = [run for run in read_runs(CORPUS).runs if run.class_ == "clean-single" and run.model_label and run.params_b]
    resolved = 0
    for run in runs:
        label, _ = split_label(run.model_label or "")
        found = resolver.resolve(replace(run, model_id=None, architecture=architecture(label)))
        if isinstance(found, ResolvedRun):
            resolved += 1
            expected = resolver.resolve(run)
            assert isinstance(expected, ResolvedRun)
            assert replace(shape(found.model), vocab=0) == replace(shape(expected.model), vocab=0)
    assert resolved > 0.9 * len(runs)  # the others are fine-tunes under names of their own


SERVER = {
    "three at once": (
        [
            *(f"slot launch_slot_: id  {n} | task {n} | processing task" for n in (1, 2, 3)),
            "slot print_timing: id  3 | task 3 | prompt eval time = 100.00 ms / 50 tokens",
        ],
        "served together with others",
    ),
    "a number that is none": (
        ["prompt eval time = 12.3 ms of 7 tokens"],
        "this timing line cannot be read",
    ),
}


@pytest.mark.parametrize("name", SERVER)
def test_timings_of_no_use_are_told(name: str) -> None:
    lines, says = SERVER[name]
    result = read_runs("\n".join([*lines, ""]))
    assert result.runs == ()
    assert [says in str(problem) for problem in result.problems] == [True]


def test_a_prompt_of_which_nothing_was_timed_is_no_run() -> None:
    result = read_runs("eval time = 0.00 ms / 0 runs\nprompt eval time = 1.00 ms / 0 tokens\n")
    assert result.runs == ()
    assert ["no benchmark output" in str(problem) for problem in result.problems] == [True]


@pytest.mark.parametrize(
    ("response", "runs"),
    [
        ({"choices": [{"finish_reason": None}]}, 0),  # a part of a stream
        ({"stop": False}, 0),
        ({"choices": [{"finish_reason": "stop"}]}, 2),
        ({"stop": True}, 2),
        ({}, 2),
    ],
)
def test_parts_of_a_stream_say_nothing_yet(response: dict[str, object], runs: int) -> None:
    timings = {"prompt_n": 10, "prompt_ms": 100.0, "predicted_n": 5, "predicted_ms": 80.0}
    assert len(read_runs(json.dumps(response | {"timings": timings}) + "\n").runs) == runs


def test_files_that_are_no_benchmark_output(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 32 MiB"):
        read_runs(large)
    with pytest.raises(InputError, match="larger than 32 MiB"):
        read_runs(io.StringIO(" " * (MAX_BYTES + 1)))
    with pytest.raises(InputError, match="neither a file nor a folder"):
        read_runs(Path(os.devnull))
    result = read_runs(tmp_path)  # as one of a folder it spoils nothing
    assert result.runs == () and len(result.problems) == 1


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO((DATA / "llama-bench.jsonl").read_text(encoding="utf-8")))
    rates = [run.t_s for run in read_runs("-").runs]
    assert rates == [run.t_s for run in read_runs(DATA / "llama-bench.jsonl").runs] != []
