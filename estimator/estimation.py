"""System × model × workload → Estimate: the one place where memory, time and latency of a request come together.

Imports the engine below it (`memory`, `timing`, `multi_device`) and `request`; nothing imports it but the modules that
ask many estimates, and the leaves (`report`, `cli`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .basis import basis_lines
from .check_command import check_command, shell_word
from .efficiency import Efficiency, shipped
from .frozen_dataclass import dataclass
from .memory import MemoryPlan, memory_plan
from .multi_device import SystemTime, decode_on, prefill_on, weights_ceiling_tokens_per_s
from .request import Request, resolve

if TYPE_CHECKING:
    import pint

    from .offload_timing import PlacedTime
    from .units import Dimension

# llama-tokenize b11434 on one core of a 2.1 GHz Xeon: 0.8 million tokens/s with a BPE vocabulary of 49 152 entries, 0.4
# million with an SPM one of 262 144. Too little to matter, counted because it is part of the wait.
TOKENISATION_TOKENS_PER_S: Final = 4e5
OUTPUT_POINTS: Final = 9  # depths at which the growing answer's decode time is averaged

LEVELS: Final = (0.80, 0.95)  # shares of runs that the intervals hold

Interval = tuple[float, float]


@dataclass(frozen=True)
class PrefillEstimate:
    """Reading a prompt of `prompt_tokens`, of which `cached_tokens` are in the cache already; rates count the rest."""

    prompt_tokens: int
    cached_tokens: int
    seconds: float
    tokens_per_s: float
    ceiling_tokens_per_s: float
    bound: str  # memory, compute or launch
    intensity_flop_per_byte: float
    interval_80: Interval  # of tokens_per_s
    interval_95: Interval


@dataclass(frozen=True)
class DecodeEstimate:
    """Writing one token in each of `parallel` sequences while `occupied_tokens` positions of each are in the cache."""

    occupied_tokens: int
    parallel: int
    tokens_per_s: float  # of one sequence
    aggregate_tokens_per_s: float  # of all
    tpot_s: float
    ceiling_tokens_per_s: float  # of one sequence: bandwidth / bytes that must be read
    bound: str
    intensity_flop_per_byte: float
    interval_80: Interval  # of tokens_per_s
    interval_95: Interval


@dataclass(frozen=True)
class LatencyEstimate:
    """The wait for one request: TTFT = queue + tokenisation + prefill + first decode step."""

    prompt_tokens: int
    output_tokens: int
    queue_s: float
    tokenisation_s: float
    prefill_s: float
    first_step_s: float
    ttft_s: float
    itl_s: float  # mean time between tokens while the output grows
    end_to_end_s: float


@dataclass(frozen=True)
class Estimate:
    """All that is predicted for one request, with what it was predicted from. Plain numbers in SI units."""

    request: Request
    memory: MemoryPlan
    weights_ceiling_tokens_per_s: float  # bandwidth / weight bytes that one token reads: the bare decode ceiling
    prefill: tuple[PrefillEstimate, ...]
    decode: tuple[DecodeEstimate, ...]  # empty, everyday and full occupied context
    latency: LatencyEstimate
    prefill_time: SystemTime | PlacedTime  # with its operations, for --explain; arrays over the points of `prefill`
    decode_time: SystemTime | PlacedTime  # over the points of `decode`, and then while the answer grows
    basis: tuple[str, ...]  # roofs, factors and sources, a sentence each
    check_command: str  # the llama-bench run that measures the same
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract `llmcalc.estimate/1`: plain numbers, lists and text."""
        from .report.json import as_dict

        return as_dict(self)

    def quantity(self, value: float, dimension: Dimension) -> pint.Quantity[Any]:
        """`value`, a figure of this estimate, as a pint quantity: `e.quantity(e.latency.ttft_s, "seconds")`."""
        from .units import to_pint

        return to_pint(value, dimension)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.text import page

        return "\n".join(page(self, Style()))

    def _repr_html_(self) -> str:
        from .report.html import fragment

        return fragment(self)


def estimate(
    *,
    model: Any,
    gpu: Any = None,
    cpu: Any = None,
    efficiency: Efficiency | None = None,
    **given: Any,
) -> Estimate:
    """Estimate memory, prefill, decode and latency of `model` on a machine.

    `gpu`: a device name ("rtx4090", "Apple M2 Ultra"), a Device, or a list of them; `cpu` likewise, and it runs the
    model where no gpu is given. `model`: a catalog name, the path of a .gguf or config.json, or a Model.
    Further arguments, all optional: quant ("q4" = Q4_K_M), ctx, prompt (one or several), output, cached_prefix,
    parallel, kv_type_k, kv_type_v, flash_attention, batch, ubatch, kv_unified, swa_full, backend, ram, threads, queue,
    catalog (folders that overlay the built-in ones), profile (the name of a calibration, or True for the newest one of
    the device), and figures: a mapping of memory, bandwidth and compute paths to quantities that override the device's.
    Token counts are numbers or text ("32k"); quantities are SI numbers, text with a unit ("24 GiB") or pint quantities.
    Raises InputError (UnknownNameError for names) with one sentence that says what would be right.
    """
    return estimate_request(resolve(model=model, gpu=gpu, cpu=cpu, **given), efficiency)


