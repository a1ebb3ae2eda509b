"""The model of the catalog that a run was measured with: by architecture and number of parameters, then by name.

A label of llama-bench does not name a model: its size class comes from the number of layers ("llama 13B" is printed for
Mistral NeMo and Mistral Small as well).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from ...architecture import Model
from ...errors import InputError
from ...model_catalog import find_model, list_models
from ...tensors import file_params, role, tensors
from ..runs import Run
from .model_labels import file_stem
from .values import NoMatchError, remembered, shown

_ROPE_FACTORS: Final = 256  # values that a conversion may add or leave out
_SAME_TENSORS: Final[tuple[set[str | None], ...]] = (
    {"llama", "mistral3"}, {"qwen2", "qwen2vl"}, {"qwen3", "qwen3vl"}, {"qwen3moe", "qwen3vlmoe"},
)  # fmt: skip
_FLAG: Final = "name it with --model"


@dataclass(frozen=True)
class _Candidate:
    """A model of the catalog and the parameters that its file may have."""

    model: Model
    params: frozenset[int]  # without MTP blocks, with them, with all that they repeat
    untied: frozenset[int]  # the same in files that store a tied embedding twice


class ModelMatcher:
    """Finds models of runs; runs of one file are looked up once, and the catalog is counted once."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._found: dict[tuple[object, ...], Model | NoMatchError] = {}

    def find(self, run: Run) -> Model:
        """The model of `run`. Raises NoMatchError with the reason, and the models it may be, when it cannot be told."""
        key = (run.model_id, run.architecture, run.n_params, run.params_exact, run.model_label, run.model_file)
        return remembered(self._found, key, lambda: self._find_model(run))

    def _find_model(self, run: Run) -> Model:
        if run.model_id:
            try:
                return find_model(run.model_id, self._folders)
            except InputError as error:
                raise NoMatchError(str(error)) from None
        named = self._by_name(run)
        if run.n_params is None:
            if named is None:
                raise NoMatchError(_unnamed(run))
            return named
        matching = self._by_parameters(run)
        if named is not None and (not matching or named.id in {model.id for model in matching}):
            candidate = self._candidate(named)
            if not matching and not _near(candidate.params | candidate.untied, run):
                what = f"{shown(run.model_label)} sounds like {named.id}, which has not {_count(run)} parameters"
                raise NoMatchError(f"{what}; {_FLAG}", (named.id,))
            return named
        if not matching:
            raise NoMatchError(
                f"no model in the catalog has the architecture {shown(run.architecture or '?')} and {_count(run)} "
                f"parameters; {_FLAG}"
            )
        if not _one_shape(matching):
            ids = [model.id for model in matching]
            what = f"{shown(run.model_label)} with {_count(run)} parameters"
            raise NoMatchError(f"{what} may be any of {', '.join(ids[:6])}; {_FLAG}", ids)
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
        own_names = _same_architecture(run.architecture)
        counted = [each for each in self._candidates if _near(each.params, run)]
        untied = [each for each in self._candidates if _near(each.untied, run)]
        own = [each for each in counted if each.model.architecture in own_names]
        own = own or [each for each in untied if each.model.architecture in own_names]
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
        untied = {params + model.vocab * model.hidden for params in plain} if model.tied_embeddings else set()
        return _Candidate(model, frozenset(plain), frozenset(untied))


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


def _near(possible: Iterable[int], run: Run) -> bool:
    """Whether the parameters agree as closely as they are known: to RoPE factors, or to the digits of a print."""
    if run.n_params is None or run.params_b is None:
        return False
    tolerance = float(_ROPE_FACTORS)
    if not run.params_exact:
        digits = len(repr(round(run.params_b, 5)).partition(".")[2])  # 8.03 B, 0.13452 B (printed as 134.52 M)
        tolerance = 0.51 * 10.0 ** (9 - max(2, digits))
    return any(abs(params - run.n_params) <= tolerance for params in possible)


def _unnamed(run: Run) -> str:
    said = run.model_label or run.model_file
    if said is None:
        return f"the run does not say which model it was measured on; {_FLAG}"
    return f"the run names its model only as {shown(said)}, without parameters, and no model is called that; {_FLAG}"


def _count(run: Run) -> str:
    if run.params_exact:
        return f"{run.n_params:,}"
    return f"{run.params_b:g} billion" if (run.params_b or 0) >= 1 else f"{1e3 * (run.params_b or 0):g} million"
