"""llama.cpp's compute graph for one micro-batch: the tensors it allocates, in execution order.

After llama.cpp b11434, src/models. It is the graph that buffers are reserved with: a full micro-batch that attends to
all cells (src/llama-context.cpp: sched_reserve).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ..architecture import (
    Attention,
    DeltaNet,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    MoeFfn,
    Rwkv7,
    ShortConv,
)
from ..errors import InputError
from ..placement import HOST, Placement
from ..workload import Workload
from .allocator import Graph, Tensor, View, base
from .attention import attention, latent_attention
from .builder import F32, I32, I64, Build, GraphBuilder
from .deepseek4 import deepseek4
from .ffn import dense, experts, feed_forward
from .gemma import (
    SPARSE_LAYERS,
    correct_streams,
    gemma3n_feed_forward,
    gemma4_feed_forward,
    laurel,
    merge_streams,
    mix_per_layer,
    per_layer_inputs,
    predict_streams,
    stack_streams,
)
from .kimi3 import CHECKPOINT_LAYERS, Checkpoints
from .minimax import block_sparse_attention, is_block_sparse
from .recurrent import delta_net, kimi_delta, lightning, mamba, rwkv7, short_conv, state

SCALED_EMBEDDING_ARCHITECTURES: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3n", "gemma4"})
UNMIXED_ARCHITECTURES: Final = frozenset({"deepseek4"})  # take tokens or embeddings, not both in one batch
SCALED_RESIDUAL_ARCHITECTURES: Final = frozenset({"granite", "granitemoe", "granitehybrid", "minicpm", "minicpm3"})
SCALED_OUTPUT_ARCHITECTURES: Final = frozenset({"minicpm3"})  # before the output matrix
NORMED_RESIDUAL_ARCHITECTURES: Final = frozenset({"minimax-01"})
EARLY_NORM_ARCHITECTURES: Final = frozenset({"qwen3next", "qwen35", "qwen35moe", "kimi-linear"})
# Attention and feed-forward side by side: the order in which their results are added to each other and to the input.
PARALLEL_SUMS: Final[dict[str, tuple[Literal["attention", "ffn", "input"], ...]]] = {
    "phi2": ("attention", "ffn", "input"),
    "falcon": ("ffn", "attention", "input"),
    "gptneox": ("ffn", "input", "attention"),
}
# Blocks that add the residual stream first: after the mixer, after the feed-forward.
RESIDUAL_FIRST: Final[dict[str, tuple[bool, bool]]] = {
    **dict.fromkeys(("jamba", "lfm2", "lfm2moe"), (True, True)),
    **dict.fromkeys(("phi3", "phimoe"), (False, True)),
}
DEFAULT_PARALLEL_SUM: Final = ("ffn", "input", "attention")
# Where the rows with wanted logits are picked, if not after the last layer's mixer: after the sum with its input, or
# before or after the final norm.
LATE_SELECTION: Final[dict[str, Literal["after sum", "before norm", "after norm"]]] = {
    "falcon-h1": "after sum",
    **dict.fromkeys(("gpt-oss", "step35"), "before norm"),
    **dict.fromkeys(
        ("qwen3next", "qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "gemma4", "hy_v3", "bailingmoe3"),
        "after norm",
    ),
}


def build_graph(
    model: Model,
    placement: Placement,
    workload: Workload,
    context: int,
    layers: Sequence[int] | None = None,
    build: Build = "b11434",
    attention_scratch: bool = False,
) -> Graph:
    """The graph of `model`, or of some of its `layers` (indices) that stand for all of them.

    `attention_scratch`: CUDA's flash attention keeps F16 copies of a layer's cache if that has another type
    (ggml/src/ggml-cuda/fattn.cu).
    """
    g = GraphBuilder(model, placement, workload, context, build, attention_scratch)
    x = _embed(g)
    indices = range(model.n_layers) if layers is None else layers
    if model.architecture == "gemma3n":
        x = _gemma3n(g, x, indices)
    elif model.architecture == "deepseek4":
        x = deepseek4(g, x, indices)
    elif model.architecture == "rwkv7":
        x = _rwkv(g, x, indices)
    elif model.architecture == "kimi-k3":
        x = _kimi3(g, x, indices)
    else:
        own_inputs = per_layer_inputs(g, x)
        for i in indices:
            g.enter_layer(i)
            x = _layer(g, model.layers[i], x, i == indices[-1])
            if own_inputs is not None:
                x = g.scale(_add(x, mix_per_layer(g, own_inputs, x)))
    _head(g, x)
    return g.graph


def _gemma3n(g: GraphBuilder, x: Tensor, indices: Sequence[int]) -> Tensor:
    """The layers of Gemma 3n, on several streams."""
    hidden = g.model.hidden
    own_inputs = per_layer_inputs(g, x)
    assert own_inputs is not None
    x = stack_streams(g, x)
    for i in indices:
        g.enter_layer(i)
        layer = g.model.layers[i]
        predictions = predict_streams(g, x)
        normed = g.norm(predictions.view, hidden)
        residual = laurel(g, normed)
        y = _add(g.norm(_mixer(g, layer.mixers[0], normed), hidden), predictions.view)
        y = g.inplace(g.inplace(y, residual))
        ffn = gemma3n_feed_forward(g, layer, g.norm(y, hidden), sparse=i < SPARSE_LAYERS)
        y = g.inplace(g.norm(ffn, hidden), y)
        corrected = correct_streams(g, predictions, y)
        first, rest = g.bytes(hidden), corrected.size - g.bytes(hidden)
        own = mix_per_layer(g, own_inputs, g.scale(Tensor(first, (View(corrected, first),))))
        others = Tensor(rest, (View(corrected, rest), own), inplace=True)
        x = g.raw(corrected.size, View(corrected, first), others)
    return merge_streams(g, x)


def _rwkv(g: GraphBuilder, x: Tensor, indices: Sequence[int]) -> Tensor:
    first_value: Tensor | None = None
    for i in indices:
        g.enter_layer(i)
        x, first_value = _rwkv_layer(g, g.model.layers[i], x, first_value, i == indices[-1])
    return x


def _kimi3(g: GraphBuilder, x: Tensor, indices: Sequence[int]) -> Tensor:
    hidden, checkpoints = g.model.hidden, Checkpoints(g)
    for i in indices:
        g.enter_layer(i)
        layer = g.model.layers[i]
        assert layer.ffn is not None
        stream = x
        mixed = checkpoints.mix(stream)
        starts = i % CHECKPOINT_LAYERS == 0
        if starts:
            checkpoints.push(stream)
        normed = g.norm(mixed, hidden)
        g.expand(normed)
        y = _mixer(g, layer.mixers[0], normed)
        stream = base(y) if starts else _add(stream, y)
        x = g.inplace(stream, feed_forward(g, layer.ffn, g.norm(checkpoints.mix(stream), hidden)))
    g.enter_output()
    return g.select_outputs(checkpoints.mix(x))


def _embed(g: GraphBuilder) -> Tensor:
    """Token embeddings, and the other ways in that llama.cpp keeps ready."""
    hidden, tokens = g.model.hidden, g.batch.tokens
    g.device = HOST
    x = g.matmul(hidden, g.input("tokens", tokens * I32))
    g.expand(x, g.input("embeddings", g.bytes(hidden)))
    scaled = g.model.architecture in SCALED_EMBEDDING_ARCHITECTURES
    if g.build == "separate-embeddings" or g.model.architecture in UNMIXED_ARCHITECTURES:
        return g.inplace(x) if scaled else x
    rows = g.matmul(hidden, g.input("mixed tokens", tokens * I32))
    both = g.op(hidden, g.input("mixed embeddings", g.bytes(hidden)))
    both.kept = True
    g.expand(Tensor.write(rows, g.input("mixed slots", tokens * I64), both.view))
    if g.model.architecture in ("gemma", "gemma2", *SCALED_RESIDUAL_ARCHITECTURES):
        x = g.inplace(x)
    elif scaled:
        x = g.inplace(x, g.input("row scales", tokens * F32))
    g.expand(x)
    names = {extra.name for extra in g.model.extras}
    if "position_embd.weight" in names:
        x = g.inplace(x, g.matmul(hidden, g.positions()))
    if "token_embd_norm.weight" in names:
        g.enter_layer(0)
        x = g.norm(x, hidden)
    return x


def _head(g: GraphBuilder, x: Tensor) -> None:
    """Final norm and output matrix, and the choice of rows where it comes late."""
    selection = LATE_SELECTION.get(g.model.architecture)
    if selection == "before norm":
        x.kept = True  # all rows stay available to a draft head
        x = g.select_outputs(x)
    g.enter_output()
    x = g.norm(x, g.model.hidden)
    if selection == "after norm":
        x.kept = True
        x = g.select_outputs(x)
    if g.model.architecture in SCALED_OUTPUT_ARCHITECTURES:
        x.kept = True
        x = g.inplace(x)
    g.expand(g.matmul(g.model.vocab, x))


def _layer(g: GraphBuilder, layer: Layer, x: Tensor, last: bool) -> Tensor:
    """One block; the last one goes on with output rows alone after its mixer."""
    hidden, norms = g.model.hidden, layer.norms
    normed_first = norms[:1] != ("post_attention_norm",)
    first = _norm(g, layer, x) if normed_first else x
    if not layer.mixers:
        return _feed_forward(g, layer, first, x)
    if g.model.architecture in EARLY_NORM_ARCHITECTURES:
        g.expand(first)
    y = _mix(g, layer.mixers, first, x)
    if g.model.architecture in NORMED_RESIDUAL_ARCHITECTURES:
        return _normed_residual(g, layer, y, first, last)
    select = last and g.model.architecture not in LATE_SELECTION
    if select:
        y = g.select_outputs(y)
    if {"post_attention_norm", "post_ffw_norm"} <= {*norms} or "layer_output_norm" in norms:
        y = g.norm(y, hidden)
    if select:
        x = g.select_outputs(x)
    if g.model.architecture == "arctic" and isinstance(layer.ffn, MoeFfn):
        return _early_experts(g, layer.ffn, _add(y, x), x)
    if layer.ffn is not None and _is_parallel(g, layer):
        return _parallel(g, layer, y, x, g.select_outputs(first) if select else first)
    x = _residual(g, y, x, 0)
    if last and LATE_SELECTION.get(g.model.architecture) == "after sum":
        x = g.select_outputs(x)
    if layer.ffn is None:
        return x
    return _feed_forward(g, layer, _norm(g, layer, x) if normed_first else x, x)


def _normed_residual(g: GraphBuilder, layer: Layer, y: Tensor | View, normed: Tensor, last: bool) -> Tensor:
    """The rest of a block that adds what its mixer and feed-forward read, scaled, instead of the stream before them."""
    assert layer.ffn is not None
    if last:
        y, normed = g.select_outputs(y), g.select_outputs(normed)
    x = g.norm(_add(y, g.inplace(normed)), g.model.hidden)
    return _add(feed_forward(g, layer.ffn, x), g.inplace(x))


def _norm(g: GraphBuilder, layer: Layer, x: Tensor) -> Tensor:
    """The norm before a mixer or feed-forward; OLMo 1's has no weights."""
    return g.norm(x, g.model.hidden) if layer.norms else Tensor(x.size, (x,), inplace=g.norm_inplace)


