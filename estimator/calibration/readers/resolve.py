"""Which device of the catalog and which model a run was measured on, from what the run says about them.

A label's size class and quantisation need not be true, so models are matched by architecture and number of parameters
first, and by name where several shapes remain. Imports the catalogs and `tensors`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from ...architecture import Model
from ...device_catalog import find_device
from ...errors import InputError, UnknownNameError
from ...model_catalog import find_model, list_models
from ...system import Device, DeviceKind
from ...tensors import file_params, role, tensors
from ..runs import Run, RunClass
from .model_labels import file_stem
from .values import shown

Entry = TypeVar("Entry", Device, Model)

_GPU_KINDS: Final[tuple[DeviceKind, ...]] = ("gpu", "apu", "apple", "soc")
_WITH_A_CPU: Final[tuple[DeviceKind, ...]] = ("apple", "soc", "apu")  # chips whose CPU is not an entry of its own
_ROPE_FACTORS: Final = 256  # values that a conversion may add or leave out
_SAME_TENSORS: Final[tuple[set[str | None], ...]] = (
    {"llama", "mistral3"}, {"qwen2", "qwen2vl"}, {"qwen3", "qwen3vl"}, {"qwen3moe", "qwen3vlmoe"},
)  # fmt: skip
_GPU_FLAG: Final = "name it with --gpu"
_MODEL_FLAG: Final = "name it with --model"


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


class _UnresolvedError(Exception):
    def __init__(self, reason: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.candidates = tuple(candidates)


@dataclass(frozen=True)
class _Candidate:
    """A model of the catalog with the parameters its file may have: without and with MTP blocks, embedding doubled."""

    model: Model
    params: frozenset[int]


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
        self._folders = tuple(folders)
        self._device = find_device(gpu, None, self._folders) if isinstance(gpu, str) else gpu
        self._model = find_model(model, self._folders) if isinstance(model, str) else model
        self._quant = quant
        self._known_devices: dict[tuple[str | None, ...], Device | _UnresolvedError] = {}
        self._known_models: dict[tuple[object, ...], Model | _UnresolvedError] = {}

    def resolve(self, run: Run) -> ResolvedRun | Unresolved:
        """The run with its device and model, or the reason why not."""
        if run.class_ == "unresolved" and not (self._device or self._model):
            return Unresolved(run, f"filed as unresolved: {(run.notes or 'no reason given').split(' | ')[0]}")
        try:
            device = self._device or self._device_of(run)
            model = self._model or self._model_of(run)
        except _UnresolvedError as error:
            return Unresolved(run, str(error), error.candidates)
        quant = self._quant or run.quant
        if quant is None:
            return Unresolved(run, "the run does not say how the model is quantised; name it with --quant")
        known = replace(run, hardware_id=device.id, device_count=run.device_count or 1, model_id=model.id, quant=quant)
        return ResolvedRun(replace(known, class_=_class(known, model), notes=_notes(run, device)), device, model)

    def _device_of(self, run: Run) -> Device:
        key = (run.hardware_id, run.backend, run.device_detail)
        if key not in self._known_devices:
            try:
                self._known_devices[key] = self._find_device(run)
            except _UnresolvedError as error:
                self._known_devices[key] = error
        return _known(self._known_devices[key])

    def _find_device(self, run: Run) -> Device:
        if run.hardware_id:
            return self._entry(find_device, run.hardware_id)
        if not run.device_detail:
            raise _UnresolvedError(f"the run does not say which {_device_noun(run)} it was measured on; {_GPU_FLAG}")
        names = re.split(r", (?!inc\b|ltd\b)", run.device_detail, flags=re.IGNORECASE)
        if len(names) > 1:
            listed = ", ".join(shown(name, 40) for name in names[:4])
            raise _UnresolvedError(f"it ran on several different devices ({listed}); {_GPU_FLAG} if only one counted")
        return self._find_described(names[0], run)

    def _find_described(self, description: str, run: Run) -> Device:
        """The device that a driver calls `description`; what is in brackets counts only where the rest says nothing."""
        preferred, accepted = _kinds(run.backend)
        error: UnknownNameError | None = None
        for name in _spellings(description):
            try:
                device = find_device(name, None, self._folders)
                if device.kind in preferred:
                    return device
            except UnknownNameError as unknown:
                error = unknown if error is None or not error.candidates else error
                if "may mean any of" not in str(unknown):
                    continue
            except InputError:
                continue
            for kinds in (preferred, accepted):
                try:
                    return find_device(name, kinds, self._folders)
                except InputError:
                    continue
        raise _unknown_device(description, run, error)

    def _entry(self, find: Callable[..., Entry], id: str) -> Entry:
        """The entry that a measurement file names by id."""
        try:
            return find(id, folders=self._folders)
        except InputError as error:
            raise _UnresolvedError(str(error)) from None

    def _model_of(self, run: Run) -> Model:
        key = (run.model_id, run.architecture, run.n_params, run.params_exact, run.model_label, run.model_file)
        if key not in self._known_models:
            try:
                self._known_models[key] = self._find_model(run)
            except _UnresolvedError as error:
                self._known_models[key] = error
        return _known(self._known_models[key])

    def _find_model(self, run: Run) -> Model:
        if run.model_id:
            return self._entry(find_model, run.model_id)
        named = self._by_name(run)
        if run.n_params is None:
            if named is None:
                raise _UnresolvedError(_unnamed(run))
            return named
        matching = self._by_parameters(run)
        if named is not None and (not matching or named.id in {model.id for model in matching}):
            if not matching and not _near(self._candidate(named), run):
                what = f"{shown(run.model_label)} sounds like {named.id}, which has not {_count(run)} parameters"
                raise _UnresolvedError(f"{what}; {_MODEL_FLAG}", (named.id,))
            return named
        if not matching:
            raise _UnresolvedError(
                f"no model in the catalog has the architecture {shown(run.architecture or '?')} and {_count(run)} "
                f"parameters; {_MODEL_FLAG}"
            )
        if not _one_shape(matching):
            ids = [model.id for model in matching]
            what = f"{shown(run.model_label)} with {_count(run)} parameters"
            raise _UnresolvedError(f"{what} may be any of {', '.join(ids[:6])}; {_MODEL_FLAG}", ids)
        return _family_first(matching, run.architecture)

    def _by_name(self, run: Run) -> Model | None:
        """The model that file name or label names; a label of llama-bench is a size class, which names nothing."""
        names = [file_stem(run.model_file)] if run.model_file else []
        if run.model_label and run.architecture not in self._architectures:
            names.append(run.model_label)
        for name in names:
            try:
                return find_model(name, self._folders)
            except InputError:
                continue
        return None

    def _by_parameters(self, run: Run) -> list[Model]:
        """Models with the run's number of parameters: of its architecture, or of any where the number is exact."""
        counted = [each for each in self._candidates if _near(each, run)]
        own = [each for each in counted if each.model.architecture in _same_architecture(run.architecture)]
        matching = own or (counted if run.params_exact or run.architecture is None else [])
        exact = [each for each in matching if run.n_params in each.params] if run.params_exact else []
        return [each.model for each in exact or matching]

    @cached_property
    def _architectures(self) -> set[str]:
        return {each.model.architecture for each in self._candidates}

    @cached_property
    def _candidates(self) -> list[_Candidate]:
        return [self._candidate(model) for _, model in list_models(self._folders)]

    def _candidate(self, model: Model) -> _Candidate:
        plain = {
            file_params(model),
            file_params(model, drafts=True) - _repeated(model),
            file_params(model, drafts=True),
        }
        doubled = {params + model.vocab * model.hidden for params in plain} if model.tied_embeddings else set()
        return _Candidate(model, frozenset(plain | doubled))


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


