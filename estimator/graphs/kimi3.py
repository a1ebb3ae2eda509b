"""Kimi K3's residual stream as graph operations: attention over checkpoints of the stream of earlier layers.

After llama.cpp b11434, src/models/kimi-k3.cpp.
"""

from __future__ import annotations

from typing import Final

from .allocator import Tensor, View
from .builder import F32, GraphBuilder

CHECKPOINT_LAYERS: Final = 12  # attn_res_block_size of the published config


class Checkpoints:
    """The stream at the start of every 12th layer, side by side."""

    def __init__(self, g: GraphBuilder) -> None:
        self.g = g
        self.stack: Tensor | View | None = None
        self.count = 0

    def push(self, x: Tensor) -> None:
        """Keep the stream of now."""
        self.count += 1
        kept = x.view
        size = self.count * self.g.bytes(self.g.model.hidden)
        self.stack = kept if self.stack is None else self.g.raw(size, self.stack, kept)

    def mix(self, x: Tensor) -> Tensor:
        """The stream and the checkpoints, weighted by scores of their norms."""
        g, stack, row = self.g, self.stack, self.g.rows * F32
        if stack is None:
            return x
        size = self.count * g.bytes(g.model.hidden)
        normed = g.scale(Tensor(size, (stack,), inplace=True))
        scores = g.raw(
            (self.count + 1) * row, g.raw(self.count * row, normed).view, g.raw(row, g.norm(x, g.model.hidden))
        )
        shares = g.inplace(scores)
        kept, current = g.raw(self.count * row, shares.view), g.raw(row, shares.view)
        return g.inplace(g.op(g.model.hidden, stack, kept), g.inplace(x, current))
