"""Runs as they were read → cases of the machines they were measured on, or the reason why not.

Device and model come from what a run says, from names given in their place, or from a model file. Imports the catalogs
and `readers.resolve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..architecture import Model
from ..errors import InputError
from ..inventory import Inventory, inventory
from ..request import resolve_model
from ..system import Device
from .measurements import Case, UnpredictableError, case_of
from .readers.resolve import Resolver, Unresolved
from .runs import Run
from .validation import checked

Machine = tuple[str, str]  # backend, device id


@dataclass(frozen=True)
class Given:
    """What stands in for what the runs say. `gpu` goes with runs on a GPU's backend, `cpu` with those on the CPU."""

    gpu: Device | None = None
    cpu: Device | None = None
    model: str | None = None  # catalog name or file
    quant: str | None = None
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A run that cannot be used, and why, in a sentence. `known`: the run with its device and model, if they are."""

    run: Run
    reason: str
    known: Run | None = None


@dataclass(frozen=True)
class MachineRuns:
    """The cases of each machine, in the order of the runs, and what could not be used.

    `file`: the weights of the model file that was given for all runs.
    """

    machines: dict[Machine, tuple[Case, ...]]
    skipped: tuple[Skipped, ...]
    file: Inventory | None = None

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases, machine by machine."""
        return tuple(case for cases in self.machines.values() for case in cases)


def machine_runs(runs: Sequence[Run], given: Given | None = None) -> MachineRuns:
    """Resolve `runs`. Raises InputError for a name among `given` that means nothing."""
    given = given or Given()
    resolve = CaseResolver(given)
    machines: dict[Machine, list[Case]] = {}
    skipped: list[Skipped] = []
    for run in runs:
        try:
            case = resolve(run)
            machines.setdefault((case.conditions.backend, case.device.id), []).append(case)
        except UnpredictableError as reason:
            skipped.append(Skipped(run, str(reason), resolve.known(run)))
    found = {machine: tuple(cases) for machine, cases in machines.items()}
    return MachineRuns(found, tuple(skipped), resolve.file)


class CaseResolver:
    """Run → case; files and names are looked up once."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._model, self.file, self._quant = _model(given)
        self._resolvers: dict[bool, Resolver] = {}

    def __call__(self, run: Run) -> Case:
        found = self._resolver(run.backend == "CPU").resolve(run)
        if isinstance(found, Unresolved):
            flag = "--cpu" if run.backend == "CPU" else "--gpu"
            raise UnpredictableError(found.reason.replace("--gpu", flag))
        usable = replace(found.run, class_=None) if found.run.class_ == "unresolved" else found.run
        try:
            return checked(case_of(usable, found.device, found.model, self.file))
        except InputError as error:
            raise UnpredictableError(str(error)) from None

    def known(self, run: Run) -> Run | None:
        """The run with its device and model, where they can be told."""
        found = self._resolver(run.backend == "CPU").resolve(run)
        return None if isinstance(found, Unresolved) else found.run

    def _resolver(self, on_cpu: bool) -> Resolver:
        if on_cpu not in self._resolvers:
            device = self._given.cpu if on_cpu else self._given.gpu or self._given.cpu
            self._resolvers[on_cpu] = Resolver(
                gpu=device, model=self._model, quant=self._quant, folders=self._given.folders
            )
        return self._resolvers[on_cpu]


def _model(given: Given) -> tuple[Model | None, Inventory | None, str | None]:
    """Model, exact weights if it is a file, and quantisation that hold for all runs."""
    if given.model is None:
        return None, None, given.quant
    path = Path(given.model)
    if path.suffix.lower() != ".gguf":
        return resolve_model(given.model, given.quant, given.folders).model, None, given.quant
    asked = resolve_model(given.model, given.quant, given.folders)
    return asked.model, inventory(asked.model, asked.weights), asked.quantisation
