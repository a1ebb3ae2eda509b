"""Which device of the catalog and which model a run was measured on, from what the run says about them.

Imports the catalogs and `tensors` by way of its two matchers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...architecture import Model
from ...device_catalog import find_device
from ...model_catalog import find_model
from ...system import Device
from ..runs import Run, RunClass
from .device_match import DeviceMatcher
from .model_match import ModelMatcher
from .values import NoMatchError, shown


@dataclass(frozen=True)
class ResolvedRun:
    """A run whose device and model are known; `run` has their ids and a class."""

    run: Run
    device: Device  # one of run.device_count equal ones
    model: Model


@dataclass(frozen=True)
class Unresolved:
    """A run whose device or model cannot be told, with the reason in one sentence."""

    run: Run
    reason: str
    candidates: tuple[str, ...] = ()


class Resolver:
    """Resolves runs against the catalogs, with `gpu`, `model` and `quant` in place of what the runs say."""

    def __init__(
        self,
        *,
        gpu: str | Device | None = None,
        model: str | Model | None = None,
        quant: str | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders` are user catalogs. Raises InputError for an override that no entry claims."""
        self._device = find_device(gpu, None, folders) if isinstance(gpu, str) else gpu
        self._model = find_model(model, folders) if isinstance(model, str) else model
        self._quant = quant
        self._devices = DeviceMatcher(folders)
        self._models = ModelMatcher(folders)

    def resolve(self, run: Run) -> ResolvedRun | Unresolved:
        """The run with its device and model, or the reason why not."""
        if run.class_ == "unresolved" and not (self._device or self._model):
            return Unresolved(run, f"filed as unresolved: {(run.notes or 'no reason given').split(' | ')[0]}")
        try:
            device = self._device or self._devices.find(run)
            model = self._model or self._models.find(run)
        except NoMatchError as error:
            return Unresolved(run, str(error), error.candidates)
        quant = self._quant or run.quant
        if quant is None:
            return Unresolved(run, "the run does not say how the model is quantised; name it with --quant")
        known = replace(run, hardware_id=device.id, device_count=run.device_count or 1, model_id=model.id, quant=quant)
        notes = run.notes if self._device else _notes(run, device)
        return ResolvedRun(replace(known, class_=_class(known, model), notes=notes), device, model)


def resolve(
    run: Run,
    *,
    gpu: str | Device | None = None,
    model: str | Model | None = None,
    quant: str | None = None,
    folders: Sequence[Path] = (),
) -> ResolvedRun | Unresolved:
    """The device and model of one run; `Resolver` does the same for many without looking anything up twice."""
    return Resolver(gpu=gpu, model=model, quant=quant, folders=folders).resolve(run)


def _notes(run: Run, device: Device) -> str | None:
    """The run's notes, with a word about a chip whose name does not tell its number of GPU cores."""
    detail = run.device_detail or ""
    if run.hardware_id or device.kind != "apple" or not detail or re.search(r"\dc\b|core", detail):
        return run.notes
    assumed = f"{shown(detail)} does not tell the number of GPU cores; taken as {device.id}"
    return "; ".join(filter(None, (run.notes, assumed)))


def _class(run: Run, model: Model) -> RunClass:
    if run.class_ not in (None, "unresolved"):
        return run.class_
    on_gpu = run.backend not in (None, "CPU")
    return "offload" if on_gpu and run.ngl is not None and 0 <= run.ngl <= model.n_layers else "clean-single"
