"""Catalog entries described as plain data: what `list` and `show` print, as text or JSON.

Imports the catalogs' objects and the cache rules; computes only what a description needs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

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
    MoeFfn,
    Rwkv7,
)
from .conventions import runs_in_llama_cpp
from .kv_cache import context_bytes
from .system import Device
from .tensors import active_params, total_params
from .workload import Workload

_LONG_CONTEXT: Final = 1 << 17  # long enough that rounding to cells does not show in bytes per token


def attention_kind(mixer: Mixer) -> str:
    """What kind of token mixing: full, sliding_window, mla, or the kind of recurrent state."""
    if isinstance(mixer, Attention):
        return "full" if mixer.window is None else "sliding_window"
    if isinstance(mixer, Mamba):
        return f"mamba{mixer.version}"
    kinds = {
        LatentAttention: "mla",
        CompressedAttention: "compressed",
        DeltaNet: "gated_delta_net",
        KimiDelta: "kimi_delta",
        Rwkv7: "rwkv7",
        LightningAttention: "lightning",
    }
    return kinds.get(type(mixer), "short_conv")


def ffn_kind(layer: Layer) -> str | None:
    """dense, moe, or None for a block without a feed-forward."""
    if layer.ffn is None:
        return None
    return "moe" if isinstance(layer.ffn, MoeFfn) else "dense"


def kv_bytes_per_token(model: Model, all_layers: bool = True) -> float:
    """Bytes of F16 cache that one token takes: in every layer, or only in those that keep more than a window."""
    short, long = (
        int(context_bytes(model, Workload(context=cells, swa_full=all_layers)).kv)
        for cells in (_LONG_CONTEXT, 2 * _LONG_CONTEXT)
    )
    return (long - short) / _LONG_CONTEXT


def describe_layer(layer: Layer) -> dict[str, Any]:
    """Kinds and shapes of one layer."""
    return {
        "attention": " + ".join(map(attention_kind, layer.mixers)) or None,
        "ffn": ffn_kind(layer),
        "mixers": [asdict(mixer) for mixer in layer.mixers],
        "feed_forward": asdict(layer.ffn) if layer.ffn else None,
    }


def describe_model(model: Model) -> dict[str, Any]:
    """The model's counts and layers; `id` first."""
    return {
        "id": model.id,
        "name": model.name,
        "architecture": model.architecture,
        "runs_in_llama_cpp": runs_in_llama_cpp(model.architecture),
        "total_params": total_params(model),
        "active_params": active_params(model),
        "draft_params": total_params(model, drafts=True) - total_params(model),
        "kv_bytes_per_token_f16": kv_bytes_per_token(model),
        "kv_bytes_per_token_f16_beyond_windows": kv_bytes_per_token(model, all_layers=False),
        "recurrent_state_bytes": int(context_bytes(model, Workload()).state),
        "vocab": model.vocab,
        "hidden": model.hidden,
        "max_context": model.max_context,
        "tied_embeddings": model.tied_embeddings,
        "layers": [describe_layer(layer) for layer in model.layers],
    }


def describe_device(device: Device, sources: bool = False) -> dict[str, Any]:
    """The device's figures in SI; `id` first. Unknown figures are left out."""
    fields = asdict_shallow(device)
    fields["generation"] = device.generation
    fields["backends"] = list(device.backends)
    if not sources:
        fields.pop("sources")
    return {key: value for key, value in fields.items() if value not in (None, (), {}, [])}


def asdict_shallow(device: Device) -> dict[str, Any]:
    """The fields of a device with links and mappings as dictionaries (asdict cannot copy mapping proxies)."""
    fields = {name: getattr(device, name) for name in device.__dataclass_fields__}
    for name, value in fields.items():
        if hasattr(value, "__dataclass_fields__"):
            fields[name] = asdict(value)
        elif hasattr(value, "keys"):
            fields[name] = dict(value)
    return fields
