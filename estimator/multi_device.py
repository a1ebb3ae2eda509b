"""Phase times of a whole machine: everything on one device, or spread over several and the host.

Imports `timing`; `estimate` uses this for every request. What is spread is timed by `offload_timing`, which is loaded
only then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .frozen_dataclass import dataclass
from .inventory import inventory
from .operations import decode_operations
from .timing import PhaseTime, decode_time, prefill_time

if TYPE_CHECKING:
    from .architecture import Model
    from .efficiency import Efficiency
    from .offload_timing import PlacedTime, Run
    from .quantization import Weights
    from .request import Request
    from .system import Device

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SystemTime:
    """One phase at several points, on one device. `offload_timing.PlacedTime` has the same for several places."""

    main: PhaseTime
    main_device: Device
    shape: tuple[int, ...]

    @property
    def parts(self) -> tuple[PhaseTime, ...]:
        """The one part."""
        return (self.main,)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The one device."""
        return (self.main_device,)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the time of each part."""
        return (1.0,)

    @property
    def seconds(self) -> Vector:
        """Time at each point."""
        return self._broadcast(self.main.seconds)

    @property
    def tokens(self) -> Vector:
        """Tokens of all sequences at each point."""
        return self._broadcast(self.main.tokens)

    @property
    def ceiling_seconds(self) -> Vector:
        """What the datasheet would allow."""
        return self._broadcast(self.main.ceiling_seconds)

    @property
    def tokens_per_s(self) -> Vector:
        """Tokens of all sequences a second."""
        return self.tokens / self.seconds

    @property
    def ceiling_tokens_per_s(self) -> Vector:
        """The same at the datasheet's ceiling."""
        return self.tokens / self.ceiling_seconds

    @property
    def bound(self) -> NDArray[np.str_]:
        """memory, compute or launch at each point."""
        return np.broadcast_to(np.asarray(self.main.bound), self.shape)

    @property
    def intensity(self) -> Vector:
        """FLOP a byte of weights and cache."""
        return self._broadcast(self.main.intensity)

    def interval_tokens_per_s(self, level: float) -> tuple[Vector, Vector]:
        """Rates between which a share `level` of runs is expected, the slower end first."""
        slow, fast = self.main.interval_tokens_per_s(level)
        return self._broadcast(slow), self._broadcast(fast)

    def _broadcast(self, value: Any) -> Vector:
        values = np.asarray(value, float)
        return values if values.shape == self.shape else np.array(np.broadcast_to(values, self.shape))


def decode_on(
    request: Request, occupied: Vector, efficiency: Efficiency | None = None, parallel: Vector | None = None
) -> SystemTime | PlacedTime:
    """A decode step at each of `occupied` positions (the new token's included).

    `parallel`: sequences at each point, instead of the workload's.
    """
    sequences = float(request.workload.parallel) if parallel is None else parallel
    if request.placement is not None:
        from .offload_timing import decode_placed

        return decode_placed(placed_run(request), occupied, np.broadcast_to(sequences, occupied.shape), efficiency)
    device = request.devices[0]
    time = decode_time(
        request.model,
        request.weights,
        device,
        request.backend,
        occupied=occupied,
        parallel=sequences,
        efficiency=efficiency,
        **_conditions(request),
    )
    return SystemTime(time, device, occupied.shape)


def prefill_on(
    request: Request, prompts: Vector, efficiency: Efficiency | None = None, cached: Vector | None = None
) -> SystemTime | PlacedTime:
    """Prefill of each of `prompts`, less what is cached of it (at least the last token is always read again).

    `cached`: tokens of each prompt that are cached, instead of the workload's.
    """
    w = request.workload
    cached = np.minimum(float(w.cached_prefix) if cached is None else cached, prompts - 1)
    ubatch = float(min(w.ubatch, w.batch))
    if request.placement is not None:
        from .offload_timing import prefill_placed

        return prefill_placed(placed_run(request), prompts - cached, cached, ubatch, efficiency)
    device = request.devices[0]
    time = prefill_time(
        request.model,
        request.weights,
        device,
        request.backend,
        prompt=prompts - cached,
        cached=cached,
        ubatch=ubatch,
        efficiency=efficiency,
        **_conditions(request),
    )
    return SystemTime(time, device, np.broadcast(prompts, cached).shape)


def layer_shares(request: Request) -> tuple[float, ...]:
    """Share of the layers (the output layer counts as one) on each device; the rest is on the host."""
    if request.placement is None:
        return (1.0,)
    if request.placement.split:
        return request.placement.split
    slots = request.placement.slots
    return tuple(slots.count(i) / len(slots) for i in range(len(request.devices)))


def placed_run(request: Request) -> Run:
    """The request as the timing of spread models takes it."""
    from .offload_timing import Machine, Run
    from .run_machine import Conditions

    assert request.placement is not None
    conditions = Conditions(request.backend, **(_conditions(request) | {"threads": None}))
    load_mode = request.settings.load_mode if request.settings else "auto"
    machine = Machine(request.system, request.backend, conditions, load_mode, request.threads)
    return Run(request.model, request.weights, request.placement, machine)


def weights_ceiling_tokens_per_s(request: Request) -> float:
    """The bare decode ceiling of one sequence: bandwidth over the bytes of weights that one token reads."""
    if request.placement is not None:
        from .offload_timing import weights_ceiling_seconds

        return 1.0 / weights_ceiling_seconds(placed_run(request))
    return request.devices[0].bandwidth_bytes_per_s / _weight_bytes_of_a_token(request.model, request.weights)


@lru_cache(maxsize=256)
def _weight_bytes_of_a_token(model: Model, weights: Weights) -> float:
    phase = decode_operations(model, inventory(model, weights), occupied=1.0)
    return float(sum(np.asarray(operation.weight_bytes, float) for operation in phase.operations))


def _conditions(request: Request) -> dict[str, Any]:
    w = request.workload
    return {
        "flash_attention": w.flash_attention,
        "kv_type_k": w.kv_type_k,
        "kv_type_v": w.kv_type_v,
        "threads": request.threads,
    }
