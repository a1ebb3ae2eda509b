"""KV cache and recurrent state: the context memory that llama.cpp reserves, to the byte.

Rules of llama.cpp b11434: src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp,
llama-kv-cache-msa.cpp, llama-kv-cache-dsv4.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp. Context lengths may be
scalars or numpy arrays; results have the same shape.
Imports `architecture`, `ggml_types` and `workload`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from .architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    Rwkv7,
    ShortConv,
)
from .errors import InputError
from .frozen_dataclass import dataclass
from .ggml_types import ggml_type, row_bytes
from .workload import Count, Workload, minimum, padded

F32_BYTES: Final = 4  # recurrent and compressor states are always F32
UNCACHED_ARCHITECTURES: Final = frozenset(
    {"bert", "nomic-bert", "jina-bert-v2", "modern-bert", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1"}
)  # encoders and diffusion models keep no cache (src/llama-model.cpp: create_memory)
FLASHLESS_ARCHITECTURES: Final = frozenset({"grok"})  # flash attention is forced off (src/llama-context.cpp)
COMPRESSED_WINDOW: Final = 4  # DeepSeek V4: layers of this ratio overlap two windows and have an indexer


@dataclass(frozen=True)
class CacheBytes:
    """Bytes by kind: K and V of attention, keys of sparse attention's indexer, recurrent and convolution state."""

    key: Count = 0
    value: Count = 0
    indexer: Count = 0
    state: Count = 0

    @property
    def kv(self) -> Count:
        """All that grows with the context."""
        return self.key + self.value + self.indexer

    @property
    def total(self) -> Count:
        """All context memory."""
        return self.kv + self.state

    def __add__(self, other: CacheBytes) -> CacheBytes:
        return CacheBytes(
            self.key + other.key, self.value + other.value, self.indexer + other.indexer, self.state + other.state
        )


def window_cells(window: int | None, workload: Workload, context: Count) -> Count:
    """KV cells of one stream of a layer with a sliding (or chunked) window; None: all cells.

    The window of every sequence that shares the stream, and one micro-batch (src/llama-kv-cache-iswa.cpp).
    """
    cells = workload.cells_per_stream(context)
    if window is None or workload.swa_full:
        return cells
    sequences = workload.parallel if workload.kv_unified else 1
    return padded(minimum(cells, window * sequences + workload.ubatch_tokens(context)))


