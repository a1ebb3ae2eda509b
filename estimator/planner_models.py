"""Which models of the catalog, and in which quantisation, suit a machine.

Imports `planner`, `model_catalog` and `request`. Of each model the most faithful quantisation that meets the goals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .architecture import Model
from .conventions import runs_in_llama_cpp
from .errors import InputError
from .file_types import file_type
from .memory import usable_memory
from .model_catalog import ModelInfo, list_models
from .planner import Arrangement, Goals, Task
from .quantization import weights
from .request import ModelRequest, resolve_system
from .system import System
from .tensors import active_params, total_params
from .units import parse_tokens

if TYPE_CHECKING:
    from .efficiency import Efficiency

ModelRank = Literal["size", "tokens"]
QUANTISATIONS: Final = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M")  # the most faithful first; smaller ones lose visibly
LEAST_BITS: Final = 0.9  # of a quantisation's nominal bits that a file has on average: its embeddings may have fewer


@dataclass(frozen=True)
class SuitableModel:
    """A model in the quantisation that was chosen for it."""

    info: ModelInfo
    total_params: int
    active_params: int
    arrangement: Arrangement

    @property
    def quantisation(self) -> str:
        """File type."""
        return self.arrangement.request.quantisation


@dataclass(frozen=True)
class ModelChoices:
    """Models that meet the goals on a machine, best first."""

    system: System
    goals: Goals
    models: tuple[SuitableModel, ...]
    missed: int  # models that do not meet them
    unsupported: int  # models that llama.cpp cannot run, or that were trained for less context

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.plan import models_data

        return models_data(self)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.plan import models_page

        return "\n".join(models_page(self, Style()))


def suitable_models(
    *,
    gpu: Sequence[Any] = (),
    cpu: Any = None,
    ram: object = None,
    figures: Any = None,
    goals: Goals | None = None,
    quants: Sequence[str] = QUANTISATIONS,
    ctx: object = 8192,
    rank: ModelRank = "size",
    backend: str | None = None,
    occupied: object = None,
    catalog: Sequence[Path] = (),
    efficiency: Efficiency | None = None,
    **settings: Any,
) -> ModelChoices:
    """Every model of the catalog that meets the goals on this machine with `ctx` tokens for every user.

    `quants`: those to try, the best first. Raises InputError for a machine whose memory is unknown.
    """
    wanted = goals or Goals()
    system = resolve_system(gpu, cpu, ram, figures, catalog)
    context = parse_tokens(ctx, "ctx")
    usable = [usable_memory(device)[1] for device in system.devices]
    if None in usable:
        raise InputError("the memory of the machine is unknown: say it with --memory, or --ram for a CPU")
    room = sum(size for size in usable if size is not None)
    types = [file_type(name).name for name in quants]
    task_of = partial(
        Task,
        goals=wanted,
        context=context,
        settings=settings,
        backend=backend,
        occupied=None if occupied is None else parse_tokens(occupied, "occupied"),
        host=system.host,
        efficiency=efficiency,
    )
    found, missed, unsupported = [], 0, 0
    for info, model in list_models(catalog):
        if not runs_in_llama_cpp(model.architecture) or (model.max_context or context) < context:
            unsupported += 1
            continue
        best = _best(model, types, room, task_of, system)
        missed += best is None
        if best is not None:
            found.append(SuitableModel(info, total_params(model), active_params(model), best))
    return ModelChoices(system, wanted, tuple(sorted(found, key=lambda one: _rank_key(one, rank))), missed, unsupported)


def _best(
    model: Model, types: Sequence[str], room: int, task_of: Callable[[ModelRequest], Task], system: System
) -> Arrangement | None:
    """The first of the quantisations that meets the goals."""
    params = total_params(model)
    for name in ("MXFP4_MOE",) if model.architecture == "gpt-oss" else types:
        if params * _bits(name) / 8 * LEAST_BITS > room:
            continue
        try:
            made = weights(model, name)
            task = task_of(ModelRequest(model, made, name, False))
            found = task.arrange(system.devices)
        except InputError:  # llama-quantize refuses this type for this model
            continue
        if found is not None and not found.misses(task.goals):
            return found
    return None


def _bits(name: str) -> float:
    """Fewest bits a weight of the main type of a file type takes, from its name: Q4_K_M has 4."""
    digits = [sign for sign in name if sign.isdigit()]
    return float(digits[0]) if digits and not name.startswith(("F", "BF")) else 16.0


def _rank_key(one: SuitableModel, rank: ModelRank) -> tuple[float, float]:
    by = (-float(one.total_params), -one.arrangement.tokens_per_s)
    return by if rank == "size" else (by[1], by[0])
