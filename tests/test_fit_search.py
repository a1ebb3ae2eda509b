"""The search for settings: what fits, what no other choice beats, what the commands say, what --fit would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from published_models import published

from llmcalc.errors import InputError
from llmcalc.fit_placements import Task, proposals
from llmcalc.fit_search import Limits, fit
from llmcalc.llama_cpp_fit import llama_cpp_fit
from llmcalc.placement_settings import rules_of
from llmcalc.quality import quality_class, quality_rank
from llmcalc.quantization import weights
from llmcalc.request import Request, resolve
from llmcalc.system import Device, System
from llmcalc.units import MIB
from llmcalc.workload import Workload

RECORDED = Path(__file__).parent / "data" / "memory" / "recorded_fit.txt"


def request(**given: Any) -> Request:
    asked: dict[str, Any] = {"gpu": "rtx3060", "cpu": "ryzen-9-9900x", "ram": "64GiB", "ctx": "16k", "quant": "Q4_K_M"}
    return resolve(**(asked | {"model": "qwen3-30b-a3b"} | given))


def test_choices_fit_and_none_beats_another() -> None:
    report = fit(request(), file_types=("Q8_0", "Q4_K_M", "Q2_K"))
    assert len(report.choices) > 3
    for choice in report.choices:
        assert choice.fits
        assert choice.plan.fits
        beaten = [
            other
            for other in report.choices
            if other.decode_tokens_per_s > 1.02 * choice.decode_tokens_per_s
            and other.prefill_tokens_per_s > 1.05 * choice.prefill_tokens_per_s
            and other.request.weights.bits_per_weight >= choice.request.weights.bits_per_weight
        ]
        assert not beaten


def test_the_best_is_of_a_good_quality_and_fast() -> None:
    report = fit(request(), file_types=("Q8_0", "Q4_K_M", "Q2_K"))
    first = report.choices[0]
    assert first.quality == "good"
    assert first.settings.n_cpu_moe
    assert report.llama_cpp is not None
    assert report.llama_cpp.decode_tokens_per_s <= first.decode_tokens_per_s


def test_experts_on_the_host_beat_whole_layers_there() -> None:
    report = fit(request(), file_types=("Q4_K_M",), cache_types=("F16",), ubatches=(512,))
    with_experts = [c.decode_tokens_per_s for c in report.choices if c.settings.n_cpu_moe]
    whole_layers = [c.decode_tokens_per_s for c in report.choices if c.settings.ngl]
    assert max(with_experts) > max(whole_layers, default=0)


def test_what_fits_whole_needs_no_options() -> None:
    report = fit(request(model="llama3-8b"), fixed_weights=True, cache_types=("F16",), ubatches=(512,))
    assert report.choices[0].settings.is_default
    assert report.choices[0].command() == "llama-server -m llama3-8b-Q4_K_M.gguf -c 16384 -ngl all -np 1"


def test_a_quantisation_that_is_fixed_stays() -> None:
    report = fit(request(quant="Q5_K_M"), fixed_weights=True)
    assert {choice.request.quantisation for choice in report.choices} == {"Q5_K_M"}


def test_limits_are_kept_or_the_nearest_is_named() -> None:
    kept = fit(request(), Limits(min_decode=40), file_types=("Q8_0", "Q4_K_M"))
    assert all(choice.decode_tokens_per_s >= 40 for choice in kept.choices)
    impossible = fit(request(), Limits(min_decode=1e6), file_types=("Q8_0", "Q4_K_M"))
    assert len(impossible.choices) == 1
    assert "Nothing that fits reaches" in impossible.notes[0]


def test_when_nothing_fits_it_says_so() -> None:
    report = fit(request(model="deepseek-r1", ram="32GiB"), file_types=("Q4_K_M",))
    assert not report.choices[0].fits
    assert "Nothing fits" in report.notes[0]


def test_contexts_to_choose_between() -> None:
    report = fit(request(), file_types=("Q4_K_M",), contexts=(8192, 40960), ubatches=(512,))
    assert {choice.request.workload.context for choice in report.choices} == {8192, 40960}


def test_the_fastest_gpu_is_filled_first() -> None:
    asked = request(model="llama3-70b", gpu=["rtx3060", "rtx3090"], ctx="4k")
    report = fit(asked, file_types=("IQ4_XS",), cache_types=("F16",), ubatches=(512,))
    assert report.choices[0].fits
    assert report.choices[0].decode_tokens_per_s > 4


def test_commands_of_all_three_tools() -> None:
    choice = fit(request(), file_types=("Q4_K_M",), cache_types=("Q8_0",), ubatches=(2048,)).choices[0]
    n = choice.settings.n_cpu_moe
    server, cli, bench = (choice.command(tool) for tool in ("llama-server", "llama-cli", "llama-bench"))
    options = f"-c 16384 -ngl all --n-cpu-moe {n} -ctk q8_0 -ctv q8_0 -ub 2048"
    assert server == f"llama-server -m qwen3-30b-a3b-Q4_K_M.gguf {options} -np 1"
    assert cli == f"llama-cli -m qwen3-30b-a3b-Q4_K_M.gguf {options}"
    assert f"-ncmoe {n}" in bench
    assert bench.startswith("llama-bench -m qwen3-30b-a3b-Q4_K_M.gguf")


def test_the_contract_of_a_choice() -> None:
    data = fit(request(), file_types=("Q4_K_M",), ubatches=(512,)).to_dict()
    for choice in data["choices"]:
        assert choice.keys() >= {"settings", "command", "decode_tokens_per_s", "prefill_tokens_per_s", "fits"}
        assert choice["settings"]["quantisation"] == "Q4_K_M"


def test_a_cpu_alone_has_one_placement() -> None:
    asked = request(gpu=None)
    report = fit(asked, file_types=("Q4_K_M",), cache_types=("F16",), ubatches=(512,))
    assert report.choices[0].settings.is_default
    assert report.llama_cpp is None


def test_nothing_to_try_is_said() -> None:
    with pytest.raises(InputError, match="nothing to try"):
        fit(request(), file_types=())


@pytest.mark.parametrize(
    ("name", "cache", "expected"),
    [("F16", "F16", "lossless"), ("Q8_0", "Q8_0", "lossless"), ("Q6_K", "F16", "high"), ("Q4_K_M", "F16", "good"),
     ("UD-Q4_K_XL", "F16", "good"), ("MXFP4_MOE", "F16", "good"), ("Q4_K_M", "Q4_0", "fair"),
     ("IQ3_XXS", "F16", "fair"), ("Q2_K", "F16", "poor"), ("IQ1_S", "Q4_0", "very poor")],
)  # fmt: skip
def test_quality_classes(name: str, cache: str, expected: str) -> None:
    assert quality_class(name, cache) == expected
    assert quality_rank("Q8_0") > quality_rank("Q4_K_M") > quality_rank("IQ1_S")


def recorded() -> list[str]:
    return RECORDED.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", recorded())
def test_llama_cpps_own_choice_to_the_layer(line: str) -> None:
    name, *fields = line.split()
    of = dict(field.split("=", 1) for field in fields)
    devices = tuple(
        Device(f"gpu{i}", "GPU", "nvidia", "gpu", "desktop", "Ada Lovelace", 1e12, memory_bytes=float(mib) * MIB)
        for i, mib in enumerate(of["capacity"].split(","))
    )
    model = published(name)
    task = Task(model, weights(model, "F16"), Workload(context=8192), System(devices), "CUDA")
    settings = llama_cpp_fit(task).settings
    layers = model.n_layers + 1
    assert (layers if settings.ngl is None else settings.ngl) == (layers if of["ngl"] == "-1" else int(of["ngl"]))
    if of["ts"] != "-":
        assert settings.tensor_split == tuple(map(float, of["ts"].split(",")))
    rules = rules_of(settings, model, len(devices))
    assert bool(rules) == (of["rules"] != "0")
    if rules and "exps" not in of["first"]:
        assert rules[0][0] == of["first"]
        assert rules[1][0].count("|") - 3 == int(of["rules"]) - 2  # llama.cpp has one for the output layer too


def test_proposals_need_the_least_when_nothing_fits() -> None:
    model = published("llama3-70b")
    tiny = Device("gpu", "GPU", "nvidia", "gpu", "desktop", "Ada Lovelace", 1e12, memory_bytes=600.0 * MIB)
    task = Task(model, weights(model, "Q4_K_M"), Workload(context=8192), System((tiny,)), "CUDA")
    (found,) = [one for one in proposals(task) if one.settings.ngl == 0] or proposals(task)[:1]
    assert found.settings.ngl == 0
