"""`llmcalc models list|show`: the model catalog, and the shapes that a file describes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import catalog_option, json_option
from .output import echo_page, page_style

if TYPE_CHECKING:
    from ..architecture import Model
    from ..model_catalog import ModelInfo


@click.group(name="models")
def command() -> None:
    """Model architectures of the catalog."""


@command.command(name="list")
@click.option("--architecture", metavar="NAME", help="GGUF architecture: llama, qwen3moe, …")
@click.option("--search", metavar="TEXT", help="Part of the id, name or Hugging Face repository.")
@click.option("--moe/--dense", default=None, help="Only mixtures of experts, or only dense models.")
@click.option("--max-params", type=float, metavar="B", help="At most so many billion parameters.")
@catalog_option
@json_option
def list_command(
    architecture: str | None,
    search: str | None,
    moe: bool | None,
    max_params: float | None,
    catalog: tuple[Path, ...],
    as_json: bool,
) -> None:
    """List models, one a line.

    \b
    Examples:
      llmcalc models list --search qwen3 --moe
      llmcalc models list --max-params 9
    """
    from ..model_catalog import list_models
    from ..report.layout import columns

    listed = [
        entry
        for entry in (_entry(info, model) for info, model in list_models(catalog))
        if (architecture is None or entry["architecture"] == architecture)
        and (search is None or search.casefold() in f"{entry['id']} {entry['name']} {entry['hugging_face']}".casefold())
        and (moe is None or moe == entry["moe"])
        and (max_params is None or entry["total_params"] <= max_params * 1e9)
    ]
    if as_json:
        click.echo(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    rows = [("id", "params", "active", "layers", "context", "architecture"), *map(_row, listed)]
    echo_page([*columns(rows, "<>>>><", indent=0), f"{len(listed)} models"])


def _entry(info: ModelInfo, model: Model) -> dict[str, Any]:
    from ..architecture import MoeFfn
    from ..tensors import active_params, total_params

    return {
        "id": info.id,
        "name": info.name,
        "architecture": info.architecture,
        "hugging_face": list(info.hugging_face),
        "total_params": total_params(model),
        "active_params": active_params(model),
        "moe": any(isinstance(layer.ffn, MoeFfn) for layer in model.layers),
        "n_layers": model.n_layers,
        "max_context": model.max_context,
    }


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    total, active = entry["total_params"], entry["active_params"]
    return (
        entry["id"],
        _count(total),
        _count(active) if active != total else "",
        str(entry["n_layers"]),
        f"{entry['max_context']:,}" if entry["max_context"] else "",
        entry["architecture"],
    )


def _count(params: int) -> str:
    return f"{params / 1e9:.4g} B" if params >= 1e9 else f"{params / 1e6:.4g} M"


@command.command()
@click.argument("name")
@click.option("--sources", is_flag=True, help="Say where the figures are from.")
@catalog_option
@json_option
def show(name: str, sources: bool, catalog: tuple[Path, ...], as_json: bool) -> None:
    """Show one model by catalog name, .gguf file or config.json: parameters, cache, layers.

    \b
    Examples:
      llmcalc models show qwen3-30b-a3b
      llmcalc models show ./model.gguf --json
      head -c 16M model.gguf | llmcalc models show -
    """
    from ..describe import describe_model
    from ..model_catalog import find_info, find_model
    from ..request import resolve_model

    path = Path(name)
    if name == "-" or os.path.exists(path) or path.suffix.lower() in (".json", ".gguf"):
        model, info = resolve_model(name, None, catalog).model, None
    else:
        model, info = find_model(name, catalog), find_info(name, catalog)
    if as_json:
        described = describe_model(model)
        if info:
            described |= {"hugging_face": list(info.hugging_face), "published_params": info.published_params}
            described |= {"notes": list(info.notes)} | ({"sources": list(info.sources)} if sources else {})
        click.echo(json.dumps(described, indent=1, ensure_ascii=False))
        return
    from ..report.catalog import model_page

    echo_page(model_page(model, info, sources, page_style()))
