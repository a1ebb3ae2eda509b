"""Attention over a cache as graph operations: grouped heads, latents, compressed entries.

After llama.cpp b11434, src/llama-graph.cpp (build_attn and build_attn_mha) and src/models.
"""

from __future__ import annotations

from typing import Final

from ..architecture import Attention, Indexer, LatentAttention
from ..ggml_types import ggml_type, row_bytes
from ..kv_cache import window_cells
from .allocator import Tensor, View
from .builder import F16, F32, I32, I64, GraphBuilder

UNROTATED_ARCHITECTURES: Final = frozenset(
    {"bloom", "gpt2", "granitehybrid", "jais", "jamba", "kimi-k3", "kimi-linear", "mpt", "nemotron_h", "nemotron_h_moe",
     "starcoder"}
)  # fmt: skip  # no RoPE
UNROTATED_GLOBAL_ARCHITECTURES: Final = frozenset({"afmoe", "cohere2", "exaone-moe", "exaone4", "llama4"})
TEMPERED_ARCHITECTURES: Final = frozenset({"llama4"})  # global layers scale Q by position instead of RoPE
CAPPED_ARCHITECTURES: Final = frozenset({"gemma2", "grok"})  # soft cap of the scores
SCALED_QUERY_ARCHITECTURES: Final = frozenset({"gemma", "gemma2", "gemma3", "phi2", "phi3"})
NORMALIZED_VALUE_ARCHITECTURES: Final = frozenset({"gemma3n", "gemma4"})


def attention(g: GraphBuilder, a: Attention, x: Tensor) -> Tensor:
    """Grouped-query attention with its cache."""
    q, k, v = _fused_qkv(g, a, x) if a.fused_qkv else _separate_qkv(g, a, x)
    gate = q if a.gate == "query" else None
    query = _query(g, a, q)
    g.expand(query)
    if k is not None and v is not None:
        key, value = _rotate(g, _shaped(g, a, k, a.kv_heads * a.key_dim), a, key=True), _value(g, a, v)
        g.expand(*((key, value) if g.windowed else (value, key)))
        g.store(_viewed(key), _cache_index(g, "k index", a.window, 1))
        width = 1
        if not g.workload.flash_attention:  # transposed, every layer as wide as the widest
            width = g.value_width
            if isinstance(value, View):  # a part of a fused product
                value = g.op(a.kv_heads * a.value_dim, value)
            if a.kv_heads * a.value_dim < width:
                value = g.op(width, _viewed(value))
        g.store(_viewed(value), _cache_index(g, "v index", a.window, width))
        g.written[a.window or 0] = g.cache_device
    y: Tensor | View = _attend(g, query, a)
    if _rotation(g, a, key=False) is not None:
        y = _rotate(g, y, a, key=False)
    return _output(g, a, y, x, gate)


def _separate_qkv(g: GraphBuilder, a: Attention, x: Tensor) -> tuple[Tensor | View, Tensor | None, Tensor | None]:
    q = _projection(g, a, a.heads * a.key_dim * (2 if a.gate == "query" else 1), x)
    if a.shares_cache:
        return q, None, None
    k = _projection(g, a, a.kv_heads * a.key_dim, x)
    return q, k, k if a.key_is_value else _projection(g, a, a.kv_heads * a.value_dim, x)


def _fused_qkv(g: GraphBuilder, a: Attention, x: Tensor) -> tuple[View, View, View]:
    qkv = _projection(g, a, a.heads * a.key_dim + a.kv_heads * (a.key_dim + a.value_dim), x)
    return qkv.view, qkv.view, qkv.view


def _projection(g: GraphBuilder, a: Attention, width: int, x: Tensor) -> Tensor:
    y = g.matmul(width, x)
    return g.scale(y) if a.qkv_bias else y


def _query(g: GraphBuilder, a: Attention, q: Tensor | View) -> Tensor | View:
    shaped = _shaped(g, a, q, a.heads * a.key_dim)
    if g.model.architecture in SCALED_QUERY_ARCHITECTURES:
        shaped = g.inplace(shaped)
    if g.model.architecture in TEMPERED_ARCHITECTURES and a.window is None:
        shaped = g.inplace(shaped, g.input("attention scale", g.batch.tokens * F32))
    return _rotate(g, shaped, a, key=True)


