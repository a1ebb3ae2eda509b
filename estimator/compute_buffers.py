"""Compute buffers of every device, and the output buffer, as llama.cpp reserves them.

The graph of `graphs.compute_graph` goes through the allocator of `graphs.allocator`; layers that repeat are left out,
because the allocator reaches a steady state after the first few.
Imports `graphs`, `architecture`, `placement` and `workload`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from .architecture import Model
from .graphs.allocator import PIPELINE_COPIES, buffer_bytes
from .graphs.builder import F32, Build
from .graphs.compute_graph import build_graph
from .placement import Placement
from .workload import Count, Workload

# Repeats of a run of layers that are kept, plus as many as make the number left out a multiple of the cycle: the
# residual stream may alternate between two or three places. So many give the bytes of the whole stack for the catalog.
KEPT_REPEATS: Final = 4
REPEAT_CYCLE: Final = 6
LONGEST_PERIOD: Final = 12  # of layer patterns: 5 window layers and a full one, 7 recurrent ones and a full one, …


def compute_bytes(
    model: Model,
    placement: Placement,
    workload: Workload,
    context: Count | None = None,
    *,
    build: Build = "b11434",
    attention_scratch: bool = False,
) -> dict[int, Count]:
    """Bytes of the compute buffer by device, HOST included.

    `context`: configured tokens, scalar or array, instead of the workload's; an array gives an array for each device.
    `build` and `attention_scratch` are those of `build_graph`.
    """
    tokens = workload.context if context is None else context
    if isinstance(tokens, int):
        return dict(_reserved(model, placement, workload, tokens, build, attention_scratch))
    cases, inverse = np.unique(_distinguished(workload, tokens), return_inverse=True)
    one_by_one = [_reserved(model, placement, workload, int(n), build, attention_scratch) for n in cases]
    return {
        device: np.array([case[device] for case in one_by_one], dtype=np.int64)[inverse].reshape(tokens.shape)
        for device in one_by_one[0]
    }


def output_bytes(model: Model, workload: Workload) -> int:
    """Bytes of the buffer that logits are copied to: one row a sequence, until more are asked for."""
    return model.vocab * workload.parallel * F32


def _distinguished(workload: Workload, context: Count) -> Count:
    """A context length that reserves the same buffers: whole cells, once a micro-batch fits."""
    cells = workload.cells_per_stream(context) * workload.streams
    limit = min(workload.ubatch, workload.batch)
    return np.where(np.asarray(context) >= limit, np.maximum(cells, limit), context)


@lru_cache(maxsize=4096)
def _reserved(
    model: Model, placement: Placement, workload: Workload, context: int, build: Build, scratch: bool
) -> dict[int, int]:
    layers = None if _needs_all_layers(model) else representative_layers(_layer_keys(model, placement))
    graph = build_graph(model, placement, workload, context, layers, build, scratch)
    return buffer_bytes(graph, PIPELINE_COPIES if placement.pipelined else 1)


def _needs_all_layers(model: Model) -> bool:
    """Whether none may be left out: each brings an input of its own, or its place depends on the number before it."""
    indexed = any(getattr(mixer, "indexer", None) for layer in model.layers for mixer in layer.mixers)
    whole = {"per_layer_proj_norm.weight", "output_res_score.weight"}  # inputs or checkpoints of all layers
    return model.architecture == "rwkv7" or indexed or any(extra.name in whole for extra in model.extras)


def _layer_keys(model: Model, placement: Placement) -> list[Hashable]:
    return [(layer, *_devices(placement, i)) for i, layer in enumerate(model.layers)]


def _devices(placement: Placement, layer: int) -> tuple[int, int, int, int]:
    experts, dense = placement.expert_device(layer), placement.dense_device(layer)
    return placement.slots[layer], experts, dense, placement.cache_device(layer)


def representative_layers(keys: Sequence[Hashable]) -> list[int]:
    """Indices of layers that remain when long repeats of equal runs, by their keys, are shortened."""
    kept = list(range(len(keys)))
    for period in range(1, LONGEST_PERIOD + 1):
        kept = _shorten_repeats(kept, keys, period)
    return kept


def _shorten_repeats(kept: Sequence[int], keys: Sequence[Hashable], period: int) -> list[int]:
    values = [keys[i] for i in kept]
    result: list[int] = []
    start = 0
    while start < len(kept):
        end = start + period
        while values[end : end + period] == values[start : start + period]:
            end += period
        repeats = (end - start) // period
        shortened = KEPT_REPEATS + (repeats - KEPT_REPEATS) % REPEAT_CYCLE
        if repeats > shortened:
            result += kept[start : start + shortened * period]
            start = end
        else:
            result.append(kept[start])
            start += 1
    return result
