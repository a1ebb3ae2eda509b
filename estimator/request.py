"""Names as people type them → the objects of an estimate: machine, model with its weights, workload.

Imports the catalogs and, where a file is given, the importers; `estimate` takes what this makes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from .architecture import Model
from .conventions import runs_in_llama_cpp
from .device_catalog import custom_device, find_device, with_cores
from .errors import InputError, UnknownNameError
from .file_types import file_type
from .frozen_dataclass import dataclass
from .ggml_types import ggml_type
from .model_catalog import find_model
from .quantization import Weights, weights
from .system import Device, DeviceKind, Host, System
from .units import parse, parse_tokens
from .user_folder import profile_folder
from .workload import Workload

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .placement import Placement
    from .placement_settings import PlacementSettings

DEFAULT_CONTEXT: Final = 8192
DEFAULT_FILE_TYPE: Final = "Q4_K_M"
EVERYDAY_PROMPT: Final = 1024
DEFAULT_OUTPUT: Final = 256
CUSTOM: Final = "custom"
STANDARD_INPUT: Final = "-"
AUTO: Final = "auto"  # the machine at hand

GPU_KINDS: Final[tuple[DeviceKind, ...]] = ("gpu", "apu", "apple", "soc")
BACKENDS: Final = ("CUDA", "ROCm", "Vulkan", "Metal", "SYCL", "OpenCL", "CPU")

_FILE_TYPE_IN_NAME: Final = r"(?i)[-_.:]((?:iq|tq|q)\d[a-z0-9_]*|bf16|f16|fp16|f32|mxfp4(?:_moe)?)(?:\.gguf)?$"

_SEVERAL_DEVICES: Final = r"(?i)^\d{1,2}\s*[x×]|\s[x×]\s*\d{1,2}$|[,;+&]\s*\w"

DeviceLike = str | Device
ModelLike = str | Path | Model


@dataclass(frozen=True)
class ModelRequest:
    """A model with the weights it will be run from."""

    model: Model
    weights: Weights
    quantisation: str
    from_file: bool  # types and bytes are those of a file, not of llama-quantize's rule
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """Everything that an estimate is made from, resolved and checked."""

    system: System
    backend: str
    model: Model
    weights: Weights
    quantisation: str
    workload: Workload
    prompts: tuple[int, ...]  # prompt lengths to predict prefill for
    queue_s: float = 0.0
    threads: int | None = None  # of the CPU backend; None: all cores
    notes: tuple[str, ...] = ()
    efficiency: Efficiency | None = field(default=None, repr=False)  # a profile's factors; None: the shipped ones
    settings: PlacementSettings | None = None  # placement as asked; None: all on the devices

    @cached_property
    def placement(self) -> Placement | None:
        """Where everything lies; None where it all lies on the one device. InputError for impossible settings."""
        if self._exceeds_host:
            from .placement import on_host

            return on_host(self.model)
        if self.settings is None and len(self.devices) == 1:
            return None
        from .placement_settings import PlacementSettings, placement_of

        asked = self.settings or PlacementSettings()
        placement = placement_of(asked, self.model, self.system, self.backend)
        alone = len(self.devices) == 1 and (placement.is_plain or self.devices[0].is_cpu)
        return None if alone else placement

    @property
    def _exceeds_host(self) -> bool:
        """Whether a CPU alone has less memory than the file is large: the rest is read from disk, as in a placement."""
        memory = self.system.host.memory_bytes
        return self.devices[0].is_cpu and memory is not None and self.weights.bytes > memory

    @property
    def room(self) -> int:
        """Tokens of context that one sequence has."""
        return sequence_room(self.workload)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that run the model, in llama.cpp's order."""
        return self.system.devices


def resolve_device(
    name: DeviceLike,
    kinds: Sequence[DeviceKind],
    figures: Mapping[str, object] | None = None,
    folders: Sequence[Path] = (),
) -> Device:
    """The device called `name`, with the figures that are given in place of the catalog's.

    `figures`: memory, bandwidth, compute paths (fp32, fp16_matrix, int8_matrix …) → quantity, and for a CPU the cores
    that are there. The name "custom" starts from nothing and needs memory and bandwidth, a CPU cores too.
    """
    given = {key: value for key, value in (figures or {}).items() if value is not None}
    memory, bandwidth, cores = given.pop("memory", None), given.pop("bandwidth", None), given.pop("cores", None)
    on_cpu = "cpu" in kinds
    if cores is not None and not on_cpu:
        raise InputError("cores: only a CPU that runs the model has them; name it with --cpu and no --gpu")
    if on_cpu:
        given = _of_cpu(given)
    if isinstance(name, str) and name.strip().lower() == CUSTOM:
        if on_cpu and cores is None:
            raise InputError("a custom CPU needs the number of its cores, such as --cores 8")
        kind: DeviceKind = "cpu" if on_cpu else "gpu"
        made = custom_device(CUSTOM, bandwidth=bandwidth, memory=memory, peaks=given, kind=kind)
        return made if cores is None else with_cores(made, _count(cores))
    found = name if isinstance(name, Device) else _found(name, kinds, folders)
    found = found if cores is None else with_cores(found, _count(cores))
    if memory is None and bandwidth is None and not given:
        return found
    return custom_device(bandwidth=bandwidth, memory=memory, peaks=given, base=found)


