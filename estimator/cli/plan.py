"""`llmcalc plan`: the inverse questions: which devices, which models, how many, what does an upgrade bring."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import click

from ..errors import InputError
from .device_filters import device_filters, filtered_devices
from .options import catalog_option, json_option
from .output import echo_page, page_style
from .parameter_types import BYTES, COUNT, DEVICES, PRICE, RATE, SECONDS, SOME_TOKENS, TOKENS, WATTS

Find = Literal["devices", "models", "users", "upgrades"]


@click.command(name="plan")
@click.option("--find", type=click.Choice(["devices", "models", "users", "upgrades"]), help="[by what is given]")
@click.option("--model", "-m", metavar="NAME|FILE", help="Catalog name, .gguf file or config.json.")
@click.option("--quant", "-q", metavar="TYPES", help="File type; for --find models several: q8,q6,q5,q4.")
@click.option("--gpu", multiple=True, metavar="NAME", help="The machine; for --find devices, the kinds to consider.")
@click.option("--cpu", metavar="NAME", help="A CPU to run on (--find models).")
@click.option("--ram", type=BYTES, metavar="SIZE", help="Host memory: lets CPUs and APUs be considered.")
@click.option("--memory", type=BYTES, metavar="SIZE", help="Device memory, overriding the catalog (--find models).")
@click.option("--backend", metavar="NAME", help="Only devices with this backend  [each device's own]")
@click.option("--ctx", "-c", type=SOME_TOKENS, default=8192, metavar="N", help="Context of every user  [8k]")
@click.option("--users", type=COUNT, default=1, show_default=True, metavar="N", help="Who decode at once.")
@click.option("--min-tps", type=RATE, default=0.0, metavar="RATE", help="Least tokens/s of each user.")
@click.option("--max-ttft", type=SECONDS, metavar="TIME", help="Latest first token: 2s.")
@click.option("--max-price", type=PRICE, metavar="USD", help="Most for the devices.")
@click.option("--max-watts", type=WATTS, metavar="POWER", help="Most power by their limits: 700W.")
@click.option("--occupied", type=TOKENS, metavar="N", help="Positions in the cache when tokens/s count  [all of ctx]")
@click.option("--prompt", "-p", type=SOME_TOKENS, metavar="N", help="Prompt that TTFT is of  [1k]")
@click.option("--output", "-n", type=TOKENS, default=256, show_default=True, metavar="N", help="Tokens of the answer.")
@click.option("--kv-type", default="f16", show_default=True, metavar="TYPE", help="Type of the KV cache.")
@click.option("--max-devices", type=DEVICES, metavar="N", help="Most of one kind  [4; 8 for --find users]")
@click.option("--mixed", is_flag=True, help="Consider pairs of different GPUs too.")
@device_filters
@click.option("--add", multiple=True, metavar="NAME", help="Devices to add (--find upgrades)  [all with a price]")
@click.option("--price", multiple=True, metavar="NAME=USD", help="A price in place of the catalog's; repeatable.")
@click.option("--tariff", metavar="PRICE", help='Price of a kWh, such as "0.30 EUR".')
@click.option("--rank", type=click.Choice(["price", "watts", "tokens", "value", "size"]), help="[price; models: size]")
@click.option("--plot", "picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it.")
@click.option("--top", type=COUNT, default=8, show_default=True, metavar="N", help="Rows to show.")
@catalog_option
@json_option
def command(find: Find | None, top: int, tariff: str | None, picture: Path | None, as_json: bool, **given: Any) -> None:
    """Find the devices, models or numbers of devices that do what you need.

    With --model alone: which devices of the catalog, one or several, run it with at least --min-tps for each of --users
    and the first token within --max-ttft. With --gpu alone: which models, in which quantisation. With both: how many
    users 1, 2, 3 … of that device serve. --find upgrades: what one more device brings.

    tokens/s is that of one user with the whole context occupied (--occupied says otherwise), all users decoding at
    once; TTFT that of one prompt while all others decode. Several devices are one instance with the layers split, or
    several instances. Prices are the catalog's rounded launch or street figures, or those of --price.

    \b
    Examples:
      llmcalc plan --model llama3-70b --quant q4 --ctx 8k --min-tps 15
      llmcalc plan --model qwen3-30b-a3b --ctx 32k --users 8 --min-tps 20 --max-ttft 2s --tariff "0.30 EUR"
      llmcalc plan --model llama3-70b --min-tps 10 --plot front.png
      llmcalc plan --gpu rtx3090 --min-tps 20 --ctx 16k
      llmcalc plan --gpu rtx3090 --model llama3-8b --users 40 --min-tps 15
      llmcalc plan --gpu rtx3090 --model llama3-70b --find upgrades
    """
    kind = find or _kind(given)
    _check(given, tariff)
    answer = {"devices": _devices, "models": _models, "users": _users, "upgrades": _upgrades}[kind](given)
    if picture is not None:
        _draw(kind, answer, picture)
    if as_json:
        click.echo(json.dumps(answer.to_dict(), indent=2, ensure_ascii=False))
        return
    echo_page(_page(kind, answer, top, tariff))


def _draw(kind: Find, answer: Any, picture: Path) -> None:
    """Speed against price, as PNG, SVG or PDF."""
    from ..plots import front_figure, save
    from ..speed_front import speed_front

    if kind != "devices" or not answer.priced:
        raise click.UsageError("--plot draws devices with a price, and there are none")
    save(front_figure(speed_front(answer)), picture)


def _kind(given: dict[str, Any]) -> Find:
    if given["model"] is None and not given["gpu"] and given["cpu"] is None:
        raise click.UsageError("say what is given: --model finds devices, --gpu or --cpu finds models")
    if given["model"] is None:
        return "models"
    return "users" if given["gpu"] else "devices"


def _check(given: dict[str, Any], tariff: str | None) -> None:
    """Refuse prices that cannot be read, whether this question needs them or not."""
    from ..energy import parse_tariff

    _prices(given)
    if tariff is not None:
        parse_tariff(tariff)


def _page(kind: Find, answer: Any, top: int, tariff: str | None) -> list[str]:
    from ..energy import parse_tariff
    from ..report import plan as pages

    style = page_style()
    if kind == "devices":
        return pages.plan_page(answer, style, top, parse_tariff(tariff) if tariff else None)
    if kind == "models":
        return pages.models_page(answer, style, top)
    return pages.users_page(answer, style) if kind == "users" else pages.upgrades_page(answer, style, top)


def _goals(given: dict[str, Any]) -> Any:
    from ..planner import Goals

    limits = (math.inf if given[name] is None else given[name] for name in ("max_ttft", "max_price", "max_watts"))
    latest, price, watts = limits
    return Goals(given["min_tps"], latest, given["users"], price, watts)


def _common(given: dict[str, Any]) -> dict[str, Any]:
    """What every kind of question takes."""
    return {
        "goals": _goals(given),
        "ctx": given["ctx"],
        "occupied": given["occupied"],
        "ram": given["ram"],
        "backend": given["backend"],
        "catalog": given["catalog"],
        "output": given["output"],
        "kv_type_k": given["kv_type"],
        "kv_type_v": given["kv_type"],
    } | ({} if given["prompt"] is None else {"prompt": given["prompt"]})


def _model(given: dict[str, Any]) -> dict[str, Any]:
    if given["model"] is None:
        raise click.UsageError("this needs a model: --model")
    return {"model": given["model"], "quant": given["quant"]}


def _prices(given: dict[str, Any]) -> dict[str, float]:
    prices = {}
    for text in given["price"]:
        name, _, amount = text.partition("=")
        try:
            prices[name.strip()] = PRICE.convert(amount.replace(",", ""), None, None)
        except click.UsageError:
            raise InputError(f"--price: cannot read {text!r}; write it like rtx3090=700") from None
    return prices


def _devices(given: dict[str, Any]) -> Any:
    from ..planner import plan

    return plan(
        devices=filtered_devices(given),
        most=given["max_devices"] or 4,
        mixed=given["mixed"],
        rank=_rank(given, "price"),
        prices=_prices(given),
        **_model(given),
        **_common(given),
    )


def _rank(given: dict[str, Any], usual: str) -> Any:
    rank = given["rank"] or usual
    if (rank == "size") != (usual == "size") and rank != "tokens":
        raise click.UsageError(f"--rank {rank} does not go with this question")
    return rank


def _models(given: dict[str, Any]) -> Any:
    from ..planner_models import QUANTISATIONS, suitable_models

    return suitable_models(
        gpu=given["gpu"],
        cpu=given["cpu"],
        figures={"memory": given["memory"]},
        quants=[name.strip() for name in given["quant"].split(",")] if given["quant"] else QUANTISATIONS,
        rank=_rank(given, "size"),
        **_common(given),
    )


def _users(given: dict[str, Any]) -> Any:
    from ..planner_users import users_table
    from ..request import GPU_KINDS, resolve_device

    if len(given["gpu"]) != 1:
        raise click.UsageError("--find users takes one kind of device: --gpu NAME")
    device = resolve_device(given["gpu"][0], GPU_KINDS, {"memory": given["memory"]}, given["catalog"])
    return users_table(device=device, most=given["max_devices"] or 8, **_model(given), **_common(given))


def _upgrades(given: dict[str, Any]) -> Any:
    from ..planner_upgrades import upgrades
    from ..request import GPU_KINDS, resolve_device

    folders = given["catalog"]
    there = [resolve_device(name, GPU_KINDS, {"memory": given["memory"]}, folders) for name in given["gpu"]]
    added = [resolve_device(name, GPU_KINDS, None, folders) for name in given["add"]] or None
    return upgrades(devices=there, added=added, prices=_prices(given), **_model(given), **_common(given))
