"""ggml tensor types: how many weights make a block, and how many bytes a block takes.

Block layouts: llama.cpp b11434, ggml/src/ggml-common.h; ids: ggml/include/ggml.h. Imports nothing of the package but
`errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from .errors import InputError, UnknownNameError

FLOAT_TYPES: Final = frozenset({"F32", "F16", "BF16"})
F16_ROUND_TRIP: Final = 4.0  # bytes a value to write it out as F16 and read it back


class GgmlType(NamedTuple):
    """One tensor type: `block` weights are stored together in `bytes` bytes, scales included."""

    name: str
    id: int  # in GGUF tensor infos
    block: int
    bytes: int

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight takes, scales included."""
        return 8 * self.bytes / self.block

    @property
    def is_quantized(self) -> bool:
        """Whether weights share scales, as opposed to plain floats and integers."""
        return self.block > 1


GGML_TYPES: Final = {
    name: GgmlType(name, id, block, size)
    for name, id, block, size in (
        ("F32", 0, 1, 4),
        ("F16", 1, 1, 2),
        ("Q4_0", 2, 32, 18),
        ("Q4_1", 3, 32, 20),
        ("Q5_0", 6, 32, 22),
        ("Q5_1", 7, 32, 24),
        ("Q8_0", 8, 32, 34),
        ("Q8_1", 9, 32, 36),  # activations only
        ("Q2_K", 10, 256, 84),
        ("Q3_K", 11, 256, 110),
        ("Q4_K", 12, 256, 144),
        ("Q5_K", 13, 256, 176),
        ("Q6_K", 14, 256, 210),
        ("Q8_K", 15, 256, 292),  # activations only
        ("IQ2_XXS", 16, 256, 66),
        ("IQ2_XS", 17, 256, 74),
        ("IQ3_XXS", 18, 256, 98),
        ("IQ1_S", 19, 256, 50),
        ("IQ4_NL", 20, 32, 18),
        ("IQ3_S", 21, 256, 110),
        ("IQ2_S", 22, 256, 82),
        ("IQ4_XS", 23, 256, 136),
        ("I8", 24, 1, 1),
        ("I16", 25, 1, 2),
        ("I32", 26, 1, 4),
        ("I64", 27, 1, 8),
        ("F64", 28, 1, 8),
        ("IQ1_M", 29, 256, 56),
        ("BF16", 30, 1, 2),
        ("TQ1_0", 34, 256, 54),
        ("TQ2_0", 35, 256, 66),
        ("MXFP4", 39, 32, 17),
        ("NVFP4", 40, 64, 36),
        ("Q1_0", 41, 128, 18),
        ("Q2_0", 42, 64, 18),
    )
}
GGML_TYPES_BY_ID: Final = {ggml_type.id: ggml_type for ggml_type in GGML_TYPES.values()}


def ggml_type(name: str | GgmlType) -> GgmlType:
    """The type called `name`, in any case ("q4_K", "Q4_K"); UnknownNameError with the closest names otherwise."""
    if isinstance(name, GgmlType):
        return name
    found = GGML_TYPES.get(str(name).strip().upper())
    if found is None:
        close = closest_names(name, GGML_TYPES)
        raise UnknownNameError(f"unknown tensor type {name!r}; close ones: {', '.join(close)}", close)
    return found


def closest_names(name: str, names: Sequence[str] | dict[str, GgmlType]) -> list[str]:
    """Up to five of `names` that look most like `name`; the first few if none does."""
    import difflib

    return difflib.get_close_matches(name.strip().upper(), names, n=5, cutoff=0.3) or list(names)[:5]


def row_bytes(type_: GgmlType, n: int) -> int:
    """Bytes of a row of `n` weights; InputError if they do not fill whole blocks."""
    if n % type_.block:
        raise InputError(f"a row of {n} weights cannot be {type_.name}, which needs a multiple of {type_.block}")
    return n // type_.block * type_.bytes


def tensor_bytes(type_: GgmlType, shape: Sequence[int]) -> int:
    """Bytes of a tensor of `shape` (ne0, the row length, first), without padding."""
    return row_bytes(type_, shape[0]) * prod(shape[1:])
