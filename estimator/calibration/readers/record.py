"""Fields by llama-bench's names → `Run`: the one place where a record of any tool becomes a run.

Tools and versions differ in which fields they print and how (llama.cpp b11434, tools/llama-bench/llama-bench.cpp, and
its earlier versions); here every field is optional but the tokens and the rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..runs import FlashAttention, Origin, Phase, Run, RunClass
from . import machine, model_labels
from .eras import era
from .values import (
    Malformed,
    optional_count,
    optional_flag,
    optional_real,
    optional_text,
    optional_whole,
    positive,
    shown,
)

Fields = Mapping[str, object]

# Settings that only ik_llama.cpp's llama-bench has.
_FORK_FIELDS: Final = frozenset({"mla_attn", "mla", "attn_max_batch", "amb", "fused_moe", "fmoe", "ser", "rtr", "mqkv"})
_SPREAD_PLAUSIBLE: Final = 10.0  # standard deviation / mean


@dataclass(frozen=True)
class Draft:
    """A record as read: its fields by llama-bench's names, and its line."""

    fields: dict[str, object]
    line: int


def run_of(fields: Fields, origin: Origin) -> Run:
    """The run that `fields` describe. Raises Malformed when tokens or rate are missing or senseless."""
    n_prompt, n_gen = _tokens(fields)
    n_parallel = optional_count(fields.get("n_parallel"), "n_parallel") or 1
    rate, deviation, samples = _rate(fields, n_prompt + n_gen)
    label, label_type = model_labels.split_label(optional_text(fields.get("model_type")) or "")
    model_file = optional_text(fields.get("model_filename"))
    build_number = optional_count(fields.get("build_number"), "build_number")
    date = _date(fields.get("test_time"))
    backend = machine.backend(fields)
    on_cpu = backend == "CPU"
    gpus = machine.used_devices(fields)
    cpu = optional_text(fields.get("cpu_info"))
    return Run(
        date=date,
        era=era(build_number, date),
        engine=_engine(fields),
        build=_build(optional_text(fields.get("build_commit")), build_number),
        backend=backend,
        device_count=1 if on_cpu else len(gpus) or None,
        device_detail=cpu if on_cpu else ", ".join(dict.fromkeys(gpus)) or None,
        model_label=label or (model_labels.file_stem(model_file) if model_file else None),
        quant=model_labels.quantisation(label_type, model_file),
        weights_gib=_scaled(fields, "model_size", 2.0**30),
        params_b=_scaled(fields, "model_n_params", 1e9),
        ngl=optional_whole(fields.get("n_gpu_layers"), "n_gpu_layers"),
        n_cpu_moe=optional_count(fields.get("n_cpu_moe"), "n_cpu_moe"),
        split_mode=optional_text(fields.get("split_mode")),
        threads=optional_count(fields.get("n_threads"), "n_threads"),
        n_batch=optional_count(fields.get("n_batch"), "n_batch"),
        n_ubatch=optional_count(fields.get("n_ubatch"), "n_ubatch"),
        flash_attn=flash_attention(fields.get("flash_attn")),
        type_k=_cache_type(fields, "type_k"),
        type_v=_cache_type(fields, "type_v"),
        phase=_phase(n_prompt, n_gen, n_parallel),
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=optional_count(fields.get("n_depth"), "n_depth") or 0,
        n_parallel=n_parallel,
        t_s=rate,
        t_s_std=deviation,
        class_=_class(fields, backend, len(gpus), n_parallel),
        notes=optional_text(fields.get("notes")),
        origin=origin,
        model_file=model_file,
        architecture=optional_text(fields.get("architecture")) or model_labels.architecture(label),
        host_cpu=cpu,
        samples_t_s=samples,
        params_exact=_is_whole(fields.get("model_size")) and _is_whole(fields.get("model_n_params")),
    )


def flash_attention(value: object) -> FlashAttention | None:
    """What was asked of flash attention: 0/off, 1/on, −1/auto; None where it was not said."""
    if str(value).strip().lower() in ("auto", "-1"):
        return "auto"
    flag = optional_flag(value, "flash_attn")
    return None if flag is None else "1" if flag else "0"


