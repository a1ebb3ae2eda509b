"""What a measured run achieved: bytes and FLOPs a second, against the datasheet and against the estimate."""

from __future__ import annotations

from dataclasses import dataclass

from ..basis import main_compute_roof
from ..efficiency import Efficiency, shipped
from ..errors import InputError
from ..timing import phase_time
from .measurements import Case
from .profile_use import own_profile


@dataclass(frozen=True)
class Achieved:
    """A run's rates beside its roofs. Shares are of 1; tokens_per_s of all sequences."""

    case: Case
    bytes_per_s: float  # weights and cache that must be read
    flop_per_s: float
    of_bandwidth: float
    of_peak: float | None
    peak: str | None  # compute path that bounds it
    ceiling_tokens_per_s: float
    estimate_tokens_per_s: float
    estimate_interval_80: tuple[float, float]
    origin: str  # of the estimate's factors

    @property
    def tokens_per_s(self) -> float:
        """As measured."""
        return self.case.run.t_s

    @property
    def of_ceiling(self) -> float:
        """Measured rate over what the datasheet allows."""
        return self.tokens_per_s / self.ceiling_tokens_per_s

    @property
    def of_estimate(self) -> float:
        """Measured rate over the estimate: the calibrated roof."""
        return self.tokens_per_s / self.estimate_tokens_per_s


def achieved(case: Case, efficiency: Efficiency | None = None) -> Achieved:
    """The run beside its roofs; `efficiency`: the factors of the estimate, by default the shipped ones."""
    time = phase_time(case.phase, case.model, case.device, case.conditions, efficiency)
    roof = main_compute_roof(time)
    peak = roof.roof.path if roof and roof.roof.path in case.device.peaks_flop_per_s else None
    bytes_per_s, flop_per_s = float(time.required_bytes) / case.seconds, float(time.flops) / case.seconds
    low, high = time.interval_tokens_per_s(0.8)
    return Achieved(
        case=case,
        bytes_per_s=bytes_per_s,
        flop_per_s=flop_per_s,
        of_bandwidth=bytes_per_s / (case.device.bandwidth_bytes_per_s * case.conditions.sockets),
        of_peak=flop_per_s / case.device.peaks_flop_per_s[peak] / case.conditions.sockets if peak else None,
        peak=peak,
        ceiling_tokens_per_s=float(time.ceiling_tokens_per_s),
        estimate_tokens_per_s=float(time.tokens_per_s),
        estimate_interval_80=(float(low), float(high)),
        origin=time.machine.origin,
    )


def own_factors(case: Case, profile: str | bool) -> tuple[Efficiency, tuple[str, ...]]:
    """The factors to judge a machine's runs by, and notes: those of a named profile, of its newest one, or shipped."""
    from .profile_use import named_profile

    backend, devices = case.conditions.backend, (case.device,)
    if isinstance(profile, str):
        return named_profile(profile, backend, devices)
    if not profile:
        return shipped(), ()
    try:
        own, notes = own_profile(backend, devices)
    except InputError as error:
        return shipped(), (str(error),)
    return own or shipped(), notes
