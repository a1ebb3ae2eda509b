"""What must hold between the figures of a model: its parameters and the published count, its pattern and its layers.

Each rule yields (field, what is wrong). Imports `architecture`, `conventions` and `tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .architecture import Model
from .conventions import convention_of
from .tensors import active_params, total_params

Fault = tuple[str, str]

COUNT_TOLERANCE: Final = 1e-4  # scales and rotary buffers that some checkpoints hold
ACTIVE_TOLERANCE: Final = 0.15  # published rounded, with and without embeddings


def model_faults(model: Model, fields: Mapping[str, Any]) -> Iterator[Fault]:
    """Everything that contradicts itself in a model and the fields that it was made of."""
    yield from _published(model, fields)
    yield from _active(model, fields)
    yield from _pattern(model, fields)
    yield from _layer_counts(model, fields)


def checkpoint_counts(model: Model) -> tuple[int, ...]:
    """Parameters that a checkpoint of the text model may hold: with its MTP layers, and a tied matrix stored twice."""
    counts = {total_params(model), total_params(model, drafts=True)}
    if model.tied_embeddings:
        counts |= {count + model.hidden * model.vocab for count in counts}
    return tuple(sorted(counts))


def implied_fields(fields: Mapping[str, Any]) -> Iterator[Fault]:
    """Fields that repeat what the architecture implies: the built-in catalog leaves them out."""
    rules = convention_of(fields["architecture"], "architecture")
    for key in ("tied_embeddings", "qkv_bias"):
        if fields.get(key) == getattr(rules, key):
            yield key, f"{str(fields[key]).lower()} is what the architecture implies: leave it out"


def _published(model: Model, fields: Mapping[str, Any]) -> Iterator[Fault]:
    published, counts = fields.get("parameters"), checkpoint_counts(model)
    if published is None or any(abs(published - count) <= COUNT_TOLERANCE * count for count in counts):
        return
    nearest = min(counts, key=lambda count: abs(published - count))
    if fields.get("also_holds") and published > counts[0]:
        return
    off = f"{published:,} were published, but these shapes make {nearest:,} ({nearest / published - 1:+.2%})"
    yield (
        "parameters",
        f"{off}: a shape is wrong, the count is rounded (give the exact one or none), or the checkpoint holds more "
        "than the text model (say what in also_holds)",
    )


def _active(model: Model, fields: Mapping[str, Any]) -> Iterator[Fault]:
    published, computed = fields.get("active_parameters"), active_params(model)
    if published is not None and abs(published / computed - 1) > ACTIVE_TOLERANCE:
        yield "active_parameters", f"{published:,} were published, but these shapes use {computed:,} for a token"


def _pattern(model: Model, fields: Mapping[str, Any]) -> Iterator[Fault]:
    text, layers = str(fields.get("pattern") or "").replace(" ", ""), model.n_layers
    letters = text.replace("(", "").replace(")", "")
    if len(letters) > layers:
        yield "pattern", f"has {len(letters)} letters for {layers} layers"
    elif "(" not in text and layers / 2 < len(letters) < layers:
        sums = f"{len(letters)} letters do not make {layers} layers"
        yield "pattern", f"{sums}: give each layer one, or a shorter pattern that is repeated"


def _layer_counts(model: Model, fields: Mapping[str, Any]) -> Iterator[Fault]:
    experts, compression = fields.get("experts") or {}, fields.get("compression") or {}
    counts = {
        "experts: dense_layers": experts.get("dense_layers", 0),
        "experts: every": experts.get("every", 1),
        "hash_layers": fields.get("hash_layers", 0),
        "compression: first": len(compression.get("first", ())),
    }
    for key, count in counts.items():
        if count is not None and count > model.n_layers:
            yield key, f"{count} is more than the {model.n_layers} layers"
