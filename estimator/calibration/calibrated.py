"""The shipped factors with those of a user's own machine in their place. Light, because every estimate may need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..efficiency import Efficiency, MachineFactors


def with_calibrated(
    base: Efficiency, backend: str, device_id: str, factors: MachineFactors, spread: Mapping[str, float]
) -> Efficiency:
    """`base` with one machine's own factors and spread of runs (by phase), whose intervals are those of a Gaussian."""
    own = {f"{phase}/{backend}": sd for phase, sd in spread.items()}
    changed = replace(base, spread={**base.spread, **own}, quantiles={}, provenance={})
    return changed.with_machine(backend, device_id, factors)
