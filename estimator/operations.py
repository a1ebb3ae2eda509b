"""What one phase does: operations with FLOPs, bytes and launches, for a decode step or for the prefill of a prompt.

Equal layers are grouped, so the list is short whatever the model, and every count broadcasts over numpy arrays of
positions, prompt lengths and sequences. FLOPs count a multiply-add as 2. What llama.cpp runs is read from b11434,
src/llama-graph.cpp and src/models.
Imports `inventory`, `cache_reads`, `kv_cache` and `launches`; knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from .architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    Ffn,
    KimiDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    Rwkv7,
    ShortConv,
)
from .cache_reads import CacheRead, CacheTypes, Phase, cache_reads, counted_mixers
from .frozen_dataclass import dataclass
from .inventory import Inventory, MatrixGroup
from .kv_cache import F32_BYTES, state_elements
from .launches import step_launches
from .workload import CONTEXT_PADDING

Array = float | NDArray[np.float64]
OperationKind = Literal["dense", "experts", "output", "attention", "scan", "elementwise"]

SCORE_PASSES: Final = 4  # without flash attention the F32 scores are written, read and rewritten by softmax, read


@dataclass(frozen=True, eq=False)
class Operation:
    """A group of like work; counts are totals of the phase. `columns`: tokens that share one reading of a weight;
    `batch`: tokens of one pass, by which kernels are chosen."""

    name: str
    kind: OperationKind
    tensor_type: str  # of the weights, or of the cached keys; F32 for states and activations
    flops: Array = 0.0
    weight_bytes: Array = 0.0
    kv_read_bytes: Array = 0.0  # cache and recurrent state
    kv_written_bytes: Array = 0.0
    activation_bytes: Array = 0.0
    weights: Array = 0.0  # values unpacked, once per reading
    columns: Array = 1.0
    batch: Array = 1.0
    wide_heads: bool = False  # attention
    scores: Array = 0.0  # attention: cells in reach of every query head
    unmasked: Array = 1.0  # attention: share of those cells that hold a position
    value_dim: int = 0  # attention: values that a score weighs
    sharers: float = 1.0  # attention: query heads that read the same head of the cache
    head_bytes: Array = 0.0  # attention: K and V of one head of one sequence
    cell_bytes: float = 0.0  # attention: K and V of one position in one layer

    @property
    def bytes(self) -> Array:
        """All bytes moved to and from memory."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes + self.activation_bytes

    @cached_property
    def batch_range(self) -> tuple[float, float]:
        """The smallest and the largest batch."""
        batch = self.batch
        return (batch, batch) if isinstance(batch, float) else (float(np.min(batch)), float(np.max(batch)))


@dataclass(frozen=True, eq=False)
class PhaseOperations:
    """The operations of one phase, and how often the graph runs: once a decode step, once an ubatch of the prompt."""

    phase: Phase
    operations: tuple[Operation, ...]
    passes: Array
    launches: Array  # kernels, all passes together
    tokens: Array

    @property
    def flops(self) -> Array:
        """FLOPs of the phase."""
        total: Array = 0.0
        for operation in self.operations:
            total = total + operation.flops
        return total

    @property
    def required_bytes(self) -> Array:
        """Bytes that no implementation can avoid: weights and cache, without activations."""
        total: Array = 0.0
        for one in self.operations:
            total = total + one.weight_bytes + one.kv_read_bytes + one.kv_written_bytes
        return total


def decode_operations(
    model: Model,
    file: Inventory,
    *,
    occupied: Array,
    parallel: Array = 1,
    cache: CacheTypes = CacheTypes(),  # noqa: B008 - frozen
) -> PhaseOperations:
    """One decode step of `parallel` sequences that each attend `occupied` positions, the new token's included.

    Attention reads the occupied cells padded to 256 (src/llama-kv-cache.cpp, get_n_kv), a window layer no more than its
    window.
    """
    tokens = np.asarray(parallel, float)[()]
    cells = padded(occupied)

    def attended(limit: int | None) -> Array:
        return cells if limit is None else np.minimum(cells, padded(limit))

    def held(limit: int | None) -> Array:
        return np.asarray(occupied, float) if limit is None else np.minimum(occupied, float(limit))

    operations = [
        *(_product(group, tokens, 1.0, tokens) for group in file.matrices),
        *_attention_operations(model, cache, _Span(tokens, tokens, attended, attended, held)),
        *_scan_operations(model, tokens, tokens),
        _elementwise(model, file, tokens, 1.0),
    ]
    return PhaseOperations("decode", tuple(operations), 1.0, float(step_launches(model)), tokens)


