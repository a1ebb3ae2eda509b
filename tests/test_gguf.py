from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmcalc.architecture import Attention, Model
from llmcalc.conventions import runs_in_llama_cpp
from llmcalc.errors import InputError
from llmcalc.file_types import FILE_TYPES
from llmcalc.ggml_types import GGML_TYPES
from llmcalc.importers import gguf_header
from llmcalc.importers.gguf import read_gguf
from llmcalc.importers.gguf_header import read_header, read_headers, strings_in
from llmcalc.importers.gguf_writer import write_header
from llmcalc.model_catalog import find_model, list_models
from llmcalc.quantization import Weights, weights
from llmcalc.tensors import active_params, total_params

gguf = pytest.importorskip("gguf")

CATALOG = {model.id: model for _, model in list_models()}

# --- headers made by hand


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def string(name: str, value: str) -> bytes:
    return key(name, 8, text(value))


def u32(name: str, value: int) -> bytes:
    return key(name, 4, struct.pack("<I", value))


def strings(name: str, values: Sequence[str | bytes], count: int | None = None) -> bytes:
    head = struct.pack("<IQ", 8, len(values) if count is None else count)
    return key(name, 9, head + b"".join(map(text, values)))


def numbers(name: str, kind: int, letter: str, values: Sequence[Any], count: int | None = None) -> bytes:
    head = struct.pack("<IQ", kind, len(values) if count is None else count)
    return key(name, 9, head + struct.pack(f"<{len(values)}{letter}", *values))


def info(name: str, shape: Sequence[int], type_id: int, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset)


