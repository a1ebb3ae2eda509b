from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import published

from llmcalc.architecture import Model
from llmcalc.errors import InputError, UnknownNameError
from llmcalc.file_types import FILE_TYPES, FILE_TYPES_BY_ID, GUESSED, file_type, file_type_label
from llmcalc.ggml_types import GGML_TYPES, GGML_TYPES_BY_ID, ggml_type, row_bytes, tensor_bytes
from llmcalc.mixture import Traits, fallback, more_bits
from llmcalc.model_catalog import find_model
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
from llmcalc.units import GB, GIB, MIB

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
def model_of(name: str, params: int) -> Model:
    """The catalog model of a recorded run, with as many rows of vocabulary as the run's had."""
    model = published(name)
    matrices = model.hidden * (1 if model.tied_embeddings else 2)
    rows, rest = divmod(weights(model, "F16").params - params, matrices)
    assert rest == 0 and abs(rows) <= 64  # Gemma 3 has 64 rows of padding, which some runs left out
    return replace(model, vocab=model.vocab - rows)


def of_row(row: dict[str, str], **options: Any) -> Weights:
    return weights(model_of(row["model"], int(row["n_params"])), row["ftype"], **options)


def flat(patterns: dict[str, dict[str, str]]) -> dict[str, str]:
    """Tensor → type → layers, as one type per full name."""
    return {
        name if layer < 0 else f"blk.{layer}.{name}": type_.upper()
        for name, types in patterns.items()
        for type_, where in types.items()
        for layer in layer_numbers(where)
    }


def types_of(result: Iterable[QuantizedTensor]) -> dict[str, str]:
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


@pytest.mark.parametrize(
    ("name", "bits"), [("F16", 16), ("Q8_0", 8.5), ("Q4_K", 4.5), ("Q6_K", 6.5625), ("MXFP4", 4.25)]
)
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


@pytest.mark.parametrize("name", ["UD-Q4_K_XL", "ud-iq2_m", "Q4_K_XL", "Q6_K_L", "q8_k_xl"])
def test_hand_made_mixtures_are_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(InputError, match=r"give the \.gguf file"):
        file_type(name)


@pytest.mark.parametrize(
    "name", ["iq4_ks", "IQ2_KT", "Q4_0_R8", "IQ4_K_R4 - 4.5 bpw", "BF16_R16", "I2_S - 2 bpw ternary"]
)
def test_types_of_the_fork_are_named_as_such(name: str) -> None:
    with pytest.raises(InputError, match=r"ik_llama\.cpp"):
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
    model = model_of(row["model"], int(row["n_params"]))
    computed = {}
    for name in TARGETS:
        try:
            computed[name] = str(weights(model, name).bytes)
        except InputError as error:
            assert "llama-quantize refuses" in str(error)
            computed[name] = ""
    assert computed == {name: row[name] for name in TARGETS}


DRY_RUNS = [row for row in rows("quant_truth.csv") if row["source"] == "dry-run"]


@pytest.mark.parametrize("model", list(dict.fromkeys(row["model"] for row in DRY_RUNS)))
def test_every_tensor_type_equals_llama_quantize(model: str) -> None:
    seen = set()
    runs = [row for row in DRY_RUNS if row["model"] == model]
    for row in runs:
        result = of_row(row)
        assert types_of(result.tensors) == flat(data("quant_truth_patterns.json")[model][row["ftype"]]), row["ftype"]
        assert result.bytes == int(row["tensor_bytes"])
        assert len(result.tensors) == int(row["n_tensors"])
        assert result.needs_imatrix == (row["needs_imatrix"] == "1"), row["ftype"]
        assert result.label == FILE_TYPES[row["ftype"]].label
        seen.add(row["ftype"])
    refused = set(TARGETS) - seen
    assert refused <= {"Q1_0"}  # the only type that llama-quantize has no stand-in for
    for name in refused:
        with pytest.raises(InputError, match="llama-quantize refuses"):
            of_row({**runs[0], "ftype": name})


@pytest.mark.parametrize("model", list(dict.fromkeys(case["model"] for case in data("options.json"))))
def test_options_equal_llama_quantize(model: str) -> None:
    for case in data("options.json"):
        if case["model"] == model:
            result = weights(published(model), case["file_type"], **case["options"])
            assert types_of(result.tensors) == flat(case["types"]), (case["file_type"], case["options"])


