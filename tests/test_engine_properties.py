"""The whole engine: any device × any model × any quantisation × any workload gives finite, positive, ordered figures.

Orders, not speeds, are checked: the ceiling above the estimate, the interval around it, more work never faster, more
bandwidth never slower, smaller types never more bytes, a batch never below one sequence. Every pair of the catalogs is
run once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import llmcalc
from llmcalc.errors import InputError
from llmcalc.estimation import DecodeEstimate, Estimate, PrefillEstimate
from llmcalc.file_types import FILE_TYPES
from llmcalc.ggml_types import GGML_TYPES, ggml_type, tensor_bytes
from llmcalc.inventory import inventory
from llmcalc.operations import decode_operations, prefill_operations
from llmcalc.quantization import weights
from llmcalc.request import resolve_model
from llmcalc.run_machine import Conditions
from llmcalc.system import COMPUTE_PATHS, Device
from llmcalc.timing import PhaseTime, phase_time
from llmcalc.workload import KV_TYPES, MAX_SEQUENCES

DEVICES = {device.id: device for device in llmcalc.list_devices() if device.backends}
MODELS = {info.id: model for info, model in llmcalc.list_models()}
GPUS = [id for id, device in DEVICES.items() if device.kind == "gpu"]
TARGETS = [name for name, file_type in FILE_TYPES.items() if not file_type.from_converter]
ROUNDING = 1 + 1e-9

# llama.cpp changes its kernels at some eight columns of a product. The factors of the two sides are fitted apart, so
# that a ninth sequence, or a ninth token of a prompt, may cost more than it brings. On CPUs, tiles of a few tokens may
# read weights faster than a single token does.
FEW = 8

# All that may stand against a request: a device without a published peak, and what llama.cpp itself refuses.
REFUSALS = ("no compute peak is known", "kv_type_", "llama-quantize refuses")

engine = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Case:
    """One request as the public API takes it; by id, for a legible report of what fails."""

    device_id: str
    model_id: str
    workload: Mapping[str, Any]

    @property
    def device(self) -> Device:
        """The device of the catalog."""
        return DEVICES[self.device_id]

    @property
    def answer(self) -> Estimate:
        """The estimate."""
        return answer(self.device_id, self.model_id, tuple(self.workload.items()))

    @property
    def room(self) -> int:
        """Tokens of one sequence."""
        ctx, parallel = self.workload["ctx"], self.workload["parallel"]
        return ctx if self.workload["kv_unified"] else max(ctx // parallel, 1)

    def changed(self, device: Device | None = None, **changes: Any) -> Estimate:
        """The answer where something is different."""
        return ask(device or self.device, self.model_id, **{**self.workload, **changes})


@lru_cache(maxsize=1)
def answer(device: str, model: str, workload: tuple[tuple[str, Any], ...]) -> Estimate:
    return ask(DEVICES[device], model, **dict(workload))


def ask(device: Device, model: str, **workload: Any) -> Estimate:
    machine = {"cpu": device} if device.is_cpu else {"gpu": device}
    return llmcalc.estimate(model=MODELS[model], **machine, **workload)


@st.composite
def workloads(draw: st.DrawFn, parallel: st.SearchStrategy[int]) -> dict[str, Any]:
    sequences = draw(parallel)
    unified = draw(st.booleans())
    room = int(2 ** draw(st.floats(1, 21)))
    output = draw(st.integers(0, room - 1))
    prompt = draw(st.integers(1, room - output))
    flash = draw(st.booleans())
    key = draw(st.sampled_from(KV_TYPES))
    plain = [name for name in KV_TYPES if not ggml_type(name).is_quantized]
    value = key if draw(st.booleans()) else draw(st.sampled_from(KV_TYPES if flash else plain))
    return {
        "quant": draw(st.sampled_from(TARGETS)),
        "ctx": room if unified else room * sequences,
        "prompt": prompt,
        "output": output,
        "cached_prefix": draw(st.just(0) | st.integers(0, prompt)),
        "parallel": sequences,
        "kv_type_k": key,
        "kv_type_v": value,
        "flash_attention": flash,
        "batch": int(2 ** draw(st.floats(0, 14))),
        "ubatch": int(2 ** draw(st.floats(0, 14))),
        "kv_unified": unified,
        "swa_full": draw(st.booleans()),
    }


@st.composite
def cases(
    draw: st.DrawFn,
    parallel: st.SearchStrategy[int] = st.integers(1, MAX_SEQUENCES),  # noqa: B008
    devices: Sequence[str] = tuple(DEVICES),
) -> Case:
    """Requests that the engine must answer: what it must refuse is not among them."""
    device, model = draw(st.sampled_from(devices)), draw(st.sampled_from(tuple(MODELS)))
    workload = draw(workloads(parallel)) | {"backend": draw(st.sampled_from(DEVICES[device].backends))}
    case = Case(device, model, workload)
    try:
        assert case.answer
        return case
    except InputError as refused:
        assert any(reason in str(refused) for reason in REFUSALS), refused
        reject()


def figures(estimate: Estimate) -> Sequence[PrefillEstimate | DecodeEstimate]:
    return (*estimate.prefill, *estimate.decode)


def never_falls(values: Sequence[float]) -> bool:
    return all(later >= earlier / ROUNDING for earlier, later in pairwise(values))


@given(cases())
@engine
def test_figures_are_finite_positive_and_ordered(case: Case) -> None:
    estimate = case.answer
    for figure in figures(estimate):
        low, high = figure.interval_80
        lower, higher = figure.interval_95
        assert lower > 0
        assert never_falls([lower, low, figure.tokens_per_s, high, higher, figure.ceiling_tokens_per_s])
        assert figure.ceiling_tokens_per_s < math.inf
        assert 0 < figure.intensity_flop_per_byte < math.inf
        assert figure.bound in ("memory", "compute", "launch")
    latency = estimate.latency
    assert all(0 <= getattr(latency, field.name) < math.inf for field in fields(latency))
    assert never_falls([latency.prefill_s + latency.first_step_s, latency.ttft_s, latency.end_to_end_s])
    assert never_falls([estimate.decode[0].ceiling_tokens_per_s, estimate.weights_ceiling_tokens_per_s])


@given(cases())
@engine
def test_bytes_add_up_and_none_is_negative(case: Case) -> None:
    memory = case.answer.memory
    parts = (memory.weights_bytes, memory.compute_bytes, memory.output_bytes)
    assert all(part > 0 for part in parts)
    assert memory.kv_cache_bytes + memory.recurrent_state_bytes > 0
    assert memory.total_bytes >= memory.loaded_bytes + memory.kv_cache_bytes + memory.recurrent_state_bytes
    assert memory.total_bytes == sum(part.total_bytes for part in memory.devices)


@given(cases(), st.data())
@engine
def test_more_context_is_never_faster(case: Case, data: st.DataObject) -> None:
    estimate = case.answer
    assert never_falls([each.tpot_s for each in estimate.decode])
    w = case.workload
    longer = data.draw(st.integers(w["prompt"], case.room - w["output"]), "longer prompt")
    later = case.changed(prompt=longer)
    assert never_falls([estimate.latency.itl_s, later.latency.itl_s])
    assert later.memory.total_bytes == estimate.memory.total_bytes  # reserved by ctx, whatever is occupied
    fresh = [prompt - min(w["cached_prefix"], prompt - 1) for prompt in (w["prompt"], longer)]
    if fresh[0] > FEW or (fresh[1] <= FEW and w["backend"] != "CPU"):  # the same kernels
        assert never_falls([estimate.prefill[0].seconds, later.prefill[0].seconds])


@given(cases(), st.floats(1, 4))
@engine
def test_more_context_never_takes_less_memory(case: Case, factor: float) -> None:
    more = case.changed(ctx=int(case.workload["ctx"] * factor))
    assert more.memory.total_bytes >= case.answer.memory.total_bytes


@given(cases(), st.floats(1, 8))
@engine
def test_more_bandwidth_is_never_slower(case: Case, factor: float) -> None:
    rate = case.device.bandwidth_bytes_per_s * factor
    faster = case.changed(replace(case.device, bandwidth_bytes_per_s=rate))
    slower = case.answer
    for before, after in zip(figures(slower), figures(faster), strict=True):
        assert never_falls([before.tokens_per_s, after.tokens_per_s])
        assert never_falls([before.ceiling_tokens_per_s, after.ceiling_tokens_per_s])
    assert never_falls([faster.latency.end_to_end_s, slower.latency.end_to_end_s])


@given(cases(), st.floats(1, 8))
@engine
def test_more_compute_is_never_slower(case: Case, factor: float) -> None:
    peaks = {path: peak * factor for path, peak in case.device.peaks_flop_per_s.items()}
    assert set(peaks) <= set(COMPUTE_PATHS)
    slower, faster = case.answer, case.changed(replace(case.device, peaks_flop_per_s=peaks))
    for before, after in zip(figures(slower), figures(faster), strict=True):
        assert never_falls([before.tokens_per_s, after.tokens_per_s])
        assert never_falls([before.ceiling_tokens_per_s, after.ceiling_tokens_per_s])


@given(cases(st.integers(2, FEW)))
@engine
def test_a_batch_is_never_below_one_sequence(case: Case) -> None:
    alone = case.changed(parallel=1, ctx=case.room)
    for one, each in zip(alone.decode, case.answer.decode, strict=True):
        assert one.occupied_tokens == each.occupied_tokens
        assert never_falls([one.aggregate_tokens_per_s, each.aggregate_tokens_per_s])


def no_larger(kv_type: str) -> list[str]:
    return [name for name in KV_TYPES if ggml_type(name).bits_per_weight <= ggml_type(kv_type).bits_per_weight]


@given(cases(), st.data())
@engine
def test_smaller_cache_types_never_take_more_bytes(case: Case, data: st.DataObject) -> None:
    keys, values = no_larger(case.workload["kv_type_k"]), no_larger(case.workload["kv_type_v"])
    if not case.workload["flash_attention"]:  # needs values that are floats
        values = [name for name in values if not ggml_type(name).is_quantized]
    smaller = {"kv_type_k": data.draw(st.sampled_from(keys)), "kv_type_v": data.draw(st.sampled_from(values))}
    try:
        small = case.changed(**smaller)
    except InputError as refused:  # a head size that the type's blocks do not divide
        assert "kv_type_" in str(refused)
        return
    large = case.answer
    assert small.memory.kv_cache_bytes <= large.memory.kv_cache_bytes
    assert small.memory.weights_bytes == large.memory.weights_bytes
    assert never_falls([float(np.max(each.decode_time.main.required_bytes)) for each in (small, large)])


# llama-quantize raises single tensors by rule, so that the order holds inside a family, not between any two names: of
# models whose rows are no multiple of 256, IQ3_XXS is larger than IQ3_XS.
FAMILIES = (
    ("F32", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "IQ2_M", "IQ1_M"),
    ("Q5_K_M", "Q5_K_S", "Q4_K_S", "Q3_K_S"),
    ("Q3_K_L", "Q3_K_M", "Q3_K_S"),
    ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"),
    ("IQ4_NL", "IQ4_XS", "IQ3_M", "IQ3_XS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_S"),
)


@given(st.sampled_from(sorted(MODELS)), st.sampled_from(FAMILIES))
@engine
def test_smaller_file_types_never_take_more_bytes(model: str, family: Sequence[str]) -> None:
    sizes = [weights(MODELS[model], name).bytes for name in family]
    assert sizes == sorted(sizes, reverse=True)


@given(
    st.sampled_from(sorted(GGML_TYPES)),
    st.sampled_from(sorted(GGML_TYPES)),
    st.lists(st.integers(1, 64), min_size=1, max_size=3),
)
def test_smaller_tensor_types_never_take_more_bytes(one: str, other: str, blocks: list[int]) -> None:
    smaller, larger = sorted((ggml_type(one), ggml_type(other)), key=lambda each: each.bits_per_weight)
    shape = (256 * blocks[0], *blocks[1:])
    assert tensor_bytes(smaller, shape) <= tensor_bytes(larger, shape)
    assert tensor_bytes(smaller, shape) * 8 == smaller.bits_per_weight * math.prod(shape)


@given(cases(devices=GPUS), st.lists(st.sampled_from(GPUS), min_size=1, max_size=3))
@engine
def test_several_devices_give_ordered_figures(case: Case, more: list[str]) -> None:
    fellows = [id for id in more if case.workload["backend"] in DEVICES[id].backends]
    devices = [case.device, *(DEVICES[id] for id in fellows)]
    try:
        estimate = llmcalc.estimate(model=MODELS[case.model_id], gpu=devices, **case.workload)
    except InputError as refused:
        assert "no compute peak is known" in str(refused)
        reject()
    for figure in figures(estimate):
        assert figure.interval_80[0] > 0
        assert never_falls([figure.interval_80[0], figure.tokens_per_s, figure.interval_80[1]])
        assert never_falls([figure.interval_80[1], figure.ceiling_tokens_per_s])
    assert never_falls([each.tpot_s for each in estimate.decode])


# Every pair of the catalogs

CONTEXT = 16384
LONGEST_PROMPT = CONTEXT - 256
PARTS = 24
WITH_INTERVAL = 8  # of so many pairs, one has its interval checked: it takes as long as the rest
NO_PEAK = frozenset({"apple-a18-pro", "apple-a19-pro-6c", "b100-sxm", "dimensity-9300", "jetson-t4000",
                     "snapdragon-8-gen-2", "snapdragon-8-gen-3"})  # fmt: skip


def assert_ordered(time: PhaseTime) -> None:
    """Seconds at several points, more work at each than at the one before, none below the ceiling's."""
    seconds, least = np.atleast_1d(time.seconds), np.atleast_1d(time.ceiling_seconds)
    assert (least > 0).all() and np.isfinite(seconds).all()
    assert (least <= seconds * ROUNDING).all()
    assert (seconds[1:] >= seconds[:-1]).all()


