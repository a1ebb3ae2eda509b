"""A GGUF file to a Model and its Weights, from the header alone.

What the tensors' names and shapes say wins over the metadata; the types come from the tensors, never from the file's
name or its `general.file_type`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..architecture import ExtraTensor, Indexer, Layer, Model, Rwkv7, by_name
from ..conventions import convention_of
from ..errors import InputError
from ..file_types import file_type_label
from ..quantization import QuantizedTensor, Weights
from ..tensors import FINAL_NORM, Shape, Tensor, kept_f32
from .gguf_header import GgufHeader, TensorInfo, read_headers
from .gguf_layers import Block, layer_from, trimmed

MAX_LAYERS: Final = 4096
MAX_ARCHITECTURE_CHARACTERS: Final = 64
MAX_NAME_CHARACTERS: Final = 120
_BLOCK: Final = re.compile(r"blk\.(0|[1-9][0-9]{0,8})\.(.+)", re.DOTALL)
_NO_MODEL: Final = {
    "clip": "a vision or audio projector (mmproj)",
    "mmproj": "a vision or audio projector (mmproj)",
    "imatrix": "an importance matrix",
    "adapter": "a LoRA adapter",
    "controlvector": "a control vector",
}


@dataclass(frozen=True)
class GgufFile:
    """A file's model and weights. `vocabulary` is the number of tokens of its tokenizer, None if it has none."""

    model: Model
    weights: Weights
    vocabulary: int | None
    parts: int = 1
    notes: tuple[str, ...] = ()


def read_gguf(source: str | os.PathLike[str] | BinaryIO) -> GgufFile:
    """The model in a GGUF file, or in all parts of a split one, from a path or a stream of its first megabytes.

    Raises InputError for files that cannot be read, are no language model, or have an architecture or tensors that
    llmcalc does not know how to count.
    """
    headers = read_headers(source)
    infos = [info for header in headers for info in header.tensors]
    first = headers[0]
    model = _Builder(first, infos).model()
    return GgufFile(
        model,
        _weights(headers, infos),
        first.array_lengths.get("tokenizer.ggml.tokens"),
        len(headers),
        tuple(header.missing_note for header in headers if header.missing_note is not None),
    )


def _weights(headers: tuple[GgufHeader, ...], infos: Iterable[TensorInfo]) -> Weights:
    file_type = headers[0].metadata.get("general.file_type")
    return Weights(
        tuple(QuantizedTensor(_tensor(info), info.type) for info in infos),
        label=file_type_label(file_type) if isinstance(file_type, int) else "unknown",
        metadata_bytes=sum(header.data_offset for header in headers),
        metadata_estimated=False,
        alignment=headers[0].alignment,
    )


def _tensor(info: TensorInfo) -> Tensor:
    match = _BLOCK.fullmatch(info.name)
    return Tensor(info.name, info.shape, int(match[1]) if match else -1, kept_f32(info.name, info.shape))


class _Metadata:
    """Checked figures of one architecture's keys."""

    def __init__(self, header: GgufHeader) -> None:
        self.where = header.where
        self.values = header.metadata
        self.architecture = self._architecture()

    def _architecture(self) -> str:
        name = self.values.get("general.architecture")
        kind = self.values.get("general.type", "model")
        other = _NO_MODEL.get(str(name), _NO_MODEL.get(str(kind)))
        if other is not None:
            raise InputError(f"{self.where}: this is {other}, no language model")
        if not isinstance(name, str) or len(name) > MAX_ARCHITECTURE_CHARACTERS:
            raise InputError(f"{self.where}: the metadata lacks a sensible general.architecture")
        return name

    def get(self, key: str) -> Any:
        return self.values.get(f"{self.architecture}.{key}")

    def integer(self, key: str, default: int = 0) -> int:
        """A whole number of zero or more; of an array, its largest."""
        value = self.get(key)
        if isinstance(value, tuple):
            return max((self._whole(key, item) for item in value), default=default)
        return default if value is None else self._whole(key, value)

    def per_layer(self, key: str, layers: int, default: int = 0) -> tuple[int, ...]:
        """A whole number for every layer, from one for all or an array of at least as many."""
        value = self.get(key)
        if not isinstance(value, tuple):
            return (self.integer(key, default),) * layers
        if len(value) < layers:
            raise InputError(f"{self.where}: {key} has {len(value)} values for {layers} layers")
        return tuple(self._whole(key, item) for item in value[:layers])

    def _whole(self, key: str, value: object) -> int:
        if isinstance(value, (bool, int)) and 0 <= value < 1 << 31:
            return int(value)
        raise InputError(f"{self.where}: {key} is {value!r}, no sensible whole number")