REAL_FILES = [row for row in rows("quant_truth.csv") if row["source"] == "real-file"]
PURE_LAYER = "tinyllama-1.1b-1layer-pure"


def of_real_file(row: dict[str, str]) -> Weights:
    """What we would have written for a file on disk."""
    if row["model"] != PURE_LAYER:
        return weights(published(row["model"]), row["ftype"])
    model = published("tinyllama-1.1b")
    return weights(replace(model, layers=model.layers[:1]), row["ftype"], pure=True)


@pytest.mark.parametrize("row", REAL_FILES, ids=lambda row: f"{row['model']}-{row['ftype']}")
def test_real_files_have_these_types_and_bytes(row: dict[str, str]) -> None:
    file = of_real_file(row)
    assert file.bytes == int(row["tensor_bytes"])
    assert {name.lower(): share.bytes for name, share in file.by_type.items()} == {
        name: int(size) for name, size in (part.split(":") for part in row["type_bytes"].split(";"))
    }
    assert f"{file.bits_per_weight:.4f}" == row["bpw"]


def test_real_files_of_a_model_differ_only_by_their_padded_tensors() -> None:
    metadata: dict[str, set[int]] = {}
    for row in REAL_FILES:
        file = of_real_file(row)
        metadata.setdefault(row["model"], set()).add(int(row["file_bytes"]) - file.file_bytes + file.metadata_bytes)
    assert len(metadata["tinyllama-1.1b"]) == len(metadata[PURE_LAYER]) == 1
    assert all(0 < size < 10e6 for sizes in metadata.values() for size in sizes)


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [("llama2-7b", 741_056), ("gemma3-270m", 6_525_120), ("smollm2-135m", 1_785_664), ("llama3-8b", 7_830_000)],
)
def test_estimated_metadata_is_near_that_of_published_files(model: str, bytes_: int) -> None:
    assert weights(published(model), "Q4_K_M").metadata_bytes == pytest.approx(bytes_, rel=0.1)


# --- published sizes


def untied(model: Model) -> Model:
    return replace(model, tied_embeddings=False)


def unfused(model: Model) -> Model:
    layers = tuple(
        replace(layer, mixers=(replace(layer.mixers[0], fused_qkv=False),), ffn=replace(layer.ffn, fused_gate_up=False))
        for layer in model.layers
    )
    return replace(model, architecture="llama", layers=layers, extras=())


def old_mla(model: Model) -> Model:
    layers = (replace(layer, mixers=(replace(layer.mixers[0], absorbed=False),)) for layer in model.layers)
    return replace(model, layers=tuple(layers))


CHANGES = {"": lambda model: model, "untied": untied, "unfused": unfused, "old_mla": old_mla}


def prints_params(made: Weights, row: dict[str, str]) -> bool:
    if row["n_params_exact"]:
        return made.params == int(row["n_params_exact"])
    return f"{made.params / 1e9:.{decimals(row['params_b'])}f}" == row["params_b"]


def prints_size(made: Weights, row: dict[str, str]) -> bool:
    """Whether the size equals the row's at its precision: exact bytes, GiB, MiB over 1024, or the file's decimal GB."""
    if row["size_bytes_exact"]:
        return made.bytes == int(row["size_bytes_exact"])
    if "decimal GB" in row["llama_bench_name"]:
        return f"decimal GB {made.file_bytes / GB:.2f}" in row["llama_bench_name"]
    if float(row["size_gib"]) < 1:
        return any(f"{round(made.bytes / MIB, digits) / 1024:.4f}" == row["size_gib"] for digits in (0, 2))
    return f"{made.bytes / GIB:.{decimals(row['size_gib'])}f}" == row["size_gib"]


def decimals(number: str) -> int:
    return len(number.partition(".")[2])


def equals(row: dict[str, str], change: str, options: dict[str, Any]) -> bool:
    """Whether the row is what llama-quantize makes, with the NextN layers in the file or not, as its values count."""
    model = CHANGES[change](find_model(row["model"]))
    plain = {key: value for key, value in options.items() if key != "file_type"}
    made = [weights(model, options.get("file_type", row["quant"]), drafts=drafts, **plain) for drafts in (False, True)]
    return any(prints_params(each, row) and prints_size(each, row) for each in made)


