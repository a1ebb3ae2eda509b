"""Architectures: patterns to layers, and what the parts of a Model say about it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.architecture import Attention, DenseFfn, Layer, Mamba, Model, MoeFfn
from llmcalc.conventions import CONVENTIONS, convention_of
from llmcalc.errors import InputError
from llmcalc.field_reader import FieldReader
from llmcalc.importers.hf_parts import pattern_of
from llmcalc.model_catalog import find_model, list_models, model_from_fields

DENSE = {"architecture": "llama", "layers": 4, "hidden": 64, "vocab": 100, "heads": 4, "ffn": 128}


def build(**fields: object) -> Model:
    return model_from_fields("test", DENSE | fields, "here")


def test_plain_fields_make_plain_layers() -> None:
    built = build()
    assert built.layers == (Layer((Attention(4, 4, 16, 16),), DenseFfn(128)),) * 4
    assert (built.n_layers, built.tied_embeddings, built.draft_layers) == (4, False, ())


def test_identical_layers_are_one_object() -> None:
    assert len({id(layer) for layer in find_model("llama3-8b").layers}) == 1
    assert len({id(layer) for layer in find_model("gemma3-27b").layers}) == 2


def test_models_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        build().hidden = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("gemma2-2b", "SF" * 13),
        ("gemma3-1b", "SSSSSF" * 4 + "SS"),
        ("gpt-oss-20b", "SF" * 12),
        ("llama4-scout", "SSSF" * 12),
        ("command-r7b", "SSSF" * 8),
        ("olmo2-7b", "F" * 32),
        ("olmo3-7b", "SSSF" * 8),
        ("exaone-4.0-1.2b", "F" * 30),
        ("mistral-7b-v0.1", "F" * 32),
        ("phi3-mini-4k", "F" * 32),
        ("qwen3-next-80b-a3b", "LLLF" * 12),
        ("jamba-mini-52b", "MMMMFMMM" * 4),
        ("falcon-h1-0.5b", "P" * 36),
        ("kimi-linear-48b-a3b", "LLLF" * 6 + "LLF"),
        ("granite-4.0-h-tiny", "MMMMMF" + "MMMMMMMMMF" * 3 + "MMMM"),
        ("nemotron-3-nano-30b-a3b", "MEMEMFEMEMEMFEMEMEMFEMEMEMFEMEMEMFEMEMEMEMFEMEMEMEME"),
    ],
)
def test_patterns_of_known_models(name: str, pattern: str) -> None:
    assert pattern_of(find_model(name)) == pattern


def test_windows_and_shared_caches_of_gemma() -> None:
    layers = find_model("gemma3n-e4b").layers
    mixers = [mixer for layer in layers for mixer in layer.mixers if isinstance(mixer, Attention)]
    assert [mixer.shares_cache for mixer in mixers] == [False] * 20 + [True] * 15
    assert {mixer.window for mixer in mixers} == {512, None}


def test_leading_dense_layers_and_alternating_experts() -> None:
    kinds = [type(layer.ffn) for layer in find_model("deepseek-v3").layers]
    assert kinds == [DenseFfn] * 3 + [MoeFfn] * 58
    kinds = [type(layer.ffn) for layer in find_model("llama4-maverick").layers]
    assert kinds == [DenseFfn, MoeFfn] * 24


def test_layers_of_one_part() -> None:
    for layer in find_model("nemotron-h-8b").layers:
        assert (len(layer.mixers) == 1) != (layer.ffn is not None)
        assert layer.norms == ("attn_norm",)


def test_layers_side_by_side() -> None:
    mixers = find_model("falcon-h1-7b").layers[0].mixers
    assert [type(mixer) for mixer in mixers] == [Mamba, Attention]


def test_every_pattern_of_a_convention_has_known_letters() -> None:
    for name, rules in CONVENTIONS.items():
        assert set(rules.pattern) <= set("FSLMPCRNDE"), name


def test_every_architecture_of_the_catalog_is_described() -> None:
    assert {model.architecture for _, model in list_models()} <= set(CONVENTIONS)


def test_an_unknown_architecture_says_what_it_would_need() -> None:
    with pytest.raises(InputError, match=r"did you mean .*qwen3.*would need its layer pattern"):
        convention_of("qwen33", "here")


@given(st.text("FSL", min_size=1, max_size=9), st.integers(1, 40))
def test_a_pattern_is_repeated_to_the_number_of_layers(cycle: str, layers: int) -> None:
    reader = FieldReader({"pattern": f"FF({cycle})"}, "here", ("pattern",))
    expected = ("FF" + cycle * 40)[:layers]
    assert reader.pattern("pattern", "F", "FSL", layers) == expected


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5)), min_size=1, max_size=6))
def test_repeated_values_of_a_list(runs: list[tuple[int, int]]) -> None:
    flat = tuple(value for value, count in runs for _ in range(count))
    reader = FieldReader({"ffn": [f"{value} x {count}" for value, count in runs]}, "here", ("ffn",))
    assert reader.per_layer("ffn", len(flat)) == flat
    with pytest.raises(InputError, match="one value for each"):
        reader.per_layer("ffn", len(flat) + 1)
