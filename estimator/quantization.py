"""The weights of a model at a file type: the type and the bytes of every tensor, as llama-quantize would write them.

Files made before a rule changed keep their old mixture, and some makers choose types by hand: for those, read the types
from the file (`importers.gguf`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Final, NamedTuple

from .architecture import Attention, CompressedAttention, LatentAttention, Model
from .conventions import drafts_converted
from .errors import InputError
from .file_types import FileType, file_type
from .frozen_dataclass import dataclass
from .ggml_types import GGML_TYPES, GgmlType, ggml_type, tensor_bytes
from .mixture import (
    VALUE_LIKE,
    Category,
    Mixture,
    Traits,
    category,
    fallback,
    may_quantize,
    mixed_type,
    requires_imatrix,
)
from .tensors import Tensor, tensors
from .workload import padded as rounded_up

ALIGNMENT: Final = 32  # bytes; GGUF's default


class QuantizedTensor(NamedTuple):
    """A tensor and the type in which the file stores it."""

    tensor: Tensor
    type: GgmlType

    @property
    def bytes(self) -> int:
        """Bytes of the weights, without padding (llama.cpp's ggml_nbytes)."""
        return tensor_bytes(self.type, self.tensor.shape)


class Recipe(NamedTuple):
    """The options of one llama-quantize run. `overrides` are (regular expression, type); the first match wins."""

    file_type: FileType
    imatrix: bool = False
    pure: bool = False  # no mixture: every tensor gets the default type
    leave_output: bool = False
    output_type: GgmlType | None = None
    embedding_type: GgmlType | None = None
    overrides: tuple[tuple[re.Pattern[str], GgmlType], ...] = ()
    source_type: GgmlType = GGML_TYPES["F16"]  # of the matrices in the file that is quantised


def recipe(
    quantization: str | FileType,
    *,
    imatrix: bool = False,
    pure: bool = False,
    leave_output: bool = False,
    output_type: str | GgmlType | None = None,
    embedding_type: str | GgmlType | None = None,
    overrides: Iterable[tuple[str, str | GgmlType]] = (),
    source_type: str | GgmlType = "F16",
) -> Recipe:
    """A Recipe from names as people type them; InputError for unknown names and broken regular expressions."""
    chosen = file_type(quantization)
    if chosen.from_converter:
        raise InputError(f"{chosen.name} files come from the converter alone; give the .gguf file itself as the model")
    return Recipe(
        chosen,
        imatrix,
        pure,
        leave_output,
        None if output_type is None else ggml_type(output_type),
        None if embedding_type is None else ggml_type(embedding_type),
        tuple((_compiled(pattern), ggml_type(name)) for pattern, name in overrides),
        ggml_type(source_type),
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern.lower())  # llama-quantize lowers it as well
    except re.error as error:
        raise InputError(f"tensor type override {pattern!r} is no regular expression: {error}") from None


# Hybrids whose converter writes one count for all layers; the others write a count per layer, 0 where it is recurrent.
SCALAR_HEAD_COUNTS: Final = frozenset({"qwen3next", "qwen35", "qwen35moe", "minimax-01"})


def traits(model: Model, drafts: bool = False) -> Traits:
    """The Traits of `model`, as the metadata of its GGUF file would give them."""
    layers = (*model.layers, *model.draft_layers) if drafts else model.layers
    heads, kv_heads = _head_counts(model.layers[0].mixers)
    if not heads and model.architecture in SCALAR_HEAD_COUNTS:
        counts = (_head_counts(layer.mixers) for layer in model.layers)
        heads, kv_heads = next((found for found in counts if found[0]), (0, 0))
    experts = max((getattr(layer.ffn, "experts", 0) for layer in layers), default=0)
    return Traits(model.architecture, len(layers), heads, kv_heads, experts)


def _head_counts(mixers: Sequence[object]) -> tuple[int, int]:
    for mixer in mixers:
        if isinstance(mixer, Attention):
            return mixer.heads, mixer.kv_heads
        if isinstance(mixer, LatentAttention):
            return mixer.heads, 1 if mixer.absorbed else mixer.heads
        if isinstance(mixer, CompressedAttention):
            return mixer.heads, 1
    return 0, 0


def quantize(inventory: Iterable[Tensor], model: Traits, how: Recipe) -> tuple[QuantizedTensor, ...]:
    """Each tensor of `inventory` with the type that llama-quantize gives it, in the order in which it writes them.

    Raises InputError, with llama-quantize's reason, where it refuses.
    """
    ordered = sorted(inventory, key=lambda tensor: (tensor.layer, tensor.name))
    names = [tensor.name if tensor.layer < 0 else tensor.name.split(".", 2)[-1] for tensor in ordered]
    roles = [category(name) for name in names]
    mixture = Mixture(
        how.file_type.name,
        how.file_type.default,
        model,
        how.imatrix,
        tied="output" not in roles,
        values=sum(role in VALUE_LIKE for role in roles),
    )
    seen: dict[str, int] = {}
    return tuple(
        QuantizedTensor(
            tensor,
            _quantized_type(tensor, role, mixture, how, seen)
            if _may_quantize(tensor, name, model.architecture, how)
            else _source_type(tensor, how),
        )
        for tensor, name, role in zip(ordered, names, roles, strict=True)
    )


def _may_quantize(tensor: Tensor, name: str, architecture: str, how: Recipe) -> bool:
    if len(tensor.shape) < 2 or (how.leave_output and name == "output.weight"):
        return False
    return may_quantize(name, architecture) and prod(tensor.shape[1:]) > 1


def _source_type(tensor: Tensor, how: Recipe) -> GgmlType:
    if tensor.name.endswith("ffn_gate_tid2eid.weight"):  # a table of expert numbers
        return GGML_TYPES["I32"]
    return GGML_TYPES["F32"] if tensor.f32 else how.source_type


def _quantized_type(tensor: Tensor, role: Category, m: Mixture, how: Recipe, seen: dict[str, int]) -> GgmlType:
    manual = next((type_ for pattern, type_ in how.overrides if pattern.search(tensor.name)), None)
    named = manual is not None and tensor.name == "per_layer_token_embd.weight"
    if role == "embedding" and how.embedding_type and not named:
        return _fitting(how.embedding_type, tensor)
    if role == "output" and how.output_type:
        return _fitting(how.output_type, tensor)
    if not m.default.is_quantized:
        return m.default
    return fallback(manual or _ruled_type(tensor, role, m, how, seen), tensor.name, tensor.shape[0])


def _ruled_type(tensor: Tensor, role: Category, m: Mixture, how: Recipe, seen: dict[str, int]) -> GgmlType:
    if how.pure:
        return m.default
    if how.output_type and m.tied and role == "embedding":
        return how.output_type
    return GGML_TYPES[mixed_type(m, tensor.name, role, tensor.shape, tensor.layer, seen)]


def _fitting(type_: GgmlType, tensor: Tensor) -> GgmlType:
    if tensor.shape[0] % type_.block:
        raise InputError(
            f"{tensor.name} cannot be {type_.name}: its rows of {tensor.shape[0]} are no multiple of {type_.block}"
        )
    return type_


class TypeShare(NamedTuple):
    """What one tensor type contributes to a file."""

    tensors: int
    params: int
    bytes: int


@dataclass(frozen=True)
class Weights:
    """All tensors of a file with their types; sizes in bytes."""

    tensors: tuple[QuantizedTensor, ...]
    label: str  # of the file type, as llama.cpp prints it: "Q4_K - Medium"
    metadata_bytes: int  # up to the start of the tensor data
    metadata_estimated: bool = True  # False when it was read from a file
    needs_imatrix: bool = False  # llama-quantize refuses to make it without an importance matrix
    alignment: int = ALIGNMENT
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # A key of caches, whose hundreds of tensors are hashed once.
        return hash((self.label, self.metadata_bytes, self.tensors))

    @cached_property
    def bytes(self) -> int:
        """Sum of the tensors without padding: llama-bench's model size."""
        return sum(quantized.bytes for quantized in self.tensors)

    @cached_property
    def params(self) -> int:
        """Values in all tensors: llama-bench's n_params."""
        return sum(quantized.tensor.elements for quantized in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        """Bits a value takes on average over the whole file."""
        return 8 * self.bytes / self.params

    @property
    def file_bytes(self) -> int:
        """Size of the file, or of all its splits: metadata and padded tensors. An estimate if the metadata is one."""
        return self.metadata_bytes + sum(padded(quantized.bytes, self.alignment) for quantized in self.tensors)

    @cached_property
    def by_type(self) -> dict[str, TypeShare]:
        """Type name → how many tensors, values and bytes it has, largest share first."""
        groups: dict[str, list[QuantizedTensor]] = {}
        for quantized in self.tensors:
            groups.setdefault(quantized.type.name, []).append(quantized)
        shares = {name: _share(group) for name, group in groups.items()}
        return dict(sorted(shares.items(), key=lambda item: -item[1].bytes))


def _share(group: Sequence[QuantizedTensor]) -> TypeShare:
    return TypeShare(len(group), sum(q.tensor.elements for q in group), sum(q.bytes for q in group))


def padded(size: int, alignment: int = ALIGNMENT) -> int:
    """`size` rounded up to a multiple of `alignment`."""
    return rounded_up(size, alignment)


def weights(model: Model, quantization: str | FileType, *, drafts: bool | None = None, **options: Any) -> Weights:
    """The weights of `model` at a file type, with or without its NextN/MTP layers (None: as published files have them).

    `options` are those of `recipe`: imatrix, pure, leave_output, output_type, embedding_type, overrides, source_type.
    Raises InputError for unknown names and, with llama-quantize's reason, where it refuses.
    """
    how = recipe(quantization, **options)
    with_drafts = drafts_converted(model.architecture) if drafts is None else drafts
    return _made(model, how, with_drafts) if options else _made_once(model, how, with_drafts)


def _made(model: Model, how: Recipe, drafts: bool) -> Weights:
    quantized = quantize(tensors(model, drafts), traits(model, drafts), how)
    return Weights(
        quantized,
        how.file_type.label,
        estimated_metadata_bytes(model, quantized),
        needs_imatrix=any(requires_imatrix(how.file_type.name, q.tensor.name, q.type) for q in quantized),
        notes=_notes(model, how),
    )


_made_once: Final = lru_cache(maxsize=64)(_made)  # the usual mixture of a model, asked for again and again


def _notes(model: Model, how: Recipe) -> tuple[str, ...]:
    if model.architecture == "gpt-oss" and how.file_type.name != "MXFP4_MOE":
        return (
            f"Published gpt-oss files keep the experts in MXFP4 whatever their name says; this is {how.file_type.name} "
            "in all matrices, as llama-quantize makes it from an F16 file.",
        )
    return ()


def estimated_metadata_bytes(model: Model, quantized: Iterable[QuantizedTensor]) -> int:
    """About how many bytes precede the tensor data: exact tensor infos, and a tokenizer of typical size.

    A vocabulary entry costs its text, 8 bytes of length and 4 of type; SentencePiece adds a score of 4 bytes, byte-pair
    encoding the merges with about as many bytes again (twice as many for Llama 3, which lists 2.2 merges an entry).
    """
    return padded(_info_bytes(quantized) + model.vocab * _bytes_per_entry(model) + _OTHER_KEYS_BYTES)


def _info_bytes(quantized: Iterable[QuantizedTensor]) -> int:
    """Name with its length, number of dimensions, dimensions, type and offset of every tensor."""
    return sum(24 + len(q.tensor.name) + 8 * len(q.tensor.shape) for q in quantized)


_OTHER_KEYS_BYTES: Final = 8192  # architecture keys and a chat template
_SENTENCEPIECE_VOCAB: Final = 33_000  # SentencePiece vocabularies of the Llama 2 kind have 32 000 entries and a few


def _bytes_per_entry(model: Model) -> int:
    """Measured on published files: 23 (Llama 2), 25 (Gemma 3), 36 (SmolLM2), 39 (Qwen 3), 61 (Llama 3)."""
    if model.architecture.startswith("gemma") or model.vocab <= _SENTENCEPIECE_VOCAB:
        return 24
    return 61 if model.architecture == "llama" and model.vocab == 128_256 else 38


def split_bytes(whole: Weights, max_bytes: float | None = None, max_tensors: int = 128) -> tuple[int, ...]:
    """Sizes of the files that gguf-split makes: at most `max_bytes` of padded tensors each, or else `max_tensors`.

    The first file holds all metadata. Metadata sizes are true to one alignment step. Raises InputError for a limit
    below the first tensor, which gguf-split refuses too.
    """
    groups = _split(whole, max_bytes, max_tensors)
    rest = sum(_info_bytes(group) for group in groups[1:])
    first = padded(whole.metadata_bytes - rest + _SPLIT_KEYS_BYTES, whole.alignment)
    others = (padded(_HEADER_BYTES + _SPLIT_KEYS_BYTES + _info_bytes(group), whole.alignment) for group in groups[1:])
    return tuple(
        metadata + sum(padded(q.bytes, whole.alignment) for q in group)
        for metadata, group in zip((first, *others), groups, strict=True)
    )


_HEADER_BYTES: Final = 24
_SPLIT_KEYS_BYTES: Final = 82  # split.no, split.count, split.tensors.count


def _split(whole: Weights, max_bytes: float | None, max_tensors: int) -> list[list[QuantizedTensor]]:
    groups: list[list[QuantizedTensor]] = [[]]
    size = 0
    for index, quantized in enumerate(whole.tensors):
        step = padded(quantized.bytes, whole.alignment)
        size += step
        if size > max_bytes if max_bytes is not None else index and index % max_tensors == 0:
            groups.append([])
            size = step
        groups[-1].append(quantized)
    if not groups[0] or max_tensors < 1:
        raise InputError(f"the first tensor, {whole.tensors[0].tensor.name}, does not fit the limit of a split")
    return groups
