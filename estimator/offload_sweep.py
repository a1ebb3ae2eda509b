"""Speed against how much of a model lies on the GPUs: layers (-ngl), or experts of mixtures (--n-cpu-moe).

Imports the engine and `fit_placements`; nothing imports it but leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from .errors import InputError
from .fit_placements import Task
from .fit_search import Choice, timed
from .placement import slot_count
from .placement_settings import PlacementSettings
from .request import Request
from .system import System
from .units import GIB, gib

Knob = Literal["ngl", "n_cpu_moe"]
AS_FAST: Final = 1.05  # less than that over the CPU alone counts as no faster


@dataclass(frozen=True)
class SweepPoint:
    """One setting: `value` of the knob, bytes on the GPUs, rates of one sequence."""

    knob: Knob
    value: int
    device_bytes: int
    host_bytes: int
    decode_tokens_per_s: float
    prefill_tokens_per_s: float
    fits: bool


@dataclass(frozen=True)
class OffloadSweep:
    """Points with growing bytes on the GPUs, the CPU alone, and what follows from them."""

    request: Request = field(repr=False)
    points: tuple[SweepPoint, ...]
    cpu_decode_tokens_per_s: float
    cpu_prefill_tokens_per_s: float

    @property
    def best(self) -> SweepPoint | None:
        """The fastest point in decode that fits."""
        fitting = [point for point in self.points if point.fits]
        return max(fitting, key=lambda point: point.decode_tokens_per_s, default=None)

    @property
    def break_even_bytes(self) -> int | None:
        """The fewest bytes on the GPUs from which decode beats the CPU alone; None if it never does."""
        bar = AS_FAST * self.cpu_decode_tokens_per_s
        faster = [point.device_bytes for point in self.points if point.decode_tokens_per_s >= bar]
        return min(faster, default=None)

    @property
    def next_gib_tokens_per_s(self) -> float | None:
        """Decode gained by one more GiB of GPU memory, beyond the best point that fits; None if all fits."""
        best = self.best
        if best is None or best.device_bytes >= max(point.device_bytes for point in self.points):
            return None
        sizes = np.array([point.device_bytes for point in self._on_curve(best.knob)], float)
        rates = np.array([point.decode_tokens_per_s for point in self._on_curve(best.knob)])
        return float(np.interp(best.device_bytes + GIB, sizes, rates) - best.decode_tokens_per_s)

    def _on_curve(self, knob: Knob) -> list[SweepPoint]:
        return sorted((p for p in self.points if p.knob == knob), key=lambda point: point.device_bytes)

    def sentences(self) -> list[str]:
        """The cliff, the break-even and the worth of one more GiB."""
        lines = [_cliff(self), _break_even(self)]
        gain = self.next_gib_tokens_per_s
        if gain is not None and self.best is not None:
            share = gain / self.best.decode_tokens_per_s
            lines.append(f"One more GiB of GPU memory would add {gain:.3g} tokens/s of decode ({share:+.0%}).")
        return [line for line in lines if line]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for --json."""
        best = self.best
        return {
            "schema": "llmcalc.offload/1",
            "model": self.request.model.id,
            "quantisation": self.request.quantisation,
            "devices": [device.id for device in self.request.devices],
            "points": [vars(point) for point in self.points],
            "cpu_decode_tokens_per_s": self.cpu_decode_tokens_per_s,
            "cpu_prefill_tokens_per_s": self.cpu_prefill_tokens_per_s,
            "best": vars(best) if best else None,
            "break_even_bytes": self.break_even_bytes,
            "next_gib_tokens_per_s": self.next_gib_tokens_per_s,
            "sentences": self.sentences(),
        }


def offload_sweep(request: Request) -> OffloadSweep:
    """Every -ngl, and every --n-cpu-moe of a mixture of experts. Raises InputError without a GPU."""
    task = Task(request.model, request.weights, request.workload, request.system, request.backend)
    if not task.gpus:
        raise InputError("offload: there is no GPU to put layers on; name one with --gpu")
    base = request.settings or PlacementSettings()
    slots = slot_count(request.model)
    settings: list[tuple[Knob, int, PlacementSettings]] = [
        ("ngl", ngl, replace(base, ngl=ngl, n_cpu_moe=None, cpu_moe=False)) for ngl in range(slots + 1)
    ]
    if task.routed:
        layers = request.model.n_layers
        settings += [
            ("n_cpu_moe", n, replace(base, ngl=None, cpu_moe=False, n_cpu_moe=n)) for n in range(layers, -1, -1)
        ]
    points = tuple(_point(request, task, *one) for one in settings)
    alone = _cpu_alone(request)
    return OffloadSweep(request, points, alone.decode_tokens_per_s, alone.prefill_tokens_per_s)


def _point(request: Request, task: Task, knob: Knob, value: int, settings: PlacementSettings) -> SweepPoint:
    choice = timed(request, request.weights, request.quantisation, request.workload, task.propose(settings))
    parts = choice.plan.devices
    return SweepPoint(
        knob,
        value,
        sum(part.total_bytes for part in parts[:-1]),
        parts[-1].total_bytes,
        choice.decode_tokens_per_s,
        choice.prefill_tokens_per_s,
        choice.fits,
    )


def _cpu_alone(request: Request) -> Choice:
    """The same model on the host's CPU, as if there were no GPU."""
    from .host import host_cpu

    cpu = host_cpu(request.system).device
    system = System((cpu,), replace(request.system.host, cpu=cpu))
    own = replace(request, system=system, backend="CPU", settings=None)
    task = Task(own.model, own.weights, own.workload, system, "CPU")
    return timed(own, own.weights, own.quantisation, own.workload, task.propose(PlacementSettings()))


def _cliff(sweep: OffloadSweep) -> str:
    best = sweep.best
    if best is None:
        return "Nothing of it fits on the GPUs."
    whole = max(sweep.points, key=lambda point: point.device_bytes)
    name = "-ngl" if best.knob == "ngl" else "--n-cpu-moe"
    here = f"The best that fits is {name} {best.value}: {best.decode_tokens_per_s:.3g} tokens/s of decode"
    if best.device_bytes >= whole.device_bytes:
        return f"All of it fits: {best.decode_tokens_per_s:.3g} tokens/s of decode."
    times = whole.decode_tokens_per_s / best.decode_tokens_per_s
    return f"{here}; with all on GPUs, {gib(whole.device_bytes)}, it would be {times:.2g} times that."


def _break_even(sweep: OffloadSweep) -> str:
    size = sweep.break_even_bytes
    alone = f"{sweep.cpu_decode_tokens_per_s:.3g} tokens/s"
    if size is None:
        return f"The CPU alone ({alone}) is as fast at any placement."
    return f"Below {gib(size)} on the GPUs, the CPU alone ({alone}) is as fast in decode."


def csv_rows(sweep: OffloadSweep) -> Sequence[Sequence[object]]:
    """A header and a row a point."""
    names = tuple(SweepPoint.__dataclass_fields__)
    return [names, *(tuple(vars(point).values()) for point in sweep.points)]
