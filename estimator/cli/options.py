"""Options that several commands share, and the requests that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .option_groups import apply_options
from .parameter_types import BANDWIDTH, BYTES, CORES, PEAK, SECONDS, SEQUENCES, SOME_TOKENS, THREADS, TOKENS
from .placement_options import placement_options, settings_of, surroundings_of

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from ..request import Request


def machine_options(command: F) -> F:
    """--gpu, --cpu, --ram, --backend and the figures that override or define a device."""
    return apply_options(
        [
            click.option(
                "--gpu",
                multiple=True,
                metavar="NAME",
                help="Device; repeatable. auto: this machine; custom: by figures.",
            ),
            click.option("--cpu", metavar="NAME", help="Host CPU; without --gpu, the device that runs the model."),
            click.option("--ram", type=BYTES, metavar="SIZE", help="Host memory, such as 64GiB."),
            click.option(
                "--backend", metavar="NAME", help="CUDA, ROCm, Vulkan, Metal, SYCL or CPU  [device's default]"
            ),
            click.option("--memory", type=BYTES, metavar="SIZE", help="Device memory, overriding the catalog."),
            click.option("--bandwidth", type=BANDWIDTH, metavar="RATE", help='Memory bandwidth, such as "1.2 TB/s".'),
            click.option("--fp32", type=PEAK, metavar="PEAK", help="FP32 peak, such as 40TFLOPS."),
            click.option("--fp16", type=PEAK, metavar="PEAK", help="FP16 matrix peak, dense, FP32 accumulation."),
            click.option("--int8", type=PEAK, metavar="PEAK", help="INT8 matrix peak, dense."),
            click.option("--cores", type=CORES, metavar="N", help="Cores of the CPU that are there, as in a VM  [all]"),
        ],
        command,
    )


def model_options(command: F) -> F:
    """--model and --quant."""
    return apply_options(
        [
            click.option(
                "--model",
                "-m",
                required=True,
                metavar="NAME|FILE",
                help="Catalog name, .gguf file (- is stdin), config.json.",
            ),
            click.option("--quant", "-q", metavar="TYPE", help="File type: q4 (= Q4_K_M), q8, f16, mxfp4, IQ4_XS …"),
        ],
        command,
    )


def context_options(command: F) -> F:
    """What decides the bytes of the context and of the compute buffers."""
    return apply_options(
        [
            click.option("--ctx", "-c", type=SOME_TOKENS, metavar="N", help="Context to reserve, such as 32k  [8k]"),
            click.option(
                "--parallel",
                "-np",
                type=SEQUENCES,
                default=1,
                show_default=True,
                metavar="N",
                help="Sequences at once.",
            ),
            click.option(
                "--kv-type-k", "-ctk", default="f16", show_default=True, metavar="TYPE", help="Type of the K cache."
            ),
            click.option(
                "--kv-type-v", "-ctv", default="f16", show_default=True, metavar="TYPE", help="Type of the V cache."
            ),
            click.option(
                "--flash-attn",
                "-fa",
                type=click.Choice(["on", "off", "auto"]),
                default="auto",
                show_default=True,
                help="Flash attention; auto is on for every backend here.",
            ),
            click.option(
                "--ubatch", "-ub", type=SOME_TOKENS, default=512, show_default=True, metavar="N", help="Physical batch."
            ),
            click.option(
                "--batch", "-b", type=SOME_TOKENS, default=2048, show_default=True, metavar="N", help="Logical batch."
            ),
            click.option("--kv-unified", is_flag=True, help="One cache for all sequences."),
            click.option("--swa-full", is_flag=True, help="Sliding-window layers keep the whole context."),
        ],
        command,
    )


def request_options(command: F) -> F:
    """Model, machine, context and what is asked of them: everything that `request_of` takes."""
    return apply_options([model_options, run_options], command)


def run_options(command: F) -> F:
    """The same without the model."""
    return apply_options(
        [
            machine_options,
            placement_options,
            context_options,
            click.option(
                "--prompt",
                "-p",
                type=SOME_TOKENS,
                multiple=True,
                metavar="N",
                help="Prompt length; repeatable  [1k and all]",
            ),
            click.option(
                "--output", "-n", type=TOKENS, default=256, show_default=True, metavar="N", help="Tokens of the answer."
            ),
            click.option(
                "--cached-prefix", type=TOKENS, default=0, metavar="N", help="Prompt tokens that are cached already."
            ),
            click.option("--queue", type=SECONDS, default=0.0, help="Wait before the request starts: 2s."),
            click.option("--threads", "-t", type=THREADS, metavar="N", help="CPU threads  [all cores]"),
            profile_options,
            catalog_option,
        ],
        command,
    )


def request_of(given: Mapping[str, Any]) -> Request:
    """The request that the parameters of `request_options` describe."""
    from ..request import resolve

    return resolve(
        model=given["model"],
        gpu=given["gpu"],
        cpu=given["cpu"],
        ram=given["ram"],
        backend=given["backend"],
        quant=given["quant"],
        figures=figures_of(given),
        queue=given["queue"],
        threads=given["threads"],
        catalog=given["catalog"],
        prompt=given["prompt"] or None,
        output=given["output"],
        cached_prefix=given["cached_prefix"],
        profile=given["profile"] or not given["no_profile"],
        settings=settings_of(given),
        rpc=given["rpc"],
        surroundings=surroundings_of(given),
        **workload_of(given),
    )


def profile_options(command: F) -> F:
    """--profile and --no-profile."""
    return apply_options(
        [
            click.option(
                "--profile", metavar="NAME", help="Calibration to use, and its device  [the device's newest, if any]"
            ),
            click.option("--no-profile", is_flag=True, help="Use the factors that come with llmcalc."),
        ],
        command,
    )


def figures_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The device figures among a command's parameters, by the names that `request.resolve_device` takes."""
    return {
        "memory": given["memory"],
        "bandwidth": given["bandwidth"],
        "fp32": given["fp32"],
        "fp16": given["fp16"],
        "fp16_matrix": given["fp16"],
        "int8_matrix": given["int8"],
        "cores": given["cores"],
    }


def workload_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among a command's parameters that `request.resolve_workload` takes."""
    names = ("ctx", "parallel", "kv_type_k", "kv_type_v", "batch", "ubatch", "kv_unified", "swa_full")
    return {name: given[name] for name in names} | {"flash_attention": given["flash_attn"]}


def json_option(command: F) -> F:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def catalog_option(command: F) -> F:
    """--catalog."""
    return click.option(
        "--catalog",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder whose YAML overlays the built-in catalogs; repeatable.",
    )(command)
