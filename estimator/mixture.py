"""The mixture rules of llama-quantize: which tensor of which file type gets which type.

The rules are those of llama.cpp b11434, src/llama-quant.cpp; where they read oddly, so does the original, and files
depend on it. Imports nothing of the package but `errors`, `file_types` and `ggml_types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from .errors import InputError
from .ggml_types import GGML_TYPES, GgmlType


class Traits(NamedTuple):
    """What llama-quantize asks of a model beside its tensors."""

    architecture: str
    layers: int  # NextN/MTP layers included
    heads: int  # of layer 0, as in the metadata: 0 where that layer has no attention and the counts are per layer
    kv_heads: int
    experts: int = 0

    @property
    def grouped(self) -> bool:
        """Whether four or more heads share each KV head."""
        return self.kv_heads > 0 and self.heads // self.kv_heads >= 4

    @property
    def is_70b(self) -> bool:
        """Whether llama.cpp files it under "70B", whose few KV heads get a better type."""
        if self.architecture == "llama":
            return self.layers == 80 and self.heads != self.kv_heads and self.experts != 8
        return self.layers == {"qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}.get(self.architecture)


Category = Literal[
    "output", "embedding", "qkv", "kv_b", "value", "key", "query", "attention_output", "up", "gate", "down", "other"
]
VALUE_LIKE: Final = frozenset({"qkv", "kv_b", "value"})

# First match wins; names without their "blk.N." prefix.
_CATEGORIES: Final[tuple[tuple[str, Category], ...]] = (
    ("attn_qkv.weight", "qkv"),
    ("attn_kv_b.weight", "kv_b"),
    ("attn_v.weight", "value"),
    ("attn_k.weight", "key"),
    ("attn_q.weight", "query"),
    ("attn_output.weight", "attention_output"),
    ("ffn_up", "up"),
    ("ffn_gate", "gate"),
    ("ffn_down", "down"),
)


@lru_cache(maxsize=4096)
def category(name: str) -> Category:
    """The role of a tensor that the rules ask for."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((found for part, found in _CATEGORIES if part in name), "other")


_NEVER_QUANTIZED: Final = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
    "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "attn_rel_b.weight",
    *(f"time_mix_{part}.weight" for part in (
        "first", "w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2", "decay_w1", "decay_w2", "lerp_fused",
    )),
    ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger",
    "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
_NEVER_QUANTIZED_GLM5_NEXT: Final = (
    "hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_gate", "indexer_compressor_ape",
    "ssm_f_a.weight", "ssm_f_b.weight", "ssm_g_a.weight", "ssm_g_b.weight", "ssm_beta.weight", "attn_kv_a_mqa.weight",
    "attn_k_b.weight", "attn_v_b.weight",
)  # fmt: skip
_AT_LEAST_Q8_0_GLM5_NEXT: Final = ("attn_q_a", "attn_q_b", "nextn.eh_proj")


@lru_cache(maxsize=4096)
def may_quantize(name: str, architecture: str) -> bool:
    """Whether llama-quantize touches the tensor at all: matrices, but no routers, norms, positions and small mixers."""
    if not name.endswith("weight") or name in ("position_embd.weight", "token_types.weight"):
        return False
    if architecture == "glm5-next" and any(part in name for part in _NEVER_QUANTIZED_GLM5_NEXT):
        return False
    return not any(part in name for part in _NEVER_QUANTIZED)


# Where the rows are no multiple of the block: (types, what llama-quantize takes instead).
_FALLBACK: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


def fallback(type_: GgmlType, name: str, row: int) -> GgmlType:
    """`type_`, or the type that rows of `row` weights get instead; InputError where llama-quantize gives up."""
    if row % type_.block == 0:
        return type_
    smaller = type_ if type_.block <= 32 else GGML_TYPES.get(_FALLBACK.get(type_.name, ""))
    if smaller is None:
        raise InputError(
            f"llama-quantize refuses: rows of {name} have {row} weights, no multiple of {type_.block}, "
            f"and no type stands in for {type_.name}"
        )
    return smaller if row % smaller.block == 0 else GGML_TYPES["F16"]


