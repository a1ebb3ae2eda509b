"""The roofs of one operation, and where among the batches of a phase its kernels run.

Imports `operations` and `roofline`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .operations import Array, Operation
from .roofline import Roof

Inside = NDArray[np.float64] | None  # where a group's kernels run


class RoofGroup(NamedTuple):
    """The roofs of one operation, which overlap; different groups follow one another."""

    name: str
    kind: str
    roofs: tuple[Roof, ...]
    operation: Operation | None = None  # None: bytes that no single operation moves
    size: Array = 0.0  # those bytes
    inside: Inside = None  # 1 where the kernels of this group run, 0 elsewhere; None: everywhere
    then: RoofGroup | None = None  # what the same kernels need besides
    instead: RoofGroup | None = None  # the tokens one after the other, where even that is faster

    @property
    def flops(self) -> Array:
        """FLOPs of the operation."""
        return 0.0 if self.operation is None else self.masked(self.operation.flops)

    @property
    def bytes(self) -> Array:
        """Bytes that the operation moves."""
        return self.masked(self.size if self.operation is None else self.operation.bytes)

    def masked(self, values: Array) -> Array:
        """`values` where the kernels of this group run, 0 elsewhere."""
        return values if self.inside is None else values * self.inside
