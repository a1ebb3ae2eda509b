"""What is asked of a machine: context, prompt, output, sequences, and llama.cpp's run-time settings.

Imports `errors` and `units`. Configured context only reserves memory, occupied context costs time; the two are never
mixed.
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .frozen_dataclass import dataclass
from .units import MAX_TOKENS

Count = int | NDArray[np.int64]  # of tokens, cells or bytes: exact integers, a scalar or an array of cases
CountT = TypeVar("CountT", int, NDArray[np.int64], Count)

CONTEXT_PADDING = 256  # llama.cpp b11434, src/llama-context.cpp: n_ctx is padded to 256 cells

MAX_SEQUENCES = 256  # llama.cpp b11434, src/llama-cparams.h: LLAMA_MAX_SEQ

KV_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "IQ4_NL", "Q4_1", "Q4_0")

_LIMITS = (
    ("context", 1, MAX_TOKENS),
    ("prompt", 1, MAX_TOKENS),
    ("batch", 1, MAX_TOKENS),
    ("ubatch", 1, MAX_TOKENS),
    ("output", 0, MAX_TOKENS),
    ("cached_prefix", 0, MAX_TOKENS),
    ("parallel", 1, MAX_SEQUENCES),
)


def padded(n: CountT, multiple: int = CONTEXT_PADDING) -> CountT:
    """`n` rounded up to a multiple."""
    return -(-n // multiple) * multiple


def minimum(a: CountT, b: Count) -> CountT:
    """The smaller of two counts, element by element for arrays; shaped like `a`."""
    return cast(CountT, min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b))


@dataclass(frozen=True)
class Workload:
    """One kind of request and the server settings it runs under. Counts are tokens or sequences."""

    context: int = 4096  # -c: cells reserved, for all sequences together
    prompt: int = 512
    output: int = 128
    cached_prefix: int = 0  # prompt tokens whose K and V are already in the cache
    parallel: int = 1  # -np: sequences decoded together
    batch: int = 2048  # -b
    ubatch: int = 512  # -ub
    kv_type_k: str = "F16"  # -ctk
    kv_type_v: str = "F16"  # -ctv
    flash_attention: bool = True  # -fa; llama.cpp's "auto" turns it on for every backend in the catalog
    kv_unified: bool = False  # -kvu: one cache for all sequences
    swa_full: bool = False  # --swa-full: window layers keep the whole context
    all_logits: bool = True  # outputs for a whole ubatch reserved (llama-cli, llama-bench); False: llama-server

    def __post_init__(self) -> None:
        for name, least, most in _LIMITS:
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name}: must be from {least} to {most:,}, got {getattr(self, name):,}")
        for name in ("kv_type_k", "kv_type_v"):
            if getattr(self, name) not in KV_TYPES:
                raise InputError(f"{name}: {getattr(self, name)!r} is no KV cache type; known: {', '.join(KV_TYPES)}")
        if self.cached_prefix > self.prompt:
            raise InputError(
                f"cached_prefix: {self.cached_prefix} tokens cannot be cached of a prompt of {self.prompt}"
            )

    @property
    def cells_per_sequence(self) -> int:
        """KV cells of one sequence's stream."""
        return self.cells_per_stream(self.context)

    def cells_per_stream(self, context: CountT) -> CountT:
        """KV cells of one stream when `context` tokens are configured: all of them when unified, else a sequence's
        share (llama.cpp b11434, src/llama-context.cpp)."""
        total = padded(context)
        return total if self.kv_unified else padded(total // self.parallel)

    def ubatch_tokens(self, context: CountT) -> CountT:
        """Tokens of a micro-batch: -ub, but no more than the batch, nor the batch than the context."""
        return minimum(context, min(self.ubatch, self.batch))

    @property
    def streams(self) -> int:
        """Separate KV streams: one if unified, else one a sequence."""
        return 1 if self.kv_unified else self.parallel
