"""Feed-forward blocks as graph operations: dense, mixture of experts, shared experts.

After llama.cpp b11434, src/llama-graph.cpp (build_ffn, build_moe_ffn).
"""

from __future__ import annotations

from typing import Final

from ..architecture import DenseFfn, Ffn, MoeFfn
from .allocator import Tensor, View
from .builder import GraphBuilder

SOFTMAX_WEIGHT_ARCHITECTURES: Final = frozenset({"gpt-oss"})  # softmax over the chosen experts only
UNNORMALIZED_EXPERT_ARCHITECTURES: Final = frozenset({"olmoe", "deepseek", "qwen2moe"})
BOUNDED_ARCHITECTURES: Final = frozenset({"kimi-k3"})
WEIGHTED_INPUT_ARCHITECTURES: Final = frozenset({"llama4"})  # experts see inputs multiplied by their weights


def feed_forward(g: GraphBuilder, ffn: Ffn, x: Tensor) -> Tensor:
    """The block that follows a mixer."""
    if isinstance(ffn, DenseFfn):
        return dense(g, ffn, x)
    y = experts(g, ffn, x)
    if ffn.shared_width:
        y = g.inplace(y, shared_expert(g, ffn, x))
    if ffn.dense is not None:
        y = g.inplace(y, dense(g, ffn.dense, x))
    return y


def dense(g: GraphBuilder, ffn: DenseFfn, x: Tensor) -> Tensor:
    """Gate, up and down, where the layer's dense feed-forward is."""
    layer, g.device = g.device, g.dense_device
    y = _dense(g, ffn, x)
    g.device = layer
    return y


def _dense(g: GraphBuilder, ffn: DenseFfn, x: Tensor) -> Tensor:
    """Gate, up and down; or up and down."""
    if not ffn.gated:
        y = g.inplace(_product(g, ffn, ffn.width, x))
    elif ffn.fused_gate_up:
        y = g.op(ffn.width, _product(g, ffn, 2 * ffn.width, x))
    else:
        gate, up = (_product(g, ffn, ffn.width, x) for _ in range(2))
        y = _bounded(g, gate, up) if g.model.architecture in BOUNDED_ARCHITECTURES else g.op(ffn.width, gate, up)
    return _product(g, ffn, g.model.hidden, y)


def _product(g: GraphBuilder, ffn: DenseFfn, width: int, x: Tensor) -> Tensor:
    y = g.matmul(width, x)
    return g.scale(y) if ffn.bias else y


def shared_expert(g: GraphBuilder, ffn: MoeFfn, x: Tensor) -> Tensor:
    """The part that every token sees, perhaps gated."""
    y = _dense(g, DenseFfn(ffn.shared_width, ffn.gated), x)
    return g.inplace(y, g.inplace(g.matmul(1, x))) if ffn.shared_gate else y


def experts(
    g: GraphBuilder, ffn: MoeFfn, x: Tensor, routed: Tensor | None = None, chosen: Tensor | View | None = None
) -> Tensor:
    """The chosen experts' weighted sum.

    `routed` is what the router sees, if that is not `x`; `chosen` are the experts, if the router does not choose them.
    """
    chosen, weights = _route(g, ffn, x if routed is None else routed, chosen)
    g.expand(weights)
    width = g.model.hidden
    if ffn.latent:
        x, width = g.matmul(ffn.latent, x), ffn.latent
    inputs = x.view
    if g.model.architecture in WEIGHTED_INPUT_ARCHITECTURES:
        inputs = g.inplace(g.op(ffn.used * width, x.view), weights).view
    y = _expert_product(g, ffn, ffn.used * width, _expert_hidden(g, ffn, inputs, chosen), chosen)
    if g.model.architecture not in WEIGHTED_INPUT_ARCHITECTURES:
        y = g.inplace(y, weights)
    g.expand(y)
    total = g.op(width, y.view, y.view) if ffn.used > 1 else g.op(width, y.view)
    g.expand(total)
    for _ in range(ffn.used - 2):
        total = g.inplace(total, y.view)
        g.expand(total)
    if ffn.latent_norm:
        total = g.norm(total, width)
    return g.matmul(g.model.hidden, total) if ffn.latent else total


def _expert_hidden(g: GraphBuilder, ffn: MoeFfn, x: View, chosen: Tensor | View) -> Tensor:
    width = ffn.used * ffn.width
    if ffn.fused_gate_up:
        both = _expert_product(g, ffn, 2 * width, x, chosen)
        return g.op(width, both.view, both.view)
    if not ffn.gated:
        return g.inplace(_expert_product(g, ffn, width, x, chosen))
    gate, up = (_expert_product(g, ffn, width, x, chosen) for _ in range(2))
    return _bounded(g, gate, up) if g.model.architecture in BOUNDED_ARCHITECTURES else g.op(width, gate, up)


def _bounded(g: GraphBuilder, gate: Tensor, up: Tensor) -> Tensor:
    """Gate and up of Kimi K3, both through a tanh."""
    activated = g.inplace(g.inplace(g.inplace(g.inplace(gate))), g.inplace(gate))
    return g.inplace(activated, g.inplace(g.inplace(g.inplace(up))))


def _expert_product(g: GraphBuilder, ffn: MoeFfn, width: int, x: Tensor | View, chosen: Tensor | View) -> Tensor:
    y = Tensor(g.bytes(width), (x, chosen), g.expert_device)
    return Tensor(y.size, (y, chosen), g.expert_device, inplace=True) if ffn.expert_bias else y


def _route(g: GraphBuilder, ffn: MoeFfn, x: Tensor, chosen: Tensor | View | None) -> tuple[Tensor | View, View]:
    """Indices of the chosen experts (sorted with all the others) and their weights."""
    scores = g.matmul(ffn.experts, x)
    if ffn.router_bias:
        scores = g.scale(scores)
    ranked = scores
    if g.model.architecture not in SOFTMAX_WEIGHT_ARCHITECTURES:
        scores = g.inplace(scores)
    if g.model.architecture not in WEIGHTED_INPUT_ARCHITECTURES:
        ranked = g.scale(scores) if ffn.selection_bias else scores
    order = chosen or g.op(ffn.experts, ranked).view
    weights = g.op(ffn.used, scores.view, order)
    if g.model.architecture in SOFTMAX_WEIGHT_ARCHITECTURES:
        weights = g.inplace(weights.view)
    elif g.model.architecture not in UNNORMALIZED_EXPERT_ARCHITECTURES:
        weights = g.inplace(weights.view, g.inplace(g.op(1, weights.view)))
    return order, weights.view
