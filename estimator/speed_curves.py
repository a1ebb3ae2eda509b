"""Speeds along one axis at a time: occupied context, prompt length, sequences; what charts are made of.

Imports the engine (`multi_device`, `memory_limits`) and `request`; plots and reports draw what these functions return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .memory import memory_plan
from .memory_limits import max_parallel
from .multi_device import SystemTime, decode_on, prefill_on
from .workload import CONTEXT_PADDING, MAX_SEQUENCES

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .estimation import Estimate
    from .offload_timing import PlacedTime
    from .request import Request

Vector = NDArray[np.float64]
POINTS: Final = 129
DEPTH_CHUNK: Final = 512  # tokens read at each depth, as llama-bench -p 512 -d does
SHORTEST_PROMPT: Final = 16


@dataclass(frozen=True)
class SpeedCurve:
    """Rates (tokens/s) over token counts, with the bands in which 80 % and 95 % of runs are expected. Shapes: [n]."""

    name: str
    tokens: Vector  # occupied positions, or the prompt's length
    tokens_per_s: Vector
    ceiling_tokens_per_s: Vector
    low_80: Vector
    high_80: Vector
    low_95: Vector
    high_95: Vector


@dataclass(frozen=True)
class BatchCurve:
    """Decode of several sequences at once: tokens/s of all together, seconds a token of each. Shapes: [n]."""

    name: str
    parallel: Vector
    occupied_tokens: int  # of every sequence
    tokens_per_s: Vector
    low_80: Vector
    high_80: Vector
    tpot_s: Vector
    tpot_low_80: Vector
    tpot_high_80: Vector
    most_that_fit: int | None  # sequences, each with the request's context; None: memory unknown


@dataclass(frozen=True)
class LayersCurve:
    """Decode over the layers on the GPUs (-ngl): tokens/s of all sequences. Shapes: [n]."""

    name: str
    layers: Vector
    occupied_tokens: int  # of every sequence
    tokens_per_s: Vector
    low_80: Vector
    high_80: Vector
    most_that_fit: int | None  # layers; None: none do, or memory unknown


def request_of(source: Request | Estimate) -> Request:
    """The request of an estimate, or the request itself."""
    either: Any = source
    found: Request = getattr(either, "request", either)
    return found


def series_names(requests: Sequence[Request]) -> list[str]:
    """A name for each of several requests: the parts in which they differ; for a single one all of them."""
    parts = [
        (
            r.model.name,
            r.quantisation,
            " + ".join(device.name for device in r.devices),
            r.backend,
            f"KV {r.workload.kv_type_k}" if r.workload.kv_type_k == r.workload.kv_type_v else
            f"KV {r.workload.kv_type_k}/{r.workload.kv_type_v}",
        )
        for r in requests
    ]  # fmt: skip
    if len(parts) == 1:
        return [" · ".join(parts[0][:3])]
    varying = [i for i in range(len(parts[0])) if len({part[i] for part in parts}) > 1] or [0]
    if 2 in varying and 3 in varying and len({(part[2], part[3]) for part in parts}) == len({p[2] for p in parts}):
        varying.remove(3)  # the device tells its backend
    return [" · ".join(part[i] for i in varying) for part in parts]


def decode_curve(
    source: Request | Estimate, efficiency: Efficiency | None = None, name: str | None = None, points: int = POINTS
) -> SpeedCurve:
    """Decode of one sequence (of the workload's `parallel`) from an empty to a full context."""
    request = request_of(source)
    occupied = context_grid(request.room, points)
    time = decode_on(request, occupied + 1, efficiency or request.efficiency)
    return _curve(request, name, occupied, time, request.workload.parallel)


def prefill_depth_curve(
    source: Request | Estimate, efficiency: Efficiency | None = None, name: str | None = None, points: int = POINTS
) -> SpeedCurve:
    """Prefill of the next 512 prompt tokens behind the positions that are occupied already."""
    request = request_of(source)
    chunk = float(min(DEPTH_CHUNK, request.room))
    depth = context_grid(max(request.room - int(chunk), 1), points)
    time = prefill_on(request, depth + chunk, efficiency or request.efficiency, depth)
    return _curve(request, name, depth, time, 1)


def prefill_curve(
    source: Request | Estimate, efficiency: Efficiency | None = None, name: str | None = None, points: int = POINTS
) -> SpeedCurve:
    """Prefill of whole prompts, from short ones to one that fills the context of a sequence."""
    request = request_of(source)
    shortest = min(SHORTEST_PROMPT, request.room)
    lengths = np.unique(np.rint(np.geomspace(shortest, request.room, points)))
    time = prefill_on(request, lengths, efficiency or request.efficiency, np.zeros_like(lengths))
    return _curve(request, name, lengths, time, 1)


def batch_curve(
    source: Request | Estimate,
    efficiency: Efficiency | None = None,
    name: str | None = None,
    most: int = 64,
    occupied: int | None = None,
) -> BatchCurve:
    """Decode of 1 to `most` sequences of `occupied` positions each (by default the prompt and half of the output)."""
    request = request_of(source)
    positions = everyday_tokens(request) if occupied is None else min(occupied, request.room - 1)
    parallel = sequence_grid(most)
    time = decode_on(request, np.full(parallel.shape, positions + 1.0), efficiency or request.efficiency, parallel)
    low, high = time.interval_tokens_per_s(0.80)
    return BatchCurve(
        name=name or series_names([request])[0],
        parallel=parallel,
        occupied_tokens=positions,
        tokens_per_s=time.tokens_per_s,
        low_80=low,
        high_80=high,
        tpot_s=time.seconds,
        tpot_low_80=parallel / high,
        tpot_high_80=parallel / low,
        most_that_fit=_most_that_fit(request),
    )


def layers_curve(
    source: Request | Estimate, efficiency: Efficiency | None = None, name: str | None = None
) -> LayersCurve:
    """Decode of all sequences with none to all of the layers (the output layer counts as one) on the GPUs.

    Raises InputError where the machine has no GPU or nothing is known of the host.
    """
    from .placement_settings import PlacementSettings

    request = request_of(source)
    if all(device.is_cpu for device in request.devices):
        raise InputError("layers on the GPU: the machine has none; name one with --gpu")
    base = request.settings or PlacementSettings()
    layers = np.arange(len(request.model.layers) + 2.0)
    placed = [replace(request, settings=replace(base, ngl=int(n))) for n in layers]
    occupied = np.array([everyday_tokens(request) + 1.0])
    times = [decode_on(one, occupied, efficiency or request.efficiency) for one in placed]
    ranges = [time.interval_tokens_per_s(0.80) for time in times]
    fits = [_fits(one) for one in placed]
    return LayersCurve(
        name=name or series_names([request])[0],
        layers=layers,
        occupied_tokens=everyday_tokens(request),
        tokens_per_s=np.array([float(time.tokens_per_s[0]) for time in times]),
        low_80=np.array([float(low[0]) for low, _ in ranges]),
        high_80=np.array([float(high[0]) for _, high in ranges]),
        most_that_fit=max((int(n) for n, fit in zip(layers, fits, strict=True) if fit), default=None),
    )


def everyday_tokens(request: Request) -> int:
    """Positions that are occupied halfway through the answer to the first prompt."""
    return min(request.workload.prompt + request.workload.output // 2, request.room - 1)


def _fits(request: Request) -> bool | None:
    """Whether the devices hold what is placed on them; whether the host does is another matter."""
    plan = memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
    known = [part.fits for part in plan.devices[:-1] if part.fits is not None]
    return all(known) if known else None


def context_grid(room: int, points: int) -> Vector:
    """Occupied positions from 0 to room − 1, on the last cell of llama.cpp's blocks of 256 where there are enough."""
    even = np.linspace(0, room, points)
    if room > points * CONTEXT_PADDING / 4:
        even = np.maximum(np.rint(even / CONTEXT_PADDING) * CONTEXT_PADDING - 1, 0)
    even[-1] = room - 1
    return np.unique(np.minimum(np.rint(even), room - 1))


def sequence_grid(most: int) -> Vector:
    """Numbers of sequences from 1 to `most`: each of the first, then by steps of a few per cent."""
    end = min(max(most, 1), MAX_SEQUENCES)
    return np.unique(np.rint(np.concatenate([np.arange(1.0, min(end, 16) + 1), np.geomspace(1, end, 49)])))


def _curve(
    request: Request, name: str | None, tokens: Vector, time: SystemTime | PlacedTime, sequences: int
) -> SpeedCurve:
    narrow, wide = time.interval_tokens_per_s(0.80), time.interval_tokens_per_s(0.95)
    return SpeedCurve(
        name=name or series_names([request])[0],
        tokens=tokens,
        tokens_per_s=time.tokens_per_s / sequences,
        ceiling_tokens_per_s=time.ceiling_tokens_per_s / sequences,
        low_80=narrow[0] / sequences,
        high_80=narrow[1] / sequences,
        low_95=wide[0] / sequences,
        high_95=wide[1] / sequences,
    )


def _most_that_fit(request: Request) -> int | None:
    known = all(device.memory_bytes is not None for device in request.devices)
    if not known:
        return None
    one = replace(request.workload, parallel=1, context=request.room, prompt=1, cached_prefix=0)
    return max_parallel(request.model, request.weights, one, request.system, request.placement).value
