"""llama.cpp's placement options as people give them, checked, and turned into a Placement and back into flags.

Imports `placement` and `system`. Meanings are those of llama.cpp b11434, common/arg.cpp; where llama.cpp would ignore a
contradiction in silence, an InputError says it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from .architecture import Model, MoeFfn
from .errors import InputError
from .links import LOAD_MODES, LoadMode
from .placement import HOST, Placement, Rule, dense_ffn_rule, expert_rule, on_host, place, slot_count, with_rules
from .system import System

SplitMode = Literal["layer", "row", "tensor", "none"]
SPLIT_MODES: Final = ("layer", "row", "tensor", "none")
HOST_NAMES: Final = frozenset({"cpu", "host"})
MOST_SHARES: Final = 1e9  # of all shares together: single precision still tells them apart
ROW_BACKENDS: Final = frozenset({"SYCL"})  # the others have no split buffers any more (ggml_backend_split_buffer_type)
_DEVICE_NAME: Final = re.compile(r"(?:cuda|rocm|vulkan|sycl|opencl|metal|mtl|rpc|gpu|hip)?(\d+)", re.I)

# llm_arch_supports_sm_tensor (src/llama-arch.cpp): architectures that --split-mode tensor refuses.
UNSPLITTABLE_ARCHITECTURES: Final = frozenset(
    {"grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe",
     "deepseek2", "deepseek32", "glm-dsa", "bitnet", "t5", "nemotron_h", "nemotron_h_moe", "granitehybrid",
     "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3"}
)  # fmt: skip


@dataclass(frozen=True)
class PlacementSettings:
    """What was asked; None and empty: llama.cpp's default."""

    ngl: int | None = None
    n_cpu_moe: int | None = None
    cpu_moe: bool = False
    n_cpu_ffn: int | None = None
    overrides: tuple[str, ...] = ()  # "REGEX=DEVICE", several separated by commas
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int | None = None
    kv_offload: bool = True
    op_offload: bool = True
    load_mode: LoadMode = "auto"

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked."""
        return self == PlacementSettings()

    def flags(self) -> tuple[str, ...]:
        """The llama.cpp options that say the same."""
        given = [
            ("-ngl", self.ngl),
            ("--n-cpu-moe", self.n_cpu_moe),
            ("--cpu-moe", True if self.cpu_moe else None),
            ("--n-cpu-ffn", self.n_cpu_ffn),
            ("-ts", ",".join(f"{share:g}" for share in self.tensor_split) or None),
            ("-sm", None if self.split_mode == "layer" else self.split_mode),
            ("-mg", self.main_gpu),
            ("--no-kv-offload", None if self.kv_offload else True),
            ("--no-op-offload", None if self.op_offload else True),
            ("-lm", None if self.load_mode == "auto" else self.load_mode),
        ]
        flags = [f'-ot "{rule}"' for rule in self.overrides]
        return (*(name if value is True else f"{name} {value}" for name, value in given if value is not None), *flags)

    def bench_flags(self, layers: int) -> tuple[str, ...]:
        """The options of llama-bench that say the same, for a model of so many layers."""
        rules = [rule for text in self.overrides for rule in text.split(",")]
        if self.n_cpu_ffn:
            rules.append(f"{dense_ffn_rule(min(self.n_cpu_ffn, layers))[0]}=CPU")
        given = [
            ("-ngl", self.ngl),
            ("-ncmoe", layers if self.cpu_moe else self.n_cpu_moe),
            ("-ts", "/".join(f"{share:g}" for share in self.tensor_split) or None),
            ("-sm", None if self.split_mode == "layer" else self.split_mode),
            ("-mg", self.main_gpu),
            ("-nkvo", None if self.kv_offload else 1),
            ("-nopo", None if self.op_offload else 1),
            ("-lm", None if self.load_mode == "auto" else self.load_mode),
            ("-ot", f'"{";".join(rules)}"' if rules else None),
        ]
        return tuple(f"{name} {value}" for name, value in given if value is not None)


def settings(**given: object) -> PlacementSettings:
    """Settings of the options that are given: those that are None are left alone."""
    return PlacementSettings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def placement_of(asked: PlacementSettings, model: Model, system: System, backend: str) -> Placement:
    """The placement that llama.cpp would make. Raises InputError for what cannot be meant, in one sentence."""
    gpus = [device for device in system.devices if not device.is_cpu]
    _check(asked, model, len(gpus))
    if not gpus:
        return on_host(model)
    placement = place(model, asked.ngl, _shares(asked, system))
    if asked.split_mode == "none":
        main = asked.main_gpu or 0
        slots = tuple(HOST if slot == HOST else main for slot in placement.slots)
        placement = replace(placement, slots=slots)
    if _splits_matrices(asked, backend) and len(gpus) > 1:
        shares = _shares(asked, system)
        placement = replace(placement, split=tuple(share / sum(shares) for share in shares))
    rules = rules_of(asked, model, len(gpus))
    placement = with_rules(model, placement, rules, sum(len(text.split(",")) for text in asked.overrides))
    return replace(
        placement,
        cache_on_host=not asked.kv_offload,
        op_offload=asked.op_offload,
        pipelining=asked.split_mode == "layer",
    )


def placement_notes(asked: PlacementSettings, backend: str) -> list[str]:
    """What to know about these settings."""
    notes = []
    if asked.split_mode == "row" and backend not in ROW_BACKENDS:
        notes.append(
            f"llama.cpp b11434 has no row split for {backend} (older builds had): use --split-mode layer or tensor."
        )
    if asked.split_mode == "tensor":
        notes.append("--split-mode tensor is experimental; its memory by device is a share of the whole here.")
    if asked.main_gpu is not None and asked.split_mode in ("layer", "tensor"):
        notes.append(f"--main-gpu changes nothing with --split-mode {asked.split_mode}; it goes with none.")
    total = sum(asked.tensor_split)
    if asked.tensor_split and max(asked.tensor_split) < 1 and abs(total - 1) > 0.005:
        shares = ", ".join(f"{share / total:.0%}" for share in asked.tensor_split)
        notes.append(f"--tensor-split does not sum to 1; llama.cpp takes it as proportions: {shares}.")
    return notes


def rules_of(asked: PlacementSettings, model: Model, gpus: int) -> list[Rule]:
    """The rules for single tensors in llama.cpp's order: overrides as given, then the shorthands."""
    rules = [_rule(part, gpus) for text in asked.overrides for part in text.split(",")]
    if asked.cpu_moe:
        rules.append(expert_rule())
    if asked.n_cpu_moe:
        rules.append(expert_rule(min(asked.n_cpu_moe, slot_count(model) - 1)))
    if asked.n_cpu_ffn:
        rules.append(dense_ffn_rule(min(asked.n_cpu_ffn, slot_count(model) - 1)))
    return rules