def _feed_forward(g: GraphBuilder, layer: Layer, x: Tensor, residual: Tensor) -> Tensor:
    assert layer.ffn is not None
    if g.model.architecture == "gemma4" and isinstance(layer.ffn, MoeFfn):
        y = gemma4_feed_forward(g, layer.ffn, base(residual))
    else:
        y = feed_forward(g, layer.ffn, x)
    if "post_ffw_norm" in layer.norms or "layer_output_norm" in layer.norms:
        y = g.norm(y, g.model.hidden)
    return _residual(g, y, residual, 1)


def _residual(g: GraphBuilder, y: Tensor | View, x: Tensor | View, position: int) -> Tensor:
    if g.model.architecture in SCALED_RESIDUAL_ARCHITECTURES:
        y = g.inplace(y)
    return _add(x, y) if RESIDUAL_FIRST.get(g.model.architecture, (False, False))[position] else _add(y, x)


def _is_parallel(g: GraphBuilder, layer: Layer) -> bool:
    """Whether attention and feed-forward read the same input: one norm for both, or two by the architecture."""
    norms = len(layer.norms) + sum(extra.name == "ffn_norm" for extra in layer.extras)
    return norms == 1 or g.model.architecture in PARALLEL_SUMS


def _early_experts(g: GraphBuilder, ffn: MoeFfn, x: Tensor, before: Tensor) -> Tensor:
    """Arctic: experts on the input of the layer, added to a dense block after attention."""
    assert ffn.dense is not None
    blended = _add(dense(g, ffn.dense, g.norm(x, g.model.hidden)), x)
    return _add(experts(g, ffn, g.norm(before, g.model.hidden)), blended)


