"""Who does what in one pass over a placed model: each device's matrices, caches and small operations, and the way
that the activations take from device to device.

Imports `placement`, `inventory`, `operations`; knows no rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from .architecture import Layer, Model, MoeFfn
from .inventory import Inventory, grouped, is_tied
from .launches import PER_STEP, PRODUCT, layer_launches
from .operations import Array, PhaseOperations
from .placement import HOST, Placement
from .quantization import QuantizedTensor, Weights
from .tensors import role

MIXER_ROLES: Final = frozenset({"attention", "latent", "recurrent"})
FFN_ROLES: Final = frozenset({"dense_ffn", "expert"})
EXPERT_LAUNCHES: Final = 2 * PRODUCT + 1  # of a layer's experts away from the rest of the layer
NO_WEIGHTS: Final = Inventory((), 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Station:
    """One device's part of a pass. `device`: HOST or an index of the system's devices."""

    device: int
    weights: Inventory
    layers: Model  # of the layers whose norms and other small operations run here
    cached: Model  # of the layers whose cache lies here
    launches: float

    @property
    def works(self) -> bool:
        """Whether anything but look-ups happens here."""
        return bool(self.weights.matrices or self.layers.layers or self.cached.layers)

    def operations(self, build: Callable[[Model, Inventory], PhaseOperations]) -> PhaseOperations:
        """The station's share of the phase that `build` makes of a model and an inventory."""
        own, cached = build(self.layers, self.weights), build(self.cached, NO_WEIGHTS)
        operations = [one for one in own.operations if one.kind not in ("attention", "scan")]
        operations += [one for one in cached.operations if one.kind in ("attention", "scan")]
        return replace(own, operations=tuple(operations), launches=self.launches * own.passes)


@lru_cache(maxsize=512)
def stations(model: Model, weights: Weights, placement: Placement) -> tuple[Station, ...]:
    """The stations of a placement, devices in order and the host last; every one of them, idle ones too."""
    held = _held(model, weights, placement)
    return tuple(_station(model, weights, placement, device, held) for device in (*placement.devices, HOST))


@lru_cache(maxsize=512)
def route(model: Model, placement: Placement) -> tuple[int, ...]:
    """Devices that one pass visits, in order, without repeats in a row: from the embedding on the host to the logits
    on the host."""
    mixers = _block_places(placement, MIXER_ROLES)
    ffns = _block_places(placement, FFN_ROLES)
    visited = [HOST]
    for i in range(model.n_layers):
        slot = placement.slots[i]
        mixer = mixers.get(i, slot)
        visited += [slot, mixer, placement.cache_device(i) if placement.cache_on_host else mixer, mixer, slot]
        visited += [ffns.get(i, placement.expert_device(i) if _routed(model.layers[i]) else slot), slot]
    visited += [placement.output, HOST]
    return tuple(device for i, device in enumerate(visited) if i == 0 or device != visited[i - 1])


def with_host_weights(all_stations: tuple[Station, ...], device: int, placement: Placement) -> tuple[Station, ...]:
    """The stations of a large batch: the host's matrices, and its caches unless they are kept there, go to `device`.

    `device` need not hold anything itself.
    """
    host = all_stations[-1]
    empty = _idle(host, device)
    mine = next((station for station in all_stations if station.device == device), empty)
    cached = host.cached if not placement.cache_on_host else _no_layers(host.cached)
    merged = Station(
        device,
        replace(
            mine.weights,
            matrices=mine.weights.matrices + host.weights.matrices,
            vector_bytes=mine.weights.vector_bytes + host.weights.vector_bytes,
        ),
        _joined(mine.layers, host.layers),
        _joined(mine.cached, cached),
        mine.launches + host.launches,
    )
    left = replace(
        _idle(host, HOST),
        weights=replace(NO_WEIGHTS, embedding_row_bytes=host.weights.embedding_row_bytes),
        cached=host.cached if placement.cache_on_host else _no_layers(host.cached),
    )
    others = [station for station in all_stations[:-1] if station.device != device]
    return (*sorted([merged, *others], key=lambda station: station.device), left)


def host_copies(station: Station, build: Callable[[Model, Inventory], PhaseOperations]) -> Array:
    """Bytes that a large batch copies from the host: weights of every pass, and the caches that lie there."""
    phase = station.operations(build)
    copied: Array = 0.0
    for one in phase.operations:
        if one.kind != "elementwise":
            copied = copied + one.weight_bytes + one.kv_read_bytes
    return copied


def split_station(model: Model, weights: Weights, device: int, share: float) -> Station:
    """A device's part where every matrix is split (--split-mode tensor); norms are repeated on every device."""
    whole = grouped(model, weights.tensors, is_tied(weights), weights.bytes)
    matrices = tuple(
        replace(group, values=group.values * share, bytes=group.bytes * share, activations=group.activations * share)
        for group in whole.matrices
    )
    return Station(device, replace(whole, matrices=matrices), model, model, _launches(model.layers, True))


def _held(model: Model, weights: Weights, placement: Placement) -> dict[int, list[QuantizedTensor]]:
    """Tensors that a pass reads, by the device that reads them."""
    held: dict[int, list[QuantizedTensor]] = {}
    tied = is_tied(weights)
    for quantized in weights.tensors:
        tensor = quantized.tensor
        if tensor.layer >= model.n_layers:
            continue
        if tensor.layer >= 0:
            device = placement.tensor_device(tensor.name, tensor.layer)
        else:
            multiplied = tensor.role != "token_embedding" or (tied and tensor.name == "token_embd.weight")
            moved = placement.moved_to(tensor.name)
            device = moved if moved is not None else placement.output if multiplied else HOST
        held.setdefault(device, []).append(quantized)
    return held


def _station(
    model: Model, weights: Weights, placement: Placement, device: int, held: dict[int, list[QuantizedTensor]]
) -> Station:
    mine = [i for i in range(model.n_layers) if placement.slots[i] == device]
    cached = [i for i in range(model.n_layers) if placement.cache_device(i) == device]
    routed = [i for i in range(model.n_layers) if _routed(model.layers[i])]
    guests = sum(placement.expert_device(i) == device != placement.slots[i] for i in routed)
    away = sum(placement.slots[i] == device != placement.expert_device(i) for i in routed)
    launches = _launches([model.layers[i] for i in mine], placement.output == device)
    launches += EXPERT_LAUNCHES * (guests - away)
    inventory = grouped(model, held.get(device, ()), is_tied(weights), weights.bytes)
    return Station(device, inventory, _only(model, mine), _only(model, cached), launches)


def _launches(layers: Iterable[Layer], with_output: bool) -> float:
    return float(sum(map(layer_launches, layers)) + (PER_STEP if with_output else 0))


def _block_places(placement: Placement, roles: frozenset[str]) -> dict[int, int]:
    """Layers that rules took some block's matrices from, with the device they are on."""
    return {
        int(name.split(".", 2)[1]): device for name, device in placement.moved if role(name) in roles and "." in name
    }


def _routed(layer: Layer) -> bool:
    return isinstance(layer.ffn, MoeFfn)


def _only(model: Model, indices: Iterable[int]) -> Model:
    return replace(model, layers=tuple(model.layers[i] for i in indices))


def _no_layers(model: Model) -> Model:
    return replace(model, layers=())


def _joined(first: Model, second: Model) -> Model:
    return replace(first, layers=first.layers + second.layers)


def _idle(like: Station, device: int) -> Station:
    return Station(device, NO_WEIGHTS, _no_layers(like.layers), _no_layers(like.cached), 0.0)
