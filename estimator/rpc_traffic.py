"""What llama.cpp's RPC backend sends over the network besides the activations between devices.

The client keeps everything and answers for every copy: a remote device gets its inputs, its graph and the order to
compute in one direction without waiting, and is waited for once, when its result is fetched (llama.cpp b11434,
ggml/src/ggml-rpc/ggml-rpc.cpp and ggml_backend_sched_compute_splits of ggml/src/ggml-backend.cpp). So a visit costs one
round trip, half of it on the way in and half on the way out, and what goes from one remote device to another crosses
the network twice.

Bytes were counted on the wire for two models (tests/data/rpc/traffic.csv). Imports `architecture`, `kv_cache` and
`operations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .architecture import CachedMixer, Model
from .kv_cache import F32_BYTES
from .operations import padded

Vector = NDArray[np.float64]

# Tensors as wide as the activations that enter the first device: the scheduler leaves the first operations of a layer
# where their input is, so that their results cross as well.
COPIES_OF_EMBEDDING: Final = 3  # from the input embedding, which is always on the host
COPIES_FROM_LAYER: Final = 2  # from a layer of the host
GRAPH_BYTES_A_LAYER: Final = 15e3  # 296 bytes a tensor; sent anew for every micro-batch of a prompt, kept in decode


@dataclass(frozen=True)
class Batch:
    """Tokens of a phase at each point, in `passes` micro-batches; `rows` of them want logits.

    `cells`: positions of the cache that a token's row of the attention mask covers, on average; `width`: tokens of a
    micro-batch.
    """

    tokens: Vector
    passes: Vector
    cells: Vector
    rows: Vector
    decodes: bool

    @property
    def width(self) -> Vector:
        """Tokens of a micro-batch."""
        return self.tokens / self.passes


def decode_batch(occupied: Vector, parallel: Vector) -> Batch:
    """One step of `parallel` sequences, each with `occupied` positions."""
    tokens = np.broadcast_to(np.asarray(parallel, float), occupied.shape)
    return Batch(tokens, np.ones(occupied.shape), np.asarray(padded(occupied)), tokens, True)


def prefill_batch(fresh: Vector, cached: Vector, ubatch: float) -> Batch:
    """A prompt of `fresh` tokens behind `cached` ones; its last token alone wants logits."""
    passes = np.ceil(fresh / ubatch)
    cells = cached + 0.5 * (fresh + np.minimum(fresh, ubatch))
    return Batch(fresh, passes, np.asarray(cells, float), np.ones(fresh.shape), False)


def entering_copies(first_layer_on_host: bool) -> int:
    """How many tensors of the activations' size go from the host to the first device."""
    return COPIES_FROM_LAYER if first_layer_on_host else COPIES_OF_EMBEDDING


def logit_bytes(model: Model, batch: Batch) -> Vector:
    """What comes back from the device of the output layer."""
    return model.vocab * F32_BYTES * batch.rows


def input_bytes(held: Model, batch: Batch, flash_attention: bool) -> Vector:
    """Attention masks and graphs for a device that holds the layers of `held`."""
    size: Any = np.zeros(batch.tokens.shape)
    cell_bytes = 2 if flash_attention else 4
    for window in _windows(held):
        cells = batch.cells if window is None else np.minimum(batch.cells, window + batch.width)
        size = size + cell_bytes * cells * batch.tokens
    graphs = 0.0 if batch.decodes else GRAPH_BYTES_A_LAYER * len(held.layers)
    return np.asarray(size + graphs * batch.passes, float)


def _windows(held: Model) -> set[int | None]:
    """The different masks of the layers; recurrent layers have none."""
    mixers = [mixer for layer in held.layers for mixer in layer.mixers if isinstance(mixer, CachedMixer)]
    return {getattr(mixer, "window", None) for mixer in mixers}