def _parallel(g: GraphBuilder, layer: Layer, y: Tensor | View, x: Tensor, first: Tensor) -> Tensor:
    """Attention and feed-forward side by side on the same input, or on two norms of it."""
    assert layer.ffn is not None
    ffn = feed_forward(g, layer.ffn, g.norm(x, g.model.hidden) if len(layer.norms) > 1 else first)
    parts: dict[str, Tensor | View] = {"attention": y, "ffn": ffn, "input": x}
    order = PARALLEL_SUMS.get(g.model.architecture, DEFAULT_PARALLEL_SUM)
    return _add(_add(parts[order[0]], parts[order[1]]), parts[order[2]])


def _add(y: Tensor | View, x: Tensor | View) -> Tensor:
    """The sum of two equal tensors, in the memory of the first that is free."""
    return Tensor(base(y).size, (y, x), inplace=True)


def _mix(g: GraphBuilder, mixers: Sequence[Mixer], first: Tensor, x: Tensor) -> Tensor | View:
    """One mixer, or several side by side, each with its own norm, whose results are added; attention comes first."""
    mixers = sorted(mixers, key=lambda mixer: not isinstance(mixer, Attention))
    y = _mixer(g, mixers[0], first)
    for mixer in mixers[1:]:
        y = _add(y, _mixer(g, mixer, g.norm(x, g.model.hidden)))
    return y


