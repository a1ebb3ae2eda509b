"""What people type → devices, models, quantisations and lengths, or one sentence that helps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmcalc.errors import InputError
from llmcalc.importers.hf_config import write_config
from llmcalc.model_catalog import find_model
from llmcalc.request import GPU_KINDS, resolve, resolve_device, resolve_model
from llmcalc.units import parse_tokens


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("RTX 4090 24GB", "geforce-rtx-4090"), ("4090 laptop", "geforce-rtx-4090-laptop"),
        ("RTX 4090 48GB", "geforce-rtx-4090-48gb-mod"), ("RTX3090Ti", "geforce-rtx-3090-ti"),
        ("M3 Max 128GB", "apple-m3-max-40c"), ("Mac Studio M2 Ultra", "apple-m2-ultra-76c"),
        ("MacBook Pro M4 Max", "apple-m4-max-40c"), ("mac mini m4", "apple-m4-10c"), ("iMac M1", "apple-m1-8c"),
        ("MacBook Air M2", "apple-m2-10c"), ("Ryzen AI Max+ 395", "radeon-8060s"), ("DGX Spark", "gb10"),
        ("A100 80GB PCIe", "a100-pcie-80gb"), ("RTX PRO 6000", "rtx-pro-6000-blackwell"),
    ],
)  # fmt: skip
def test_devices_as_people_type_them(typed: str, id: str) -> None:
    assert resolve_device(typed, GPU_KINDS).id == id


@pytest.mark.parametrize("typed", ["2x3090", "2 x RTX 3090", "RTX 3090 x2", "rtx4090,rtx3090", "4090 + 3090"])
def test_several_devices_in_one_name_are_told_how_they_are_named(typed: str) -> None:
    with pytest.raises(InputError, match="--gpu rtx3090 --gpu rtx3090"):
        resolve_device(typed, GPU_KINDS)


def test_other_unknown_devices_are_not() -> None:
    with pytest.raises(InputError) as caught:
        resolve_device("rtx 9999 max", GPU_KINDS)
    assert "one by one" not in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "id", "quantisation"),
    [
        ("Llama-3.3-70B-Instruct-Q4_K_M.gguf", "llama3.3-70b", "Q4_K_M"),
        ("Qwen2.5-Coder-32B-Instruct-Q5_K_M.gguf", "qwen2.5-coder-32b", "Q5_K_M"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q6_K", "llama3.1-8b", "Q6_K"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q8_0", "qwen3-8b", "Q8_0"),
        ("llama3.1:8b-instruct-q8_0", "llama3.1-8b", "Q8_0"),
        ("unsloth/Qwen3-30B-A3B-GGUF", "qwen3-30b-a3b", "Q4_K_M"),
        ("qwen3:30b-a3b", "qwen3-30b-a3b", "Q4_K_M"), ("qwen3:30b", "qwen3-30b-a3b", "Q4_K_M"),
        ("deepseek-r1:70b", "deepseek-r1-distill-llama-70b", "Q4_K_M"), ("deepseek-r1", "deepseek-r1", "Q4_K_M"),
        ("tinyllama", "tinyllama-1.1b", "Q4_K_M"), ("gpt-oss:20b", "gpt-oss-20b", "MXFP4_MOE"),
        ("gpt-oss-120b-mxfp4-00001-of-00003.gguf", "gpt-oss-120b", "MXFP4_MOE"),
    ],
)  # fmt: skip
def test_models_as_people_type_them(typed: str, id: str, quantisation: str) -> None:
    found = resolve_model(typed)
    assert (found.model.id, found.quantisation) == (id, quantisation)


def test_a_quantisation_that_is_named_wins_over_the_name_s() -> None:
    assert resolve_model("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q6_K", "q4").quantisation == "Q4_K_M"


def test_an_empty_quantisation_is_no_choice() -> None:
    with pytest.raises(InputError, match="empty"):
        resolve_model("llama3-8b", " ")


@pytest.mark.parametrize(
    ("typed", "stand_in"), [("UD-Q4_K_XL", "Q4_K_M"), ("UD-IQ2_M", "IQ2_M"), ("Q3_K_XL", "Q3_K_M")]
)
def test_a_mixture_without_rule_names_one_that_is_close(typed: str, stand_in: str) -> None:
    with pytest.raises(InputError, match=f"take {stand_in}, which is close"):
        resolve_model("llama3-8b", typed)


@pytest.mark.parametrize(
    ("typed", "tokens"),
    [("128K", 131072), ("1M", 2**20), ("32768 tokens", 32768), ("128k tokens", 131072), ("131,072", 131072),
     ("64Ki", 65536)],
)  # fmt: skip
def test_lengths_as_people_type_them(typed: str, tokens: int) -> None:
    assert parse_tokens(typed, "ctx") == tokens


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "llmcalc", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("llmcalc ")
    failed = subprocess.run([sys.executable, "-m", "llmcalc", "nonsense"], capture_output=True, text=True)
    assert failed.returncode == 2 and not failed.stdout and "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gpu": "rtx4090", "figures": {"cores": 8}}, "cores: only a CPU that runs the model has them"),
        ({"cpu": "custom", "figures": {"bandwidth": "90 GB/s"}}, "a custom CPU needs the number of its cores"),
        ({"cpu": "ryzen-9-7950x", "figures": {"cores": 0}}, "cores: must be a whole number of at least 1, got 0"),
        ({"cpu": "ryzen-9-7950x", "figures": {"cores": 99}}, "has 16, so it cannot run on 99"),
        ({"cpu": "ryzen-9-7950x", "threads": 0}, "threads: must be at least 1, got 0"),
        ({"gpu": ["rtx4090", "rtx3090"], "figures": {"memory": "48 GiB"}}, "go with one kind of device"),
        ({}, "no device: name one with --gpu"),
    ],
)
def test_machines_that_cannot_be_meant(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        resolve(model="llama3-8b", **given)


def test_a_quantised_checkpoint_is_said_to_be_converted(tmp_path: Path) -> None:
    config = write_config(find_model("llama3-8b"))
    plain, stored = tmp_path / "plain.json", tmp_path / "stored.json"
    plain.write_text(json.dumps(config), encoding="utf-8")
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    stored.write_text(json.dumps(config), encoding="utf-8")
    assert not any("checkpoint" in note for note in resolve_model(plain).notes)
    assert any("stored as awq (4." in note for note in resolve_model(stored).notes)
