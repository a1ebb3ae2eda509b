"""Measured runs → what the time model needs to predict them, or the reason why it cannot.

Imports the catalogs and the engine; the fit and the validation are built on the cases made here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from ..architecture import Model
from ..device_catalog import find_device
from ..errors import InputError, UnknownNameError
from ..file_types import FILE_TYPES, file_type
from ..ggml_types import FLOAT_TYPES
from ..inventory import Inventory, inventory
from ..model_catalog import find_model
from ..operations import PhaseOperations, decode_operations, prefill_operations
from ..quantization import Weights, weights
from ..run_machine import Conditions, VulkanVariant
from ..system import Device
from ..tensors import file_params
from .runs import Run

TYPICAL_GENERATED: Final = 128  # tokens of a generation whose length is not stated
MEASUREMENTS: Final = Path(str(files("llmcalc.hardware"))) / "measurements"
UNKNOWN_ERA: Final = "2025H2"
FLASH_ATTENTION_ERA: Final = "2026H1"  # first half-year in which all of it had flash attention on unless turned off
DEFAULT_UBATCH: Final = 512
KNOWN_BACKENDS: Final = frozenset({None, "CUDA", "ROCm", "Vulkan", "Metal", "CPU", "SYCL", "OpenCL", "HTP"})
UNPREDICTABLE_CLASSES: Final = frozenset(
    {"multi-device", "offload", "speculative", "fork", "other-engine", "unresolved"}
)
_VENDORS: Final = {"CUDA": "nvidia", "ROCm": "amd", "Metal": "apple"}
_BITS_PER_WEIGHT: Final = (1.0, 36.0)  # of whole files, from ternary types to F32, with room for rounded sizes
_ENGINES: Final = {"llama.cpp": "llama.cpp", "llama-server": "llama.cpp", "ollama": "ollama", "llamafile": "llamafile"}
_NEAREST_MIXTURES: Final = {
    "UD-Q2_K_XL": "Q2_K", "UD-Q3_K_XL": "Q3_K_M", "UD-Q4_K_XL": "Q4_K_M", "UD-Q5_K_XL": "Q5_K_M", "UD-Q6_K_XL": "Q6_K",
    "UD-Q8_K_XL": "Q8_0", "Q4_0_4_4": "Q4_0", "Q4_0_4_8": "Q4_0", "Q4_0_8_8": "Q4_0",
}  # fmt: skip
_MXFP4_ARCHITECTURES: Final = frozenset({"gpt-oss"})  # experts stay MXFP4 whatever the file is called


_COOPMAT1: Final = re.compile(r"\bcoopmat1\b")  # among the notes of a run


class UnpredictableError(Exception):
    """Why a run cannot be predicted, in a few words that can be counted."""


@dataclass(frozen=True)
class Case:
    """A run with everything resolved."""

    run: Run
    device: Device
    model: Model
    conditions: Conditions
    phase: PhaseOperations
    seconds: float  # measured, of a decode step or of the prompt

    @property
    def tokens(self) -> float:
        """Tokens that `seconds` are for."""
        return float(self.phase.tokens)


def case_of(
    run: Run,
    device: Device | None = None,
    model: Model | None = None,
    file: Inventory | None = None,
    folders: tuple[Path, ...] = (),
) -> Case:
    """`run`, resolved: device, model and weights by the run's ids unless they are given. Raises UnpredictableError.

    `folders` are user catalogs, where ids may be found too.
    """
    _check(run)
    device, model = device or _device(run, folders), model or _model(run, folders)
    if device.vendor != _VENDORS.get(run.backend or "", device.vendor):
        raise UnpredictableError("backend of another vendor")
    try:
        conditions = _conditions(run, device)
        phase = _operations(run, model, file or _inventory(run, model), conditions)
    except InputError as reason:  # a cache type or a length that cannot be
        raise UnpredictableError(str(reason)) from None
    return Case(run, device, model, conditions, phase, float(phase.tokens) / run.t_s)


def _check(run: Run) -> None:
    if run.class_ in UNPREDICTABLE_CLASSES:
        raise UnpredictableError(str(run.class_))
    if engine(run) is None:
        raise UnpredictableError("other engine")
    if run.backend not in KNOWN_BACKENDS:
        raise UnpredictableError("unknown backend")
    if run.phase == "mixed" or (run.phase == "aggregate" and run.n_prompt):
        raise UnpredictableError("prompt and generation in one rate")
    if run.n_cpu_moe or (run.ngl == 0 and run.backend not in ("CPU", None)):
        raise UnpredictableError("offload")
    if (run.device_count or 1) > 1 and run.backend != "CPU":
        raise UnpredictableError("several devices")
    if run.phase == "prefill" and run.n_prompt < 1:
        raise UnpredictableError("prompt length not stated")


def engine(run: Run) -> str | None:
    """The engine as the factors know it; None for one that is not llama.cpp underneath."""
    name = run.engine.lower()
    if "ollama" in name:
        return "ollama"
    return _ENGINES.get(name.split()[0])


def _device(run: Run, folders: tuple[Path, ...]) -> Device:
    if not run.hardware_id:
        raise UnpredictableError("device not named")
    try:
        return _found_device(run.hardware_id, folders)
    except UnknownNameError:
        raise UnpredictableError("unknown device") from None


def _model(run: Run, folders: tuple[Path, ...]) -> Model:
    if not run.model_id:
        raise UnpredictableError("model not named")
    try:
        return _found_model(run.model_id, folders)
    except UnknownNameError:
        raise UnpredictableError("unknown model") from None


@lru_cache(maxsize=1024)
def _found_device(name: str, folders: tuple[Path, ...]) -> Device:
    """A device of the catalogs, or a machine that only the shipped measurements know."""
    return find_device(name, folders=[MEASUREMENTS, *folders])


_found_model = lru_cache(maxsize=1024)(find_model)


def _conditions(run: Run, device: Device) -> Conditions:
    era = run.era or UNKNOWN_ERA
    flash = run.flash_attn
    if flash is None or flash == "auto":
        fused = era >= FLASH_ATTENTION_ERA if flash is None else True
    else:
        fused = flash == "1"
    return Conditions(
        backend=run.backend or usual_backend(device, engine(run)),
        era=era,
        engine=engine(run) or "llama.cpp",
        flash_attention=fused,
        kv_type_k=_cache_type(run.type_k),
        kv_type_v=_cache_type(run.type_v),
        threads=run.threads,
        sockets=run.device_count or 1,
        weak_host="weak host" in (run.notes or ""),
        vulkan=_vulkan_variant(run),
    )


def _vulkan_variant(run: Run) -> VulkanVariant | None:
    """A poorer driver that a run says it used, by its name or as llama.cpp prints it."""
    said = f"{run.notes or ''} {run.device_detail or ''}".lower()
    if run.backend != "Vulkan":
        return None
    if "amdvlk" in said or "amd open-source driver" in said:
        return "amdvlk"
    return "coopmat1" if _COOPMAT1.search(said) else None


def usual_backend(device: Device, engine: str | None = None) -> str:
    """The backend of a run that does not say: on AMD GPUs what the engine ships first, else the device's own."""
    try:
        if device.vendor != "amd" or device.is_cpu:
            return device.default_backend
        return "ROCm" if engine in ("ollama", "llamafile") and "ROCm" in device.backends else "Vulkan"
    except InputError:
        raise UnpredictableError("no backend for the device") from None


