"""`llmcalc models list|show`: the model catalog, and the shapes that a file describes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import catalog_option, json_option
from .output import echo_page, page_style


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
    from ..architecture import MoeFfn
    from ..model_catalog import list_models
    from ..report.layout import columns
    from ..tensors import active_params, total_params

    chosen = []
    for info, model in list_models(catalog):
        text = f"{info.id} {info.name} {' '.join(info.hugging_face)}".casefold()
        is_moe = any(isinstance(layer.ffn, MoeFfn) for layer in model.layers)
        total = total_params(model)
        if (
            (architecture is None or info.architecture == architecture)
            and (search is None or search.casefold() in text)
            and (moe is None or moe == is_moe)
            and (max_params is None or total <= max_params * 1e9)
        ):
            chosen.append((info, model, total, active_params(model)))
    if as_json:
        entries = [
            {
                "id": info.id,
                "name": info.name,
                "architecture": info.architecture,
                "hugging_face": list(info.hugging_face),
                "total_params": total,
                "active_params": active,
                "n_layers": model.n_layers,
                "max_context": model.max_context,
            }
            for info, model, total, active in chosen
        ]
        click.echo(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    rows = [("id", "params", "active", "layers", "context", "architecture")]
    for info, model, total, active in chosen:
        context = f"{model.max_context:,}" if model.max_context else ""
        rows.append(
            (
                info.id,
                _count(total),
                _count(active) if active != total else "",
                str(model.n_layers),
                context,
                info.architecture,
            )
        )
    echo_page([*columns(rows, "<>>>><", indent=0), f"{len(chosen)} models"])


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
    """
    from ..describe import describe_model
    from ..model_catalog import find_info
    from ..request import resolve_model

    path = Path(name)
    if path.exists() or path.suffix.lower() in (".json", ".gguf"):
        model, info = resolve_model(name, None, catalog).model, None
    else:
        from ..model_catalog import find_model

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