PUBLISHED = [row for row in rows("gguf_sizes.csv") if row["model"]]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['model']}-{row['quant']}-{row['size_gib']}")
def test_published_sizes_are_equal_or_explained(row: dict[str, str]) -> None:
    options = json.loads(row["options"] or "{}")
    if not row["cause"]:  # standard: at most, an importance matrix was used
        assert set(options) <= {"imatrix"}
        assert equals(row, "", options)
    else:
        assert not equals(row, "", {})
        assert equals(row, row["change"], options) == bool(options or row["change"])


def test_most_published_sizes_need_no_explanation() -> None:
    standard = [row for row in PUBLISHED if not row["cause"]]
    reproduced = [row for row in PUBLISHED if row["cause"] and (row["options"] or row["change"])]
    assert (len(standard), len(reproduced)) == (117, 35)


@pytest.mark.parametrize("row", [row for row in rows("gguf_sizes.csv") if row["cause"].startswith("not a type")])
def test_types_of_forks_are_refused(row: dict[str, str]) -> None:
    with pytest.raises(InputError):
        file_type(row["quant"])


# --- rules that no recorded run covers


def tensor(name: str, *shape: int) -> Tensor:
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    return Tensor(name, shape, layer, kept_f32(name, shape))


def types(names: dict[str, tuple[int, ...]], architecture: str, file_type_name: str, **options: Any) -> list[str]:
    inventory = [tensor(name, *shape) for name, shape in names.items()]
    result = types_of(quantize(inventory, Traits(architecture, 32, 8, 8), recipe(file_type_name, **options)))
    return [result[name] for name in names]


def test_falcon_keeps_its_own_rules() -> None:
    names = {"output.weight": (4544, 65024), **{f"blk.{i}.ffn_down.weight": (18176, 4544) for i in range(8)}}
    assert types(names, "falcon", "Q4_K_M") == ["Q8_0", "Q6_K", "Q6_K", "Q5_K", "Q5_K", "Q4_K", "Q4_K", "Q5_K", "Q4_K"]
    assert types(names, "falcon", "Q3_K_M") == ["Q8_0", "Q5_K", "Q5_K", "Q4_K", "Q4_K", "Q3_K", "Q3_K", "Q4_K", "Q3_K"]
    assert types({"blk.0.attn_output.weight": (4544, 4544)}, "falcon", "Q3_K_L") == ["Q5_0"]


def test_glm5_next_never_goes_below_q8_0_for_its_queries() -> None:
    names = {
        "blk.0.attn_q_a.weight": (512, 512),
        "blk.0.attn_k_b.weight": (512, 512),
        "blk.0.ffn_up.weight": (512, 512),
    }
    assert types(names, "glm5-next", "Q4_K_M") == ["Q8_0", "F16", "Q4_K"]


def test_mxfp4_goes_to_stacked_matrices() -> None:
    names = {
        "blk.1.attn_k_b.weight": (128, 512, 16),
        "blk.1.ffn_up_exps.weight": (512, 256, 16),
        "blk.1.attn_q.weight": (512, 512),
    }
    assert types(names, "deepseek2", "MXFP4_MOE") == ["MXFP4", "MXFP4", "Q8_0"]
    assert types(names, "bailingmoe3", "MXFP4_MOE") == ["Q8_0", "MXFP4", "Q8_0"]


def test_an_untied_embedding_of_gemma_per_layer_inputs_follows_the_output() -> None:
    names = {"token_embd.weight": (2048, 1024), "per_layer_token_embd.weight": (7680, 1024)}
    assert types(names, "gemma3n", "Q4_K_M") == ["Q6_K", "Q6_K"]
    assert types({**names, "output.weight": (2048, 1024)}, "gemma3n", "Q4_K_M") == ["Q4_K", "Q4_K", "Q6_K"]
    named = [("per_layer_token_embd", "q4_0")]
    assert types(names, "gemma3n", "Q4_K_M", embedding_type="q8_0", overrides=named) == ["Q8_0", "Q4_0"]


def test_matrices_that_stay_keep_the_source_type() -> None:
    names = {
        "blk.0.time_mix_w1.weight": (2048, 64),
        "blk.0.laurel_l.weight": (2048, 64),
        "blk.0.ffn_gate_inp.weight": (64, 8),
    }
    assert types(names, "rwkv7", "Q4_0") == ["F32", "F16", "F32"]
    assert types(names, "rwkv7", "Q4_0", source_type="bf16") == ["F32", "BF16", "F32"]