def _cache_type(name: str | None) -> str:
    return (name or "F16").upper()


def _inventory(run: Run, model: Model) -> Inventory:
    """The run's weights: the named mixture, or the closest one that follows a rule, at the file's size."""
    if run.quant is None and run.weights_bytes is None:
        raise UnpredictableError("quantisation not stated")
    if run.weights_bytes is not None:
        least, most = (bits / 8 * _params(model) for bits in _BITS_PER_WEIGHT)
        if not least < run.weights_bytes < most:
            raise UnpredictableError("size of the weights that cannot be the model's")
    return _scaled_inventory(model, *mixture_of(run, model), run.weights_bytes)


@lru_cache(maxsize=1024)
def _params(model: Model) -> int:
    return file_params(model)


def mixture_of(run: Run, model: Model) -> tuple[str, str | None]:
    """The file type that is named, or the closest one that follows a rule; and the type of all but the experts, where
    a file is named for that."""
    if model.architecture in _MXFP4_ARCHITECTURES:
        return "MXFP4_MOE", run.quant if run.quant in FLOAT_TYPES else None
    return _file_type_of(run, model), None


def mixture_weights(model: Model, file_type_name: str, floats: str | None) -> Weights:
    """Weights of a mixture that `mixture_of` found."""
    if floats is None:
        return weights(model, file_type_name)
    overrides = (("attn", floats),)
    return weights(model, file_type_name, overrides=overrides, output_type=floats, embedding_type=floats)


def _file_type_of(run: Run, model: Model) -> str:
    quant = run.quant or ""
    for name in (quant, _NEAREST_MIXTURES.get(quant, ""), quant.removeprefix("UD-")):
        try:
            return file_type(name).name
        except InputError:
            continue
    if run.weights_bytes is None:
        raise UnpredictableError("unknown quantisation")
    return _closest_file_type(model, run.weights_bytes)


@lru_cache(maxsize=4096)
def _scaled_inventory(model: Model, file_type_name: str, floats: str | None, size: float | None) -> Inventory:
    try:
        whole = inventory(model, mixture_weights(model, file_type_name, floats))
    except InputError:
        raise UnpredictableError("quantisation that llama-quantize refuses") from None
    return whole if size is None else whole.scaled(size)


@lru_cache(maxsize=4096)
def _closest_file_type(model: Model, size: float) -> str:
    def distance(name: str) -> float:
        try:
            return abs(_scaled_inventory(model, name, None, None).file_bytes - size)
        except UnpredictableError:
            return float("inf")

    return min((name for name, kind in FILE_TYPES.items() if not kind.from_converter), key=distance)


def _operations(run: Run, model: Model, file: Inventory, conditions: Conditions) -> PhaseOperations:
    types = conditions.cache_types
    if run.phase == "prefill":
        ubatch = min(run.n_ubatch or DEFAULT_UBATCH, run.n_prompt)
        return prefill_operations(model, file, prompt=run.n_prompt, cached=run.n_depth, ubatch=ubatch, cache=types)
    occupied = run.n_depth + (run.n_gen or TYPICAL_GENERATED) / 2 + 1
    return decode_operations(model, file, occupied=occupied, parallel=run.n_parallel, cache=types)