def _mixer(g: GraphBuilder, mixer: Mixer, x: Tensor) -> Tensor | View:
    if isinstance(mixer, Attention):
        return block_sparse_attention(g, mixer, x) if is_block_sparse(g, mixer) else attention(g, mixer, x)
    if isinstance(mixer, LatentAttention):
        return latent_attention(g, mixer, x)
    if isinstance(mixer, Mamba):
        return mamba(g, mixer, x)
    if isinstance(mixer, DeltaNet):
        return delta_net(g, mixer, x)
    if isinstance(mixer, KimiDelta):
        return kimi_delta(g, mixer, x)
    if isinstance(mixer, ShortConv):
        return short_conv(g, mixer, x)
    if isinstance(mixer, LightningAttention):
        return lightning(g, mixer, x)
    raise InputError(f"{g.model.id}: {type(mixer).__name__} cannot stand beside other mixers")


def _one_earlier(g: GraphBuilder, shift: Tensor, x: Tensor) -> Tensor:
    """The rows before: one of `shift`, which holds two a sequence, and all of each sequence but its last."""
    row = g.bytes(g.model.hidden) // g.rows
    return g.op(g.model.hidden, View(shift, shift.size - row), View(x, x.size - row))


def _rwkv_layer(
    g: GraphBuilder, layer: Layer, x: Tensor, first_value: Tensor | None, last: bool
) -> tuple[Tensor, Tensor]:
    """Time mixing and channel mixing, each with a look at the token before."""
    hidden = g.model.hidden
    mixer = layer.mixers[0]
    assert isinstance(mixer, Rwkv7)
    assert layer.ffn is not None
    shift = state(g, 2 * hidden).tensor
    normed = g.norm(x.view, hidden)
    y, first_value = rwkv7(g, mixer, normed, _one_earlier(g, shift, normed), first_value)
    x = _add(y.view, x.view)
    ffn_normed = g.norm(x, hidden)
    previous = _one_earlier(g, shift, ffn_normed)
    g.store(g.raw(2 * hidden * g.batch.sequences * F32, normed.view, ffn_normed.view).view)
    residual: Tensor | View = x.view
    inputs: tuple[Tensor | View, Tensor | View] = (ffn_normed.view, previous.view)
    if last:
        residual = g.select_outputs(residual)
        inputs = (g.select_outputs(inputs[0]), g.select_outputs(inputs[1]))
    mixed = g.inplace(g.scale(g.inplace(inputs[1], inputs[0])), inputs[0])
    width = layer.ffn.width
    return _add(g.matmul(hidden, g.inplace(g.inplace(g.matmul(width, mixed)))), residual), first_value