def _found(name: str, kinds: Sequence[DeviceKind], folders: Sequence[Path]) -> Device:
    """`find_device`; a name that counts devices or lists several is told how they are named."""
    try:
        return find_device(name, kinds, folders)
    except UnknownNameError as error:
        if not re.search(_SEVERAL_DEVICES, name.strip()):
            raise
        reason = f"{error}; several devices are named one by one, as in --gpu rtx3090 --gpu rtx3090"
        raise UnknownNameError(reason, error.candidates) from None


def _of_cpu(figures: Mapping[str, object]) -> dict[str, object]:
    """Peaks under the names that they have where CPU cores run the model; FP16 products run in FP32 there."""
    renamed = {"int8_matrix": "int8_cpu"}
    return {renamed.get(key, key): value for key, value in figures.items() if key not in ("fp16", "fp16_matrix")}


def _count(cores: object) -> int:
    if not isinstance(cores, int) or cores < 1:
        raise InputError(f"cores: must be a whole number of at least 1, got {cores!r}")
    return cores


def resolve_system(
    gpus: Sequence[DeviceLike] = (),
    cpu: DeviceLike | None = None,
    ram: object = None,
    figures: Mapping[str, object] | None = None,
    folders: Sequence[Path] = (),
) -> System:
    """The machine: its GPUs if there are any, else its CPU, and the host around them.

    `figures` change the GPUs, or the CPU where it runs the model. Raises InputError without a device, and for figures
    that would have to hold for several different ones.
    """
    if not gpus and cpu is None:
        raise InputError(
            "no device: name one with --gpu (such as rtx4090, m2-ultra-76) or --cpu (such as ryzen-9-7950x)"
        )
    if figures and any(value is not None for value in figures.values()) and len({str(gpu) for gpu in gpus}) > 1:
        raise InputError(
            "figures such as --memory and --bandwidth go with one kind of device; put several into a --catalog"
        )
    ram_bytes = None if ram is None else parse(ram, "bytes", "ram")
    if not gpus:
        runner = resolve_device(cpu if cpu is not None else CUSTOM, ("cpu", "soc"), figures, folders)
        if ram_bytes is not None:
            runner = replace(runner, memory_bytes=ram_bytes)
        return System((runner,), Host(runner, runner.memory_bytes))
    devices = tuple(_within_ram(resolve_device(gpu, GPU_KINDS, figures, folders), ram_bytes) for gpu in gpus)
    host = None if cpu is None else resolve_device(cpu, ("cpu", "soc"), None, folders)
    return System(devices, Host(host, ram_bytes))


def _within_ram(device: Device, ram_bytes: float | None) -> Device:
    """A device on the host's own memory has no more of it than is said to be there."""
    if ram_bytes is None or not device.unified_memory:
        return device
    return replace(device, memory_bytes=min(ram_bytes, device.memory_bytes or ram_bytes))


def resolve_backend(system: System, backend: str | None = None) -> str:
    """llama.cpp's backend for all devices of `system`, by llama.cpp's spelling. Raises InputError if one lacks it.

    Devices of other computers have a backend of their own there: they count where there are no others.
    """
    here = system.devices[system.remote :] or system.devices[:1]
    if backend is None:
        chosen = {device.default_backend for device in here}
        if len(chosen) > 1:
            names = " and ".join(sorted(chosen))
            raise InputError(
                f"the devices would use {names}; choose one that runs on all of them with --backend Vulkan"
            )
        return chosen.pop()
    known = {name.casefold(): name for name in BACKENDS}
    name = known.get(backend.casefold())
    if name is None:
        raise InputError(f"backend: {backend!r} is none of {', '.join(BACKENDS)}")
    for device in here:
        if device.id != CUSTOM and name not in device.backends:
            raise InputError(
                f"backend: {name} does not run on {device.name}; it has {', '.join(device.backends) or 'none'}"
            )
    return name