def _value(g: GraphBuilder, a: Attention, v: Tensor | View) -> Tensor | View:
    width = a.kv_heads * a.value_dim
    if g.model.architecture in NORMALIZED_VALUE_ARCHITECTURES:  # without weights
        v = g.op(width, _viewed(v))
    if isinstance(v, View) and _rotation(g, a, key=False) is not None:
        v = g.op(width, v)  # a part of a fused product must be made contiguous first
    return _rotate(g, v, a, key=False)


def _shaped(g: GraphBuilder, a: Attention, x: Tensor | View, width: int) -> Tensor | View:
    """Norm and RoPE of Q or K; the first of them to see a reshaped view makes a copy."""
    if a.qk_norm == "full":
        x = _viewed(g.norm(x, width))
    elif a.qk_norm != "none":
        x = g.norm(_viewed(x), width)
    else:
        x = _viewed(x)
    if not _is_rotated(g, a):
        return g.op(width, x) if a.fused_qkv and _rotation(g, a, key=True) is not None else x
    return Tensor(g.bytes(width), (x, g.positions()), inplace=True)


def _is_rotated(g: GraphBuilder, a: Attention) -> bool:
    """Whether RoPE turns Q and K; some models leave it out of the layers that see everything."""
    if g.model.architecture in UNROTATED_GLOBAL_ARCHITECTURES and g.windowed:
        return a.window is not None
    return g.model.architecture not in UNROTATED_ARCHITECTURES


def _viewed(x: Tensor | View) -> View:
    return x if isinstance(x, View) else x.view


def _rotate(g: GraphBuilder, x: Tensor | View, a: Attention, key: bool) -> Tensor | View:
    """Spread outliers over the head before or after a quantised cache, where llama.cpp does."""
    matrix = _rotation(g, a, key)
    return x if matrix is None else rotated(g, x, matrix)


def rotated(g: GraphBuilder, x: Tensor | View, matrix: Tensor) -> Tensor:
    """`x` times a Hadamard matrix, head by head."""
    view = _viewed(x)
    return g.raw(view.tensor.size, matrix, view)


def _rotation(g: GraphBuilder, a: Attention, key: bool) -> Tensor | None:
    """The Hadamard matrix for it, if all layers of the same cache have one head size."""
    peers = {
        mixer.key_dim if key else mixer.value_dim
        for layer in g.model.layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention) and not mixer.shares_cache and mixer.window == a.window
    }
    return hadamard(g, a.key_dim if key else a.value_dim, key, a.window or 0) if len(peers) == 1 else None


def hadamard(g: GraphBuilder, head_dim: int, key: bool, cache: int = 0, always: bool = False) -> Tensor | None:
    """The input matrix, if the cache type is quantised and the head divides (src/llama-kv-cache.cpp)."""
    kind = ggml_type(g.workload.kv_type_k if key else g.workload.kv_type_v)
    if head_dim % 64 or not (kind.is_quantized or always):
        return None
    size = 64
    while key and head_dim % (2 * size) == 0:
        size *= 2
    return g.input("k rotation" if key else "v rotation", size * size * F32, cache)


def _cache_index(g: GraphBuilder, name: str, window: int | None, width: int) -> Tensor:
    """Cells that the micro-batch writes; for a transposed V one index a value."""
    return g.input(name, g.batch.tokens * width * I64, window or 0)


def cells_of(g: GraphBuilder, window: int | None = None) -> int:
    """Cells of one stream of a layer."""
    return int(window_cells(window, g.workload, g.context))


def mask_input(g: GraphBuilder, cells: int, key: int = 0) -> Tensor:
    """Attention mask, cells × tokens: F16 for flash attention, else F32."""
    value = F16 if g.workload.flash_attention else F32
    return g.input("mask", cells * g.batch.tokens * value, key)


def _attend(g: GraphBuilder, q: Tensor | View, a: Attention) -> Tensor:
    """Attention of all heads over the cache."""
    cells = cells_of(g, a.window)
    widths = (a.kv_heads * a.key_dim, a.kv_heads * a.value_dim)
    mask = mask_input(g, cells, a.window or 0)
    return attend_cells(g, q, a.heads, a.value_dim, cells, mask, widths, cache=_cache(g, a, cells, widths))


