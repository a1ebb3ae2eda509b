"""A benchmark read aright: what each figure is, under which settings, how near to the roofs, and what is missing.

Prompt processing, decode of one sequence, and the sum over several sequences are different things; figures of one kind
stand together and are never set beside those of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from .achieved import Achieved, achieved, own_factors
from .machine_runs import Given, MachineRuns, Skipped, machine_runs
from .runs import Run

SCHEMA: Final = "llmcalc.benchmark/1"
NOISY: Final = 0.05  # standard deviation of repetitions, relative, from which a figure is called noisy
UNCERTAIN_DEPTH: Final = 1024  # tokens in the cache from which flash attention and cache types matter

Kind = Literal["prefill", "decode", "aggregate_prefill", "aggregate_decode", "mixed"]
KINDS: Final[dict[Kind, str]] = {
    "prefill": "Prompt processing, one sequence",
    "decode": "Decode, one sequence",
    "aggregate_prefill": "Prompt processing of several sequences, all together",
    "aggregate_decode": "Decode of several sequences, all together",
    "mixed": "Prompt and generation in one rate: of little use, because it depends on their ratio",
}


@dataclass(frozen=True)
class Figure:
    """One figure of a benchmark. `achieved` is None where the run cannot be judged, for `reason`."""

    run: Run
    known: Run | None  # the same with its device and model, where they can be told
    kind: Kind
    achieved: Achieved | None
    reason: str | None
    missing: tuple[str, ...]  # what it would take to interpret the figure, in words

    @property
    def test(self) -> str:
        """In llama-bench's short form: pp512, tg128 @ d4096, pp512+tg128, tg128 × 8 sequences."""
        run = self.run
        parts = [f"pp{run.n_prompt}" if run.n_prompt else "", f"tg{run.n_gen}" if run.n_gen else ""]
        name = "+".join(filter(None, parts)) or "length not stated"
        name += f" @ d{run.n_depth}" if run.n_depth else ""
        return name + (f" × {run.n_parallel} sequences" if run.n_parallel > 1 else "")

    @property
    def noise(self) -> float | None:
        """Standard deviation of the repetitions over their mean."""
        return None if self.run.t_s_std is None else self.run.t_s_std / self.run.t_s


@dataclass(frozen=True)
class Card:
    """Figures of one file (model, quantisation) on one machine under one set of settings."""

    device: str
    model: str
    backend: str | None
    build: str | None
    settings: tuple[str, ...]  # "batch 2048, ubatch 512", "KV cache f16" …
    figures: tuple[Figure, ...]

    def of_kind(self, kind: Kind) -> list[Figure]:
        """Its figures of one kind."""
        return [each for each in self.figures if each.kind == kind]

    @property
    def missing(self) -> tuple[str, ...]:
        """What any of its figures lacks, each once."""
        return tuple(dict.fromkeys(text for figure in self.figures for text in figure.missing))


@dataclass(frozen=True)
class Benchmark:
    """All cards, and notes on the factors that the estimates are made with."""

    cards: tuple[Card, ...]
    notes: tuple[str, ...]


def read_benchmark(runs: Sequence[Run], given: Given | None = None, profile: str | bool = True) -> Benchmark:
    """Cards of `runs`, in the order of the runs; `profile` as `request.resolve` takes it."""
    found = machine_runs(runs, given)
    cases, notes = _judged(found, profile)
    skipped = {id(each.run): each for each in found.skipped}
    figures = [_figure(run, cases.get(_key(run)), skipped.get(id(run))) for run in runs]
    cards: dict[tuple[Any, ...], list[Figure]] = {}
    for figure in figures:
        cards.setdefault(_heading(figure), []).append(figure)
    return Benchmark(tuple(map(_card, cards.values())), notes)


def _card(figures: list[Figure]) -> Card:
    device, model, backend, build, settings = _heading(figures[0])
    used = [each.achieved.case.conditions.backend for each in figures if each.achieved]
    return Card(device, model, backend or next(iter(used), None), build, settings, tuple(figures))


def _judged(found: MachineRuns, profile: str | bool) -> tuple[dict[Any, Achieved], tuple[str, ...]]:
    judged: dict[Any, Achieved] = {}
    notes: list[str] = []
    for cases in found.machines.values():
        factors, said = own_factors(cases[0], profile)
        notes += said
        judged |= {_key(case.run): achieved(case, factors) for case in cases}
    return judged, tuple(dict.fromkeys(notes))


def _key(run: Run) -> Any:
    """What of a run resolving leaves as it is."""
    return (run.origin, run.id, run.phase, run.n_prompt, run.n_gen, run.n_depth, run.n_parallel, run.t_s)


def _figure(run: Run, judged: Achieved | None, skipped: Skipped | None) -> Figure:
    kind, known = kind_of(run), judged.case.run if judged else skipped.known if skipped else None
    reason = skipped.reason if skipped else None
    if kind == "aggregate_prefill" and known:
        reason = "prompts of several sequences at once are not estimated"
    return Figure(run, known, kind, judged, reason, tuple(missing(run, known)))


