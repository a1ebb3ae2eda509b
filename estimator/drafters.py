"""Drafters of a resolved request: another model, or the NextN/MTP layers that come with the model.

Imports `request_times`, `speculative` and the memory model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .errors import InputError
from .kv_cache import sum_layers
from .memory import memory_plan
from .quantization import QuantizedTensor, Weights
from .request_times import RequestTimes
from .speculative import ModelDrafter

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request


def model_drafter(request: Request, efficiency: Efficiency | None = None) -> ModelDrafter:
    """A draft model as its own request: on the system, in the context and with the cache types that it will have."""
    plan = memory_plan(request.model, request.weights, request.workload, request.system)
    return ModelDrafter(
        RequestTimes(request, efficiency),
        RequestTimes(_without_output(request), efficiency),
        memory_bytes=float(plan.total_bytes),
    )


def mtp_drafter(request: Request, efficiency: Efficiency | None = None) -> ModelDrafter:
    """The MTP layers of the request's own model; memory is their weights and cache, without compute buffers.

    Raises InputError if the model, or the file, has none.
    """
    layers = mtp_layers(request)
    cache = sum_layers(request.model, request.model.draft_layers, request.workload)
    own = sum(quantized.bytes for quantized in layers.weights.tensors if quantized.tensor.layer >= 0)
    return ModelDrafter(
        RequestTimes(layers, efficiency),
        RequestTimes(_without_output(layers), efficiency),
        memory_bytes=float(own + cache.total),
    )


def mtp_layers(request: Request) -> Request:
    """The MTP layers as a model of their own, with the output head and the embeddings that they use."""
    model = request.model
    first = model.n_layers
    drafting = [quantized for quantized in request.weights.tensors if quantized.tensor.layer >= first]
    if not (model.draft_layers and drafting):
        raise InputError(f"{model.id}: has no MTP layers, or its file was converted without them")
    owned = {quantized.tensor.role for quantized in drafting}
    shared = [
        quantized
        for quantized in request.weights.tensors
        if quantized.tensor.layer < 0 and not (quantized.tensor.role == "output" and "output" in owned)
    ]
    tensors = (*shared, *(_renumbered(quantized, first) for quantized in drafting))
    layers = replace(model, id=f"{model.id}-mtp", layers=model.draft_layers, draft_layers=())
    return replace(request, model=layers, weights=replace(request.weights, tensors=tensors))


def _renumbered(quantized: QuantizedTensor, first: int) -> QuantizedTensor:
    tensor = quantized.tensor
    return quantized._replace(tensor=replace(tensor, layer=tensor.layer - first))


def _without_output(request: Request) -> Request:
    """The same, for passes that compute no logits."""
    kept = tuple(quantized for quantized in request.weights.tensors if quantized.tensor.role != "output")
    if len(kept) == len(request.weights.tensors):  # tied: the embedding is the output matrix
        kept = tuple(quantized for quantized in kept if quantized.tensor.name != "token_embd.weight")
    weights: Weights = replace(request.weights, tensors=kept)
    return replace(request, weights=weights)