def resolve_model(model: ModelLike, quant: str | None = None, folders: Sequence[Path] = ()) -> ModelRequest:
    """The model that a catalog name, a .gguf file or a config.json means, with its weights.

    "-" is a .gguf file, or its first megabytes, on standard input. A .gguf brings its own tensor types. Otherwise
    `quant` names llama-quantize's file type; without one, it is the type that the name ends in ("…-Q6_K.gguf"), or the
    usual one.
    """
    if isinstance(model, Model):
        return _quantised(model, quant, None)
    if str(model) == STANDARD_INPUT:
        return _from_gguf(sys.stdin.buffer, "standard input", quant)
    path = Path(model)
    ending, exists = path.suffix.lower(), os.path.exists(model)
    if exists and ending == ".gguf" and os.path.isfile(model):
        return _from_gguf(path, path.name, quant)
    if exists or ending == ".json":
        return _from_config(path, quant)
    if isinstance(model, Path) or (ending == ".gguf" and len(path.parts) > 1):
        raise InputError(f"model: there is no file {str(model)!r}")
    return _quantised(find_model(model, folders), quant, model)


def _from_gguf(source: Path | BinaryIO, name: str, quant: str | None) -> ModelRequest:
    from .importers.gguf import read_gguf

    if quant is not None:
        raise InputError(
            f"--quant {quant} contradicts {name}: the file says its tensor types itself; leave --quant out"
        )
    file = read_gguf(source)
    note = f"Shapes, tensor types and bytes were read from {name}."
    return ModelRequest(file.model, file.weights, file.weights.label, True, (note, *file.notes))


def _from_config(path: Path, quant: str | None) -> ModelRequest:
    from .importers.hf_config import read_config, read_quantization

    stored = read_quantization(path)
    made = _quantised(read_config(path), quant, None)
    if stored is None:
        return made
    note = (
        f"The checkpoint is stored as {stored.method} ({stored.bits_per_weight:.2f} bits per weight); llama.cpp runs a "
        f"GGUF conversion of it, here {made.quantisation}."
    )
    return replace(made, notes=(*made.notes, note))


def _quantised(model: Model, quant: str | None, name: str | None) -> ModelRequest:
    if quant is not None and not quant.strip():
        raise InputError("quantisation: the name is empty; write it like 'q4' or 'Q4_K_M'")
    in_name = re.search(_FILE_TYPE_IN_NAME, name) if name and quant is None else None
    usual = "MXFP4_MOE" if model.architecture == "gpt-oss" else DEFAULT_FILE_TYPE  # the only form it was released in
    chosen = file_type(quant or (in_name[1] if in_name else usual))
    made = weights(model, chosen)
    notes = list(made.notes)
    if not runs_in_llama_cpp(model.architecture):
        notes.append(f"llama.cpp b11434 cannot run {model.architecture} models; the figures say what it would take.")
    if quant is None and in_name is None:
        notes.append(f"No quantisation was named: {chosen.name} is assumed.")
    if made.needs_imatrix:
        notes.append(f"llama-quantize makes {chosen.name} only with an importance matrix.")
    return ModelRequest(model, made, chosen.name, False, tuple(notes))


def resolve_workload(
    model: Model,
    *,
    ctx: object = None,
    prompt: object = None,
    output: object = DEFAULT_OUTPUT,
    cached_prefix: object = 0,
    parallel: int = 1,
    kv_type_k: str = "f16",
    kv_type_v: str = "f16",
    flash_attention: bool | str = "auto",
    batch: object = 2048,
    ubatch: object = 512,
    kv_unified: bool = False,
    swa_full: bool = False,
    all_logits: bool = True,
) -> tuple[Workload, tuple[int, ...]]:
    """The workload and the prompt lengths to predict: one prompt or several given, else an everyday and a long one.

    Raises InputError for a prompt and output that do not fit the context of one sequence.
    """
    output_tokens = parse_tokens(output, "output")
    given = prompt if isinstance(prompt, (list, tuple)) else [] if prompt is None else [prompt]
    prompts = [parse_tokens(value, "prompt") for value in given]
    if ctx is not None:
        context = parse_tokens(ctx, "ctx")
    else:
        needed = (max(prompts, default=0) + output_tokens) * max(parallel, 1)
        context = max(min(DEFAULT_CONTEXT, model.max_context or DEFAULT_CONTEXT), needed)
    workload = Workload(
        context=context,
        parallel=parallel,
        output=output_tokens,
        batch=parse_tokens(batch, "batch"),
        ubatch=parse_tokens(ubatch, "ubatch"),
        kv_type_k=_cache_type(kv_type_k),
        kv_type_v=_cache_type(kv_type_v),
        flash_attention=_switch(flash_attention),
        kv_unified=kv_unified,
        swa_full=swa_full,
        all_logits=all_logits,
    )
    room = sequence_room(workload)
    chosen = prompts or _default_prompts(room, output_tokens)
    if max(chosen) + output_tokens > room:
        raise InputError(
            f"prompt {max(chosen):,} + output {output_tokens:,} do not fit the {room:,} tokens of context that one "
            f"sequence has; raise --ctx or lower --prompt or --output"
        )
    cached = parse_tokens(cached_prefix, "cached_prefix")
    return replace(workload, prompt=chosen[0], cached_prefix=cached), tuple(chosen)


