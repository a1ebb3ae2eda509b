"""What the attention of each layer reads of its cache: bytes and FLOPs of an entry, and how many are attended.

llama.cpp b11434: src/llama-graph.cpp, src/llama-kv-cache.cpp, src/models/deepseek32.cpp, deepseek4.cpp, minimax-m3.cpp.
Imports `architecture` and `ggml_types`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal

from .architecture import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, Model
from .frozen_dataclass import dataclass
from .ggml_types import ggml_type

WIDEST_TUNED_HEAD: Final = 256
# Entries from which attention kernels gather those that an indexer selected, instead of masking the others
# (ggml-cuda/fattn.cu, ggml-vulkan.cpp, ggml-metal-ops.cpp).
GATHERED_ENTRIES: Final = 4096
Phase = Literal["decode", "prefill"]


@dataclass(frozen=True)
class CacheTypes:
    """Types of K and V in the cache, and whether attention is fused (flash) or materialises its scores.

    `gathers`: phases whose kernels read only the entries that an indexer selects.
    """

    key: str = "F16"
    value: str = "F16"
    flash_attention: bool = True
    gathers: tuple[Phase, ...] = ("decode", "prefill")

    def row(self, keys: int, values: int = 0) -> float:
        """Bytes of one position with `keys` values of K and `values` of V."""
        return keys * bytes_per_value(self.key) + values * bytes_per_value(self.value)


@dataclass(frozen=True)
class CacheRead:
    """Attention over one cache: every `ratio` positions share an entry of `bytes`; `limit` positions are attended.

    Where an indexer selects them, each phase reads all entries up to a number of them, and masks what is not selected.
    """

    limit: int | None
    ratio: int
    flops: float  # a token and entry
    bytes: float  # an entry
    written: float  # bytes a token
    heads: int  # rows of scores
    kv_heads: int  # heads of the cache, each of which serves some of those rows
    value_dim: int  # values of V that a score weighs
    wide: bool = False  # heads beyond the sizes that attention kernels are tuned for: MLA, Gemma 4, DeepSeek V4
    layers: int = 1  # that are added up
    masked_decode: float = 0.0  # entries below which all are read
    masked_prefill: float = 0.0


def cache_reads(model: Model, cache: CacheTypes) -> list[CacheRead]:
    """The attention of all layers, those of equal reach (whole context, window, compressed) and heads added up."""
    totals: dict[CacheRead, CacheRead] = {}
    for one, count in _counted_reads(model, cache).items():
        reach = replace(one, flops=0.0, bytes=0.0, written=0.0, heads=0, kv_heads=0, layers=0)
        total = totals.get(reach, reach)
        totals[reach] = replace(
            total,
            flops=total.flops + count * one.flops,
            bytes=total.bytes + count * one.bytes,
            written=total.written + count * one.written,
            heads=total.heads + count * one.heads,
            kv_heads=total.kv_heads + count * one.kv_heads,
            layers=total.layers + count,
        )
    return list(totals.values())


def _counted_reads(model: Model, cache: CacheTypes) -> dict[CacheRead, int]:
    counts: dict[CacheRead, int] = {}
    for mixer, layers in counted_mixers(model).items():
        for read in _cache_reads(mixer, cache):
            counts[read] = counts.get(read, 0) + layers
    return counts


@lru_cache(maxsize=256)
def counted_mixers(model: Model) -> dict[Mixer, int]:
    """Each kind of mixer and the number of layers that have it."""
    counts: dict[Mixer, int] = {}
    for layer in model.layers:
        for mixer in layer.mixers:
            counts[mixer] = counts.get(mixer, 0) + 1
    return counts


def _cache_reads(mixer: Mixer, cache: CacheTypes) -> list[CacheRead]:
    """What one layer's mixer reads of its cache; nothing for recurrent ones."""
    if isinstance(mixer, Attention):
        row = cache.row(mixer.kv_heads * mixer.key_dim, mixer.kv_heads * mixer.value_dim)
        written = 0.0 if mixer.shares_cache else row
        flops = 2.0 * mixer.heads * (mixer.key_dim + mixer.value_dim)
        wide = mixer.key_dim > WIDEST_TUNED_HEAD
        dense = CacheRead(mixer.window, 1, flops, row, written, mixer.heads, mixer.kv_heads, mixer.value_dim, wide)
        return _sparse(mixer.indexer, dense, cache, in_graph=True)
    if isinstance(mixer, LatentAttention):
        return _sparse(mixer.indexer, _latent_read(mixer, cache), cache)
    return _compressed_reads(mixer, cache) if isinstance(mixer, CompressedAttention) else []


def _latent_read(mixer: LatentAttention, cache: CacheTypes) -> CacheRead:
    """MLA: absorbed, all heads share one latent, whose first part is also V; else every head has its own K and V."""
    if mixer.absorbed:
        latent = mixer.kv_rank + mixer.rope_dim
        row, flops = cache.row(latent), 2.0 * mixer.heads * (latent + mixer.kv_rank)
    else:
        key = mixer.nope_dim + mixer.rope_dim
        row = cache.row(mixer.heads * key, mixer.heads * mixer.value_dim)
        flops = 2.0 * mixer.heads * (key + mixer.value_dim)
    kv_heads, value_dim = (1, mixer.kv_rank) if mixer.absorbed else (mixer.heads, mixer.value_dim)
    return CacheRead(None, 1, flops, row, row, mixer.heads, kv_heads, value_dim, mixer.absorbed)


def _compressed_reads(mixer: CompressedAttention, cache: CacheTypes) -> list[CacheRead]:
    """DeepSeek V4: a raw window, and one compressed entry every `ratio` tokens, K and V being the same."""
    row, flops = cache.row(mixer.head_dim), 4.0 * mixer.heads * mixer.head_dim
    reads = [CacheRead(mixer.window, 1, flops, row, row, mixer.heads, 1, mixer.head_dim, True)]
    if mixer.ratio:
        compressed = CacheRead(None, mixer.ratio, flops, row, row / mixer.ratio, mixer.heads, 1, mixer.head_dim, True)
        reads += _sparse(mixer.indexer, compressed, cache)
    return reads


def _sparse(indexer: Indexer | None, dense: CacheRead, cache: CacheTypes, *, in_graph: bool = False) -> list[CacheRead]:
    """`dense`, narrowed to the entries that an indexer selects, and the indexer's own scan of all entries.

    `in_graph`: the graph of a decode step gathers them itself, and that of a prompt masks the others (MiniMax M3).
    """
    if indexer is None:
        return [dense]
    decode, prefill = (0.0, float("inf")) if in_graph else (_masked("decode", cache), _masked("prefill", cache))
    reads = [replace(dense, limit=indexer.top_k * dense.ratio, masked_decode=decode, masked_prefill=prefill)]
    if indexer.owns_weights:
        row = cache.row(indexer.head_dim)
        flops = 2.0 * indexer.heads * indexer.head_dim
        reads.append(CacheRead(None, dense.ratio, flops, row, row / dense.ratio, 0, 1, 0))
    return reads


def _masked(phase: Phase, cache: CacheTypes) -> float:
    return GATHERED_ENTRIES if phase in cache.gathers and cache.flash_attention else float("inf")


@lru_cache(maxsize=64)
def bytes_per_value(type_name: str) -> float:
    """Bytes that a value of the cache takes."""
    kind = ggml_type(type_name)
    return kind.bytes / kind.block
