"""Options for where layers and tensors lie, spelled like llama.cpp's, and for what is around the devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .option_groups import apply_options
from .parameter_types import BANDWIDTH, LAYERS, SECONDS, flag_of

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:  # generic from click 8.2 on
    from ..placement_settings import PlacementSettings

    _IntType = click.ParamType[int]
    _SharesType = click.ParamType[tuple[float, ...]]
    _StrType = click.ParamType[str]
else:
    _IntType = _SharesType = _StrType = click.ParamType

ALL_LAYERS = 2**31 - 1  # more than any model has: the same as leaving --ngl out
MOST_SHARE = 1e6  # of one GPU; only proportions count


class Layers(_IntType):
    """A number of layers, or "all" or "auto", which mean the default; never more than ALL_LAYERS."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value in ("all", "auto"):
            return ALL_LAYERS
        try:
            layers = int(value)
        except ValueError:
            raise click.UsageError(f"{flag_of(param)}: {value!r} is neither a number of layers nor all", ctx) from None
        if not 0 <= layers <= ALL_LAYERS:
            raise click.UsageError(f"{flag_of(param)}: must be from 0 to {ALL_LAYERS:,} layers, got {value}", ctx)
        return layers


class Shares(_SharesType):
    """Proportions separated by commas or slashes: 3,1."""

    name = "shares"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            shares = tuple(float(share) for share in re.split(r"[,/]+", value))
        except ValueError:
            raise click.UsageError(f"{flag_of(param)}: {value!r} is no list of proportions such as 3,1", ctx) from None
        if not all(0 <= share <= MOST_SHARE for share in shares):
            raise click.UsageError(f"{flag_of(param)}: shares must be from 0 to {MOST_SHARE:g}, got {value}", ctx)
        return shares


class Network(_StrType):
    """A network's rate: 10GbE, "1.2 GB/s"; checked here, handed on as it is."""

    name = "network"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ..surroundings import network_link

        try:
            network_link(value)
        except InputError as error:
            raise click.UsageError(str(error), ctx) from None
        return str(value)


def placement_options(command: F) -> F:
    """Where layers and tensors lie, by llama.cpp's names, and what is around the devices."""
    return apply_options([*_tensors(), *_gpus(), *_surroundings()], command)


def _tensors() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--ngl",
            "-ngl",
            "--gpu-layers",
            "ngl",
            type=Layers(),
            metavar="N",
            help="Layers on the GPUs, the last ones first  [all]",
        ),
        click.option(
            "--n-cpu-moe", "-ncmoe", type=LAYERS, metavar="N", help="Experts of the first N layers on the CPU."
        ),
        click.option("--cpu-moe", "-cmoe", is_flag=True, help="All experts on the CPU."),
        click.option(
            "--n-cpu-ffn",
            "-ncffn",
            type=LAYERS,
            metavar="N",
            help="Dense feed-forwards of the first N layers on the CPU.",
        ),
        click.option(
            "--override-tensor",
            "-ot",
            "overrides",
            multiple=True,
            metavar="REGEX=DEVICE",
            help="Tensors whose names match on CPU, GPU0 …; repeatable, the first match wins.",
        ),
    ]


def _gpus() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--tensor-split", "-ts", type=Shares(), metavar="N0,N1", help="Proportions of the GPUs  [by memory]"
        ),
        click.option(
            "--split-mode", "-sm", type=click.Choice(["layer", "row", "tensor", "none"]), help="How GPUs share  [layer]"
        ),
        click.option("--main-gpu", "-mg", type=LAYERS, metavar="I", help="The GPU that --split-mode none uses  [0]"),
        click.option("--no-kv-offload", "-nkvo", "no_kv_offload", is_flag=True, help="KV cache in host memory."),
        click.option(
            "--no-op-offload", "no_op_offload", is_flag=True, help="Large batches of host weights stay on the CPU."
        ),
        click.option(
            "--load-mode",
            "-lm",
            type=click.Choice(["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]),
            help="none: pinned host memory, faster copies  [auto]",
        ),
    ]


def _surroundings() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--rpc", multiple=True, metavar="NAME", help="A device of another computer; repeatable, before the others."
        ),
        click.option(
            "--network", type=Network(), metavar="RATE", help='Network to the --rpc devices: 10GbE, "1.2 GB/s"  [1GbE]'
        ),
        click.option(
            "--network-latency", type=SECONDS, metavar="TIME", help="Round trip over it, such as 50us  [200us]"
        ),
        click.option(
            "--ram-bandwidth",
            type=BANDWIDTH,
            metavar="RATE",
            help="Memory bandwidth of the host, where --cpu is not named or wrong.",
        ),
        click.option(
            "--disk", type=BANDWIDTH, metavar="RATE", help="Read rate of the disk, for weights beyond host memory."
        ),
    ]


def settings_of(given: Mapping[str, Any]) -> PlacementSettings | None:
    """The placement among a command's parameters; None, without loading more, where none was asked for."""
    asked = {
        "ngl": None if given["ngl"] == ALL_LAYERS else given["ngl"],
        "n_cpu_moe": given["n_cpu_moe"],
        "cpu_moe": given["cpu_moe"] or None,
        "n_cpu_ffn": given["n_cpu_ffn"],
        "overrides": given["overrides"] or None,
        "tensor_split": given["tensor_split"],
        "split_mode": given["split_mode"],
        "main_gpu": given["main_gpu"],
        "kv_offload": False if given["no_kv_offload"] else None,
        "op_offload": False if given["no_op_offload"] else None,
        "load_mode": given["load_mode"],
    }
    if all(value is None for value in asked.values()):
        return None
    from ..placement_settings import settings

    return settings(**asked)


def surroundings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is around the devices, as `request.resolve` takes it."""
    return {
        "network": given["network"],
        "latency": given["network_latency"],
        "ram_bandwidth": given["ram_bandwidth"],
        "disk": given["disk"],
    }