def sequence_room(workload: Workload) -> int:
    """Tokens that one sequence may hold: its share of the configured context, without llama.cpp's padding."""
    return workload.context if workload.kv_unified else max(workload.context // workload.parallel, 1)


def _default_prompts(room: int, output: int) -> list[int]:
    """An everyday prompt, and one that leaves just room for the answer."""
    longest = max(room - output, 1)
    everyday = min(EVERYDAY_PROMPT, longest)
    return [everyday, longest] if longest > everyday else [everyday]


def _cache_type(name: str) -> str:
    return ggml_type(name).name


def _switch(value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("on", "off", "auto"):
        raise InputError(f"flash_attention: {value!r} is none of on, off, auto")
    return value != "off"


def _threads(threads: int | None) -> int | None:
    if threads is not None and threads < 1:
        raise InputError(f"threads: must be at least 1, got {threads}")
    return threads


def resolve(
    *,
    model: ModelLike,
    gpu: DeviceLike | Sequence[DeviceLike] | None = None,
    cpu: DeviceLike | None = None,
    ram: object = None,
    backend: str | None = None,
    quant: str | None = None,
    figures: Mapping[str, object] | None = None,
    queue: object = 0.0,
    threads: int | None = None,
    catalog: str | Path | Sequence[str | Path] = (),
    profile: str | bool = False,
    settings: PlacementSettings | None = None,
    rpc: Sequence[DeviceLike] = (),
    surroundings: Mapping[str, object] | None = None,
    **workload: object,
) -> Request:
    """A request from names and quantities; `workload` takes the arguments of `resolve_workload`.

    `profile`: the name of a calibration to use, whose machine is the device where none is named; or True for the newest
    one of the named device, if there is any. `settings`: where layers and tensors lie. `rpc`: devices of other
    computers, before the others in order. `surroundings`: network, latency, ram_bandwidth, disk (see `surrounded`).
    """
    folders = [Path(f) for f in ([catalog] if isinstance(catalog, (str, Path)) else catalog)]
    gpus = [] if gpu is None else [gpu] if isinstance(gpu, (str, Device)) else list(gpu)
    gpus = [*rpc, *gpus]
    if isinstance(profile, str) and not gpus and cpu is None:
        gpus, cpu, backend = _profile_machine(profile, backend)
    system, seen = _this_machine() if gpus == [AUTO] else (resolve_system(gpus, cpu, ram, figures, folders), ())
    around = {key: value for key, value in (surroundings or {}).items() if value is not None}
    if rpc or around:
        from .surroundings import surrounded

        system = surrounded(system, remote=len(rpc), **around)
    made = resolve_model(model, quant, folders)
    asked, prompts = resolve_workload(made.model, **workload)  # type: ignore[arg-type]
    chosen = resolve_backend(system, backend)
    efficiency, said = _profile_factors(profile, chosen, system)
    return Request(
        system=system,
        backend=chosen,
        model=made.model,
        weights=made.weights,
        quantisation=made.quantisation,
        workload=asked,
        prompts=prompts,
        queue_s=parse(queue, "seconds", "queue"),
        threads=_threads(threads),
        notes=(*said, *seen, *made.notes),
        efficiency=efficiency,
        settings=None if settings is None or settings.is_default else settings,
    )


def _profile_machine(name: str, backend: str | None) -> tuple[list[DeviceLike], Device | None, str]:
    """GPUs, CPU and backend of a profile's machine."""
    from .calibration.profile_use import named_machine

    machine = named_machine(name, backend)
    on_cpu = machine.backend == "CPU"
    return ([], machine.device, "CPU") if on_cpu else ([machine.device], None, machine.backend)


def _profile_factors(profile: str | bool, backend: str, system: System) -> tuple[Efficiency | None, tuple[str, ...]]:
    """The factors of a named or a matching profile, and what to say of it."""
    if not profile or (profile is True and not profile_folder().is_dir()):
        return None, ()
    from .calibration.profile_use import named_profile, own_profile

    if isinstance(profile, str):
        return named_profile(profile, backend, system.devices)
    return own_profile(backend, system.devices)


def _this_machine() -> tuple[System, tuple[str, ...]]:
    """The machine that this runs on, and what could not be seen of it."""
    from .detection.machine import detect_machine

    machine = detect_machine()
    return machine.to_system(), machine.problems
