"""Options whose values are axes: what `compare` and `sweep` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from .option_groups import apply_options
from .options import catalog_option, figures_of, profile_options
from .parameter_types import BANDWIDTH, BYTES, CORES, PEAK, SOME_TOKENS, THREADS, TOKENS

F = TypeVar("F", bound=Callable[..., Any])


def _repeated(*names: str, metavar: str, text: str, required: bool = False) -> Callable[[Any], Any]:
    return click.option(*names, metavar=metavar, help=text, multiple=True, required=required)


_OPTIONS: list[Callable[[Any], Any]] = [
    _repeated("--model", "-m", metavar="NAMES", text="Catalog names or files.", required=True),
    _repeated("--quant", "-q", metavar="TYPES", text="File types: q4,q5,q8."),
    _repeated("--gpu", metavar="MACHINES", text='Such as "rtx4090,2x rtx3090+rtx3060": two machines.'),
    _repeated("--cpu", metavar="NAMES", text="CPUs to run on; with --gpu, the host's."),
    click.option("--ram", type=BYTES, metavar="SIZE", help="Host memory, such as 64GiB."),
    _repeated("--ngl", "-ngl", metavar="LAYERS", text="Layers on the GPUs: 0..32, all  [all]"),
    _repeated("--n-cpu-moe", "-ncmoe", metavar="LAYERS", text="Layers whose experts are on the CPU: 0..48+4  [0]"),
    _repeated("--backend", metavar="NAMES", text="CUDA,Vulkan …  [device's default]"),
    click.option("--memory", type=BYTES, metavar="SIZE", help="Device memory, overriding the catalog."),
    click.option("--bandwidth", type=BANDWIDTH, metavar="RATE", help="Memory bandwidth, overriding the catalog."),
    click.option("--fp32", type=PEAK, metavar="PEAK", help="FP32 peak."),
    click.option("--fp16", type=PEAK, metavar="PEAK", help="FP16 matrix peak."),
    click.option("--int8", type=PEAK, metavar="PEAK", help="INT8 matrix peak."),
    click.option("--cores", type=CORES, metavar="N", help="CPU cores that are there."),
    _repeated("--ctx", "-c", metavar="TOKENS", text="Context of all sequences together: 1k..128k  [8k]"),
    _repeated("--parallel", metavar="NUMBERS", text="Sequences at once: 1..32  [1]"),
    _repeated("--prompt", "-p", metavar="TOKENS", text='Lengths, "everyday", "full"  [everyday: 1k]'),
    _repeated("--cached-prefix", metavar="TOKENS", text="Prompt tokens that are cached already  [0]"),
    click.option("--output", "-n", type=TOKENS, default=256, show_default=True, metavar="N", help="Tokens out."),
    _repeated("--kv-type", metavar="TYPES", text="Cache types: f16,q8_0,q8_0/q4_0 (K/V)  [f16]"),
    _repeated("--flash-attn", metavar="on|off", text="on,off compares both  [auto]"),
    _repeated("--ubatch", metavar="TOKENS", text="Physical batches: 512,1k,2k  [512]"),
    click.option("--batch", type=SOME_TOKENS, default=2048, show_default=True, metavar="N", help="Logical batch."),
    click.option("--threads", type=THREADS, metavar="N", help="CPU threads  [all cores]"),
    click.option("--kv-unified", is_flag=True, help="One cache for all sequences."),
    click.option("--swa-full", is_flag=True, help="Sliding-window layers keep the whole context."),
    profile_options,
    catalog_option,
]

_AXES = {
    "model": "model",
    "quant": "quant",
    "gpu": "gpu",
    "cpu": "cpu",
    "backend": "backend",
    "ngl": "ngl",
    "n_cpu_moe": "n_cpu_moe",
    "ctx": "ctx",
    "parallel": "parallel",
    "prompt": "prompt",
    "cached_prefix": "cached_prefix",
    "occupied": "occupied",
    "kv_type": "kv_type",
    "flash_attention": "flash_attn",
    "ubatch": "ubatch",
}


def axis_options(command: F) -> F:
    """Machines, models and settings, each of which may have several values."""
    return apply_options(_OPTIONS, command)


def axes_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `parameter_sweep.sweep` that the parameters of `axis_options` describe."""
    axes = {name: list(given[key]) for name, key in _AXES.items() if given.get(key)}
    same = ("ram", "output", "batch", "threads", "kv_unified", "swa_full", "catalog")
    return (
        axes
        | {name: given[name] for name in same}
        | {
            "figures": figures_of(given),
            "profile": given["profile"] or not given["no_profile"],
        }
    )
