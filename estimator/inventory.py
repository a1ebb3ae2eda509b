"""The matrices of a file in groups: what one token is multiplied with, by tensor type and by who sees it.

A group stands for all matrices of one kind and type over all layers, so an estimate costs the same for 16 and for 126
layers. Imports tensors and their types; knows nothing of phases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from .architecture import Model, MoeFfn
from .frozen_dataclass import dataclass
from .quantization import QuantizedTensor, Weights

MatrixKind = Literal["dense", "experts", "output"]

_MULTIPLIED: Final = frozenset(
    {"attention", "latent", "dense_ffn", "router", "expert", "shared_expert", "recurrent", "other", "output"}
)


@dataclass(frozen=True)
class MatrixGroup:
    """Matrices of one type that see the same tokens, over all layers; for experts `values` and `bytes` are of one."""

    kind: MatrixKind
    tensor_type: str
    values: float
    bytes: float
    activations: float  # inputs and outputs of all products for one token, in values
    experts: int = 1
    used: int = 1


@dataclass(frozen=True)
class Inventory:
    """The part of a file that plain decoding reads: matrices in groups, and the vectors beside them."""

    matrices: tuple[MatrixGroup, ...]
    vector_bytes: float  # norms, biases and tables, read once a pass
    embedding_row_bytes: float
    file_bytes: float  # of the whole file, MTP blocks included

    def scaled(self, file_bytes: float) -> Inventory:
        """The same mixture, stretched to a file of another size: for mixtures that no rule describes."""
        factor = file_bytes / self.file_bytes
        groups = tuple(replace(group, bytes=group.bytes * factor) for group in self.matrices)
        return Inventory(groups, self.vector_bytes, self.embedding_row_bytes * factor, file_bytes)


GroupKey = tuple[MatrixKind, str, int, int]  # kind, tensor type, experts, experts used


@lru_cache(maxsize=256)
def inventory(model: Model, weights: Weights) -> Inventory:
    """Group the tensors of a file by what multiplies them. NextN/MTP blocks count in the size alone."""
    return grouped(model, weights.tensors, is_tied(weights), weights.bytes)


def is_tied(weights: Weights) -> bool:
    """Whether the token embedding serves as output matrix too."""
    return not any(quantized.tensor.role == "output" for quantized in weights.tensors)


def grouped(model: Model, tensors: Iterable[QuantizedTensor], tied: bool, file_bytes: float) -> Inventory:
    """The inventory of some tensors of a file; `tied`: a token embedding among them is multiplied as output matrix."""
    groups: dict[GroupKey, list[QuantizedTensor]] = {}
    vectors = rows = 0.0
    for quantized in tensors:
        tensor = quantized.tensor
        if tensor.layer >= model.n_layers:
            continue
        if tensor.role == "token_embedding":
            rows += quantized.bytes / tensor.shape[-1]
        key = _group_key(quantized, model, tied)
        if key is not None:
            groups.setdefault(key, []).append(quantized)
        elif tensor.role != "token_embedding":
            vectors += quantized.bytes
    matrices = tuple(_matrix_group(*key, members) for key, members in groups.items())
    return Inventory(matrices, vectors, rows, file_bytes)


def _group_key(quantized: QuantizedTensor, model: Model, tied: bool) -> GroupKey | None:
    """The group of a matrix that tokens are multiplied with; None for other tensors."""
    tensor, name = quantized.tensor, quantized.type.name
    if tensor.role == "output" or (tied and tensor.name == "token_embd.weight"):
        return "output", name, 1, 1
    if tensor.role not in _MULTIPLIED:
        return None
    if tensor.role != "expert":
        return "dense", name, 1, 1
    ffn = model.layers[tensor.layer].ffn
    used = ffn.used if isinstance(ffn, MoeFfn) else 1
    return "experts", name, tensor.experts, used


def _matrix_group(kind: MatrixKind, name: str, experts: int, used: int, members: list[QuantizedTensor]) -> MatrixGroup:
    values = sum(q.tensor.elements for q in members) / experts
    size = sum(q.bytes for q in members) / experts
    activations = float(sum(_activations(q.tensor.shape) for q in members))
    return MatrixGroup(kind, name, float(values), float(size), activations * used, experts, used)


def _activations(shape: tuple[int, ...]) -> int:
    """Inputs and outputs of one product; a stack of matrices that is not experts works on a slice of heads each."""
    return shape[0] + (shape[1] if len(shape) > 1 else 1)
