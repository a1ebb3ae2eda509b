"""Gemma 3n and Gemma 4 as graph operations: inputs by layer, AltUp streams, LAuReL, experts beside a dense block.

After llama.cpp b11434, src/models/gemma3n.cpp and gemma4.cpp.
"""

from __future__ import annotations

from typing import Final

from ..architecture import DenseFfn, Layer, MoeFfn
from .allocator import Tensor, View
from .builder import I32, GraphBuilder
from .ffn import dense, experts

SPARSE_LAYERS: Final = 10  # Gemma 3n: layers whose gate keeps only its largest activations
LAUREL_RANK: Final = 64


def extra_width(g: GraphBuilder, name: str, axis: int) -> int:
    """A size of a whole-model tensor, 0 if the model has no such tensor."""
    return next((extra.shape[axis] for extra in g.model.extras if extra.name == name), 0)


def per_layer_inputs(g: GraphBuilder, x: Tensor) -> Tensor | None:
    """The embeddings that every layer gets of its own, for all layers together; None if the model has none."""
    each = extra_width(g, "per_layer_proj_norm.weight", 0)
    if not each:
        return None
    width = extra_width(g, "per_layer_token_embd.weight", 0)
    rows = g.matmul(width, g.input("tokens", g.batch.tokens * I32, key=1))
    looked_up = g.inplace(rows.view)
    g.expand(looked_up)
    g.enter_layer(0)
    projected = g.norm(g.inplace(g.matmul(width, x)).view, width)
    return g.op(width, g.inplace(g.inplace(projected, looked_up)).view)


def mix_per_layer(g: GraphBuilder, inputs: Tensor, x: Tensor | View) -> Tensor:
    """A layer's own embedding, gated by the residual stream and projected to its width."""
    each = extra_width(g, "per_layer_proj_norm.weight", 0)
    gated = g.inplace(g.inplace(g.matmul(each, x)), View(inputs, g.bytes(each)))
    return g.norm(g.matmul(g.model.hidden, gated), g.model.hidden)


def gemma4_feed_forward(g: GraphBuilder, ffn: MoeFfn, x: Tensor) -> Tensor:
    """A dense block and experts on norms of the same input, both normalised again and added."""
    hidden = g.model.hidden
    assert ffn.dense is not None
    plain = g.norm(dense(g, ffn.dense, g.norm(x, hidden)), hidden)
    g.expand(plain)
    routed = g.scale(g.inplace(Tensor(x.size, (x,), inplace=True)))
    scored = experts(g, ffn, g.norm(x, hidden), routed)
    return g.inplace(plain, g.norm(scored, hidden))


def stack_streams(g: GraphBuilder, x: Tensor) -> Tensor:
    """AltUp: the embedding and its projections, side by side."""
    streams = _streams(g)
    target = _magnitude(g, x)
    g.enter_output()
    projected = g.matmul((streams - 1) * g.model.hidden, g.op((streams - 1) * g.model.hidden, x))
    return g.op(streams * g.model.hidden, x, _rescaled(g, projected, target))


def merge_streams(g: GraphBuilder, x: Tensor) -> Tensor:
    """AltUp: one stream again, for the rows whose logits are wanted."""
    streams, hidden = _streams(g), g.model.hidden
    one, others = View(x, g.bytes(hidden)), View(x, g.bytes((streams - 1) * hidden))
    target = _magnitude(g, one)
    g.enter_output()
    projected = _rescaled(g, g.matmul((streams - 1) * hidden, others), target)
    total = g.op(hidden, View(x, one.size), projected.view)
    for _ in range(streams - 2):
        total = g.inplace(total, projected.view)
    return g.select_outputs(g.inplace(total))


def _streams(g: GraphBuilder) -> int:
    return extra_width(g, "altup_proj.weight", 2) + 1


def _magnitude(g: GraphBuilder, x: Tensor | View) -> Tensor:
    return g.inplace(g.op(1, Tensor(g.bytes(g.model.hidden), (x,), inplace=True)))


def _rescaled(g: GraphBuilder, x: Tensor, target: Tensor) -> Tensor:
    streams = _streams(g) - 1
    magnitude = g.inplace(g.op(streams, Tensor(x.size, (x,), inplace=True)))
    return g.inplace(g.inplace(x, target), magnitude)


def predict_streams(g: GraphBuilder, x: Tensor) -> Tensor:
    """AltUp: every stream predicted from all of them."""
    streams = _streams(g)
    width = streams * g.model.hidden
    coefficients = g.matmul(streams * streams, _modalities(g, x.view))
    mixed = g.op(width, g.op(width, x.view), coefficients.view)
    return g.inplace(g.op(width, mixed.view), x)


def correct_streams(g: GraphBuilder, predictions: Tensor, active: Tensor) -> Tensor:
    """AltUp: the predictions corrected by what the layer computed for one stream."""
    streams = _streams(g)
    innovation = g.op(streams * g.model.hidden, g.inplace(active, predictions.view))
    coefficients = g.op(streams, g.inplace(g.matmul(streams, _modalities(g, active))).view)
    return g.inplace(g.inplace(innovation, coefficients), predictions)


def _modalities(g: GraphBuilder, x: Tensor | View) -> Tensor:
    return g.inplace(g.matmul(_streams(g), g.inplace(g.norm(x, g.model.hidden))))


def laurel(g: GraphBuilder, x: Tensor) -> Tensor:
    """LAuReL: a low-rank residual."""
    y = g.matmul(g.model.hidden, g.matmul(LAUREL_RANK, x))
    return g.inplace(g.norm(y, g.model.hidden), x)


def gemma3n_feed_forward(g: GraphBuilder, layer: Layer, x: Tensor, sparse: bool) -> Tensor:
    """Gate and up, in the first layers with a sparse gate."""
    assert isinstance(layer.ffn, DenseFfn)
    width = layer.ffn.width
    up, gate = g.matmul(width, x), g.matmul(width, x)
    if sparse:
        mean = g.op(1, gate)
        spread = g.inplace(g.inplace(g.op(1, g.inplace(g.inplace(gate, mean)))))
        gate = g.inplace(g.inplace(gate, g.inplace(mean, g.inplace(spread))))
    return g.matmul(g.model.hidden, g.inplace(up, g.inplace(gate)))
