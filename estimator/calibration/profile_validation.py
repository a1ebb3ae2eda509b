"""Predicted against measured with a profile's factors, for runs in any form."""

from __future__ import annotations

from collections.abc import Sequence

from ..efficiency import shipped
from .machine_runs import CaseResolver, Given
from .measurements import Case, UnpredictableError
from .profiles import Profile
from .runs import Run
from .validation import Prediction, Report, predict


def validate_with_profile(runs: Sequence[Run], profile: Profile, given: Given | None = None) -> Report:
    """Predict every run: those of the profile's machines with its factors, those of others with the shipped ones.

    A run whose device cannot be told is taken to be of the profile's machine under its backend. `given` stands in for
    what the runs say. Raises InputError for a name among it that means nothing.
    """
    stated = CaseResolver(given or Given())
    by_backend = {machine.backend: _assumed(machine.backend, profile, given or Given()) for machine in profile.machines}
    factors = profile.applied(shipped())
    predictions = []
    for run in runs:
        try:
            predictions.append(predict(_case(run, stated, by_backend, profile), factors))
        except UnpredictableError as reason:
            predictions.append(Prediction(run, skipped=str(reason)))
    return Report(tuple(predictions))


def _assumed(backend: str, profile: Profile, given: Given) -> CaseResolver:
    """Resolves runs to the profile's machine under one backend."""
    device = next(machine.device for machine in profile.machines if machine.backend == backend)
    return CaseResolver(Given(device, device, given.model, given.quant, given.folders))


def _case(run: Run, stated: CaseResolver, assumed: dict[str, CaseResolver], profile: Profile) -> Case:
    known = stated.known(run)
    if known is None and (only := _only(run.backend, assumed)) is not None:
        return only(run)
    case = stated(run)
    own = [machine for machine in profile.machines if machine.backend == case.conditions.backend]
    return assumed[own[0].backend](run) if own and own[0].device.id == case.device.id else case


def _only(backend: str | None, assumed: dict[str, CaseResolver]) -> CaseResolver | None:
    """The resolver of a run's backend, or of the only one where the run does not say it."""
    if backend is None and len(assumed) == 1:
        return next(iter(assumed.values()))
    return assumed.get(backend or "")