def compressed_cells(ratio: int, workload: Workload, context: Count) -> Count:
    """Cells of DeepSeek V4's compressed cache, one entry for `ratio` tokens (src/llama-kv-cache-dsv4.cpp)."""
    return padded(-(-workload.cells_per_stream(context) // ratio))


def raw_window_cells(window: int, workload: Workload, context: Count) -> Count:
    """Cells of one sequence in the uncompressed window of DeepSeek V4, which sequences never share."""
    cells = workload.cells_per_stream(context)
    return cells if workload.swa_full else padded(minimum(cells, window + workload.ubatch_tokens(context)))


def layer_cache(mixer: Mixer, model: Model, workload: Workload, context: Count | None = None) -> CacheBytes:
    """Context memory of one mixer, for all sequences of the workload.

    `context`: configured tokens, scalar or array, instead of the workload's.
    """
    n = workload.context if context is None else context
    if isinstance(mixer, Attention):
        return _attention_cache(mixer, model, workload, n)
    if isinstance(mixer, LatentAttention):
        return _latent_cache(mixer, workload, n)
    if isinstance(mixer, CompressedAttention):
        return _compressed_cache(mixer, workload, n)
    return CacheBytes(state=state_elements(mixer, model.hidden) * F32_BYTES * workload.parallel)


def as_run(model: Model, workload: Workload) -> Workload:
    """The workload as llama.cpp runs it: without flash attention where an architecture has none."""
    if workload.flash_attention and model.architecture in FLASHLESS_ARCHITECTURES:
        return replace(workload, flash_attention=False)
    return workload


def context_bytes(model: Model, workload: Workload, context: Count | None = None) -> CacheBytes:
    """Context memory of the whole model. Raises InputError for settings that llama.cpp refuses."""
    return sum_layers(model, cached_layers(model), workload, context)


def sum_layers(model: Model, layers: Iterable[Layer], workload: Workload, context: Count | None = None) -> CacheBytes:
    """Context memory of some layers of `model`; equal layers are computed once."""
    workload = as_run(model, workload)
    check_cache_types(model, workload)
    counts: dict[Mixer, int] = {}
    layers = tuple(layers)
    for layer in layers:
        for mixer in layer.mixers:
            counts[mixer] = counts.get(mixer, 0) + 1
    total = CacheBytes()
    for mixer, count in counts.items():
        one = layer_cache(mixer, model, workload, context)
        total += CacheBytes(one.key * count, one.value * count, one.indexer * count, one.state * count)
    return total + _empty_layers(model, sum(not layer.mixers for layer in layers), workload, context)


def _empty_layers(model: Model, count: int, workload: Workload, context: Count | None) -> CacheBytes:
    """A transposed V is as wide in layers without attention; hybrid models leave them out, Deci does not."""
    if model.architecture != "deci" or workload.flash_attention or not count:
        return CacheBytes()
    cells = window_cells(None, workload, workload.context if context is None else context) * workload.streams
    return CacheBytes(value=cells * _value_row(workload, max(_value_widths(model))) * count)


def cached_layers(model: Model) -> tuple[Layer, ...]:
    """The layers with context memory. NextN layers have none, except DeepSeek V4's, which keep a raw window."""
    if model.architecture in UNCACHED_ARCHITECTURES:
        return ()
    if model.architecture == "deepseek4":
        return model.layers + model.draft_layers
    return model.layers


def check_cache_types(model: Model, workload: Workload) -> None:
    """Raise InputError where llama.cpp refuses the cache types (src/llama-context.cpp: llama_init_from_model)."""
    key, value = ggml_type(workload.kv_type_k), ggml_type(workload.kv_type_v)
    mixers = {mixer for layer in model.layers for mixer in layer.mixers}
    if key != value and any(_stores_key_only(mixer) for mixer in mixers):
        raise InputError(
            f"kv_type_k, kv_type_v: {model.id} caches one latent for K and V, so both types must be the same,"
            f" not {key.name} and {value.name}"
        )
    if value.block > 1 and not workload.flash_attention:
        raise InputError(f"kv_type_v: a quantised V cache ({value.name}) needs flash attention; turn it on or use F16")
    for mixer in mixers:
        for name, kind, head in (("kv_type_k", key, _head_size(mixer, 0)), ("kv_type_v", value, _head_size(mixer, 1))):
            if workload.flash_attention and head % kind.block:
                raise InputError(
                    f"{name}: {kind.name} packs {kind.block} values a block, which does not divide {model.id}'s head"
                    f" size {head}; use F16 or a type whose block does"
                )


def state_elements(mixer: Mixer, hidden: int) -> int:
    """Elements of recurrent and convolution state of one sequence (src/llama-hparams.cpp: n_embd_r, n_embd_s)."""
    if isinstance(mixer, Mamba):
        return (mixer.conv - 1) * (mixer.inner + 2 * mixer.groups * mixer.state) + mixer.state * mixer.inner
    if isinstance(mixer, DeltaNet):
        inner = mixer.value_heads * mixer.value_dim
        return (mixer.conv - 1) * (inner + 2 * mixer.key_heads * mixer.key_dim) + mixer.key_dim * inner
    if isinstance(mixer, KimiDelta):
        return mixer.heads * mixer.head_dim * (3 * (mixer.conv - 1) + mixer.head_dim)
    if isinstance(mixer, ShortConv):
        return hidden * (mixer.kernel - 1)
    if isinstance(mixer, Rwkv7):
        return hidden * (2 + mixer.head_dim)  # two token shifts and the state
    if isinstance(mixer, LightningAttention):
        return mixer.heads * mixer.head_dim**2
    return 0


def _key_row(workload: Workload, width: int) -> int:
    return row_bytes(ggml_type(workload.kv_type_k), width)


def _value_row(workload: Workload, width: int) -> int:
    return row_bytes(ggml_type(workload.kv_type_v), width)


def _stores_key_only(mixer: Mixer) -> bool:
    return isinstance(mixer, CompressedAttention) or (isinstance(mixer, LatentAttention) and mixer.absorbed)


def _head_size(mixer: Mixer, part: int) -> int:
    """Head size of K (part 0) or V (part 1) as llama.cpp's hyperparameters have it; 0 without attention."""
    if isinstance(mixer, Attention):
        return (mixer.key_dim, mixer.value_dim)[part]
    if isinstance(mixer, LatentAttention):
        if mixer.absorbed:
            return (mixer.kv_rank + mixer.rope_dim, mixer.kv_rank)[part]
        return (mixer.nope_dim + mixer.rope_dim, mixer.value_dim)[part]
    return mixer.head_dim if isinstance(mixer, CompressedAttention) else 0


def _attention_cache(mixer: Attention, model: Model, workload: Workload, context: Count) -> CacheBytes:
    if mixer.shares_cache:
        return CacheBytes()
    cells = window_cells(mixer.window, workload, context) * workload.streams
    width = mixer.kv_heads * mixer.value_dim
    if not workload.flash_attention:  # V is stored transposed, every layer as wide as the widest
        width = max(_value_widths(model))
    indexer: Count = 0
    if mixer.indexer is not None and mixer.indexer.owns_weights:
        # One key head; llama.cpp reserves its V as well, unused (src/llama-kv-cache-msa.cpp).
        indexer = cells * (_key_row(workload, mixer.indexer.head_dim) + _value_row(workload, mixer.value_dim))
    return CacheBytes(
        key=cells * _key_row(workload, mixer.kv_heads * mixer.key_dim),
        value=cells * _value_row(workload, width),
        indexer=indexer,
    )


def _value_widths(model: Model) -> Iterable[int]:
    return (
        mixer.kv_heads * mixer.value_dim
        for layer in model.layers + model.draft_layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    )


def _latent_cache(mixer: LatentAttention, workload: Workload, context: Count) -> CacheBytes:
    cells = workload.cells_per_stream(context) * workload.streams
    indexer: Count = 0
    if mixer.indexer is not None and mixer.indexer.owns_weights:
        indexer = cells * _key_row(workload, mixer.indexer.head_dim)
    if mixer.absorbed:  # V is a view of the latent
        return CacheBytes(key=cells * _key_row(workload, mixer.kv_rank + mixer.rope_dim), indexer=indexer)
    key_width = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    return CacheBytes(
        key=cells * _key_row(workload, key_width),
        value=cells * _value_row(workload, mixer.heads * mixer.value_dim),
        indexer=indexer,
    )


def _compressed_cache(mixer: CompressedAttention, workload: Workload, context: Count) -> CacheBytes:
    """A raw window of K, compressed K every `ratio` tokens, and the compressors' F32 states; never unified."""
    sequences = workload.parallel
    raw = raw_window_cells(mixer.window, workload, context)
    key = _key_row(workload, mixer.head_dim)
    if mixer.ratio == 0:
        return CacheBytes(key=raw * sequences * key)
    compressed = compressed_cells(mixer.ratio, workload, context)
    indexer: Count = 0
    overlap = 2 if mixer.ratio == COMPRESSED_WINDOW else 1
    state = 2 * (overlap * mixer.head_dim) * (overlap * mixer.ratio)  # keys and scores
    if mixer.indexer is not None:
        indexer = compressed * sequences * _key_row(workload, mixer.indexer.head_dim)
        state += 2 * (2 * mixer.indexer.head_dim) * (2 * mixer.ratio)
    return CacheBytes(key=(raw + compressed) * sequences * key, indexer=indexer, state=state * F32_BYTES * sequences)