def _cache(g: GraphBuilder, a: Attention, cells: int, widths: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """K and V in the cache, perhaps another layer's: to be copied if attention runs on another device."""
    owner = g.written[a.window or 0] if a.shares_cache else g.cache_device
    types = (g.workload.kv_type_k, g.workload.kv_type_v)
    # From the first value to the last: a transposed V has the same width in all layers.
    strides = widths if g.workload.flash_attention else (widths[0], g.value_width)
    spans = (width + stride * (g.workload.streams - 1) for width, stride in zip(widths, strides, strict=True))
    key, value = (cells * row_bytes(ggml_type(kind), span) for kind, span in zip(types, spans, strict=True))
    return Tensor.stored(key, owner), Tensor.stored(value, owner)


def attend_cells(
    g: GraphBuilder,
    q: Tensor | View,
    heads: int,
    value_dim: int,
    cells: int,
    mask: Tensor,
    widths: tuple[int, int],
    keys: Tensor | None = None,
    latent: int = 0,
    cache: tuple[Tensor, ...] = (),
) -> Tensor:
    """Scores, softmax and weighted values; `widths` are those of a layer's K and V.

    `keys`: K made for the occasion instead of the cache; `latent`: width of a V that is a view of K; `cache`: K and V
    there, if they may be on another device.
    """
    query = _viewed(q)
    made = [] if keys is None else [keys.view]
    if g.workload.flash_attention:
        types = (g.workload.kv_type_k, g.workload.kv_type_v)
        size = cells * g.workload.streams * F16
        copies = [g.raw(size * width) for width, kind in zip(widths, types, strict=True) if kind == "F32"]
        scratch = sum(width for width, kind in zip(widths, types, strict=True) if kind not in ("F16", "F32"))
        y = g.raw(
            g.bytes(heads * value_dim) + (size * scratch if g.scratch else 0),
            query,
            *made,
            *made,
            *cache,
            *copies,
            mask,
        )
    else:
        values = [g.raw(cells * g.batch.sequences * latent * F16, *made)] if latent else []
        scores = g.op(heads * cells, *made, *cache[:1], query)
        if g.model.architecture in CAPPED_ARCHITECTURES:
            scores = g.inplace(g.inplace(g.inplace(scores)))
        weighted = g.op(heads * value_dim, *values, *cache[1:], g.inplace(scores, mask))
        y = g.op(heads * value_dim, weighted.view)
    g.expand(y)
    return y


def _output(g: GraphBuilder, a: Attention, y: Tensor | View, x: Tensor, gate: Tensor | View | None) -> Tensor:
    width = a.heads * a.value_dim
    merged = _viewed(y) if g.workload.flash_attention or isinstance(y, View) else y
    if gate is not None:
        merged = g.inplace(merged, g.inplace(g.op(width, _viewed(gate))))
    elif a.gate == "element":
        merged = g.inplace(merged, g.inplace(g.matmul(width, x)))
    elif a.gate == "head":
        merged = g.inplace(_viewed(merged), g.inplace(g.matmul(a.heads, x)).view).view
    out = g.matmul(g.model.hidden, merged)
    return g.scale(out) if a.output_bias else out


def latent_attention(g: GraphBuilder, a: LatentAttention, x: Tensor) -> Tensor:
    """Multi-head latent attention: absorbed, with one latent a position in the cache, or expanded."""
    low_rank = g.norm(g.matmul(a.query_rank, x), a.query_rank) if a.query_rank else x
    if a.indexer is not None and a.indexer.owns_weights:
        g.selected = _lightning_indexer(g, a.indexer, low_rank, x)
    q = g.matmul(a.heads * (a.nope_dim + a.rope_dim), low_rank)
    compressed = g.matmul(a.kv_rank + a.rope_dim, x)
    latent = g.norm(compressed.view, a.kv_rank)
    if not a.absorbed:
        return _expanded_latent(g, a, q, compressed, latent)
    latent_width = a.kv_rank + a.rope_dim
    absorbed = g.matmul(a.heads * a.kv_rank, q.view)
    query = g.op(a.heads * latent_width, absorbed.view, _rope_part(g, q, a.heads * a.rope_dim))
    key = g.op(latent_width, latent.view, _rope_part(g, compressed, a.rope_dim))
    g.expand(query, latent, key)
    g.store(key.view, _cache_index(g, "k index", None, 1))
    cells = cells_of(g)
    mask = mask_input(g, cells)
    if a.indexer is not None:
        mask = masked_to_selected(g, mask, a.indexer, cells)
    y = _latent_attend(g, a, query, mask, cells)
    if a.gate:
        y = g.inplace(y, g.inplace(g.matmul(a.heads * a.value_dim, x)))
    return g.matmul(g.model.hidden, y)


def _lightning_indexer(g: GraphBuilder, index: Indexer, low_rank: Tensor, x: Tensor) -> Tensor:
    """Positions that the indexer selects for every token (DeepSeek V3.2, GLM-5)."""
    matrix = hadamard(g, index.head_dim, key=True, cache=-1, always=True)
    assert matrix is not None
    query = g.op(index.heads * index.head_dim, g.matmul(index.heads * index.head_dim, low_rank).view, g.positions())
    key = g.matmul(index.head_dim, x)
    key = g.scale(g.scale(Tensor(key.size, (key,), inplace=False)))  # a layer norm
    key = g.op(index.head_dim, key.view, g.positions())
    g.store(rotated(g, key, matrix).view, _cache_index(g, "indexer k index", None, 1))
    weights = g.inplace(g.matmul(index.heads, x).view)
    return best_cells(g, index, rotated(g, query, matrix), weights, cells_of(g))


def best_cells(g: GraphBuilder, index: Indexer, query: Tensor, weights: Tensor, cells: int) -> Tensor:
    """Scores of all cells for every token, and the best of them."""
    mask = g.input("indexer mask", cells * g.batch.tokens * F16)
    scores = g.raw(cells * g.batch.tokens * F32, query.view, weights, mask)
    size = min(cells, index.top_k) * g.batch.tokens * I32
    return g.raw(size, g.raw(size, scores))


def masked_to_selected(g: GraphBuilder, mask: Tensor, index: Indexer, cells: int, value_bytes: int = F32) -> Tensor:
    """The mask with all but the selected positions hidden."""
    assert g.selected is not None
    hidden = g.inplace(mask)
    zeros = g.inplace(g.leaf(min(cells, index.top_k) * g.batch.tokens * value_bytes))
    shown = Tensor.write(zeros, g.selected.view, hidden.view)
    return Tensor(mask.size, (shown, hidden.view, mask), inplace=True)


def _rope_part(g: GraphBuilder, x: Tensor, width: int) -> Tensor | View:
    """The part of Q or of the compressed key that RoPE turns, a copy."""
    if g.model.architecture in UNROTATED_ARCHITECTURES:
        return x.view
    return g.op(width, x.view, g.positions())


def _latent_attend(g: GraphBuilder, a: LatentAttention, q: Tensor, mask: Tensor, cells: int) -> Tensor | View:
    if g.workload.flash_attention:
        y = g.matmul(a.heads * a.value_dim, g.op(a.heads * a.kv_rank, q.view, mask).view)
        y = g.op(a.heads * a.value_dim, y.view)
        g.expand(y)
        return y.view
    values = g.raw(cells * g.workload.streams * a.kv_rank * ggml_type(g.workload.kv_type_k).bytes)
    scores = g.inplace(g.op(a.heads * cells, q.view), mask)
    y = g.matmul(a.heads * a.value_dim, g.op(a.heads * a.kv_rank, values, scores))
    y = g.op(a.heads * a.value_dim, y.view)
    g.expand(y)
    return y


def _expanded_latent(g: GraphBuilder, a: LatentAttention, q: Tensor, compressed: Tensor, latent: Tensor) -> Tensor:
    """MLA with full K and V of every head in the cache."""
    key_width, value_width = a.heads * (a.nope_dim + a.rope_dim), a.heads * a.value_dim
    query = g.op(key_width, q.view, g.positions())
    kv = g.matmul(a.heads * (a.nope_dim + a.value_dim), latent)
    key_rope = g.op(a.heads * a.rope_dim, _rope_part(g, compressed, a.rope_dim))
    key, value = g.op(key_width, kv.view, key_rope), g.op(value_width, kv.view)
    key_matrix = hadamard(g, a.nope_dim + a.rope_dim, key=True)
    value_matrix = hadamard(g, a.value_dim, key=False)
    if key_matrix is not None:
        query, key = rotated(g, query, key_matrix), rotated(g, key, key_matrix)
    if value_matrix is not None:
        value = rotated(g, value, value_matrix)
    g.expand(query, value, key)
    g.store(key.view, _cache_index(g, "k index", None, 1))
    g.store(value.view, _cache_index(g, "v index", None, 1 if g.workload.flash_attention else value_width))
    cells = cells_of(g)
    y = attend_cells(g, query, a.heads, a.value_dim, cells, mask_input(g, cells), (key_width, value_width))
    if value_matrix is not None:
        y = rotated(g, y, value_matrix)
    return g.matmul(g.model.hidden, y.view if g.workload.flash_attention else y)