def estimate_request(request: Request, efficiency: Efficiency | None = None) -> Estimate:
    """The estimate of a resolved request; `efficiency`: other factors than the request's, or the shipped ones."""
    factors = efficiency or request.efficiency or shipped()
    plan = memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
    occupied = _occupied_points(request)
    prefill = prefill_on(request, np.array(request.prompts, float), factors)
    growing = _growing_answer(request)
    decode = decode_on(request, np.array([*(n + 1 for n in occupied), *growing], float), factors)
    return Estimate(
        request=request,
        memory=plan,
        weights_ceiling_tokens_per_s=weights_ceiling_tokens_per_s(request),
        prefill=_prefill_estimates(request, prefill),
        decode=_decode_estimates(request, occupied, decode),
        latency=_latency(request, float(prefill.seconds[0]), decode.seconds[len(occupied) :]),
        prefill_time=prefill,
        decode_time=decode,
        basis=basis_lines(request, prefill, decode, len(occupied), factors),
        check_command=check_command(request, occupied),
        notes=(*request.notes, *_notes(request, plan)),
    )


def _occupied_points(request: Request) -> tuple[int, ...]:
    """Empty, everyday and full: without repeats."""
    w = request.workload
    everyday = min(request.prompts[0] + w.output // 2, request.room - 1)
    return tuple(dict.fromkeys((0, everyday, request.room - 1)))


def _prefill_estimates(request: Request, time: SystemTime | PlacedTime) -> tuple[PrefillEstimate, ...]:
    return tuple(
        PrefillEstimate(
            prompt_tokens=prompt,
            cached_tokens=min(request.workload.cached_prefix, prompt - 1),
            seconds=seconds,
            tokens_per_s=rate,
            ceiling_tokens_per_s=ceiling,
            bound=bound,
            intensity_flop_per_byte=intensity,
            interval_80=narrow,
            interval_95=wide,
        )
        for prompt, (seconds, rate, ceiling, bound, intensity, narrow, wide) in zip(
            request.prompts, _points(time), strict=True
        )
    )


def _decode_estimates(
    request: Request, occupied: Sequence[int], time: SystemTime | PlacedTime
) -> tuple[DecodeEstimate, ...]:
    n = request.workload.parallel
    return tuple(
        DecodeEstimate(
            occupied_tokens=positions,
            parallel=n,
            tokens_per_s=rate / n,
            aggregate_tokens_per_s=rate,
            tpot_s=seconds,
            ceiling_tokens_per_s=ceiling / n,
            bound=bound,
            intensity_flop_per_byte=intensity,
            interval_80=(narrow[0] / n, narrow[1] / n),
            interval_95=(wide[0] / n, wide[1] / n),
        )
        for positions, (seconds, rate, ceiling, bound, intensity, narrow, wide) in zip(
            occupied, _points(time), strict=False
        )
    )


def _points(
    time: SystemTime | PlacedTime,
) -> Iterator[tuple[float, float, float, str, float, Interval, Interval]]:
    """Seconds, rate, ceiling, bound, intensity and intervals of the rate, as plain values, point by point."""
    figures = (time.seconds, time.tokens_per_s, time.ceiling_tokens_per_s, time.bound, time.intensity)
    intervals = (zip(*(side.tolist() for side in time.interval_tokens_per_s(level)), strict=True) for level in LEVELS)
    return zip(*(values.tolist() for values in figures), *intervals, strict=True)


def _growing_answer(request: Request) -> NDArray[np.float64]:
    """Positions that decode steps attend while the answer to the first prompt grows."""
    prompt = request.prompts[0]
    return np.linspace(prompt + 1, prompt + max(request.workload.output, 1), OUTPUT_POINTS)


def _latency(request: Request, prefill_s: float, steps: NDArray[np.float64]) -> LatencyEstimate:
    """`steps`: seconds of the decode steps of `_growing_answer`."""
    prompt, output = request.prompts[0], request.workload.output
    tokenisation_s = (prompt - min(request.workload.cached_prefix, prompt - 1)) / TOKENISATION_TOKENS_PER_S
    first_step_s, itl_s = float(steps[0]), float(np.mean(steps))
    ttft_s = request.queue_s + tokenisation_s + prefill_s + first_step_s
    return LatencyEstimate(
        prompt_tokens=prompt,
        output_tokens=output,
        queue_s=request.queue_s,
        tokenisation_s=tokenisation_s,
        prefill_s=prefill_s,
        first_step_s=first_step_s,
        ttft_s=ttft_s,
        itl_s=itl_s,
        end_to_end_s=ttft_s + max(output - 1, 0) * itl_s,
    )


def _notes(request: Request, plan: MemoryPlan) -> list[str]:
    notes = []
    trained = request.model.max_context
    if trained and request.room > trained:
        notes.append(f"The model was trained for {trained:,} tokens; a context of {request.room:,} needs RoPE scaling.")
    if plan.fits is False:
        notes.append(_does_not_fit(request))
    if plan.fits is None:
        notes.append("The memory of the device is unknown: say it with --memory (or --ram) to learn whether it fits.")
    if len(request.devices) > 1 and request.settings is None:
        notes.append("Several devices: layers are split by memory; decode visits one after the other.")
    if request.placement is not None:
        from .placed_basis import placed_notes

        notes += placed_notes(request, plan)
    if request.devices[0].confidence == "C":
        notes.append(f"The figures of {request.devices[0].name} are pre-launch or leaked ones.")
    return notes


def _does_not_fit(request: Request) -> str:
    if request.placement is not None:
        from .placed_basis import is_read_from_disk

        if is_read_from_disk(request):
            return "It does not fit: the speeds count that weights are read from disk over and over."
    sentence = "It does not fit: the speeds are what the machine would reach with enough memory."
    gpus = [device for device in request.devices if not device.is_cpu]
    if not gpus:
        return sentence
    named = " ".join(f"--gpu {shell_word(device.id)}" for device in gpus)
    command = f"llmcalc fit {named} --model {shell_word(request.model.id)} --ctx {request.workload.context}"
    return f"{sentence} What fits, with part of the model in host memory, says `{command}`."
