"""Devices that run a model, by what they cost and how fast they write: what a picture of their Pareto front shows.

Imports `planner` and `pareto`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .frozen_dataclass import dataclass
from .pareto import on_front
from .planner import Arrangement, Plan
from .units import GB, GIB

Vector = NDArray[np.float64]
Cost = Literal["price", "watts", "bandwidth", "memory"]
COSTS: Final[tuple[Cost, ...]] = get_args(Cost)
COST_LABELS: Final[dict[Cost, str]] = {
    "price": "price of the devices (US dollars, rounded)",
    "watts": "power limit of the devices (W)",
    "bandwidth": "memory bandwidth of the devices (GB/s)",
    "memory": "memory of the devices (GiB)",
}


@dataclass(frozen=True)
class SpeedFront:
    """Machines with a known cost, in the order of their speed. Shapes: [n]."""

    title: str
    cost: Cost
    machines: tuple[Arrangement, ...]
    costs: Vector  # USD, watts, GB/s or GiB
    tokens_per_s: Vector  # of one user, decoding
    low_80: Vector
    high_80: Vector
    on_front: NDArray[np.bool_]  # no other machine costs no more and is as fast, and better in one of the two
    left_out: int  # machines whose cost is unknown

    @property
    def label(self) -> str:
        """Of the axis of costs."""
        return COST_LABELS[self.cost]


def speed_front(plan: Plan, cost: Cost = "price") -> SpeedFront:
    """The machines of a plan by cost and decode speed. Raises InputError where no machine of it has this cost."""
    machines = sorted((*plan.priced, *plan.unpriced), key=lambda one: -one.tokens_per_s)
    known = [(one, value) for one in machines if (value := _COST[cost](one)) is not None]
    if not known:
        what = "none of the devices is fit for it" if not machines else f"none of the devices has a known {cost}"
        raise InputError(f"no Pareto front: {what}")
    shown = tuple(one for one, _ in known)
    costs = np.array([value for _, value in known], float)
    speeds = np.array([one.tokens_per_s for one in shown])
    return SpeedFront(
        title=_title(shown[0]),
        cost=cost,
        machines=shown,
        costs=costs,
        tokens_per_s=speeds,
        low_80=np.array([one.figures.interval_80[0] for one in shown]),
        high_80=np.array([one.figures.interval_80[1] for one in shown]),
        on_front=on_front(costs, speeds),
        left_out=len(machines) - len(known),
    )


def _title(one: Arrangement) -> str:
    request = one.request
    return f"{request.model.name} · {request.quantisation}, {one.figures.occupied_tokens + 1:,} tokens in the cache"


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


_COST: Final[dict[Cost, Callable[[Arrangement], float | None]]] = {
    "price": lambda one: one.price_usd,
    "watts": lambda one: one.power_watts,
    "bandwidth": lambda one: sum(device.bandwidth_bytes_per_s for device in one.devices) / GB,
    "memory": lambda one: _sum([device.memory_bytes and device.memory_bytes / GIB for device in one.devices]),
}