def kind_of(run: Run) -> Kind:
    """What the figure is a rate of."""
    if (run.n_prompt and run.n_gen) or run.phase == "mixed":
        return "mixed"
    if run.n_parallel > 1:
        return "aggregate_prefill" if run.n_prompt else "aggregate_decode"
    return "prefill" if run.phase == "prefill" else "decode"


def missing(run: Run, known: Run | None) -> list[str]:
    """What the run does not say and a reader would have to know, most important first."""
    lacks = []
    if not (run.device_detail or run.hardware_id or known):
        lacks.append("the device")
    if run.backend is None:
        lacks.append("the backend (CUDA, Vulkan, CPU …)")
    if run.quant is None and known is None:
        lacks.append("the quantisation")
    if run.build is None and run.date is None:
        lacks.append("the build or date: kernels became several times faster between 2024 and 2026")
    if not run.n_prompt and not run.n_gen:
        lacks.append("how many tokens were processed")
    if run.n_prompt and run.n_ubatch is None:
        lacks.append("the micro-batch (-ub), which sets the size of the matrix products")
    if run.flash_attn is None and (run.n_prompt or run.n_depth >= UNCERTAIN_DEPTH):
        lacks.append("whether flash attention was on")
    if run.n_depth >= UNCERTAIN_DEPTH and run.type_k is None:
        lacks.append("the type of the KV cache")
    if run.backend == "CPU" and run.threads is None:
        lacks.append("the number of threads")
    if run.backend not in (None, "CPU") and run.ngl is None:
        lacks.append("how many layers were on the GPU (-ngl)")
    if run.t_s_std is None and len(run.samples_t_s) < 2:
        lacks.append("repetitions: how much the figure varies")
    return lacks


def _heading(figure: Figure) -> tuple[str, str, str | None, str | None, tuple[str, ...]]:
    run, known = figure.run, figure.known or figure.run
    count = f"{run.device_count} × " if (run.device_count or 1) > 1 else ""
    device = known.hardware_id or run.device_detail or "device not stated"
    model = known.model_id or run.model_label or "model not stated"
    quant = known.quant or "quantisation not stated"
    return (count + device, f"{model} · {quant}", run.backend, run.build, _settings(run))


def _settings(run: Run) -> tuple[str, ...]:
    flash = {"0": "flash attention off", "1": "flash attention on", "auto": "flash attention auto"}
    kv = run.type_k if run.type_k == run.type_v else f"K {run.type_k}, V {run.type_v}"
    texts = (
        f"{run.engine}" if run.engine != "llama.cpp" else "",
        f"batch {run.n_batch}, ubatch {run.n_ubatch}" if run.n_batch and run.n_ubatch else "",
        f"KV cache {kv}" if run.type_k else "",
        flash.get(run.flash_attn or "", ""),
        f"{run.threads} threads" if run.threads and run.backend == "CPU" else "",
        f"-ngl {run.ngl}" if run.ngl is not None and run.ngl >= 0 and run.backend != "CPU" else "",
        f"--n-cpu-moe {run.n_cpu_moe}" if run.n_cpu_moe else "",
    )
    return tuple(filter(None, texts))


def benchmark_data(benchmark: Benchmark) -> dict[str, Any]:
    """A benchmark as plain data."""
    return {
        "schema": SCHEMA,
        "cards": [
            {
                "device": card.device,
                "model": card.model,
                "backend": card.backend,
                "build": card.build,
                "settings": list(card.settings),
                "figures": [_figure_data(figure) for figure in card.figures],
            }
            for card in benchmark.cards
        ],
        "notes": list(benchmark.notes),
    }


def _figure_data(figure: Figure) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": figure.run.id,
        "kind": figure.kind,
        "test": figure.test,
        "tokens_per_s": figure.run.t_s,
        "tokens_per_s_sd": figure.run.t_s_std,
        "n_prompt": figure.run.n_prompt,
        "n_gen": figure.run.n_gen,
        "n_depth": figure.run.n_depth,
        "n_parallel": figure.run.n_parallel,
        "missing": list(figure.missing),
        "not_judged": figure.reason,
    }
    judged = figure.achieved
    if judged is not None:
        data |= {
            "device": judged.case.device.id,
            "model": judged.case.model.id,
            "bytes_per_s": judged.bytes_per_s,
            "flop_per_s": judged.flop_per_s,
            "of_bandwidth": judged.of_bandwidth,
            "of_peak": judged.of_peak,
            "peak": judged.peak,
            "of_ceiling": judged.of_ceiling,
            "estimate_tokens_per_s": judged.estimate_tokens_per_s,
            "estimate_interval_80": list(judged.estimate_interval_80),
            "of_estimate": judged.of_estimate,
        }
    return data
