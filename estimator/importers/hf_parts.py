"""Finding the parts of a Model that a configuration has keys for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..architecture import (
    Attention,
    DeltaNet,
    DenseFfn,
    KimiDelta,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    MoeFfn,
    Rwkv7,
    ShortConv,
)

_Part = TypeVar("_Part")


def pattern_of(model: Model) -> str:
    """The letter of each layer, as in `conventions`."""
    return "".join(map(_letter, model.layers))


def _letter(layer: Layer) -> str:
    if not layer.mixers:
        single = layer.norms == ("attn_norm",)  # a block of its own, not a layer that lost its attention
        return ("E" if isinstance(layer.ffn, MoeFfn) else "D") if single else "N"
    if len(layer.mixers) > 1:
        return "P"
    mixer = layer.mixers[0]
    if isinstance(mixer, Attention):
        return "S" if mixer.window else "F"
    letters: dict[type[Mixer], str] = {Mamba: "M", ShortConv: "C", Rwkv7: "R", DeltaNet: "L", KimiDelta: "L",
                                       LightningAttention: "L"}  # fmt: skip
    return letters.get(type(mixer), "F")


def mixers_of(model: Model, kind: type[_Part]) -> list[_Part]:
    """The mixers of this kind, in the order of the layers."""
    return [mixer for layer in model.layers for mixer in layer.mixers if isinstance(mixer, kind)]


def first(parts: Iterable[_Part]) -> _Part | None:
    """The first of `parts`, None without any."""
    return next(iter(parts), None)


def only(model: Model, kind: type[_Part]) -> _Part:
    """The first mixer of this kind, in a model that has one."""
    return mixers_of(model, kind)[0]


def full_attention(model: Model) -> Attention | None:
    """Attention of the layers without a window, or of any layer."""
    attention = mixers_of(model, Attention)
    return first(each for each in attention if each.window is None) or first(attention)


def sliding_attention(model: Model) -> Attention | None:
    """Attention of the layers with a window."""
    return first(each for each in mixers_of(model, Attention) if each.window is not None)


def experts_of(model: Model) -> MoeFfn | None:
    """The first block of experts."""
    return first(layer.ffn for layer in model.layers if isinstance(layer.ffn, MoeFfn))


def dense_of(model: Model) -> DenseFfn | None:
    """The first dense feed-forward block."""
    return first(layer.ffn for layer in model.layers if isinstance(layer.ffn, DenseFfn))
