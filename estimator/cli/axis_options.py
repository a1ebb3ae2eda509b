"""Options whose values are axes: what `compare` and `sweep` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from .options import BANDWIDTH, BYTES, PEAK, TOKENS, catalog_option, figures_of, profile_options

F = TypeVar("F", bound=Callable[..., Any])

_REPEATED = {"multiple": True}

_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--model", "-m", required=True, metavar="NAMES", help="Catalog names or files.", **_REPEATED),
    click.option("--quant", "-q", metavar="TYPES", help="File types: q4,q5,q8.", **_REPEATED),
    click.option("--gpu", metavar="MACHINES", help='Such as "rtx4090,2x rtx3090+rtx3060": two machines.', **_REPEATED),
    click.option("--cpu", metavar="NAMES", help="CPUs to run on; with --gpu, the host's.", **_REPEATED),
    click.option("--ram", type=BYTES, metavar="SIZE", help="Host memory, such as 64GiB."),
    click.option("--backend", metavar="NAMES", help="CUDA,Vulkan …  [device's default]", **_REPEATED),
    click.option("--memory", type=BYTES, metavar="SIZE", help="Device memory, overriding the catalog."),
    click.option("--bandwidth", type=BANDWIDTH, metavar="RATE", help="Memory bandwidth, overriding the catalog."),
    click.option("--fp32", type=PEAK, metavar="PEAK", help="FP32 peak."),
    click.option("--fp16", type=PEAK, metavar="PEAK", help="FP16 matrix peak."),
    click.option("--int8", type=PEAK, metavar="PEAK", help="INT8 matrix peak."),
    click.option("--cores", type=int, metavar="N", help="CPU cores that are there."),
    click.option(
        "--ctx", "-c", metavar="TOKENS", help="Context of all sequences together: 1k..128k  [8k]", **_REPEATED
    ),
    click.option("--parallel", metavar="NUMBERS", help="Sequences at once: 1..32  [1]", **_REPEATED),
    click.option("--prompt", "-p", metavar="TOKENS", help='Lengths, "everyday", "full"  [everyday: 1k]', **_REPEATED),
    click.option("--cached-prefix", metavar="TOKENS", help="Prompt tokens that are cached already  [0]", **_REPEATED),
    click.option("--output", "-n", type=TOKENS, default=256, show_default=True, metavar="N", help="Tokens out."),
    click.option("--kv-type", metavar="TYPES", help="Cache types: f16,q8_0,q8_0/q4_0 (K/V)  [f16]", **_REPEATED),
    click.option("--flash-attn", metavar="on|off", help="on,off compares both  [auto]", **_REPEATED),
    click.option("--ubatch", metavar="TOKENS", help="Physical batches: 512,1k,2k  [512]", **_REPEATED),
    click.option("--batch", type=TOKENS, default=2048, show_default=True, metavar="N", help="Logical batch."),
    click.option("--threads", type=int, metavar="N", help="CPU threads  [all cores]"),
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
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