def _rule(text: str, gpus: int) -> Rule:
    pattern, separator, where = text.rpartition("=")
    if not separator or not pattern:
        raise InputError(rf"override-tensor: {text!r} is not of the form REGEX=DEVICE, such as \.ffn_.*_exps=CPU")
    if where.lower() in HOST_NAMES:
        return pattern, HOST
    found = _DEVICE_NAME.fullmatch(where)
    if found is None or int(found[1]) >= gpus:
        names = ", ".join(["CPU", *(f"GPU{i}" for i in range(gpus))])
        raise InputError(f"override-tensor: {where!r} is no device here; known: {names}")
    return pattern, int(found[1])


def _shares(asked: PlacementSettings, system: System) -> list[float]:
    """-ts, filled up with zeros like llama.cpp's; else the memories, which it splits by."""
    gpus = [device for device in system.devices if not device.is_cpu]
    if asked.tensor_split:
        return [*asked.tensor_split, *[0.0] * (len(gpus) - len(asked.tensor_split))]
    memories = [float(device.memory_bytes or 0) for device in gpus]
    return memories if all(memories) else [1.0] * len(gpus)


def _splits_matrices(asked: PlacementSettings, backend: str) -> bool:
    return asked.split_mode == "tensor" or (asked.split_mode == "row" and backend in ROW_BACKENDS)


def _check(asked: PlacementSettings, model: Model, gpus: int) -> None:
    _check_numbers(asked)
    _check_split(asked, gpus)
    moe = [isinstance(layer.ffn, MoeFfn) for layer in model.layers]
    if asked.cpu_moe and asked.n_cpu_moe is not None:
        raise InputError(
            "--cpu-moe and --n-cpu-moe contradict each other: all experts on the CPU, or those of N layers"
        )
    if (asked.cpu_moe or asked.n_cpu_moe) and not any(moe):
        flag = "--cpu-moe" if asked.cpu_moe else "--n-cpu-moe"
        raise InputError(f"{flag}: {model.id} has no experts; --n-cpu-ffn moves the feed-forwards of dense models")
    if asked.n_cpu_ffn and all(moe):
        raise InputError(f"--n-cpu-ffn: {model.id} has no dense feed-forwards; --n-cpu-moe moves experts")
    if not gpus and (asked.ngl or asked.overrides or asked.tensor_split or asked.cpu_moe or asked.n_cpu_moe):
        raise InputError("placement: there is no GPU to place anything on; name one with --gpu")
    if asked.split_mode == "tensor":
        _check_tensor_mode(asked, model)


def _check_numbers(asked: PlacementSettings) -> None:
    for name in ("ngl", "n_cpu_moe", "n_cpu_ffn"):
        value = getattr(asked, name)
        if value is not None and value < 0:
            raise InputError(f"--{name.replace('_', '-')}: must not be negative, got {value}")
    for name, known in (("split_mode", SPLIT_MODES), ("load_mode", LOAD_MODES)):
        if getattr(asked, name) not in known:
            raise InputError(f"--{name.replace('_', '-')}: {getattr(asked, name)!r} is none of {', '.join(known)}")


def _check_split(asked: PlacementSettings, gpus: int) -> None:
    split = asked.tensor_split
    if split and not (min(split) >= 0 and 0 < sum(split) <= MOST_SHARES):
        raise InputError(f"--tensor-split: shares must be numbers, not negative and not all 0, got {_joined(split)}")
    if len(split) > max(gpus, 1):
        raise InputError(f"--tensor-split: {len(split)} shares ({_joined(split)}) for {gpus} GPUs")
    if split and asked.split_mode == "none":
        raise InputError("--tensor-split and --split-mode none contradict each other: none uses the main GPU alone")
    if asked.main_gpu is not None and not 0 <= asked.main_gpu < max(gpus, 1):
        raise InputError(f"--main-gpu: there is no GPU {asked.main_gpu}; the system has {gpus}, counted from 0")


def _check_tensor_mode(asked: PlacementSettings, model: Model) -> None:
    if model.architecture in UNSPLITTABLE_ARCHITECTURES:
        raise InputError(f"--split-mode tensor: llama.cpp b11434 does not split {model.architecture} models; use layer")
    partial = asked.ngl is not None and asked.ngl < slot_count(model)
    if partial or asked.cpu_moe or asked.n_cpu_moe or asked.n_cpu_ffn or asked.overrides or not asked.kv_offload:
        raise InputError("--split-mode tensor: splits whole models on GPUs only; leave out -ngl, -ot and --n-cpu-moe")


def _joined(split: Sequence[float]) -> str:
    return ",".join(f"{share:g}" for share in split)
