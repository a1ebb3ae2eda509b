"""The step times of a resolved request: what connects serving, sessions and speculation to the time model.

Imports `multi_device` and `step_times`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .multi_device import decode_on, prefill_on
from .step_times import Array

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request


@dataclass(frozen=True)
class RequestTimes:
    """`StepTimes` of a machine, model and workload; the workload's own prompt, output and sequences do not matter."""

    request: Request
    efficiency: Efficiency | None = None  # None: the shipped factors

    def decode_s(self, parallel: Array, occupied: Array) -> Array:
        """One decode step of `parallel` sequences of `occupied` positions each."""
        sequences, positions = _broadcast(parallel, occupied)
        return decode_on(self.request, positions, self.efficiency, sequences).seconds[()]

    def prefill_s(self, tokens: Array, cached: Array) -> Array:
        """Prefill of `tokens` tokens behind `cached` ones."""
        fresh, before = _broadcast(tokens, cached)
        return prefill_on(self.request, fresh + before, self.efficiency, before).seconds[()]


def _broadcast(a: Array, b: Array) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], ...]:
    return tuple(np.array(one, float) for one in np.broadcast_arrays(a, b))
