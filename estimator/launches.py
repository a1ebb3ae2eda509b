"""Kernels that llama.cpp launches for a layer: what a step costs beyond its bytes and FLOPs.

Counts are of one token on CUDA after fusion, where a kernel that quantises the activations precedes every quantised
product (llama.cpp b11434, ggml/src/ggml-cuda/ggml-cuda.cu; a dense Llama layer has 18). Other backends fuse a little
more or less; the fitted time of a launch absorbs that.
Imports `architecture` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from .architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    ExtraTensor,
    Ffn,
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

PRODUCT: Final = 2  # quantise the activations, multiply
ROUTING: Final = 5  # router product, top-k with normalisation, weighted sum
PER_STEP: Final = 5  # embedding look-up, final norm, output head, copies of inputs

_RECURRENT: Final[dict[type, int]] = {
    DeltaNet: 20,  # four products, convolution, L2 norms, gates, scan, gated norm, state copies
    KimiDelta: 26,
    Mamba: 12,
    ShortConv: 9,
    Rwkv7: 40,
    LightningAttention: 14,
}


# What is done with tensors beside those of mixers and feed-forwards (src/models/gemma3n.cpp, gemma4.cpp); others are
# counted with the mixer they belong to, or need no kernel of their own.
_EXTRAS: Final = {
    "inp_gate.weight": PRODUCT + 1,  # times the layer's own embedding
    "proj.weight": PRODUCT,
    "post_norm.weight": 1,
    "layer_output_scale.weight": 1,
    "pre_ffw_norm_2.weight": 1,
    "post_ffw_norm_1.weight": 1,
    "post_ffw_norm_2.weight": 1,
    "ffn_gate_inp.scale": 2,  # the router's own norm
    "ffn_down_exps.scale": 1,
    "laurel_l.weight": PRODUCT,
    "laurel_r.weight": PRODUCT,
    "laurel_post_norm.weight": 3,
    "altup_router_norm.weight": 4,  # twice a layer: norm, scale
    "altup_router.weight": 6,  # twice: product, hyperbolic tangent
    "altup_predict_coef.weight": 6,  # coefficients, their product with the streams, two transpositions, sum
    "altup_correct_coef.weight": 8,
    "altup_correct_scale.weight": 3,  # and the streams put together again
    "per_layer_model_proj.weight": 7,  # once a step: product, norm, sum, scales, transposition
    "altup_proj.weight": 11,
    "altup_unembd_proj.weight": 13,
}


@lru_cache(maxsize=256)
def step_launches(model: Model) -> int:
    """Launches of one forward pass over all layers, output head included."""
    counts: dict[int, int] = {}  # identical layers are one object
    total = PER_STEP + _extras(model.extras)
    for layer in model.layers:
        if id(layer) not in counts:
            counts[id(layer)] = layer_launches(layer)
        total += counts[id(layer)]
    return total


def layer_launches(layer: Layer) -> int:
    """Launches of one layer: norms, mixers, feed-forward, and what its architecture adds."""
    mixers = sum(map(mixer_launches, layer.mixers))
    return len(layer.norms) + mixers + ffn_launches(layer.ffn) + _extras(layer.extras)


def _extras(extras: Iterable[ExtraTensor]) -> int:
    return sum(_EXTRAS.get(extra.name, 0) for extra in extras)


def mixer_launches(mixer: Mixer) -> int:
    """Launches of one mixer, its residual addition fused into the last product."""
    if isinstance(mixer, Attention):
        return _attention(mixer)
    if isinstance(mixer, LatentAttention):
        return 21 + (7 if mixer.indexer is not None and mixer.indexer.owns_weights else 0)
    if isinstance(mixer, CompressedAttention):
        return 44 + (12 if mixer.ratio else 0) + (12 if mixer.indexer is not None else 0)
    return _RECURRENT[type(mixer)]


def ffn_launches(ffn: Ffn | None) -> int:
    """Launches of one feed-forward block; gate, up and activation are one product."""
    if ffn is None:
        return 0
    if isinstance(ffn, DenseFfn):
        return 2 * PRODUCT
    shared = 2 * PRODUCT + int(ffn.shared_gate) + 1 if ffn.shared_width else 0
    latent = 2 * PRODUCT if ffn.latent else 0
    return ROUTING + 2 * PRODUCT + shared + latent + ffn_launches(ffn.dense)


def _attention(a: Attention) -> int:
    inputs = 1 if a.fused_qkv else 2 if a.shares_cache or a.key_is_value else 3
    positions = 3 if not a.shares_cache else 1  # rotate Q, rotate and store K, store V
    gate = 0 if a.gate == "none" else 2 if a.gate == "query" else PRODUCT + 2
    biases = inputs if a.qkv_bias else 0
    return PRODUCT * (inputs + 1) + biases + positions + 1 + gate
