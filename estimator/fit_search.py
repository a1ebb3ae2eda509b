"""`llmcalc fit`: the settings under which a model runs best on a machine, with the commands that start it.

Tries quantisations, types of the KV cache, micro-batches and placements, times what fits, and keeps the choices that no
other beats in speed, context and quality at once. Imports the engine; nothing imports it but leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from .errors import InputError
from .fit_placements import Proposal, Task, proposals
from .host import host_cpu
from .llama_commands import TOOLS, Tool, command_parts
from .memory import MemoryPlan
from .multi_device import decode_on, prefill_on
from .placement_settings import PlacementSettings, placement_notes
from .quality import quality_class, quality_rank
from .quantization import Weights
from .request import EVERYDAY_PROMPT, ModelRequest, Request, resolve_model
from .workload import Workload

FILE_TYPES: Final = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS")
CACHE_TYPES: Final = ("F16", "Q8_0")
UBATCHES: Final = (512, 2048)
SHOWN_PER_CLASS: Final = 2


@dataclass(frozen=True)
class Limits:
    """What a choice must reach, in tokens/s of one sequence. InputError for what is negative or no number."""

    min_decode: float = 0.0
    min_prefill: float = 0.0

    def __post_init__(self) -> None:
        for name, rate in (("min_tps", self.min_decode), ("min_prefill", self.min_prefill)):
            if not 0 <= rate < math.inf:
                raise InputError(f"{name}: must be a rate in tokens/s, not negative and finite, got {rate:g}")


@dataclass(frozen=True)
class Choice:
    """One way to run the model."""

    request: Request = field(repr=False)
    plan: MemoryPlan = field(repr=False)
    decode_tokens_per_s: float  # one sequence, at the everyday depth
    decode_full_tokens_per_s: float  # with the whole context occupied
    prefill_tokens_per_s: float
    decode_interval_80: tuple[float, float]
    fits: bool

    @property
    def settings(self) -> PlacementSettings:
        """Where everything lies."""
        return self.request.settings or PlacementSettings()

    @property
    def quality(self) -> str:
        """Class of the quantisation, the cache included."""
        return quality_class(self.request.quantisation, self.request.workload.kv_type_k)

    @property
    def rank(self) -> int:
        """The class as a number, and the bits as its fraction."""
        return quality_rank(self.request.quantisation, self.request.workload.kv_type_k)

    def command(self, tool: Tool = "llama-server") -> str:
        """A ready command line of llama-server, llama-cli or llama-bench."""
        return " ".join(command_parts(self.request, tool))

    def to_dict(self) -> dict[str, Any]:
        """The contract's object, and more."""
        w, s = self.request.workload, self.settings
        return {
            "settings": {
                "quantisation": self.request.quantisation,
                "context": w.context,
                "parallel": w.parallel,
                "kv_type_k": w.kv_type_k,
                "kv_type_v": w.kv_type_v,
                "ubatch": w.ubatch,
                **{name: value for name, value in vars(s).items() if value != getattr(PlacementSettings(), name)},
            },
            "command": self.command(),
            "commands": {tool: self.command(tool) for tool in TOOLS},
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "decode_full_context_tokens_per_s": self.decode_full_tokens_per_s,
            "decode_interval_80": list(self.decode_interval_80),
            "prefill_tokens_per_s": self.prefill_tokens_per_s,
            "quality": self.quality,
            "fits": self.fits,
            "margin_bytes": self.plan.margin_bytes,
        }


@dataclass(frozen=True)
class FitReport:
    """Choices, best first; `llama_cpp`: what llama.cpp's own --fit would do with the first one's file."""

    choices: tuple[Choice, ...]
    llama_cpp: Choice | None
    tried: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "schema": "llmcalc.fit/1",
            "choices": [choice.to_dict() for choice in self.choices],
            "llama_cpp_fit": self.llama_cpp.to_dict() if self.llama_cpp else None,
            "tried": self.tried,
            "notes": list(self.notes),
        }


