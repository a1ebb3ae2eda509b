"""Which device holds which layer, cache and tensor, by llama.cpp's rules for -ngl, -ts, --n-cpu-moe, -ot and -nkvo.

Rules of llama.cpp b11434, src/llama-model.cpp: load_tensors, and src/llama-model-loader.cpp: create_tensor. A model has
one slot for each layer of the file (NextN layers included) and one for the output layer; the last `gpu_layers` slots go
to devices, spread over them in order. The input embedding always stays with the host. Rules for single tensors move
them away from their layer; caches stay with their layer.
Imports `architecture` and `tensors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .architecture import Model
from .errors import InputError
from .frozen_dataclass import dataclass
from .tensors import role, tensors

HOST: Final = -1  # the CPU and its memory; devices count from 0

# What --cpu-moe, --n-cpu-moe and --n-cpu-ffn match (common/common.h).
EXPERT_PATTERN: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE_FFN_PATTERN: Final = r"\.ffn_(up|down|gate)\."

Rule = tuple[str, int]  # regular expression, device


@dataclass(frozen=True)
class Placement:
    """Devices of the layers of a file, NextN layers included, and of the output layer after them."""

    slots: tuple[int, ...]
    experts: tuple[int, ...] | None = None  # of each layer's expert matrices, where they are elsewhere (--n-cpu-moe)
    cache_on_host: bool = False  # --no-kv-offload
    dense: tuple[int, ...] | None = None  # of each layer's dense feed-forward, where it is elsewhere (--n-cpu-ffn)
    moved: tuple[tuple[str, int], ...] = ()  # every tensor that a rule took from its place, with its device
    ruled: bool = False  # rules were given, whatever they matched
    split: tuple[float, ...] = ()  # share of every matrix on each device (--split-mode tensor); empty: whole tensors
    pipelining: bool = True  # --split-mode layer; others never work as a pipeline
    op_offload: bool = True  # host weights are copied to a device for large batches

    @property
    def output(self) -> int:
        """Device of the final norm and the output matrix."""
        return self.slots[-1]

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Devices that hold layers or tensors, in order, without the host."""
        if self.split:
            return tuple(i for i, share in enumerate(self.split) if share > 0)
        held = {*self.slots, *(device for _, device in self.moved), *(self.experts or ()), *(self.dense or ())}
        return tuple(sorted(held - {HOST}))

    @cached_property
    def _moved(self) -> dict[str, int]:
        return dict(self.moved)

    def expert_device(self, layer: int) -> int:
        """Device of a layer's expert matrices."""
        return self.slots[layer] if self.experts is None else self.experts[layer]

    def dense_device(self, layer: int) -> int:
        """Device of a layer's dense feed-forward matrices."""
        return self.slots[layer] if self.dense is None else self.dense[layer]

    def cache_device(self, layer: int) -> int:
        """Device of a layer's KV cache and state."""
        return HOST if self.cache_on_host else self.slots[layer]

    def moved_to(self, name: str) -> int | None:
        """Device that a rule put the tensor on; None where no rule moved it."""
        return self._moved.get(name)

    def tensor_device(self, name: str, layer: int) -> int:
        """Device of a tensor of a layer."""
        if self.moved:
            return self._moved.get(name, self.slots[layer])
        return self.expert_device(layer) if self.experts is not None and role(name) == "expert" else self.slots[layer]

    @property
    def is_plain(self) -> bool:
        """Whether everything but the input embedding lies on one device."""
        together = len(self.devices) == 1 and set(self.slots) == set(self.devices)
        return together and not self.moved and self.experts is None and not self.cache_on_host and not self.split

    @property
    def uses_host(self) -> bool:
        """Whether the host's CPU has to work on any layer, cache or tensor."""
        elsewhere = [device for _, device in self.moved]
        return not self.split and (self.cache_on_host or HOST in (*self.slots, *elsewhere, *(self.experts or ())))

    @property
    def host_feeds_devices(self) -> bool:
        """Whether the host has the first layers, devices the others, and no tensor is elsewhere.

        The host then computes its layers of the next micro-batch while the devices have this one: copies to a device do
        not wait for it before that (ggml_backend_sched_compute_splits of ggml/src/ggml-backend.cpp).
        """
        whole = not (self.moved or self.experts or self.dense or self.cache_on_host or self.split)
        return whole and self.slots[0] == HOST and self.output != HOST

    @property
    def pipelined(self) -> bool:
        """Whether several devices work as a pipeline, which multiplies the buffers at their borders.

        Needs everything offloaded and no rules (src/llama-context.cpp), and devices with asynchronous copies, which all
        GPU backends have.
        """
        offloaded = HOST not in self.slots and not self.ruled and self.experts is None and not self.cache_on_host
        return len(self.devices) > 1 and offloaded and self.pipelining