def prefill_operations(
    model: Model,
    file: Inventory,
    *,
    prompt: Array,
    cached: Array = 0,
    ubatch: Array = 512,
    cache: CacheTypes = CacheTypes(),  # noqa: B008 - frozen
) -> PhaseOperations:
    """Prefill of `prompt` new tokens behind `cached` ones, in micro-batches that each read all weights.

    Only the last token needs the output head. Attention FLOPs count the positions that each token may see.
    """
    tokens = np.asarray(prompt, float)[()]
    start = np.asarray(cached, float)[()]
    passes = np.ceil(tokens / ubatch)
    size = tokens / passes

    def attended(limit: int | None) -> Array:
        return _sum_of_positions(limit, start, tokens, 1.0) / tokens

    def read(limit: int | None) -> Array:
        seen = None if limit is None else limit + size
        return _sum_of_positions(seen, start, passes, size)

    operations = [
        *(_product(group, tokens, passes, 1.0) for group in file.matrices),
        *_attention_operations(model, cache, _Span(1.0, tokens, attended, read)),
        *_scan_operations(model, tokens, passes),
        _elementwise(model, file, tokens, passes),
    ]
    return PhaseOperations("prefill", tuple(operations), passes, step_launches(model) * passes, tokens)


def distinct_experts(experts: Array, used: Array, tokens: Array) -> Array:
    """Experts that `tokens` tokens reach together, if each picks `used` of `experts` at random."""
    return experts * -np.expm1(tokens * np.log1p(-np.minimum(used / experts, 1 - 1e-12)))


_GROUP_NAMES: Final = {"dense": "weight matrices", "experts": "experts", "output": "output head"}


def _product(group: MatrixGroup, tokens: Array, passes: Array, outputs: Array) -> Operation:
    """Products of one group with `tokens` columns in `passes` graphs; the output head sees `outputs` tokens, once."""
    if group.kind == "output":
        tokens, passes = outputs, 1.0
    batch: Array = tokens / passes
    columns: Array = batch
    readings: Array = 1.0
    if group.kind == "experts":
        readings = distinct_experts(group.experts, group.used, columns)
        columns = columns * group.used / readings
    return Operation(
        name=f"{_GROUP_NAMES[group.kind]} {group.tensor_type}",
        kind=group.kind,
        tensor_type=group.tensor_type,
        flops=2 * group.values * group.used * tokens,
        weight_bytes=group.bytes * readings * passes,
        activation_bytes=group.activations * F32_BYTES * tokens,
        weights=group.values * readings * passes,
        columns=columns,
        batch=batch,
    )


@dataclass(frozen=True, eq=False)
class _Span:
    """Which positions a phase attends: per token, and read from the cache in all its passes; None = no limit."""

    sequences: Array
    tokens: Array
    attended: Callable[[int | None], Array]
    read: Callable[[int | None], Array]
    held: Callable[[int | None], Array] | None = None  # positions in the cells that are attended; None: all


def _attention_operations(model: Model, cache: CacheTypes, span: _Span) -> list[Operation]:
    return [_attention_operation(layers, cache, span) for layers in _cache_reads(model, cache)]


_cache_reads: Final = lru_cache(maxsize=256)(cache_reads)


def _attention_operation(layers: CacheRead, cache: CacheTypes, span: _Span) -> Operation:
    masked = layers.masked_prefill if span.held is None else layers.masked_decode
    entries = _selected(span.attended, layers, masked, span) / layers.ratio
    held = entries
    if span.held is not None:
        held = np.minimum(_selected(span.held, layers, masked, span) / layers.ratio, entries)
    scores = layers.heads * entries * span.tokens
    moved = 0.0 if cache.flash_attention else SCORE_PASSES * F32_BYTES
    of_sequence = layers.bytes * _selected(span.read, layers, masked, span) / layers.ratio
    reach = "" if layers.limit is None else f" of {layers.limit}"
    return Operation(
        name=f"attention{reach}" if layers.ratio == 1 else f"attention{reach}, 1 entry for {layers.ratio}",
        kind="attention",
        tensor_type=cache.key,
        flops=layers.flops * entries * span.tokens,
        kv_read_bytes=of_sequence * span.sequences,
        kv_written_bytes=layers.written * span.tokens,
        activation_bytes=moved * scores,
        columns=span.tokens / span.sequences,
        wide_heads=layers.wide,
        scores=scores,
        unmasked=held / np.maximum(entries, 1e-9),
        value_dim=layers.value_dim,
        sharers=max(layers.heads / layers.kv_heads, 1.0),
        head_bytes=of_sequence / layers.kv_heads,
        cell_bytes=layers.bytes / layers.layers,
    )


