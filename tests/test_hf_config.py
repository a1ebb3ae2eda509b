"""Hugging Face configurations: originals against the catalog, round trips, quantisation, malformed input."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.architecture import Model, MoeFfn
from llmcalc.conventions import CONVENTIONS
from llmcalc.errors import InputError
from llmcalc.importers.hf_config import read_config, read_quantization, write_config
from llmcalc.importers.hf_names import CLASSES, MODEL_TYPES
from llmcalc.model_catalog import find_model, list_models
from llmcalc.tensors import total_params

Factory = pytest.TempPathFactory
LINES = (Path(__file__).parent / "data" / "models" / "configs.jsonl").read_text(encoding="utf-8").splitlines()
ORIGINALS: dict[str, dict[str, Any]] = {row["id"]: row["config"] for row in map(json.loads, LINES)}
LLAMA = ORIGINALS["llama1-7b"]


def same_shapes(one: Model, other: Model) -> bool:
    return replace(one, id=other.id, name=other.name) == other


@pytest.mark.parametrize("id", ORIGINALS)
def test_original_configurations_equal_the_catalog(id: str) -> None:
    assert same_shapes(read_config(ORIGINALS[id]), find_model(id))


def test_originals_cover_the_architectures_of_the_catalog() -> None:
    assert len(ORIGINALS) >= 60
    covered = {find_model(id).architecture for id in ORIGINALS}
    assert {model.architecture for _, model in list_models()} <= covered


def test_written_configurations_read_back_to_the_same_model() -> None:
    for info, model in list_models():
        written = json.loads(json.dumps(write_config(model)))
        read = read_config(written)
        assert same_shapes(read, model), info.id
        assert total_params(read) == total_params(model), info.id


def test_every_class_and_model_type_names_a_known_architecture() -> None:
    assert set(CLASSES.values()) | set(MODEL_TYPES.values()) <= set(CONVENTIONS)


def test_the_model_type_decides_where_no_class_is_named() -> None:
    config = {key: value for key, value in ORIGINALS["qwen3-0.6b"].items() if key != "architectures"}
    assert same_shapes(read_config(config), find_model("qwen3-0.6b"))


def test_text_part_of_a_multimodal_configuration_with_the_defaults_of_its_class() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    }
    assert same_shapes(read_config(config), find_model("gemma3-4b"))


def test_a_hybrid_class_without_mamba_layers_is_plain_granite() -> None:
    config = {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 40,
        "hidden_size": 2560,
        "vocab_size": 100352,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "shared_intermediate_size": 8192,
        "num_local_experts": 0,
        "layer_types": ["attention"] * 40,
        "tie_word_embeddings": True,
        "max_position_embeddings": 131072,
    }
    assert same_shapes(read_config(config), find_model("granite-4.0-micro"))


def test_llama3_rope_scaling_becomes_a_tensor() -> None:
    scaled = LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert [extra.shape for extra in read_config(scaled).extras] == [(64,)]
    assert read_config(LLAMA | {"rope_scaling": {"rope_type": "yarn"}}).extras == ()


def test_a_window_that_llama_cpp_does_not_apply_is_left_out() -> None:
    mixer = read_config(LLAMA | {"sliding_window": 4096}).layers[0].mixers[0]
    assert getattr(mixer, "window", None) is None


def test_paths_files_and_folders(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    assert total_params(read_config(file)) == total_params(read_config(str(tmp_path))) == 6738415616


# Quantisation


@pytest.mark.parametrize(
    ("quantization", "method", "bits"),
    [
        ({"quant_method": "fp8"}, "fp8", 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8 + 32 / 16384),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4", 4.25),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq", 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq", 4 + 20 / 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 4.5),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 8),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, "mxfp4", 4.25),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}},
            },
            "compressed-tensors",
            4.5,
        ),
    ],
)
def test_quantization(quantization: dict[str, Any], method: str, bits: float) -> None:
    found = read_quantization(LLAMA | {"quantization_config": quantization})
    assert found is not None
    assert (found.method, found.bits_per_weight) == (method, bits)
    assert found.bytes_of(1600) == 200 * bits
    assert found.kept_modules == tuple(quantization.get("modules_to_not_convert", ()))


def test_quantization_of_a_plain_checkpoint_is_none() -> None:
    assert read_quantization(LLAMA) is None


@pytest.mark.parametrize("value", [7, {"quant_method": "magic"}, {"quant_method": "compressed-tensors"}, {}])
def test_unknown_quantization_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        read_quantization(LLAMA | {"quantization_config": value})


# Malformed input


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        (b"[1, 2]", "expected a JSON object, got list"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b'{"a": ' * 40 + b"1" + b"}" * 40, "nested more than 32 levels"),
        (b'{"x": "' + b"a" * 5_000_000 + b'"}', "larger than 4 MiB"),
        (b'{"model_type": "llama"}', "num_hidden_layers: is missing"),
        (b'{"n": 1' + b"0" * 5000 + b"}", "not JSON|unknown architecture"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_config(file)
    assert "\n" not in str(error.value)


def test_a_missing_file() -> None:
    with pytest.raises(InputError, match="No such file"):
        read_config("/no/such/config.json")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", -4096, "hidden_size: -4096 is not between"),
        ("hidden_size", "wide", "hidden_size: expected a whole number"),
        ("hidden_size", 2**30, "hidden: 1073741824 is not between"),
        ("num_hidden_layers", 10**9, "num_hidden_layers: 1000000000 is more than 4096"),
        ("num_hidden_layers", 32.0, "num_hidden_layers: expected a whole number"),
        ("num_attention_heads", 0, "num_attention_heads: must not be 0"),
        ("num_key_value_heads", 5, "cannot share 5 key/value heads"),
        ("vocab_size", None, "vocab_size: is missing"),
        ("tie_word_embeddings", "yes", "tie_word_embeddings: expected true or false"),
        ("layer_types", ["full_attention"], "a kind for each of the 32 layers"),
        ("layer_types", ["quantum_attention"] * 32, "unknown kind of layer 'quantum_attention'"),
    ],
)
def test_wrong_values_are_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(LLAMA | {key: value})


def test_an_unknown_architecture_is_refused_with_what_it_would_need() -> None:
    with pytest.raises(InputError, match=r"unknown architecture 'FooForCausalLM'.*num_hidden_layers.*hidden_size"):
        read_config(LLAMA | {"architectures": ["FooForCausalLM"], "model_type": "foo"})


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.one_of(st.integers(-1, 300), st.none(), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(config: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for key, value in config.items():
        yield config, key
        if isinstance(value, dict):
            yield from places(value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(ORIGINALS)), st.randoms(use_true_random=False), st.lists(JUNK, min_size=1, max_size=3))
def test_no_damage_to_a_configuration_raises_anything_but_the_packages_own_error(
    id: str, choose: random.Random, junk: list[Any]
) -> None:
    config = copy.deepcopy(ORIGINALS[id])
    for value in junk:
        owner, key = choose.choice(list(places(config)))
        owner[key] = value
    try:
        model = read_config(config)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert total_params(model) > 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_the_packages_own_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "config.json"
    file.write_bytes(data)
    with pytest.raises(InputError):
        read_config(file)


def told(id: str, **changes: Any) -> dict[str, Any]:
    """An original configuration with some keys changed; None removes one."""
    config = copy.deepcopy(ORIGINALS[id]) | changes
    return {key: value for key, value in config.items() if value is not None}


def of_architecture(name: str) -> str:
    return next(id for id in ORIGINALS if find_model(id).architecture == name)


@pytest.mark.parametrize(
    ("architecture", "changes", "says"),
    [
        ("deci", {"block_configs": None}, "block_configs: is missing"),
        ("deci", {"block_configs": [1]}, "expected a mapping"),
        ("nemotron_h", {"hybrid_override_pattern": "M*"}, "has 2 letters for"),
        ("jamba", {"expert_layer_offset": 5}, "expert_layer_offset: 5 is not supported"),
        ("dbrx", {"ffn_config": None}, "ffn_config: expected a mapping"),
        ("kimi-linear", {"linear_attn_config": []}, "linear_attn_config: expected a mapping"),
    ],
)
def test_parts_that_contradict_the_architecture_are_named(
    architecture: str, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        read_config(told(of_architecture(architecture), **changes))


def test_a_jamba_with_one_expert_is_dense() -> None:
    id = of_architecture("jamba")
    dense = read_config(told(id, num_experts=1))
    assert not any(isinstance(layer.ffn, MoeFfn) for layer in dense.layers)
    assert any(isinstance(layer.ffn, MoeFfn) for layer in read_config(ORIGINALS[id]).layers)


@pytest.mark.parametrize("block", [{"ffn_mult": -1}, {"ffn_mult": "x"}, {"replace_with_linear": True}])
def test_blocks_of_an_architecture_search_that_cannot_be(block: dict[str, Any]) -> None:
    id = of_architecture("deci")
    blocks = copy.deepcopy(ORIGINALS[id]["block_configs"])
    blocks[0]["ffn"] |= {"no_op": False} | block
    with pytest.raises(InputError, match=r"ffn_mult|linear replacements"):
        read_config(told(id, block_configs=blocks))