class _Builder:
    """Assembles the Model of one header and all its parts' tensors; identical layers become one Layer object."""

    def __init__(self, header: GgufHeader, infos: Iterable[TensorInfo]) -> None:
        self.header = header
        self.metadata = _Metadata(header)
        self.architecture = self.metadata.architecture
        self.rules = convention_of(self.architecture, f"{header.where}: general.architecture")
        self.count = self.metadata.integer("block_count")
        if not 1 <= self.count <= MAX_LAYERS:
            raise InputError(f"{header.where}: block_count is {self.count}, not 1 to {MAX_LAYERS}")
        self.trunk = self.count - min(self.metadata.integer("nextn_predict_layers"), self.count - 1)  # plain layers
        self.whole, self.blocks = self._sorted_out(infos)
        self.hidden, self.vocab = self._embedding()
        self.shared_from = self.trunk - self.metadata.integer("attention.shared_kv_layers")
        self.slides = self._sliding_layers()
        self.indexer = self._shared_indexer()

    def _sorted_out(self, infos: Iterable[TensorInfo]) -> tuple[dict[str, Shape], list[dict[str, Shape]]]:
        """Shapes of the tensors of the whole model, and of those of each block by their names in it."""
        whole: dict[str, Shape] = {}
        blocks: list[dict[str, Shape]] = [{} for _ in range(self.count)]
        for info in infos:
            match = _BLOCK.fullmatch(info.name)
            if match is None:
                whole[info.name] = info.shape
            elif int(match[1]) >= self.count:
                raise InputError(f"{self.header.where}: {info.name[:60]!r} lies beyond the block_count of {self.count}")
            else:
                blocks[int(match[1])][match[2]] = info.shape
        return whole, blocks

    def _embedding(self) -> tuple[int, int]:
        shape = self.whole.get("token_embd.weight")
        if shape is None or len(shape) != 2:
            raise InputError(
                f"{self.header.where}: there is no token_embd.weight of two dimensions: no language model?"
            )
        return shape[0], shape[1]

    def model(self) -> Model:
        """The finished Model."""
        layers = self._layers()
        norm = FINAL_NORM.get(self.architecture, "output_norm")
        return Model(
            id=_stem(self.header.where),
            name=_one_line(str(self.header.metadata.get("general.name", ""))) or _stem(self.header.where),
            architecture=self.architecture,
            vocab=self.vocab,
            hidden=self.hidden,
            layers=layers[: self.trunk],
            draft_layers=layers[self.trunk :],
            tied_embeddings="output.weight" not in self.whole,
            max_context=self.metadata.integer("context_length") or None,
            final_norm=f"{norm}.weight" in self.whole,
            norm_bias=f"{norm}.bias" in self.whole,
            extras=self._extras(norm),
            padding=self._padding(layers),
        )

    def _extras(self, norm: str) -> tuple[ExtraTensor, ...]:
        implied = {"token_embd.weight": (self.hidden, self.vocab), "output.weight": (self.hidden, self.vocab),
                   f"{norm}.weight": (self.hidden,), f"{norm}.bias": (self.hidden,)}  # fmt: skip
        for name, shape in implied.items():
            if trimmed(self.whole.get(name, shape)) != trimmed(shape):
                raise InputError(f"{self.header.where}: {name} has the shape {self.whole[name]} where {shape} is due")
        return by_name(ExtraTensor(name, shape) for name, shape in self.whole.items() if name not in implied)

    def _padding(self, layers: tuple[Layer, ...]) -> int:
        """Values that the converter adds to the checkpoint's, going by published checkpoints (see Model.padding)."""
        first = layers[0].mixers[0] if layers[0].mixers else None
        if isinstance(first, Rwkv7):  # it writes the rate's adapter over the unused first value residual
            return 2 * max(0, first.rate_rank - first.value_rank) * self.hidden
        if self.architecture == "gemma3n" and "per_layer_token_embd.weight" in self.whole:
            width, rows = self.whole["per_layer_token_embd.weight"][:2]
            return width * max(0, rows - _GEMMA3N_PER_LAYER_ROWS)
        return 0

    def _layers(self) -> tuple[Layer, ...]:
        built: dict[tuple[object, ...], Layer] = {}
        layers = []
        for index, block in enumerate(self._described()):
            same = (*block.shapes.items(), block.heads, block.kv_heads, block.window, block.shares_cache,
                    block.experts_used, block.first and block.wkv_head, block.indexer, index >= self.trunk)  # fmt: skip
            if same not in built:
                built[same] = layer_from(block, self.rules, self._norms(index))
            layers.append(built[same])
        return tuple(layers)

    def _norms(self, index: int) -> tuple[str, ...]:
        is_draft = index >= self.trunk
        return (self.rules.draft_norms or self.rules.norms) if is_draft else self.rules.norms

    def _described(self) -> Iterable[Block]:
        figures = self.metadata
        heads = figures.per_layer("attention.head_count", self.count)
        kv_heads = figures.per_layer("attention.head_count_kv", self.count)
        used = figures.per_layer("expert_used_count", self.count)
        window = figures.integer("attention.sliding_window", self.rules.window or 0) or None
        second = self.blocks[1] if self.count > 1 else {}  # RWKV-7's first layer has no value residual
        value_rank = second.get("time_mix_v1.weight", (0,))[-1]
        for index, shapes in enumerate(self.blocks):
            yield Block(
                where=f"{self.header.where}: blk.{index}",
                hidden=self.hidden,
                shapes=shapes,
                architecture=self.architecture,
                heads=heads[index],
                kv_heads=kv_heads[index] or heads[index],
                window=window if self.slides[index] or "attn_output_a.weight" in shapes else None,
                shares_cache=self.shared_from <= index < self.trunk,
                rope_dim=figures.integer("rope.dimension_count"),
                experts_used=used[index],
                state=figures.integer("ssm.state_size"),
                groups=figures.integer("ssm.group_count"),
                wkv_head=figures.integer("wkv.head_size"),
                value_rank=value_rank,
                first=index == 0,
                indexer=self.indexer if index < self.trunk else None,
                top_k=figures.integer("attention.indexer.top_k"),
            )

    def _sliding_layers(self) -> tuple[bool, ...]:
        """Whether each layer attends to the window only, by llama.cpp's defaults where the file does not say."""
        if not (self.rules.draft_sliding or "S" in self.rules.pattern):
            return (False,) * self.count
        key = "attention.sliding_window_pattern"
        pattern = self.metadata.get(key)
        if isinstance(pattern, tuple):
            return tuple(map(bool, self.metadata.per_layer(key, self.count)))
        cycle = self.rules.pattern if pattern is None else _cycle(self.metadata.integer(key), self.count)
        letters = (cycle * (self.trunk // len(cycle) + 1))[: self.trunk]
        return (*(letter == "S" for letter in letters), *(self.rules.draft_sliding,) * (self.count - self.trunk))

    def _shared_indexer(self) -> Indexer | None:
        """For MLA layers without indexer weights, which reuse the selection of an earlier layer."""
        for shapes in self.blocks:
            if "attn_kv_a_mqa.weight" in shapes and "indexer.proj.weight" in shapes:
                head_dim = shapes.get("indexer.attn_k.weight", (0, 0))[-1]
                top_k = self.metadata.integer("attention.indexer.top_k")
                return Indexer(shapes["indexer.proj.weight"][-1], head_dim, top_k, owns_weights=False)
        return None


_FIRST_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
_GEMMA3N_PER_LAYER_ROWS: Final = 262_144  # the checkpoint's; the converter pads them to the whole vocabulary


def _cycle(period: int, layers: int) -> str:
    """Pattern of every `period`-th layer attending to all positions; 0: none does."""
    return "S" * min(period - 1, layers) + "F" if period else "S"


def _one_line(text: str) -> str:
    """Printable characters of `text` in one short line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_NAME_CHARACTERS]).strip()


def _stem(where: str) -> str:
    """A file's name without extension and split suffix."""
    return _FIRST_PART.sub("", Path(where).stem)