def _selected(positions: Callable[[int | None], Array], layers: CacheRead, masked: float, span: _Span) -> Array:
    """Positions within a layer's limit; all, where the others are masked instead."""
    within = positions(layers.limit)
    if not masked:
        return within
    gathered = span.attended(None) / layers.ratio >= masked
    return np.asarray(np.where(gathered, within, positions(None)), float)[()]


def _scan_operations(model: Model, tokens: Array, state_passes: Array) -> list[Operation]:
    """Recurrent layers: every pass reads and writes each sequence's state; FLOPs are those of the plain recurrence."""
    elements = flops = 0.0
    for mixer, layers in counted_mixers(model).items():
        state = layers * state_elements(mixer, model.hidden)
        elements += state
        flops += state * _SCAN_FLOPS.get(type(mixer), 0)
    if not elements:
        return []
    moved = elements * F32_BYTES * state_passes
    return [Operation("recurrent state", "scan", "F32", flops * tokens, kv_read_bytes=moved, kv_written_bytes=moved)]


# FLOPs of a token for each value of the state: decay, update, read-out; delta rules also subtract what the key recalls.
_SCAN_FLOPS: Final[dict[type, int]] = {
    Mamba: 6, LightningAttention: 6, DeltaNet: 8, KimiDelta: 8, Rwkv7: 10, ShortConv: 2,
}  # fmt: skip


def _elementwise(model: Model, file: Inventory, tokens: Array, passes: Array) -> Operation:
    """Embedding look-up, norms, rotations, activation functions, residuals: small, but not free in a long prompt."""
    return Operation(
        "norms, activations, residuals",
        "elementwise",
        "F32",
        weight_bytes=file.vector_bytes * passes + file.embedding_row_bytes * tokens,
        activation_bytes=_elementwise_values(model) * F32_BYTES * tokens,
    )


@lru_cache(maxsize=256)
def _elementwise_values(model: Model) -> float:
    """Values that one token's elementwise operations read and write."""
    total = 3.0 * model.hidden
    for layer in model.layers:
        residuals = bool(layer.mixers) + (layer.ffn is not None)
        total += (2 * len(layer.norms) + 3 * residuals) * model.hidden
        total += sum(_rotated_values(mixer) for mixer in layer.mixers) + _activation_values(layer.ffn, model.hidden)
    return total


def _rotated_values(mixer: Mixer) -> int:
    """Read and written by rotary embedding and QK norms, or by the gates and convolutions of a recurrent mixer."""
    if isinstance(mixer, Attention):
        return 2 * (mixer.heads + mixer.kv_heads) * mixer.key_dim * (1 if mixer.qk_norm == "none" else 2)
    if isinstance(mixer, LatentAttention):
        return 4 * mixer.heads * (mixer.kv_rank + mixer.rope_dim)
    if isinstance(mixer, CompressedAttention):
        return 4 * mixer.heads * mixer.head_dim
    if isinstance(mixer, DeltaNet):
        return 8 * (2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim)
    return 8 * mixer.inner if isinstance(mixer, Mamba) else 0


def _activation_values(ffn: Ffn | None, hidden: int) -> int:
    if ffn is None:
        return 0
    if isinstance(ffn, DenseFfn):
        return 3 * ffn.width
    routed = ffn.used * (3 * ffn.width + 2 * hidden)
    return routed + 3 * ffn.shared_width + 3 * ffn.experts + _activation_values(ffn.dense, hidden)


def _sum_of_positions(limit: Array | None, start: Array, steps: Array, size: Array) -> Array:
    """Σ over j = 1 … steps of min(limit, start + j·size): positions seen by steps that each add `size` tokens."""
    below: Array = steps
    beyond: Array = 0.0
    if limit is not None:
        below = np.clip(np.floor((limit - start) / size), 0, steps)
        beyond = (steps - below) * limit
    return below * start + size * below * (below + 1) / 2 + beyond


def padded(cells: Array) -> Array:
    """Cells of the cache as attention covers them: whole blocks (src/llama-kv-cache.cpp, get_n_kv)."""
    whole: Array = np.ceil(np.asarray(cells, float) / CONTEXT_PADDING) * CONTEXT_PADDING
    return whole