def assert_inside(time: PhaseTime) -> None:
    """The interval around the seconds."""
    fast, slow = time.interval(0.80)
    assert np.isfinite(slow).all()
    assert (fast <= time.seconds * ROUNDING).all() and (time.seconds <= slow * ROUNDING).all()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_of_the_catalogs(part: int) -> None:
    occupied, prompts = np.array([1.0, 1153.0, CONTEXT]), np.array([1024.0, LONGEST_PROMPT])
    machines = [(device, Conditions(device.default_backend)) for id, device in DEVICES.items() if id not in NO_PEAK]
    for number, model in enumerate(list(MODELS.values())[part::PARTS]):
        held = inventory(model, resolve_model(model).weights)
        decode = decode_operations(model, held, occupied=occupied)
        prefill = prefill_operations(model, held, prompt=prompts)
        for count, (device, conditions) in enumerate(machines, number):
            times = [phase_time(phase, model, device, conditions) for phase in (decode, prefill)]
            for time in times:
                assert_ordered(time)
            if count % WITH_INTERVAL == 0:
                assert_inside(times[count // WITH_INTERVAL % 2])


@pytest.mark.parametrize("id", sorted(NO_PEAK))
def test_a_device_without_a_known_peak_is_refused_by_name(id: str) -> None:
    with pytest.raises(InputError, match=f"{id}: no compute peak is known"):
        ask(DEVICES[id], "llama3-8b")


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_an_estimate(model: str) -> None:
    estimate = ask(DEVICES["geforce-rtx-4090"], model, ctx=CONTEXT, parallel=4)
    assert estimate.memory.loaded_bytes > 0 and estimate.memory.compute_bytes > 0
    assert never_falls([each.tpot_s for each in estimate.decode])


@pytest.mark.parametrize("device", sorted(DEVICES.keys() - NO_PEAK))
def test_every_device_has_an_estimate(device: str) -> None:
    estimate = ask(DEVICES[device], "llama3-8b", ctx=CONTEXT)
    assert estimate.memory.fits is (None if DEVICES[device].memory_bytes is None else estimate.memory.margin_bytes >= 0)
    assert never_falls([estimate.prefill[0].tokens_per_s, estimate.prefill[0].ceiling_tokens_per_s])