def _tokens(fields: Fields) -> tuple[int, int]:
    n_prompt = optional_count(fields.get("n_prompt"), "n_prompt") or 0
    n_gen = optional_count(fields.get("n_gen"), "n_gen") or 0
    if n_prompt + n_gen == 0 and not fields.get("length_unknown"):
        raise Malformed("n_prompt and n_gen are both zero or missing, so it is no test")
    if n_prompt + n_gen > 10**9:
        raise Malformed(f"{n_prompt + n_gen} tokens in one test are not possible")
    return n_prompt, n_gen


def _rate(fields: Fields, n_tokens: int) -> tuple[float, float | None, tuple[float, ...]]:
    """Mean, standard deviation and samples of tokens/s; from the times where the rates are not printed."""
    samples = _samples(fields.get("samples_ts"), "samples_ts")
    if not samples:
        samples = tuple(
            n_tokens * 1e9 / nanoseconds for nanoseconds in _samples(fields.get("samples_ns"), "samples_ns")
        )
    if optional_real(fields.get("avg_ts"), "avg_ts") is not None:
        mean = positive(fields["avg_ts"], "avg_ts")
    elif samples:
        mean = sum(samples) / len(samples)
    else:
        mean = n_tokens * 1e9 / positive(fields.get("avg_ns"), "avg_ts")
    if not 0 < mean < 1e9:
        raise Malformed(f"{shown(mean)} tokens per second are not possible")
    return mean, _deviation(fields, mean, samples), samples


def _deviation(fields: Fields, mean: float, samples: tuple[float, ...]) -> float | None:
    deviation = optional_real(fields.get("stddev_ts"), "stddev_ts")
    if deviation is None and len(samples) > 1:
        deviation = math.sqrt(sum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1))
    if deviation is not None and deviation > _SPREAD_PLAUSIBLE * mean:
        raise Malformed(f"a spread of ± {deviation:g} around {mean:g} tokens per second is not possible")
    return deviation


def _samples(value: object, name: str) -> tuple[float, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(positive(sample, name) for sample in value)


def _phase(n_prompt: int, n_gen: int, n_parallel: int) -> Phase:
    if n_parallel > 1:
        return "aggregate"
    return "mixed" if n_prompt and n_gen else "prefill" if n_prompt else "decode"


def _class(fields: Fields, backend: str | None, n_gpus: int, n_parallel: int) -> RunClass | None:
    """What already the record rules out of clean single-device runs; None when nothing does."""
    if fields.get("drafted"):
        return "speculative"
    if _engine(fields) == "ik_llama.cpp":
        return "other-engine"
    if n_parallel > 1:
        return "batched"
    on_gpu = backend not in (None, "CPU")
    if backend == "RPC" or (on_gpu and (n_gpus > 1 or "rpc" in str(fields.get("backends") or "").lower())):
        return "multi-device"
    return "offload" if on_gpu and _offloaded(fields) else None


def _offloaded(fields: Fields) -> bool:
    return bool(
        optional_count(fields.get("n_cpu_moe"), "n_cpu_moe")
        or "=cpu" in str(fields.get("tensor_buft_overrides") or "").lower()
        or optional_whole(fields.get("n_gpu_layers"), "n_gpu_layers") == 0
        or optional_flag(fields.get("no_kv_offload"), "no_kv_offload")
        or fields.get("partly_offloaded")
    )


def _engine(fields: Fields) -> str:
    return optional_text(fields.get("engine")) or ("ik_llama.cpp" if _FORK_FIELDS & fields.keys() else "llama.cpp")


def _build(commit: str | None, number: int | None) -> str | None:
    if commit in (None, "unknown"):
        return f"b{number}" if number else None
    return f"{commit} ({number})" if number else commit


def _date(value: object) -> str | None:
    match = re.match(r"20\d\d-\d\d-\d\d", optional_text(value) or "")
    return match[0] if match else None


def _cache_type(fields: Fields, name: str) -> str | None:
    text = optional_text(fields.get(name))
    if text is None and optional_flag(fields.get("f16_kv"), "f16_kv") is not None:  # builds of 2023
        return "f16" if optional_flag(fields["f16_kv"], "f16_kv") else "f32"
    return text.lower() if text else None


def _scaled(fields: Fields, name: str, unit: float) -> float | None:
    value = optional_real(fields.get(name), name)
    return value / unit if value else None


def _is_whole(value: object) -> bool:
    return (type(value) is int) or (isinstance(value, str) and value.isdecimal())
