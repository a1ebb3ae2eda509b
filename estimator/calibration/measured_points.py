"""A user's measured runs of one machine and model, as points that charts put beside the estimate.

Imports the readers' resolver, and of the engine `multi_device`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UnknownNameError
from ..model_catalog import find_model
from ..multi_device import SystemTime, decode_on, prefill_on
from .measurements import DEFAULT_UBATCH, TYPICAL_GENERATED
from .readers.resolve import Resolver, Unresolved
from .runs import Run

if TYPE_CHECKING:
    from ..offload_timing import PlacedTime
    from ..request import Request


@dataclass(frozen=True)
class MeasuredPoint:
    """One run. `tokens`: positions that are occupied while it runs (decode, on average) or before it (prefill)."""

    phase: str  # prefill or decode
    tokens: float
    prompt: int  # tokens of a prefill, 0 for decode
    parallel: int
    tokens_per_s: float  # of all sequences
    intensity: float  # FLOP/byte of weights and cache
    flop_per_s: float


@dataclass(frozen=True)
class MeasuredPoints:
    """Points of a request, and how many runs were left out for which reason."""

    points: tuple[MeasuredPoint, ...]
    skipped: dict[str, int]


def measured_points(runs: Iterable[Run], request: Request) -> MeasuredPoints:
    """The prefill and decode runs that were measured on the request's device with its model and quantisation.

    A model that was read from a file is taken to be the model of the runs.
    """
    resolver = Resolver(model=None if _in_catalog(request) else request.model)
    points: list[MeasuredPoint] = []
    skipped: Counter[str] = Counter()
    for run in runs:
        reason = _mismatch(run, request, resolver)
        if reason:
            skipped[reason] += 1
        else:
            points.append(_point(run, request))
    return MeasuredPoints(tuple(points), dict(skipped.most_common()))


def _in_catalog(request: Request) -> bool:
    try:
        return find_model(request.model.id) == request.model
    except UnknownNameError:
        return False


def _mismatch(run: Run, request: Request, resolver: Resolver) -> str | None:
    """Why a run is none of the request's, in a few words; None if it is one."""
    if run.phase not in ("prefill", "decode") and not (run.phase == "aggregate" and not run.n_prompt):
        return "prompt and generation in one rate"
    if run.phase == "prefill" and run.n_prompt < 1:
        return "prompt length not stated"
    found = resolver.resolve(run)
    if isinstance(found, Unresolved):
        return "device, model or quantisation not recognised"
    if len(request.devices) != (found.run.device_count or 1) or found.device.id != request.devices[0].id:
        return "another device"
    if found.model.id != request.model.id:
        return "another model"
    if found.run.quant != request.quantisation and _in_catalog(request):
        return "another quantisation"
    if found.run.backend is not None and found.run.backend != request.backend:
        return "another backend"
    return "offload" if found.run.class_ == "offload" else None


def _point(run: Run, request: Request) -> MeasuredPoint:
    time = _time(run, request)
    flops = sum(float(np.ravel(np.asarray(part.flops, float))[0]) for part in time.parts)
    prefill = run.phase == "prefill"
    tokens_of_phase = run.n_prompt if prefill else run.n_parallel
    return MeasuredPoint(
        phase="prefill" if prefill else "decode",
        tokens=float(run.n_depth) if prefill else _occupied(run),
        prompt=run.n_prompt if prefill else 0,
        parallel=run.n_parallel,
        tokens_per_s=run.t_s,
        intensity=float(time.intensity[0]),
        flop_per_s=flops * run.t_s / tokens_of_phase,
    )


def _occupied(run: Run) -> float:
    """Positions occupied on average while a generation runs."""
    return run.n_depth + (run.n_gen or TYPICAL_GENERATED) / 2


def _time(run: Run, request: Request) -> SystemTime | PlacedTime:
    """The run's phase under its own settings; of its time only the FLOPs and bytes are used."""
    w = request.workload
    asked = replace(
        request,
        workload=replace(
            w,
            kv_type_k=(run.type_k or w.kv_type_k).upper(),
            kv_type_v=(run.type_v or w.kv_type_v).upper(),
            ubatch=run.n_ubatch or DEFAULT_UBATCH,
        ),
    )
    if run.phase == "prefill":
        return prefill_on(asked, np.array([run.n_prompt + float(run.n_depth)]), None, np.array([float(run.n_depth)]))
    return decode_on(asked, np.array([_occupied(run) + 1]), None, np.array([float(run.n_parallel)]))