def slot_count(model: Model) -> int:
    """Layers of the file and the output layer: what -ngl counts."""
    return len(model.layers) + len(model.draft_layers) + 1


def place(model: Model, gpu_layers: int | None = None, split: Sequence[float] = (1.0,)) -> Placement:
    """Put the last `gpu_layers` slots (None: all) on devices, in proportion to `split` (-ts, or free memory).

    Raises InputError for a negative count or a split without a positive share.
    """
    slots = slot_count(model)
    offloaded = slots if gpu_layers is None else min(gpu_layers, slots)
    if offloaded < 0:
        raise InputError(f"gpu_layers: must not be negative, got {gpu_layers}")
    if offloaded == 0:
        return Placement((HOST,) * slots)
    ends = _split_ends(split)
    position = np.arange(offloaded, dtype=np.float32) / np.float32(offloaded)
    devices = np.searchsorted(ends, position, side="right")
    return Placement((HOST,) * (slots - offloaded) + tuple(int(device) for device in devices))


def _split_ends(split: Sequence[float]) -> NDArray[np.float32]:
    """Cumulative shares, in single precision like llama.cpp's."""
    shares = np.asarray(split, dtype=np.float32)
    if shares.ndim != 1 or not shares.size or (shares < 0).any() or not shares.sum() > 0:
        raise InputError(f"split: needs a share for each device, not negative and not all 0, got {list(split)}")
    ends: NDArray[np.float32] = np.cumsum(shares, dtype=np.float32)
    ends /= ends[-1]
    return ends


def on_host(model: Model) -> Placement:
    """Everything on the CPU (-ngl 0)."""
    return place(model, 0)


def expert_rule(layers: int | None = None) -> Rule:
    """The rule of --cpu-moe, or of --n-cpu-moe for the first `layers`."""
    return _first_layers(layers) + EXPERT_PATTERN, HOST


def dense_ffn_rule(layers: int) -> Rule:
    """The rule of --n-cpu-ffn for the first `layers`."""
    return _first_layers(layers) + DENSE_FFN_PATTERN, HOST


def _first_layers(layers: int | None) -> str:
    """llama.cpp has one rule a layer; one for all of them matches the same names."""
    return "" if layers is None else rf"blk\.({'|'.join(map(str, range(layers)))})"


def with_rules(model: Model, placement: Placement, rules: Sequence[Rule], written: int | None = None) -> Placement:
    """`placement` with the tensors that match a rule on that rule's device; the first match wins, like llama.cpp's.

    `written`: how many of the rules, from the first, a person wrote (None: all). Raises InputError for one of them that
    is no regular expression or matches no tensor of the model. Shorthands such as --n-cpu-moe may match none: the first
    layers of a mixture are often dense.
    """
    if not rules:
        return placement
    names = _names(model)
    compiled = [(_compiled(pattern), device) for pattern, device in rules]
    for (pattern, _), (regex, _) in list(zip(rules, compiled, strict=True))[:written]:
        if not any(map(regex.search, names)):
            raise InputError(f"override-tensor: {pattern!r} matches no tensor of {model.id}")
    chosen = {name: _first_match(name, compiled) for name in names}
    moved = {name: device for name, device in chosen.items() if device is not None and device != _home(name, placement)}
    return replace(
        placement,
        moved=tuple(moved.items()),
        ruled=True,
        experts=_block_devices(placement, moved, "expert"),
        dense=_block_devices(placement, moved, "dense_ffn"),
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"override-tensor: {pattern!r} is no regular expression: {error}") from None


def _first_match(name: str, rules: Sequence[tuple[re.Pattern[str], int]]) -> int | None:
    return next((device for regex, device in rules if regex.search(name)), None)


@lru_cache(maxsize=64)
def _names(model: Model) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors(model, drafts=True))


def _layer_of(name: str) -> int | None:
    """Layer of a tensor by its name; None for tensors of the whole model."""
    return int(name.split(".", 2)[1]) if name.startswith("blk.") else None


def _home(name: str, placement: Placement) -> int | None:
    """Device of a tensor that no rule moves; None where there is no one place (tensors of the whole model)."""
    layer = _layer_of(name)
    return None if layer is None else placement.slots[layer]


def _block_devices(placement: Placement, moved: dict[str, int], kind: str) -> tuple[int, ...] | None:
    """Device of each layer's matrices of one role; the last one's, where they are on several."""
    devices = list(placement.slots)
    for name, device in moved.items():
        layer = _layer_of(name)
        if layer is not None and role(name) == kind:
            devices[layer] = device
    return tuple(devices) if tuple(devices) != placement.slots else None