def _known(found: Entry | _UnresolvedError) -> Entry:
    if isinstance(found, _UnresolvedError):
        raise found
    return found


def shape(model: Model) -> Model:
    """`model` without what does not matter to the work of a token: names, context length, tables, MTP blocks."""
    extras = tuple(extra for extra in model.extras if role(extra.name) != "table")
    return replace(model, id="", name="", max_context=None, extras=extras, draft_layers=())


def _repeated(model: Model) -> int:
    """Values of embedding and head that the MTP blocks repeat, which many files leave out."""
    if not model.draft_layers:
        return 0
    repeated = ("token_embedding", "output")
    return sum(each.elements for each in tensors(model, drafts=True) if each.layer >= 0 and each.role in repeated)


def _same_architecture(architecture: str | None) -> set[str | None]:
    """Architecture names under which files of one model have been written."""
    return {architecture} | next((names for names in _SAME_TENSORS if architecture in names), set())


def _family_first(models: Sequence[Model], architecture: str | None) -> Model:
    """Of models of one shape the one that the architecture is called after (llama2-7b before codellama-7b)."""
    return next((model for model in models if model.id.startswith(architecture or "\0")), models[0])


def _one_shape(models: Sequence[Model]) -> bool:
    """Whether the models do the same work: one shape, vocabularies within a hundredth."""
    sizes = [model.vocab for model in models]
    return len({replace(shape(model), vocab=0) for model in models}) == 1 and max(sizes) <= 1.01 * min(sizes)