@pytest.mark.parametrize(
    ("type_name", "row", "expected"),
    [
        ("Q4_K", 2880, "Q5_0"), ("Q5_K", 2880, "Q5_1"), ("Q6_K", 2880, "Q8_0"), ("IQ3_S", 1152, "IQ4_NL"),
        ("TQ1_0", 96, "Q4_0"), ("Q4_K", 80, "F16"), ("Q8_0", 80, "F16"), ("Q8_0", 64, "Q8_0"),
        ("Q2_0", 96, "Q4_0"), ("Q1_0", 256, "Q1_0"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_get_a_stand_in(type_name: str, row: int, expected: str) -> None:
    assert fallback(GGML_TYPES[type_name], "blk.0.ffn_up.weight", row).name == expected


@pytest.mark.parametrize("options", [{"output_type": "q4_K"}, {"embedding_type": "q4_K"}])
def test_forced_types_that_do_not_fit_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="cannot be Q4_K"):
        weights(published("gpt-oss-20b"), "Q8_0", **options)


def test_broken_override_is_refused() -> None:
    with pytest.raises(InputError, match="regular expression"):
        recipe("q4", overrides=[("attn_(", "q8_0")])


@given(st.integers(1, 200))
def test_more_bits_covers_both_ends_and_a_third_of_the_middle(n: int) -> None:
    chosen = [i for i in range(n) if more_bits(i, n)]
    assert set(range(n // 8)) | set(range(7 * n // 8, n)) <= set(chosen)
    middle = 7 * n // 8 - n // 8
    assert len(chosen) == n // 8 + (n - 7 * n // 8) + middle // 3


# --- whole models


def test_weights_add_up() -> None:
    result = weights(published("qwen3-30b-a3b"), "Q4_K_M")
    assert result.bytes == sum(share.bytes for share in result.by_type.values())
    assert result.params == sum(share.params for share in result.by_type.values())
    assert len(result.tensors) == sum(share.tensors for share in result.by_type.values())
    assert result.file_bytes == result.metadata_bytes + sum(padded(q.bytes) for q in result.tensors)
    assert result.metadata_estimated


def test_nextn_layers_are_counted_as_published_files_have_them() -> None:
    air, v3 = find_model("glm-4.5-air"), find_model("deepseek-v3")
    assert weights(air, "Q8_0") == weights(air, "Q8_0", drafts=True) != weights(air, "Q8_0", drafts=False)
    assert weights(v3, "Q8_0") == weights(v3, "Q8_0", drafts=False) != weights(v3, "Q8_0", drafts=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3-next-80b-a3b", (16, 2)),  # recurrent first layer, one head count for all
        ("kimi-linear-48b-a3b", (0, 0)),  # recurrent first layer, a head count per layer
        ("deepseek-v2-lite", (16, 1)),  # MLA is stored with one key/value head
        ("mamba-2.8b", (0, 0)),
    ],
)
def test_traits_are_those_of_the_metadata(name: str, expected: tuple[int, int]) -> None:
    found = traits(find_model(name))
    assert (found.heads, found.kv_heads) == expected


@given(st.integers(0, 10**9), st.sampled_from([1, 32, 64]))
def test_padding_reaches_the_next_multiple(size: int, alignment: int) -> None:
    assert padded(size, alignment) % alignment == 0
    assert 0 <= padded(size, alignment) - size < alignment


@given(st.integers(1, 300), st.floats(2e8, 1e10))
def test_splits_hold_the_whole_file(max_tensors: int, max_bytes: float) -> None:
    whole = weights(published("llama2-7b"), "Q4_K_M")
    for sizes, limit in (
        (split_bytes(whole, max_tensors=max_tensors), -(-len(whole.tensors) // max_tensors)),
        (split_bytes(whole, max_bytes), None),
    ):
        extra = sum(sizes) - whole.file_bytes
        assert 0 < extra <= 256 * len(sizes)
        if limit is None:
            assert all(size <= max_bytes + whole.metadata_bytes + 256 for size in sizes)
        else:
            assert len(sizes) == limit


def test_a_split_smaller_than_the_first_tensor_is_refused() -> None:
    whole = weights(published("llama2-7b"), "Q4_K_M")
    with pytest.raises(InputError, match=r"output\.weight"):
        split_bytes(whole, 1e6)
