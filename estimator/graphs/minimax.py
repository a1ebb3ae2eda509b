"""Block-sparse attention of MiniMax-M3 as graph operations, for prompts.

After llama.cpp b11434, src/models/minimax-m3.cpp. An indexer scores all positions, keeps the best blocks of each group
of heads, and the others are masked; each stream is on its own.
"""

from __future__ import annotations

from typing import Final

from ..architecture import Attention, Indexer
from .allocator import Tensor, View
from .attention import cells_of, hadamard, mask_input, rotated
from .builder import F16, F32, I32, I64, GraphBuilder

BLOCK: Final = 128  # positions
RESERVED_POSITIONS: Final = 256  # what an empty cache counts, so that longer prompts enlarge the buffer


def is_block_sparse(g: GraphBuilder, a: Attention) -> bool:
    """Without flash attention, and where sequences share a cache, llama.cpp attends to everything instead."""
    return a.indexer is not None and g.workload.flash_attention and g.workload.streams == g.workload.parallel


def block_sparse_attention(g: GraphBuilder, a: Attention, x: Tensor) -> Tensor:
    """Attention of all heads to the blocks that the indexer selects."""
    index = a.indexer
    assert index is not None
    query, key = (_rotated_heads(g, g.matmul(heads * a.key_dim, x)) for heads in (a.heads, a.kv_heads))
    value: Tensor | View = g.matmul(a.kv_heads * a.value_dim, x)
    index_query, index_key = (_rotated_heads(g, g.matmul(n * index.head_dim, x)) for n in (index.heads, 1))
    g.store(index_key.view, g.input("indexer k index", g.batch.tokens * I64))
    key_matrix, value_matrix = hadamard(g, a.key_dim, key=True), hadamard(g, a.value_dim, key=False)
    if key_matrix is not None:
        query, key = rotated(g, query, key_matrix), rotated(g, key, key_matrix)
    if value_matrix is not None:
        value = rotated(g, value, value_matrix)
    g.expand(query, key, value)
    g.store(key.view, g.input("k index", g.batch.tokens * I64))
    g.store(value if isinstance(value, View) else value.view, g.input("v index", g.batch.tokens * I64))
    streams = [_attend(g, a, index, query, index_query) for _ in range(g.workload.streams)]
    y: Tensor = streams[0]
    for n, stream in enumerate(streams[1:], start=2):
        y = g.raw(n * stream.size, y if n > 2 else y.view, stream.view)
    if value_matrix is not None:
        y = rotated(g, y, value_matrix)
    return g.matmul(g.model.hidden, y.view)


def _rotated_heads(g: GraphBuilder, x: Tensor) -> Tensor:
    return g.inplace(g.norm(x.view, x.size // g.bytes(1)), g.positions())


def _attend(g: GraphBuilder, a: Attention, index: Indexer, query: Tensor, index_query: Tensor) -> Tensor:
    """One stream."""
    cells, streams = cells_of(g), g.workload.streams
    tokens = g.batch.tokens // streams
    mask = mask_input(g, cells)
    if g.whole_mask is None:
        g.whole_mask = g.raw(2 * mask.size, mask)
    allowed = _allowed_blocks(g, index, index_query, tokens)
    by_cell = g.raw(
        cells * tokens * index.heads * F32, allowed, _part(g.input("cell blocks", cells * streams * I32), streams)
    )
    turned = g.raw(by_cell.size, by_cell.view)
    combined = Tensor.write(turned.view, _part(g.whole_mask, streams))
    chosen = g.raw(turned.size // 2, combined, turned.view)
    y = g.raw(a.heads * a.value_dim * tokens * F32, _part(query, streams), chosen)
    return g.raw(y.size, y.view)


def _allowed_blocks(g: GraphBuilder, index: Indexer, query: Tensor, tokens: int) -> Tensor:
    """A mask of blocks for every group and token."""
    positions, streams = RESERVED_POSITIONS, g.workload.streams
    blocks = positions // BLOCK
    best = min(index.top_k // BLOCK, blocks)
    groups = index.heads * tokens
    bias = _part(g.input("block bias", blocks * g.batch.tokens * F32), streams)
    seen = _part(g.input("position mask", positions * g.batch.tokens * F32), streams)
    slots = _part(g.input("position slots", positions * streams * I32), streams)
    keys = g.raw(index.head_dim * positions * F32, slots)
    scores = g.raw(positions * groups * F32, keys, _part(query, streams))
    shown = Tensor.write(scores.view, seen)
    ranked = g.inplace(g.raw(blocks * groups * F32, shown, scores.view), bias)
    selected = g.raw(best * groups * I32, ranked)
    zeros = g.inplace(g.raw(selected.size, selected))
    hidden = g.raw(blocks * tokens * F16, g.raw(blocks * tokens * F32, bias))
    repeated = g.raw(blocks * groups * F16, hidden)
    marked = Tensor.write(zeros.view, selected.view, repeated.view)
    by_group = g.raw(repeated.size, marked, repeated.view)
    return g.raw(repeated.size, by_group.view)


def _part(x: Tensor, streams: int) -> View:
    return View(x, x.size // streams)