def more_bits(i: int, n: int) -> bool:
    """Whether layer `i` of `n` is among the first and last eighth, or every third of the others."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


class Mixture(NamedTuple):
    """What the rules of one file type look at, the same for all tensors of a model."""

    name: str  # of the file type
    default: GgmlType
    traits: Traits
    imatrix: bool
    tied: bool
    values: int  # tensors that are like attn_v

    @property
    def falcon(self) -> bool:
        return self.traits.architecture == "falcon"


_LOW_BIT: Final = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"})


def _output_type(m: Mixture, row: int) -> str:
    if m.name in ("MXFP4_MOE", "Q8_0") or m.falcon or row % m.default.block:
        return "Q8_0"
    return "Q5_K" if m.name in _LOW_BIT or m.name == "IQ3_XXS" else "Q6_K"


def _embedding_type(m: Mixture) -> str | None:
    match m.name:
        case "IQ1_S" | "IQ1_M" | "IQ2_XXS" | "IQ2_XS":
            return "Q2_K"
        case "IQ2_S" | "IQ2_M" | "IQ3_XXS":
            return "IQ3_S"
        case "TQ1_0" | "TQ2_0" | "Q2_0":
            return "Q4_K"
    return None


def _mxfp4_moe_type(m: Mixture, role: Category, shape: Sequence[int]) -> str:
    stacked = len(shape) > 2 and shape[2] > 1
    if m.traits.architecture == "bailingmoe3":
        stacked = stacked and role in ("up", "gate", "down")
    return "MXFP4" if stacked else "Q8_0"


def _low_bit_type(m: Mixture, role: Category, i: int) -> str | None:
    better = "IQ3_S" if m.name in ("IQ2_S", "IQ2_M") else "Q2_K"
    if role in VALUE_LIKE:
        return "Q4_K" if m.traits.grouped or m.traits.experts >= 4 else better
    if role == "key" and m.traits.experts == 8:
        return "Q4_K"
    if role == "down" and i < m.traits.layers // 8:
        return better
    if role == "attention_output":
        return "Q5_K" if m.traits.experts == 8 else _LOW_BIT_ATTENTION_OUTPUT.get(m.name)
    return None


_LOW_BIT_ATTENTION_OUTPUT: Final = {"IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S"}


def _value_type(m: Mixture, i: int) -> str:
    if m.traits.experts == 8:
        return "Q8_0"
    chosen = _value_rule(m, i) or m.default.name
    return "Q5_K" if m.traits.is_70b and chosen in ("Q3_K", "Q4_K") else chosen


def _value_rule(m: Mixture, i: int) -> str | None:
    match m.name:
        case "Q2_K":
            return "Q4_K" if m.traits.grouped else "Q3_K"
        case "Q2_K_S" | "IQ3_XS" | "IQ3_S":
            return "Q4_K" if m.traits.grouped else None
        case "IQ3_XXS":
            return "Q4_K" if m.traits.grouped else None if m.imatrix else "IQ3_S"
        case "IQ3_M":
            return "Q4_K"
        case "Q3_K_M":
            return "Q5_K" if i < 2 else "Q4_K"
        case "Q3_K_L":
            return "Q5_K"
        case "Q4_K_S":
            return "Q5_K" if i < 4 else None
        case "Q4_K_M" | "Q5_K_M":
            return "Q6_K" if more_bits(i, m.values) else None
        case "IQ4_NL" | "IQ4_XS":
            return "Q5_K" if m.traits.grouped else None
    return None


def _query_key_type(m: Mixture, role: Category) -> str | None:
    if role == "key" and m.traits.experts == 8:
        return "Q8_0"
    return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(m.name)


def _down_type(m: Mixture, i: int) -> str | None:
    n = m.traits.layers
    early = i < n // 8
    match m.name:
        case "Q2_K":
            return "Q3_K"
        case "Q2_K_S":
            return "Q4_K" if early else None
        case "Q3_K_M":
            return "Q5_K" if i < n // 16 else "Q3_K" if m.falcon and not more_bits(i, n) else "Q4_K"
        case "Q3_K_L":
            return "Q4_K" if m.falcon else "Q5_K"
        case "Q4_K_S":
            return "Q5_K" if early and not m.falcon else None
        case "Q4_K_M" if m.falcon:
            return "Q6_K" if i < n // 16 else "Q5_K" if more_bits(i, n) else "Q4_K"
        case "Q4_K_M" | "Q5_K_M":
            return "Q6_K" if more_bits(i, n) else None
        case "IQ3_XXS" if not m.imatrix:
            return "Q4_K" if early else "Q3_K"
        case "IQ3_M":
            return "Q4_K" if early or (m.traits.experts == 8 and more_bits(i, n)) else None
        case "IQ4_NL" | "IQ4_XS":
            return "Q5_K" if early and not m.imatrix else None
        case "Q4_0" | "Q5_0":
            return m.name.replace("_0", "_1") if early and m.imatrix else None
    return None


_EIGHT_EXPERTS_OUTPUT: Final = frozenset(
    {"Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "IQ4_XS", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M"}
)


def _attention_output_type(m: Mixture) -> str | None:
    if m.falcon:
        return "Q4_K" if m.name == "Q3_K_L" else None
    if m.traits.experts == 8:
        return "Q5_K" if m.name in _EIGHT_EXPERTS_OUTPUT else None
    return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(m.name)


def _gate_up_type(m: Mixture, i: int) -> str | None:
    n = m.traits.layers
    return "IQ3_XXS" if m.name == "IQ3_XS" and n // 8 <= i < 7 * n // 8 else None


def _ruled_type(m: Mixture, role: Category, i: int, layer: int) -> str | None:
    """The type by the mixture's rules, None for the default; `i` counts the tensors of the kind seen before."""
    if role == "embedding":
        return _embedding_type(m)
    if m.name in _LOW_BIT:
        return _low_bit_type(m, role, i)
    if role in VALUE_LIKE:
        return _value_type(m, i)
    if role in ("key", "query"):
        return _query_key_type(m, role)
    if role == "attention_output":
        return _attention_output_type(m)
    position = layer if m.traits.experts > 1 else i
    if role == "down":
        return _down_type(m, position)
    return _gate_up_type(m, position) if role in ("gate", "up") else None


def mixed_type(m: Mixture, name: str, role: Category, shape: Sequence[int], layer: int, seen: dict[str, int]) -> str:
    """The name of the type by the mixture's rules, before the shape is looked at.

    `seen` counts the tensors of each kind that went through the rules before, in llama-quantize's order; it is updated.
    """
    if m.traits.architecture == "glm5-next" and any(part in name for part in _AT_LEAST_Q8_0_GLM5_NEXT):
        return "Q8_0"
    if role == "output" or (m.tied and role == "embedding"):
        return _output_type(m, shape[0])
    if m.name == "MXFP4_MOE":
        return _mxfp4_moe_type(m, role, shape)
    kind = "value" if role in VALUE_LIKE else role
    i = seen.get(kind, 0)
    seen[kind] = i + 1
    return _ruled_type(m, role, i, layer) or m.default.name


_NEEDS_IMATRIX: Final = frozenset({"IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S"})


def requires_imatrix(file_type_name: str, name: str, type_: GgmlType) -> bool:
    """Whether llama-quantize refuses to give the tensor called `name` that type without an importance matrix."""
    low = type_.name in _NEEDS_IMATRIX or (file_type_name == "Q2_K_S" and type_.name == "Q2_K")
    return low and category(name) not in ("output", "embedding")