def fit(
    request: Request,
    limits: Limits = Limits(),
    *,
    file_types: Sequence[str] = FILE_TYPES,
    cache_types: Sequence[str] = CACHE_TYPES,
    ubatches: Sequence[int] = UBATCHES,
    contexts: Sequence[int] = (),
    fixed_weights: bool = False,
) -> FitReport:
    """The best choices for the machine and model of `request`, whose context and sequences are kept.

    `contexts`: several to choose between, instead of the request's. `fixed_weights`: keep the request's quantisation.
    Raises InputError where nothing can be made of the model.
    """
    files = [_file_of(request)] if fixed_weights else _files(request, file_types)
    choices: list[Choice] = []
    for made in files:
        for workload in _workloads(request, cache_types, ubatches, contexts):
            choices += _choices(request, made, workload)
    if not choices:
        raise InputError(_why_nothing(request, contexts))
    good = [one for one in choices if one.fits and _reaches(one, limits)]
    chosen = pareto(good) if good else _nearest(choices, limits)
    first = chosen[0]
    shown = tuple(_spread(chosen))
    notes = _notes(shown) if good else (_why_none(choices, limits), *_notes(shown))
    return FitReport(shown, _own_fit(first), len(choices), notes)


def pareto(choices: Iterable[Choice]) -> list[Choice]:
    """Choices that no other beats or equals in decode, prefill, context and quality at once, fastest within the best
    quality first."""
    kept: list[Choice] = []
    for one in sorted(choices, key=_order, reverse=True):
        if not any(_dominates(other, one) for other in kept):
            kept.append(one)
    return [one for one in kept if not any(_dominates(other, one) and not _dominates(one, other) for other in kept)]


def _spread(choices: Sequence[Choice]) -> list[Choice]:
    """Of every quality class the best, and of the others the one that reads prompts fastest, in order."""
    classes: dict[str, list[Choice]] = {}
    for one in choices:
        classes.setdefault(one.quality, []).append(one)
    shown = []
    for first, *others in classes.values():
        shown.append(first)
        shown += sorted(others, key=lambda one: -one.prefill_tokens_per_s)[: SHOWN_PER_CLASS - 1]
    return shown


def _order(choice: Choice) -> tuple[float, float, float]:
    """Best first: quality counts up to good; beyond it, speed does."""
    good = min(choice.rank, 3)
    return (good, choice.decode_tokens_per_s * (1 + 0.1 * (choice.rank - good)), choice.prefill_tokens_per_s)


def _dominates(first: Choice, second: Choice) -> bool:
    """Whether `first` is as good in all, or nearly."""
    return (
        first.rank >= second.rank
        and first.request.workload.context >= second.request.workload.context
        and first.decode_tokens_per_s >= 0.98 * second.decode_tokens_per_s
        and first.prefill_tokens_per_s >= 0.95 * second.prefill_tokens_per_s
        and first.request.weights.bits_per_weight >= 0.99 * second.request.weights.bits_per_weight
    )


def _file_of(request: Request) -> ModelRequest:
    return ModelRequest(request.model, request.weights, request.quantisation, True)


def _files(request: Request, names: Sequence[str]) -> list[ModelRequest]:
    if request.model.architecture == "gpt-oss":
        names = ("MXFP4_MOE",)
    files = []
    for name in names:
        try:
            files.append(resolve_model(request.model, name))
        except InputError:  # llama-quantize refuses this type for this model
            continue
    return files


def _workloads(
    request: Request, cache_types: Sequence[str], ubatches: Sequence[int], contexts: Sequence[int]
) -> list[Workload]:
    base = request.workload
    lengths = contexts or (base.context,)
    return [
        replace(base, context=context, kv_type_k=cache, kv_type_v=cache, ubatch=ubatch, batch=max(base.batch, ubatch))
        for context in lengths
        for cache in cache_types
        for ubatch in ubatches
        if context >= base.prompt
    ]


def _choices(request: Request, made: ModelRequest, workload: Workload) -> list[Choice]:
    task = Task(request.model, made.weights, workload, request.system, request.backend)
    try:
        found = proposals(task)
    except InputError:  # llama.cpp refuses the settings for this model
        return []
    return [timed(request, made.weights, made.quantisation, workload, proposal) for proposal in found]


