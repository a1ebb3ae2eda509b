"""DeepSeek V4 as graph operations: hyper-connections, compressed attention, hash-routed experts.

After llama.cpp b11434, src/models/deepseek4.cpp. The residual stream has several parts; compressors turn every `ratio`
tokens into one cache entry, with a state for the tokens that do not fill one yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..architecture import CompressedAttention, Layer, MoeFfn
from ..ggml_types import ggml_type, row_bytes
from ..kv_cache import compressed_cells, raw_window_cells
from .allocator import Tensor, View
from .attention import attend_cells, best_cells, hadamard, mask_input, masked_to_selected, rotated
from .builder import F16, F32, I32, I64, GraphBuilder
from .ffn import experts, shared_expert


def deepseek4(g: GraphBuilder, x: Tensor, indices: Sequence[int]) -> Tensor:
    """All layers, from the embedding to the one stream of the rows whose logits are wanted."""
    parts, hidden = _parts(g), g.model.hidden
    first = g.model.layers[0].mixers[0]
    assert isinstance(first, CompressedAttention)
    g.expand(mask_input(g, _window(g, first), first.window))
    x = g.op(parts * hidden, x.view)
    for i in indices:
        g.enter_layer(i)
        layer = g.model.layers[i]
        mixer = layer.mixers[0]
        assert isinstance(mixer, CompressedAttention)
        mixes, y = _gather(g, x)
        y = _attention(g, mixer, g.norm(y, hidden))
        x = _scatter(g, y, x, _weights(g, mixes), g.op(parts * parts, mixes))
        mixes = _mixes(g, x)
        post, comb = _weights(g, mixes), g.op(parts * parts, mixes)
        g.expand(x, post, comb)
        y = _feed_forward(g, layer, g.norm(g.op(hidden, x, _weights(g, mixes)), hidden))
        x = _scatter(g, y, x, post, comb)
    return _merge(g, x)


def _parts(g: GraphBuilder) -> int:
    """Parts of the residual stream."""
    return next(extra.shape[0] for extra in g.model.extras if extra.name == "output_hc_base.weight")


def _mixes(g: GraphBuilder, x: Tensor) -> Tensor:
    parts = _parts(g)
    normed = Tensor(x.size, (x.view,), inplace=True)
    return g.matmul(parts * (parts + 2), normed)


def _weights(g: GraphBuilder, mixes: Tensor) -> Tensor:
    """Weights of the parts: affine, sigmoid, scaled."""
    return g.inplace(g.inplace(g.scale(g.matmul(_parts(g), mixes.view))))


def _gather(g: GraphBuilder, x: Tensor) -> tuple[Tensor, Tensor]:
    """One stream out of the parts, and the mixing coefficients."""
    mixes = _mixes(g, x)
    return mixes, g.op(g.model.hidden, x, _weights(g, mixes))


def _scatter(g: GraphBuilder, y: Tensor, x: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    return g.raw(x.size, y, x, post, comb)


def _merge(g: GraphBuilder, x: Tensor) -> Tensor:
    """One stream again, for the rows whose logits are wanted."""
    parts, hidden = _parts(g), g.model.hidden
    ids = g.input("outputs", g.batch.outputs * I32)
    g.rows = g.batch.outputs
    x = g.op(parts * hidden, x.view, ids)
    g.device = g.placement.output
    mixes = g.matmul(parts, Tensor(x.size, (x.view,), inplace=True))
    weights = g.inplace(g.inplace(g.scale(g.scale(mixes))))
    total = g.op(hidden, x.view, weights.view)
    for _ in range(parts - 1):
        total = g.inplace(total, g.op(hidden, x.view, weights.view))
    return total


def _feed_forward(g: GraphBuilder, layer: Layer, x: Tensor) -> Tensor:
    """Experts, in the first layers chosen by the token itself, and the shared one."""
    assert isinstance(layer.ffn, MoeFfn)
    hashed = any(extra.name.startswith("ffn_gate_tid2eid") for extra in layer.extras)
    chosen = g.matmul(layer.ffn.used, g.input("tokens", 0)) if hashed else None
    return g.inplace(experts(g, layer.ffn, x, chosen=chosen), shared_expert(g, layer.ffn, x))


def _attention(g: GraphBuilder, a: CompressedAttention, x: Tensor) -> Tensor:
    width = a.heads * a.head_dim
    if a.ratio:
        _compress(g, a.head_dim, a.ratio, "compressed", x)
        if a.indexer is not None:
            _compress(g, a.indexer.head_dim, a.ratio, "indexer", x)
    low_rank = g.norm(g.matmul(a.query_rank, x), a.query_rank)
    query = g.inplace(Tensor(g.bytes(width), (g.matmul(width, low_rank).view,), inplace=True), g.positions())
    key = g.norm(g.matmul(a.head_dim, x), a.head_dim)
    key = g.op(a.head_dim, key.view, g.positions())
    matrix = hadamard(g, a.head_dim, key=True)
    if matrix is not None:
        query, key = rotated(g, query, matrix), rotated(g, key, matrix)
    g.expand(query, key)
    g.store(key.view, g.input("k index", g.batch.tokens * I64))
    y = _attend(g, a, query, low_rank, x)
    if matrix is not None:
        y = rotated(g, y, matrix)
    y = g.op(width, y.view, g.positions())
    out = g.matmul(a.output_groups * a.output_rank, y.view)
    return g.matmul(g.model.hidden, g.op(a.output_groups * a.output_rank, out.view))


def _window(g: GraphBuilder, a: CompressedAttention) -> int:
    return int(raw_window_cells(a.window, g.workload, g.context))


def _attend(g: GraphBuilder, a: CompressedAttention, query: Tensor, low_rank: Tensor, x: Tensor) -> Tensor:
    window = _window(g, a)
    mask = mask_input(g, window, a.window)
    if not a.ratio:
        return attend_cells(g, query, a.heads, a.head_dim, window, mask, (0, 0), keys=None, latent=a.head_dim)
    entries = int(compressed_cells(a.ratio, g.workload, g.context))
    row = row_bytes(ggml_type(g.workload.kv_type_k), a.head_dim)
    keys = g.raw((window + entries) * row * g.batch.sequences)
    entry_mask = mask_input(g, entries, -a.ratio)
    if a.indexer is not None:
        matrix = hadamard(g, a.indexer.head_dim, key=True, cache=-1, always=True)
        assert matrix is not None
        index_width = a.indexer.heads * a.indexer.head_dim
        index_query = rotated(g, g.op(index_width, g.matmul(index_width, low_rank).view, g.positions()), matrix)
        weights = g.inplace(g.matmul(a.indexer.heads, x))
        g.selected = best_cells(g, a.indexer, index_query, weights, entries)
        value_bytes = F16 if g.workload.flash_attention else F32
        entry_mask = masked_to_selected(g, entry_mask, a.indexer, entries, value_bytes)
    whole = g.raw(mask.size + entry_mask.size, mask, entry_mask)
    cells = window + entries
    return attend_cells(g, query, a.heads, a.head_dim, cells, whole, (0, 0), keys=keys, latent=a.head_dim)


def _compress(g: GraphBuilder, dim: int, ratio: int, name: str, x: Tensor) -> None:
    """New entries of a compressed cache from the tokens and the state, and the new state."""
    overlap = 2 if ratio == 4 else 1
    sequences = g.batch.sequences
    blocks = (g.batch.tokens // sequences // ratio + 1) * sequences
    kept = overlap * ratio * sequences
    values = g.matmul(overlap * dim, x)
    scores = g.matmul(overlap * dim, x)
    places = g.matmul(overlap * dim, g.input(f"{name} state positions {ratio}", g.batch.tokens * I32))
    scores = g.inplace(scores, places)
    reads = g.input(f"{name} state reads {ratio}", overlap * ratio * blocks * I32)
    gathered = [_blocks(g, part, dim, ratio, blocks, kept, overlap, reads) for part in (values, scores)]
    weighted = g.inplace(gathered[0], g.inplace(gathered[1]))
    size = blocks * dim * F32
    entry = g.scale(Tensor(size, (g.raw(size, g.raw(size, weighted).view),), inplace=True))
    entry = g.inplace(entry, g.input(f"{name} entry positions {ratio}", blocks * I32))
    indexer = name == "indexer"
    matrix = hadamard(g, dim, key=True, cache=-1 if indexer else ratio, always=indexer)
    if matrix is not None:
        entry = rotated(g, entry, matrix)
    g.store(entry.view, g.input(f"{name} entry index {ratio}", blocks * I64))
    for part in (values, scores):
        rows = g.raw(kept * overlap * dim * F32, part, g.input(f"{name} persist sources {ratio}", kept * I32))
        g.store(rows, g.input(f"{name} persist targets {ratio}", kept * I32))


def _blocks(
    g: GraphBuilder, x: Tensor, dim: int, ratio: int, blocks: int, kept: int, overlap: int, reads: Tensor
) -> Tensor:
    """Rows of the state and of the new tokens, block by block; with overlap, of two blocks."""
    row = overlap * dim * F32
    with_state = g.raw((g.batch.tokens + kept) * row, x)
    size = ratio * blocks * dim * F32
    if overlap == 1:
        return g.raw(size, g.raw(size, with_state, reads).view)
    padding = g.raw(row, with_state.view)
    padded = g.raw(with_state.size + row, with_state, padding.view)
    rows = g.raw(2 * ratio * blocks * row, padded, reads)
    halves: list[View] = [g.raw(size, rows.view).view for _ in range(2)]
    return g.raw(2 * size, g.raw(2 * size, *halves).view)
