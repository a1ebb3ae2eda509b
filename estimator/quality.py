"""How much a quantisation costs in quality, in classes: enough to rank choices, no measurement of one's own model.

Classes follow the perplexity tables of llama.cpp's quantize tool (tools/quantize/README.md): what is called good there
loses about a hundredth, fair several hundredths, poor a tenth and more.
Imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

QUALITY_CLASSES: Final = ("very poor", "poor", "fair", "good", "high", "lossless")

_PREFIXES: Final = (
    ("F32", 5), ("F16", 5), ("BF16", 5), ("Q8", 5), ("Q6", 4), ("Q5", 4), ("MXFP4", 3), ("Q4", 3), ("IQ4", 3),
    ("Q3", 2), ("IQ3", 2), ("Q2", 1), ("IQ2", 1), ("TQ", 1), ("IQ1", 0),
)  # fmt: skip
_CACHE_LOSS: Final = {"F32": 0, "F16": 0, "BF16": 0, "Q8_0": 0}  # others cost a class


def quality_rank(quantisation: str, kv_type: str = "F16") -> int:
    """Rank of the class of a file type, 0 the worst, less one for a cache of less than 8 bits."""
    name = quantisation.upper().removeprefix("UD-")
    rank = next((rank for prefix, rank in _PREFIXES if name.startswith(prefix)), 3)
    return max(rank - _CACHE_LOSS.get(kv_type.upper(), 1), 0)


def quality_class(quantisation: str, kv_type: str = "F16") -> str:
    """The class in words."""
    return QUALITY_CLASSES[quality_rank(quantisation, kv_type)]