def header(
    keys: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
) -> bytes:
    counts = (len(infos) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    return magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(infos)


def read(raw: bytes) -> gguf_header.GgufHeader:
    return read_header(io.BytesIO(raw))


class Pipe(io.RawIOBase):
    """A stream that cannot seek and hands out its bytes in small pieces."""

    def __init__(self, raw: bytes, piece: int = 1000) -> None:
        self.source, self.piece = io.BytesIO(raw), piece

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        return self.source.read(min(size, self.piece))


# --- what a good header says


def test_header_of_a_small_file() -> None:
    keys = [
        string("general.architecture", "llama"),
        u32("llama.block_count", 2),
        key("f", 6, struct.pack("<f", 0.5)),
        key("b", 7, b"\x01"),
        key("i8", 1, struct.pack("<b", -3)),
        key("u64", 10, struct.pack("<Q", 2**40)),
        numbers("heads", 5, "i", [1, 2, 3]),
        numbers("flags", 7, "?", [True, False]),
        strings("tokenizer.ggml.tokens", ["a", "bc", ""]),
        numbers("tokenizer.ggml.scores", 6, "f", [0.0] * 5000),
        string("tokenizer.chat_template", "x" * 5000),
        numbers("none", 4, "I", []),
    ]
    infos = [info("a", (256, 2), 12, 0), info("b", (7,), 0, 288), info("c", (32, 2, 3), 8, 320)]
    found = read(header(keys, infos))
    assert dict(found.metadata) == {
        "general.architecture": "llama", "llama.block_count": 2, "f": 0.5, "b": True, "i8": -3, "u64": 2**40,
        "heads": (1, 2, 3), "flags": (True, False), "none": (),
    }  # fmt: skip
    assert dict(found.array_lengths) == {
        "heads": 3, "flags": 2, "tokenizer.ggml.tokens": 3, "tokenizer.ggml.scores": 5000, "none": 0,
    }  # fmt: skip
    assert [(t.name, t.shape, t.type.name, t.bytes) for t in found.tensors] == [
        ("a", (256, 2), "Q4_K", 288), ("b", (7,), "F32", 28), ("c", (32, 2, 3), "Q8_0", 204),
    ]  # fmt: skip
    assert found.data_offset % 32 == 0 and 0 <= found.data_offset - len(header(keys, infos)) < 32
    assert found.data_bytes == 288 + 32 + 224
    assert found.missing_bytes == found.data_offset + 544 - len(header(keys, infos))


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(version: int) -> None:
    assert read(header(version=version)).version == version


def test_alignment_moves_the_data() -> None:
    infos = [info("a", (8,), 0, 0), info("b", (8,), 0, 64)]
    found = read(header([u32("general.alignment", 64)], infos))
    assert (found.alignment, found.data_offset % 64, found.data_bytes) == (64, 0, 128)


def test_complete_file_lacks_nothing(tmp_path: Path) -> None:
    made = Path(tmp_path / "model.gguf")
    write_header(find_model("smollm2-135m"), weights(find_model("smollm2-135m"), "Q4_1"), made)
    assert read_header(made).missing_bytes == 0
    with made.open("r+b") as file:
        file.truncate(made.stat().st_size // 2)
    cut = read_gguf(made)
    assert cut.weights.bytes == weights(find_model("smollm2-135m"), "Q4_1").bytes
    assert "shorter than its header says" in cut.notes[0]


# --- vocabularies


@given(st.lists(st.binary(max_size=400), max_size=60), st.integers(1, 5000), st.integers(1, 300))
@example([b""] * 40, 64, 7)
@example([b"\0" * 9, b"a", b"\0" * 300] * 5, 64, 50)
@example([b"x" * 255, b"y" * 256, b"z" * 257], 64, 1000)
@settings(max_examples=200)
def test_string_arrays_are_skipped_exactly(values: list[bytes], chunk: int, piece: int) -> None:
    raw = header([strings("tokens", values), u32("after", 42)])
    before = gguf_header.CHUNK_BYTES
    gguf_header.CHUNK_BYTES = chunk  # type: ignore[misc]
    try:
        for source in (io.BytesIO(raw), Pipe(raw, piece)):
            found = read_header(source)  # type: ignore[arg-type]
            assert (found.array_lengths["tokens"], found.metadata["after"]) == (len(values), 42)
    finally:
        gguf_header.CHUNK_BYTES = before  # type: ignore[misc]


@given(st.lists(st.binary(max_size=300), max_size=80), st.integers(0, 40), st.integers(0, 90), st.integers(0, 400))
def test_strings_in_a_window_are_those_that_end_in_it(values: list[bytes], at: int, count: int, cut: int) -> None:
    raw = b"\xff" * at + b"".join(map(text, values))
    window = raw[: max(at, len(raw) - cut)]
    passed, length, expected = 0, 0, 0
    for value in values[:count]:
        if at + length + 8 + len(value) > len(window):
            break
        passed, length = passed + 1, length + 8 + len(value)
        expected = passed
    assert strings_in(window, at, min(count, len(values))) == (expected, length)


def test_big_vocabularies_cost_next_to_no_memory() -> None:
    raw = header([strings("tokens", [f"token{i}" for i in range(260_000)]), numbers("scores", 6, "f", [0.0] * 260_000)])
    tracemalloc.start()
    found = read_header(Pipe(raw, 1 << 20))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.array_lengths == {"tokens": 260_000, "scores": 260_000}
    assert peak < 2_000_000 < len(raw)


# --- what is wrong with a bad one

BAD = {
    "empty": (b"", "only 0 are left"),
    "other magic": (header(magic=b"GGML"), "is no GGUF file"),
    "html": (b"<!DOCTYPE html><html><body>Not found</body></html>", "is no GGUF file"),
    "version 1": (header(version=1), "version 1"),
    "version 4": (header(version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "many tensors": (header(n_tensors=2**60), "tensors"),
    "many keys": (header(n_keys=2**62), "keys"),
    "more tensors than bytes": (header(n_tensors=60_000), "truncated"),
    "long key": (header([struct.pack("<Q", 2**63) + b"abc" * 9]), "takes 9223372036854775808 bytes"),
    "absurd key": (header([u32("k" * 2000, 1)]), "more than the 1024"),
    "empty key": (header([u32("", 1)]), "is empty"),
    "key twice": (header([u32("k", 1), u32("k", 2)]), "there twice"),
    "unknown value type": (header([key("k", 77, b"\0" * 16)]), "unknown type 77"),
    "nested array": (header([key("k", 9, struct.pack("<IQ", 9, 2) + b"\0" * 24)]), "array of arrays"),
    "array of unknown": (header([key("k", 9, struct.pack("<IQ", 13, 2) + b"\0" * 24)]), "unknown type 13"),
    "long array": (header([numbers("k", 10, "Q", [1], count=2**61)]), "truncated"),
    "many strings": (header([strings("k", ["a"], count=2**61)]), "truncated"),
    "long string": (header([key("k", 8, struct.pack("<Q", 2**62) + b"abc")]), "truncated"),
    "string beyond the end": (header([strings("k", ["a", "b"])])[:-1], "truncated"),
    "alignment 0": (header([u32("general.alignment", 0)]), "power of two"),
    "alignment 48": (header([u32("general.alignment", 48)]), "power of two"),
    "alignment huge": (header([u32("general.alignment", 2**31)]), "power of two"),
    "alignment text": (header([string("general.alignment", "32")]), "power of two"),
    "no dimensions": (header([], [info("tensor.weight", (), 0)]), "0 dimensions"),
    "five dimensions": (header([], [info("t", (1, 1, 1, 1, 1), 0)]), "5 dimensions"),
    "many dimensions": (header([], [text("t") + struct.pack("<I", 2**32 - 1) + b"\0" * 64]), "4294967295 dimensions"),
    "empty dimension": (header([], [info("t", (32, 0), 0)]), "impossible shape"),
    "overflowing shape": (header([], [info("t", (2**40, 2**40), 0)]), "impossible shape"),
    "unknown tensor type": (header([], [info("t", (32,), 99)]), "unknown type 99"),
    "removed tensor type": (header([], [info("t", (32,), 4)]), "unknown type 4"),
    "partial blocks": (header([], [info("t", (100,), 12)]), "blocks of 256"),
    "wrong offset": (header([], [info("a", (8,), 0, 0), info("b", (8,), 0, 64)]), "offset 64 where 32 is due"),
    "tensor twice": (header([], [info("a", (8,), 0, 0), info("a", (8,), 0, 32)]), "there twice"),
    "long tensor name": (header([], [info("n" * 300, (8,), 0)]), "more than the 256"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD))
def test_bad_headers_are_refused_in_one_line(name: str) -> None:
    raw, reason = BAD[name]
    with pytest.raises(InputError, match=reason) as caught:
        read(raw)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["long array", "many strings", "long string"])
def test_endless_claims_in_an_endless_pipe_are_refused(name: str) -> None:
    class Endless(Pipe):
        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            return self.source.read(size) or b"\0" * size

    with pytest.raises(InputError, match="truncated"):
        read_header(Endless(BAD[name][0]))  # type: ignore[arg-type]


def test_hostile_names_stay_on_one_line() -> None:
    with pytest.raises(InputError) as caught:
        read(header([key("a\nb\x1b[31m" * 50, 77, b"")]))
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("source", ["does-not-exist.gguf", "with\0zero.gguf", "."])
def test_unreadable_paths_are_refused(source: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_header(source)


def test_text_streams_are_refused() -> None:
    with pytest.raises(InputError, match="binary"):
        read_header(io.StringIO("GGUF" * 100))  # type: ignore[arg-type]


# --- models


@cache
def written(name: str, file_type: str, folder: Path) -> Path:
    model = CATALOG[name]
    path = folder / f"{name}-{file_type}.gguf"
    write_header(model, weights(model, file_type, drafts=True), path, FILE_TYPES[file_type].id)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.mark.parametrize("name", list(CATALOG))
def test_every_catalog_model_survives_the_round_trip(name: str, tmp_path: Path) -> None:
    model = CATALOG[name]
    made = weights(model, "F16", drafts=True)
    write_header(model, made, tmp_path / "model.gguf")
    found = read_gguf(tmp_path / "model.gguf")
    assert replace(found.model, id=model.id) == model
    assert found.weights.tensors == made.tensors
    assert (found.weights.label, found.weights.metadata_estimated, found.notes) == ("F16", False, ())
    assert found.weights.file_bytes == (tmp_path / "model.gguf").stat().st_size
    assert len(set(map(id, found.model.layers))) == len(set(found.model.layers))  # equal layers are one object


@pytest.mark.parametrize("name", ["llama3.1-8b", "gemma3-4b", "qwen3-30b-a3b", "mamba-2.8b", "gemma3n-e2b"])
def test_counts_of_a_file_are_those_of_the_catalog(name: str, folder: Path) -> None:
    assert total_params(read_gguf(written(name, "Q8_0", folder)).model) == total_params(CATALOG[name])


def test_files_without_nextn_layers_have_none(tmp_path: Path) -> None:
    model = CATALOG["glm-4.5-air"]
    write_header(model, weights(model, "Q8_0", drafts=False), tmp_path / "x.gguf")
    found = read_gguf(tmp_path / "x.gguf").model
    assert (found.layers, found.draft_layers) == (model.layers, ())


def test_types_come_from_the_tensors_not_from_the_name(tmp_path: Path) -> None:
    model = CATALOG["gemma3-270m"]
    made = weights(model, "Q4_K_M", embedding_type="bf16")
    write_header(model, made, tmp_path / "gemma-Q2_K.gguf", FILE_TYPES["Q8_0"].id)
    found = read_gguf(tmp_path / "gemma-Q2_K.gguf").weights
    assert found.bytes == made.bytes != weights(model, "Q8_0").bytes
    assert found.label == "Q8_0"  # what the file says of itself
    assert found.by_type["BF16"].tensors == 1


def test_the_first_megabytes_of_a_pipe_are_enough(folder: Path) -> None:
    path = written("qwen3-8b", "Q4_K_M", folder)
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb") as pipe, path.open("rb") as file:
            pipe.write(file.read(1 << 20))

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reading, "rb") as pipe:
        found = read_gguf(pipe)
        pipe.read()
    feeder.join()
    assert found.weights.tensors == read_gguf(path).weights.tensors
    assert found.notes == ()


def split(path: Path, parts: int, whole: Path) -> list[Path]:
    """The tensors of `whole` spread over files, as gguf-split writes them."""
    source = gguf.GGUFReader(whole)
    infos = list(read_header(whole).tensors)
    share = -(-len(infos) // parts)
    made = []
    for index in range(parts):
        name = path / f"model-{index + 1:05d}-of-{parts:05d}.gguf"
        writer = gguf.GGUFWriter(name, "llama")
        if index == 0:
            for field in source.fields.values():
                if field.name.startswith(("llama.", "general.file")):
                    writer.add_key_value(field.name, field.contents(), field.types[0])
        else:
            writer.kv_data[0].clear()
        writer.add_uint16("split.no", index)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", len(infos))
        for tensor in infos[index * share : (index + 1) * share]:
            kind = gguf.GGMLQuantizationType(tensor.type.id)
            writer.add_tensor_info(
                tensor.name, tensor.shape[::-1], gguf.np.dtype("float16"), tensor.bytes, raw_dtype=kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        made.append(name)
    return made


def test_split_files_are_one_model(folder: Path, tmp_path: Path) -> None:
    whole = read_gguf(written("smollm2-135m", "Q4_1", folder))
    parts = split(tmp_path, 3, written("smollm2-135m", "Q4_1", folder))
    for part in parts:
        found = read_gguf(part)
        assert (found.parts, found.weights.tensors) == (3, whole.weights.tensors)
        assert replace(found.model, id="x", name="x") == replace(whole.model, id="x", name="x")
        assert found.model.id == "model"
        assert found.weights.metadata_bytes == sum(each.data_offset for each in read_headers(part))


def test_split_files_need_all_parts_and_a_path(folder: Path, tmp_path: Path) -> None:
    parts = split(tmp_path, 3, written("smollm2-135m", "Q4_1", folder))
    with parts[0].open("rb") as file, pytest.raises(InputError, match=r"its metadata|give the path|cannot"):
        read_gguf(io.BytesIO(file.read()))
    other = parts[1].rename(tmp_path / "other.gguf")
    with pytest.raises(InputError, match=r"model-00002-of-00003\.gguf: cannot be read"):
        read_gguf(parts[0])
    with pytest.raises(InputError, match="one part of a split file"):
        read_gguf(other)
    parts[2].rename(parts[1])
    parts[0].rename(parts[2])
    with pytest.raises(InputError, match="cannot be read"):
        read_gguf(parts[1])


def edited(model: Model, made: Weights, path: Path, change: Callable[[Any], None]) -> Path:
    """A file of `model` whose gguf writer `change` has tampered with."""
    original = gguf.GGUFWriter.write_header_to_file

    def tampered(self: Any, *args: Any, **options: Any) -> None:
        change(self)
        original(self, *args, **options)

    gguf.GGUFWriter.write_header_to_file = tampered
    try:
        write_header(model, made, path)
    finally:
        gguf.GGUFWriter.write_header_to_file = original
    return path


def drop(name: str) -> Callable[[Any], None]:
    return lambda writer: writer.tensors[0].pop(name)


def reshape(name: str, shape: tuple[int, ...]) -> Callable[[Any], None]:
    def change(writer: Any) -> None:
        tensor = writer.tensors[0][name]
        size = GGML_TYPES[tensor.dtype.name].bytes
        writer.tensors[0][name] = replace(tensor, shape=shape, nbytes=int(gguf.np.prod(shape)) * size)

    return change


def set_key(name: str, value: Any, kind: str = "UINT32") -> Callable[[Any], None]:
    return lambda writer: writer.add_key_value(name, value, gguf.GGUFValueType[kind])


TAMPERED = {
    "unknown architecture": (set_key("general.architecture", "llama9", "STRING"), "unknown architecture 'llama9'"),
    "no architecture": (lambda writer: writer.kv_data[0].pop("general.architecture"), "general.architecture"),
    "number as architecture": (set_key("general.architecture", 7), "general.architecture"),
    "projector": (set_key("general.architecture", "clip", "STRING"), "projector"),
    "adapter": (set_key("general.type", "adapter", "STRING"), "LoRA adapter"),
    "no layers": (lambda writer: writer.kv_data[0].pop("llama.block_count"), "block_count is 0"),
    "many layers": (set_key("llama.block_count", 2**31), "block_count"),
    "fewer layers": (set_key("llama.block_count", 29), "beyond the block_count"),
    "more layers": (set_key("llama.block_count", 31), "blk.30: has no tensors"),
    "no heads": (lambda writer: writer.kv_data[0].pop("llama.attention.head_count"), "head_count"),
    "uneven heads": (set_key("llama.attention.head_count", 7), "does not divide"),
    "negative heads": (set_key("llama.attention.head_count", -9, "INT32"), "head_count is -9"),
    "heads as text": (set_key("llama.attention.head_count", "nine", "STRING"), "head_count is 'nine'"),
    "heads as fraction": (set_key("llama.attention.head_count", 9.5, "FLOAT32"), "head_count is 9.5"),
    "short list of heads": (set_key("llama.attention.head_count", [9] * 4, "ARRAY"), "4 values for 30 layers"),
    "no embedding": (drop("token_embd.weight"), "token_embd.weight"),
    "no query": (drop("blk.3.attn_k.weight"), "blk.3: has no tensor attn_v.weight|blk.3: .*"),
    "no norm": (drop("blk.3.attn_norm.weight"), None),
    "no down": (drop("blk.29.ffn_down.weight"), "blk.29: has no tensor ffn_down.weight"),
    "other width": (reshape("blk.5.ffn_gate.weight", (1500, 576)), "ffn_gate.weight has the shape"),
    "other norm": (reshape("output_norm.weight", (577,)), "output_norm.weight has the shape"),
    "flat embedding": (reshape("token_embd.weight", (576,)), "two dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TAMPERED))
def test_files_that_contradict_themselves_are_refused(name: str, tmp_path: Path) -> None:
    change, reason = TAMPERED[name]
    model = CATALOG["smollm2-135m"]
    path = edited(model, weights(model, "F16"), tmp_path / "x.gguf", change)
    if reason is None:
        assert read_gguf(path).model.layers[3].norms == ("ffn_norm",)
        return
    with pytest.raises(InputError, match=reason) as caught:
        read_gguf(path)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_says_what_it_would_need(tmp_path: Path) -> None:
    model = CATALOG["smollm2-135m"]
    path = edited(model, weights(model, "F16"), tmp_path / "x.gguf", TAMPERED["unknown architecture"][0])
    with pytest.raises(InputError, match=r"it would need its layer pattern, norms, biases"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gemma3-1b", "SSSSSF"), ("gemma2-9b", "SF"), ("gpt-oss-20b", "SF"), ("phi3-mini-4k", "F"), ("llama3-8b", "F")],
)
def test_windows_follow_llama_cpp_where_the_file_has_no_pattern(name: str, expected: str, tmp_path: Path) -> None:
    """Real files of these architectures give the window alone."""
    model = CATALOG[name]

    def change(writer: Any) -> None:
        writer.kv_data[0].pop(f"{model.architecture}.attention.sliding_window_pattern", None)
        writer.add_uint32(f"{model.architecture}.attention.sliding_window", 512)

    found = read_gguf(edited(model, weights(model, "F16"), tmp_path / "x.gguf", change)).model
    mixers = [layer.mixers[0] for layer in found.layers]
    letters = "".join("S" if isinstance(mixer, Attention) and mixer.window == 512 else "F" for mixer in mixers)
    assert letters == (expected * len(letters))[: len(letters)]


@pytest.mark.parametrize(("period", "expected"), [(3, "SSF"), (1, "F"), (0, "S")])
def test_a_period_of_the_window_pattern_is_applied(period: int, expected: str, tmp_path: Path) -> None:
    model = CATALOG["gemma3-1b"]
    change = set_key("gemma3.attention.sliding_window_pattern", period)
    found = read_gguf(edited(model, weights(model, "F16"), tmp_path / "x.gguf", change)).model
    letters = "".join("S" if getattr(layer.mixers[0], "window", None) else "F" for layer in found.layers)
    assert letters == (expected * len(letters))[: len(letters)]


def test_hostile_names_are_cleaned(tmp_path: Path) -> None:
    model = CATALOG["smollm2-135m"]
    change = set_key("general.name", "a\nb\x1b[31m" + "c" * 500, "STRING")
    name = read_gguf(edited(model, weights(model, "F16"), tmp_path / "x.gguf", change)).model.name
    assert name.startswith("a b [31mccc") and len(name) <= 120


# --- fuzz


@cache
def small_file() -> bytes:
    """A header of a small model with a tokenizer, of less than 10 kB."""
    model = replace(CATALOG["smollm2-135m"], layers=CATALOG["smollm2-135m"].layers[:3], vocab=64)
    with tempfile.TemporaryDirectory() as folder:

        def tokens(writer: Any) -> None:
            writer.add_token_list([f"token{i}".encode() for i in range(64)])
            writer.add_token_scores([0.0] * 64)

        made = edited(model, weights(model, "Q8_0"), Path(folder) / "x.gguf", tokens)
        return made.read_bytes()[: read_header(made).data_offset]


def attempt(raw: bytes, source: Callable[[bytes], BinaryIO] = io.BytesIO) -> Exception | None:
    """Reads it; nothing but InputError may come of it."""
    try:
        found = read_gguf(source(raw))
        assert 0 <= active_params(found.model) <= total_params(found.model) + found.model.padding
    except InputError as error:
        assert "\n" not in str(error)
        return error
    return None


def test_the_small_file_is_good() -> None:
    assert attempt(small_file()) is None


def test_every_truncation_is_refused() -> None:
    raw = small_file()
    end = len(raw.rstrip(b"\0")) - 8
    for size in range(end):
        assert attempt(raw[:size]) is not None
        if size % 7 == 0:
            assert attempt(raw[:size], Pipe) is not None  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=400)
def test_flipped_bytes_do_no_harm(data: st.DataObject) -> None:
    raw = bytearray(small_file())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    attempt(bytes(raw))


@given(st.data())
@settings(max_examples=300)
def test_overwritten_words_do_no_harm(data: st.DataObject) -> None:
    raw = bytearray(small_file())
    at = data.draw(st.integers(4, len(raw) - 8))
    word = data.draw(st.sampled_from([0, 1, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]))
    raw[at : at + 8] = struct.pack("<Q", word)
    attempt(bytes(raw))


@given(st.binary(max_size=600))
def test_noise_behind_the_magic_does_no_harm(noise: bytes) -> None:
    assert attempt(b"GGUF" + struct.pack("<I", 3) + noise) is not None


VALUES = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda value: (4, struct.pack("<I", value))),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: (5, struct.pack("<i", value))),
    st.floats(width=32).map(lambda value: (6, struct.pack("<f", value))),
    st.booleans().map(lambda value: (7, struct.pack("<?", value))),
    st.text(max_size=20).map(lambda value: (8, text(value))),
    st.lists(st.integers(0, 2**32 - 1), max_size=40).map(
        lambda values: (9, struct.pack(f"<IQ{len(values)}I", 4, len(values), *values))
    ),
)
KEYS = ["block_count", "attention.head_count", "attention.head_count_kv", "attention.sliding_window",
        "attention.sliding_window_pattern", "expert_used_count", "nextn_predict_layers", "context_length",
        "ssm.group_count", "ssm.state_size", "attention.shared_kv_layers", "rope.dimension_count"]  # fmt: skip
NAMES = ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_output.weight", "ffn_up.weight",
         "ffn_down.weight", "ffn_gate.weight", "attn_norm.weight", "ffn_norm.weight", "ssm_in.weight", "ssm_out.weight",
         "ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_norm.weight", "ssm_x.weight", "attn_kv_a_mqa.weight",
         "attn_kv_a_norm.weight", "attn_k_b.weight", "attn_v_b.weight", "ffn_gate_inp.weight", "ffn_down_exps.weight",
         "ffn_up_exps.weight", "attn_sinks.weight", "attn_output_a.weight", "attn_kv.weight", "time_mix_w1.weight",
         "indexer.proj.weight", "shortconv.conv.weight", "attn_q_norm.weight", "attn_gate.weight"]  # fmt: skip
ARCHITECTURES = ["llama", "gemma3", "qwen3next", "deepseek2", "deepseek4", "mamba2", "nemotron_h", "rwkv7", "lfm2"]


@given(
    st.sampled_from(ARCHITECTURES),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.sampled_from(NAMES)),
        st.lists(st.integers(1, 200), min_size=1, max_size=4),
        max_size=20,
    ),
)
@settings(max_examples=400)
def test_well_formed_nonsense_is_refused(
    architecture: str, keys: dict[str, tuple[int, bytes]], shapes: dict[tuple[int, str], list[int]]
) -> None:
    """Right in form, wrong in what it says: the shapes of parts that cannot belong together."""
    values = {"block_count": (4, struct.pack("<I", 3)), **keys}
    tensors = {
        "token_embd.weight": [64, 100],
        **{f"blk.{layer}.{name}": shape for (layer, name), shape in shapes.items()},
    }
    infos, offset = [], 0
    for name, shape in tensors.items():
        infos.append(info(name, shape, 0, offset))
        offset += -(-4 * int(gguf.np.prod(shape)) // 32) * 32
    named = [key(f"{architecture}.{name}", kind, value) for name, (kind, value) in values.items()]
    attempt(header([string("general.architecture", architecture), *named], infos))


# --- the real tools, where they are installed

ONE_OF_EACH = [
    name
    for architecture, name in {model.architecture: model.id for model in reversed(CATALOG.values())}.items()
    if runs_in_llama_cpp(architecture)
]
DRY_RUN_LINE = re.compile(r"\[ *\d+/ *\d+\] +(\S+) +- \[[^]]*\], type = +(\w+), size = +[\d.]+ MiB(?: -> .*\((\w+)\))?")


def run(tool: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not on PATH")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=120)


@pytest.mark.llama_cpp
@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("file_type", ["Q4_K_M", "IQ3_XXS"])
def test_llama_quantize_chooses_the_same_types(name: str, file_type: str, tmp_path: Path) -> None:
    model = CATALOG[name]
    write_header(model, weights(model, "F16"), tmp_path / "x.gguf")
    done = run("llama-quantize", "--dry-run", tmp_path / "x.gguf", file_type)
    chosen = {match[1]: (match[3] or match[2]).upper() for match in DRY_RUN_LINE.finditer(done.stdout + done.stderr)}
    assert chosen == {q.tensor.name: q.type.name for q in weights(model, file_type).tensors}


@pytest.mark.llama_cpp
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_llama_cpp_accepts_all_shapes(name: str, tmp_path: Path) -> None:
    model = CATALOG[name]
    write_header(model, weights(model, "Q8_0"), tmp_path / "x.gguf")
    done = run("llama-fit-params", "-m", tmp_path / "x.gguf", "-c", 512)
    said = done.stdout + done.stderr
    assert "error loading model" not in said and "failed to load" not in said and done.returncode in (0, 1), said[-800:]