def _near(candidate: _Candidate, run: Run) -> bool:
    """Whether the parameters agree as closely as they are known: to RoPE factors, or to the digits of a print."""
    if run.n_params is None:
        return False
    half_digit = 0.5e7 if run.n_params >= 1e9 else 0.5e4
    tolerance = _ROPE_FACTORS if run.params_exact else half_digit * 1.02
    return any(abs(params - run.n_params) <= tolerance for params in candidate.params)


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


def _kinds(backend: str | None) -> tuple[tuple[DeviceKind, ...], tuple[DeviceKind, ...]]:
    """Kinds of device that the backend runs on: those to prefer, and those to accept."""
    if backend == "CPU":
        return ("cpu",), _WITH_A_CPU
    return (_GPU_KINDS, _GPU_KINDS) if backend else ((*_GPU_KINDS, "cpu"), (*_GPU_KINDS, "cpu"))


def _spellings(description: str) -> list[str]:
    """The description whole, without brackets, and what is in the brackets: "AMD Radeon Graphics (RADV GFX1151)"."""
    outside = re.sub(r"\s*\([^()]*\)", "", description).strip().removesuffix(" Series")
    inside = [text.removeprefix("RADV ") for text in re.findall(r"\(([^()]{4,60})\)", description)]
    return list(dict.fromkeys(text for text in (description, outside, *inside) if text))


def _device_noun(run: Run) -> str:
    return "CPU" if run.backend == "CPU" else "GPU" if run.backend else "device"


def _unknown_device(description: str, run: Run, error: UnknownNameError | None) -> _UnresolvedError:
    candidates = error.candidates if error else ()
    what = f"the {_device_noun(run)} {shown(description)}"
    if error and "may mean any of" in str(error):
        return _UnresolvedError(f"{what} may be any of {', '.join(candidates[:6])}; {_GPU_FLAG}", candidates)
    close = f" (close: {', '.join(candidates[:3])})" if candidates else ""
    return _UnresolvedError(f"{what} is not in the catalog{close}; {_GPU_FLAG}", candidates)


def _unnamed(run: Run) -> str:
    said = run.model_label or run.model_file
    if said is None:
        return f"the run does not say which model it was measured on; {_MODEL_FLAG}"
    return (
        f"the run names its model only as {shown(said)}, without parameters, and no model is called that; {_MODEL_FLAG}"
    )


def _count(run: Run) -> str:
    if run.params_exact:
        return f"{run.n_params:,}"
    return f"{run.params_b:g} billion" if (run.params_b or 0) >= 1 else f"{1e3 * (run.params_b or 0):g} million"
