"""Which device holds which layer, by llama.cpp's rules for -ngl and -ts.

Rules of llama.cpp b11434, src/llama-model.cpp: load_tensors. A model has one slot for each layer of the file (NextN
layers included) and one for the output layer; the last `gpu_layers` slots go to devices, spread over them in order. The
input embedding always stays with the host. Overrides of single tensors (--n-cpu-moe, -ot) are fields of Placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .architecture import Model
from .errors import InputError

HOST: Final = -1  # the CPU and its memory; devices count from 0


@dataclass(frozen=True)
class Placement:
    """Devices of the layers of a file, NextN layers included, and of the output layer after them."""

    slots: tuple[int, ...]
    experts: tuple[int, ...] | None = None  # of each layer's expert matrices, where they are elsewhere (--n-cpu-moe)
    cache_on_host: bool = False  # --no-kv-offload

    @property
    def output(self) -> int:
        """Device of the final norm and the output matrix."""
        return self.slots[-1]

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices that hold layers, in order, without the host."""
        return tuple(sorted({slot for slot in self.slots if slot != HOST}))

    def expert_device(self, layer: int) -> int:
        """Device of a layer's expert matrices."""
        return self.slots[layer] if self.experts is None else self.experts[layer]

    def cache_device(self, layer: int) -> int:
        """Device of a layer's KV cache and state."""
        return HOST if self.cache_on_host else self.slots[layer]

    @property
    def pipelined(self) -> bool:
        """Whether several devices work as a pipeline, which multiplies the buffers at their borders.

        Needs everything offloaded and nothing overridden (src/llama-context.cpp), and devices with asynchronous copies,
        which all GPU backends have.
        """
        offloaded = HOST not in self.slots and self.experts is None and not self.cache_on_host
        return len(self.devices) > 1 and offloaded


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