def timed(request: Request, weights: Weights, quantisation: str, workload: Workload, proposal: Proposal) -> Choice:
    """A proposal with its speeds."""
    asked = None if proposal.settings.is_default else proposal.settings
    own = replace(request, weights=weights, quantisation=quantisation, workload=workload, settings=asked)
    depth = min(EVERYDAY_PROMPT, own.room - 1)
    decode = decode_on(own, np.array([depth + 1.0, float(own.room)]), request.efficiency)
    prompt = float(min(max(workload.prompt, EVERYDAY_PROMPT, workload.ubatch), own.room))
    prefill = prefill_on(own, np.array([prompt]), request.efficiency, np.zeros(1))
    low, high = decode.interval_tokens_per_s(0.80)
    n = workload.parallel
    return Choice(
        request=own,
        plan=proposal.plan,
        decode_tokens_per_s=float(decode.tokens_per_s[0]) / n,
        decode_full_tokens_per_s=float(decode.tokens_per_s[1]) / n,
        prefill_tokens_per_s=float(prefill.tokens_per_s[0]),
        decode_interval_80=(float(low[0]) / n, float(high[0]) / n),
        fits=proposal.fits,
    )


def _reaches(choice: Choice, limits: Limits) -> bool:
    return choice.decode_tokens_per_s >= limits.min_decode and choice.prefill_tokens_per_s >= limits.min_prefill


def _nearest(choices: Sequence[Choice], limits: Limits) -> list[Choice]:
    """What comes closest: of what fits the fastest, else what needs the least memory."""
    fitting = [one for one in choices if one.fits]
    if fitting:
        return [max(fitting, key=lambda one: one.decode_tokens_per_s)]
    return [max(choices, key=lambda one: one.plan.margin_bytes or 0)]


def _why_none(choices: Sequence[Choice], limits: Limits) -> str:
    fitting = [one for one in choices if one.fits]
    if not fitting:
        return (
            "Nothing fits, whatever the quantisation and placement; shown is what needs the least, with the speed that "
            "it would have if it did."
        )
    fastest = max(one.decode_tokens_per_s for one in fitting)
    asked = ((limits.min_decode, "decode"), (limits.min_prefill, "prefill"))
    wanted = " and ".join(f"{least:g} tokens/s of {phase}" for least, phase in asked if least)
    return f"Nothing that fits reaches {wanted}; the fastest decode is {fastest:.3g} tokens/s."


def _why_nothing(request: Request, contexts: Sequence[int]) -> str:
    prompt = request.workload.prompt
    if contexts and max(contexts) < prompt:
        return f"contexts: none of them holds the prompt of {prompt:,} tokens"
    return f"fit: there is nothing to try for {request.model.id}: llama.cpp refuses every combination"


def _notes(shown: Sequence[Choice]) -> tuple[str, ...]:
    """What was assumed of the host, where choices use it, and what to know about their settings."""
    notes = [note for choice in shown for note in placement_notes(choice.settings, choice.request.backend)]
    system = shown[0].request.system
    placements = [choice.request.placement for choice in shown]
    if any(placement is not None and placement.uses_host for placement in placements):
        notes += [host_cpu(system).note or ""]
        if system.host.memory_bytes is None and not system.devices[0].unified_memory:
            notes.append("The host's memory is not named: what lies there is taken to fit; say it with --ram.")
    return tuple(dict.fromkeys(filter(None, notes)))


def _own_fit(choice: Choice) -> Choice | None:
    from .llama_cpp_fit import llama_cpp_fit

    request = choice.request
    if request.backend == "CPU" or not choice.fits:
        return None
    usual = replace(request.workload, ubatch=512, kv_type_k="F16", kv_type_v="F16")
    task = Task(request.model, request.weights, usual, request.system, request.backend)
    return timed(request, request.weights, request.quantisation, usual, llama_cpp_fit(task))
