from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llmcalc.errors import InputError, UnknownNameError
from llmcalc.file_types import FILE_TYPES, FILE_TYPES_BY_ID, GUESSED, file_type, file_type_label
from llmcalc.ggml_types import GGML_TYPES, GGML_TYPES_BY_ID, ggml_type, row_bytes, tensor_bytes
from llmcalc.mixture import Traits, category, fallback, more_bits, requires_imatrix
from llmcalc.quantization import (
    QuantizedTensor,
    Weights,
    padded,
    quantize,
    recipe,
    split_bytes,
    traits,
    weights,
)
from llmcalc.tensors import Tensor, kept_f32
from reference_models import MODELS

DATA = Path(__file__).parent / "data" / "quantization"
TARGETS = [name for name, type_ in FILE_TYPES.items() if not type_.from_converter]


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def data(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def layer_numbers(text: str) -> Iterator[int]:
    """ "0-3,7" → 0, 1, 2, 3, 7; "" → -1, the whole model."""
    for part in text.split(",") if text else ["-1"]:
        first, _, last = part.partition("-") if text else (part, "", "")
        yield from range(int(first), int(last or first) + 1)


@cache
def inventory(model: str) -> tuple[tuple[Tensor, ...], Traits]:
    entry = data("inventories.json")[model]
    if isinstance(entry, str):
        return inventory(entry)
    found = []
    for name, shape, where in entry["tensors"]:
        for layer in layer_numbers(where):
            full = name if layer < 0 else f"blk.{layer}.{name}"
            found.append(Tensor(full, tuple(shape), layer, kept_f32(name, shape)))
    return tuple(found), Traits(*(entry[key] for key in ("architecture", "layers", "heads", "kv_heads", "experts")))


def quantized(model: str, file_type_name: str, **options: Any) -> tuple[QuantizedTensor, ...]:
    tensors, model_traits = inventory(model)
    return quantize(tensors, model_traits, recipe(file_type_name, **options))


def flat(patterns: dict[str, dict[str, str]]) -> dict[str, str]:
    """Tensor → type → layers, as one type per full name."""
    return {
        name if layer < 0 else f"blk.{layer}.{name}": type_.upper()
        for name, types in patterns.items()
        for type_, where in types.items()
        for layer in layer_numbers(where)
    }


def types_of(result: tuple[QuantizedTensor, ...]) -> dict[str, str]:
    return {q.tensor.name: q.type.name for q in result}


# --- tables


def test_types_have_unique_names_and_ids() -> None:
    assert len(GGML_TYPES_BY_ID) == len(GGML_TYPES) == 35
    assert all(type_.name == name for name, type_ in GGML_TYPES.items())
    assert len(FILE_TYPES_BY_ID) == len(FILE_TYPES)


def test_types_agree_with_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf")
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if kind.value in GGML_TYPES_BY_ID and kind.name != "Q8_1":  # the package counts its sums as F32
            ours = GGML_TYPES_BY_ID[kind.value]
            assert (ours.name, ours.block, ours.bytes) == (kind.name, block, size)


def test_file_types_agree_with_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf")
    known = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType}
    for id, type_ in FILE_TYPES_BY_ID.items():
        if id in known:
            assert known[id] == type_.name


@pytest.mark.parametrize(("name", "bits"), [("F16", 16), ("Q8_0", 8.5), ("Q4_K", 4.5), ("Q6_K", 6.5625), ("MXFP4", 4.25)])
def test_bits_per_weight(name: str, bits: float) -> None:
    assert GGML_TYPES[name].bits_per_weight == bits


@given(st.sampled_from(sorted(GGML_TYPES)), st.integers(0, 1000), st.lists(st.integers(1, 64), max_size=3))
def test_tensor_bytes_are_blocks_times_block_bytes(name: str, blocks: int, rest: list[int]) -> None:
    type_ = GGML_TYPES[name]
    shape = (blocks * type_.block, *rest)
    assert tensor_bytes(type_, shape) * type_.block == prod(shape) * type_.bytes


def test_partial_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="multiple of 256"):
        row_bytes(GGML_TYPES["Q4_K"], 1152 + 1)


@pytest.mark.parametrize("name", ["q4_K", "Q4_K", " q4_k "])
def test_type_names_ignore_case(name: str) -> None:
    assert ggml_type(name) is GGML_TYPES["Q4_K"]


