"""Drafters of a resolved request: another model, or the NextN/MTP layers that come with the model.

Imports `request_times`, `speculative` and the memory model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .errors import InputError
from .kv_cache import F32_BYTES, sum_layers
from .links import weight_copies
from .memory import MemoryPlan, memory_plan
from .quantization import QuantizedTensor, Weights
from .request_times import RequestTimes
from .speculative import DEFAULT_DRAFT_LENGTH, ModelDrafter, ServerWork

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request

# Filling the candidates and the default samplers, on one core: 4.3 ns an entry with a vocabulary of 262,144 (1.12 ms a
# token), 5.5 ns with one of 49,152; measured with llama-completion b11434 on an AMD EPYC.
SAMPLING_S_PER_ENTRY: Final = 4.3e-9


@dataclass(frozen=True)
class PlacedDrafter(ModelDrafter):
    """A draft model with its memory, device by device."""

    memory: MemoryPlan | None = None


def model_drafter(request: Request, efficiency: Efficiency | None = None) -> PlacedDrafter:
    """A draft model as its own request: on the system, in the context and with the cache types that it will have.

    The request's placement counts: all on the devices unless it says otherwise, wherever the other model lies. Its
    tokens are sampled on the CPU (llama.cpp b11434, common/speculative.cpp: common_speculative_impl_draft_simple).
    """
    plan = memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
    return PlacedDrafter(
        RequestTimes(request, efficiency),
        RequestTimes(_without_output(request), efficiency),
        memory_bytes=float(plan.total_bytes),
        sample_s=sampling_s(request),
        memory=plan,
    )


def mtp_drafter(request: Request, efficiency: Efficiency | None = None) -> ModelDrafter:
    """The MTP layers of the request's own model; memory is their weights and cache, without compute buffers.

    Of a recurrent state, a copy for every drafted token is kept to roll back to, here for drafts of the default length.
    The device samples what they draft. Raises InputError if the model, or the file, has none.
    """
    layers = mtp_layers(request)
    cache = sum_layers(request.model, request.model.draft_layers, request.workload)
    own = sum(quantized.bytes for quantized in layers.weights.tensors if quantized.tensor.layer >= 0)
    snapshots = DEFAULT_DRAFT_LENGTH * sum_layers(request.model, request.model.layers, request.workload).state
    return ModelDrafter(
        RequestTimes(layers, efficiency),
        RequestTimes(_without_output(layers), efficiency),
        memory_bytes=float(own + cache.total + snapshots),
        rolls_back=True,
    )


def sampling_s(request: Request) -> float:
    """Choosing a token on the CPU, which looks at every entry of the vocabulary."""
    return request.model.vocab * SAMPLING_S_PER_ENTRY


def server_work(request: Request, rolls_back: bool = False) -> ServerWork:
    """What llama-server does between the passes of the request's model.

    A recurrent state is rolled back to copies of it where MTP layers draft; for other drafters it is saved and restored
    over the link to the host (llama.cpp b11434, common/common.h: need_n_rs_seq).
    """
    device = request.devices[0]
    link = weight_copies(device, request.system, request.backend, "none").bytes_per_s
    state = sum_layers(request.model, request.model.layers, request.workload).state / request.workload.parallel
    return ServerWork(
        sample_s=sampling_s(request),
        row_s=0.0 if device.is_cpu else request.model.vocab * F32_BYTES / link,
        checkpoint_s=0.0 if rolls_back else float(state) / link,
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
