"""File types of llama-quantize ("Q4_K_M"): their ids, default tensor types and the names people type for them.

Ids: llama.cpp b11434, include/llama.h; default types: src/llama-quant.cpp; labels, which llama-bench prints:
src/llama-model-loader.cpp. Imports nothing of the package but `errors` and `ggml_types`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .errors import InputError, UnknownNameError
from .ggml_types import GGML_TYPES, GgmlType, closest_names


class FileType(NamedTuple):
    """What `general.file_type` says of a whole file; single tensors deviate from `default` by rule (`mixture`)."""

    name: str
    id: int
    default: GgmlType
    label: str  # as llama.cpp prints it
    from_converter: bool = False  # written by the converter, no target of llama-quantize


FILE_TYPES: Final = {
    name: FileType(name, id, GGML_TYPES[default], label, from_converter=name == "NVFP4")
    for name, id, default, label in (
        ("F32", 0, "F32", "all F32"),
        ("F16", 1, "F16", "F16"),
        ("BF16", 32, "BF16", "BF16"),
        ("Q8_0", 7, "Q8_0", "Q8_0"),
        ("Q6_K", 18, "Q6_K", "Q6_K"),
        ("Q5_K_M", 17, "Q5_K", "Q5_K - Medium"),
        ("Q5_K_S", 16, "Q5_K", "Q5_K - Small"),
        ("Q5_1", 9, "Q5_1", "Q5_1"),
        ("Q5_0", 8, "Q5_0", "Q5_0"),
        ("Q4_K_M", 15, "Q4_K", "Q4_K - Medium"),
        ("Q4_K_S", 14, "Q4_K", "Q4_K - Small"),
        ("Q4_1", 3, "Q4_1", "Q4_1"),
        ("Q4_0", 2, "Q4_0", "Q4_0"),
        ("IQ4_NL", 25, "IQ4_NL", "IQ4_NL - 4.5 bpw"),
        ("IQ4_XS", 30, "IQ4_XS", "IQ4_XS - 4.25 bpw"),
        ("MXFP4_MOE", 38, "MXFP4", "MXFP4 MoE"),
        ("NVFP4", 39, "NVFP4", "NVFP4"),
        ("Q3_K_L", 13, "Q3_K", "Q3_K - Large"),
        ("Q3_K_M", 12, "Q3_K", "Q3_K - Medium"),
        ("Q3_K_S", 11, "Q3_K", "Q3_K - Small"),
        ("IQ3_M", 27, "IQ3_S", "IQ3_S mix - 3.66 bpw"),
        ("IQ3_S", 26, "IQ3_S", "IQ3_S - 3.4375 bpw"),
        ("IQ3_XS", 22, "IQ3_S", "IQ3_XS - 3.3 bpw"),
        ("IQ3_XXS", 23, "IQ3_XXS", "IQ3_XXS - 3.0625 bpw"),
        ("Q2_K", 10, "Q2_K", "Q2_K - Medium"),
        ("Q2_K_S", 21, "Q2_K", "Q2_K - Small"),
        ("IQ2_M", 29, "IQ2_S", "IQ2_M - 2.7 bpw"),
        ("IQ2_S", 28, "IQ2_XS", "IQ2_S - 2.5 bpw"),
        ("IQ2_XS", 20, "IQ2_XS", "IQ2_XS - 2.3125 bpw"),
        ("IQ2_XXS", 19, "IQ2_XXS", "IQ2_XXS - 2.0625 bpw"),
        ("IQ1_M", 31, "IQ1_M", "IQ1_M - 1.75 bpw"),
        ("IQ1_S", 24, "IQ1_S", "IQ1_S - 1.5625 bpw"),
        ("TQ2_0", 37, "TQ2_0", "TQ2_0 - 2.06 bpw ternary"),
        ("TQ1_0", 36, "TQ1_0", "TQ1_0 - 1.69 bpw ternary"),
        ("Q2_0", 41, "Q2_0", "Q2_0"),
        ("Q1_0", 40, "Q1_0", "Q1_0"),
    )
}  # fmt: skip
FILE_TYPES_BY_ID: Final = {file_type.id: file_type for file_type in FILE_TYPES.values()}
GUESSED: Final = 1024  # or-ed into the id by llama.cpp where the file did not say

# What people type, folded as in `_fold`. Bare widths mean the mixture that most people download.
_ALIASES: Final = {
    "q8": "Q8_0", "q6": "Q6_K", "q5": "Q5_K_M", "q4": "Q4_K_M", "q3": "Q3_K_M", "q2": "Q2_K",
    "8bit": "Q8_0", "6bit": "Q6_K", "5bit": "Q5_K_M", "4bit": "Q4_K_M", "3bit": "Q3_K_M", "2bit": "Q2_K",
    "q5k": "Q5_K_M", "q4k": "Q4_K_M", "q3k": "Q3_K_M", "q2km": "Q2_K",
    "iq4": "IQ4_XS", "iq3": "IQ3_M", "iq2": "IQ2_M", "iq1": "IQ1_M",
    "tq1": "TQ1_0", "tq2": "TQ2_0", "q1": "Q1_0",
    "fp32": "F32", "float32": "F32", "fp16": "F16", "float16": "F16", "half": "F16", "bfloat16": "BF16",
    "mxfp4": "MXFP4_MOE",
}  # fmt: skip

# Mixtures that their makers chose per file: no rule says which tensor has which type.
_PER_FILE_MIXTURE: Final = r"(?i)^ud[-_ ]|[-_ ](xl|xxl)$|_k_l$|dynamic"
# Types of ik_llama.cpp: row-interleaved ones, and IQ2_K to IQ6_K, …_KS, …_KT, …_BN.
_FORK_TYPE: Final = r"(?i)_r(4|8|16)\b|^iq[1-6]_(k|ks|kss|kl|kt|bn)\b|^i2_s\b|^q8_k\b"


def _fold(name: str) -> str:
    return re.sub(r"[\s_\-]", "", name).lower()


_BY_FOLDED_NAME: Final = {
    **{_fold(name): name for name in FILE_TYPES},
    **{_fold(file_type.label): file_type.name for file_type in FILE_TYPES.values()},
    **_ALIASES,
}


def file_type(name: str | FileType) -> FileType:
    """The file type that people mean by `name`: "Q4_K_M", "q4", "fp16", "Q4_K - Medium", in any case.

    Raises InputError for mixtures that follow no rule (Unsloth's UD-…, …_XL), whose types only their file knows, and
    UnknownNameError with the closest names for everything else.
    """
    if isinstance(name, FileType):
        return name
    text = str(name).strip().removeprefix("mostly ").removesuffix(".gguf")
    found = _BY_FOLDED_NAME.get(_fold(text))
    if found is not None:
        return FILE_TYPES[found]
    if re.search(_PER_FILE_MIXTURE, text):
        raise InputError(
            f"quantisation {name!r}: its mixture of tensor types is chosen per file and follows no rule; "
            f"give the .gguf file itself as the model{_nearest(text)}"
        )
    if re.search(_FORK_TYPE, text):
        raise InputError(f"quantisation {name!r}: llama.cpp does not have it; it belongs to the fork ik_llama.cpp")
    close = closest_names(text, list(FILE_TYPES))
    raise UnknownNameError(f"unknown quantisation {name!r}; close ones: {', '.join(close)}", close)


def _nearest(per_file: str) -> str:
    """What may stand in for a mixture that follows no rule: the same name without what marks it as one."""
    for ending in ("", "_M"):
        plain = re.sub(r"(?i)^ud[-_ ]|[-_ ]x{1,2}l$", "", per_file)
        found = _BY_FOLDED_NAME.get(_fold(plain + ending))
        if found is not None:
            return f", or take {found}, which is close"
    return ""


def file_type_label(id: int) -> str:
    """How llama.cpp prints `general.file_type`; "unknown" for ids that it does not know."""
    known = FILE_TYPES_BY_ID.get(id & ~GUESSED)
    if known is None:
        return "unknown, may not work"
    return f"(guessed) {known.label}" if id & GUESSED else known.label