def test_unknown_type_names_the_closest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        ggml_type("q4_j")
    assert "Q4_K" in caught.value.candidates


# --- names of file types


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("q4", "Q4_K_M"), ("Q4", "Q4_K_M"), ("q4_k", "Q4_K_M"), ("q4km", "Q4_K_M"), ("q4-k-m", "Q4_K_M"),
        ("Q4_K - Medium", "Q4_K_M"), ("Q3_K - Small", "Q3_K_S"), ("Q2_K - Medium", "Q2_K"), ("q2", "Q2_K"),
        ("q3", "Q3_K_M"), ("q5", "Q5_K_M"), ("q6", "Q6_K"), ("q8", "Q8_0"), ("q8_0", "Q8_0"), ("8bit", "Q8_0"),
        ("4-bit", "Q4_K_M"), ("f16", "F16"), ("fp16", "F16"), ("bf16", "BF16"), ("f32", "F32"), ("all F32", "F32"),
        ("mxfp4", "MXFP4_MOE"), ("MXFP4 MoE", "MXFP4_MOE"), ("iq4", "IQ4_XS"), ("iq4_nl", "IQ4_NL"),
        ("mostly Q4_0", "Q4_0"), ("IQ3_S mix - 3.66 bpw", "IQ3_M"), ("tq1_0", "TQ1_0"),
    ],
)  # fmt: skip
def test_names_as_people_type_them(typed: str, name: str) -> None:
    assert file_type(typed) is FILE_TYPES[name]


@pytest.mark.parametrize("name", list(FILE_TYPES))
def test_every_file_type_is_found_by_name_and_label(name: str) -> None:
    type_ = FILE_TYPES[name]
    assert file_type(name.lower()) is file_type(type_.label.upper()) is file_type(type_) is type_
    assert file_type_label(type_.id) == type_.label
    assert file_type_label(type_.id | GUESSED) == f"(guessed) {type_.label}"


@pytest.mark.parametrize("name", ["UD-Q4_K_XL", "ud-iq2_m", "Q4_K_XL", "Q6_K_L", "q8_k_xl", "iq4_ks", "IQ2_KS"])
def test_hand_made_mixtures_are_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(InputError, match=r"give the \.gguf file"):
        file_type(name)


def test_unknown_file_type_names_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="Q4_K_M") as caught:
        file_type("q4_k_n")
    assert "Q4_K_M" in caught.value.candidates
    assert file_type_label(999) == "unknown, may not work"


def test_converter_only_types_are_no_target() -> None:
    with pytest.raises(InputError, match="converter"):
        recipe("nvfp4")


# --- the truth


@pytest.mark.parametrize("row", rows("quant_sizes.csv"), ids=lambda row: row["model"])
def test_sizes_equal_llama_quantize(row: dict[str, str]) -> None:
    model = f"sizes/{row['model']}"
    assert sum(tensor.elements for tensor in inventory(model)[0]) == int(row["n_params"])
    computed = {}
    for name in TARGETS:
        try:
            computed[name] = str(sum(q.bytes for q in quantized(model, name)))
        except InputError as error:
            assert "llama-quantize refuses" in str(error)
            computed[name] = ""
    assert computed == {name: row[name] for name in TARGETS}


DRY_RUNS = [row for row in rows("quant_truth.csv") if row["source"] == "dry-run"]


@pytest.mark.parametrize("model", list(dict.fromkeys(row["model"] for row in DRY_RUNS)))
def test_every_tensor_type_equals_llama_quantize(model: str) -> None:
    seen = set()
    for row in DRY_RUNS:
        if row["model"] != model:
            continue
        result = quantized(model, row["ftype"])
        assert types_of(result) == flat(data("quant_truth_patterns.json")[model][row["ftype"]]), row["ftype"]
        assert sum(q.bytes for q in result) == int(row["tensor_bytes"])
        assert sum(q.tensor.elements for q in result) == int(row["n_params"])
        assert len(result) == int(row["n_tensors"])
        needs = any(requires_imatrix(row["ftype"], category(q.tensor.name), q.type) for q in result)
        assert needs == (row["needs_imatrix"] == "1"), row["ftype"]
        seen.add(row["ftype"])
    refused = set(TARGETS) - seen
    assert refused <= {"Q1_0"}  # the only type that llama-quantize has no stand-in for
    for name in refused:
        with pytest.raises(InputError, match="llama-quantize refuses"):
            quantized(model, name)
