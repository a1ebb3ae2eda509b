"""`llmcalc catalog check`: validate catalog files before, or instead of, finding out from a wrong estimate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import catalog_option, json_option
from .output import echo_page, page_style


@click.group(name="catalog")
def command() -> None:
    """The catalogs of devices and models: check them."""


@command.command()
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]…", type=click.Path(path_type=Path))
@catalog_option
@json_option
def check(paths: tuple[Path, ...], catalog: tuple[Path, ...], as_json: bool) -> int:
    """Check devices and models in YAML, and say of everything that is wrong in which file, entry and field.

    Without arguments: the built-in catalogs and your own. With files or folders: only these, laid over the others.

    \b
    What is checked:
      fields       known, spelled rightly, of the right kind; needed ones there; sources named
      units        every quantity has one, and a size that something built can have
      bandwidth    is bus width × transfer rate
      peaks        are units × clock, or what the formula under `derived` says
      links        PCIe counts one direction
      names        ids, names and aliases are nobody else's
      parameters   the shapes of a model make the published count; its pattern makes its layers

    \b
    Add a device in one edit, and check it with one command:
      $ cat mine/hardware.yaml
      my-4090:
        extends: geforce-rtx-4090
        name: RTX 4090 at 350 W
        power: 350 W
      $ llmcalc catalog check mine
      $ llmcalc estimate --catalog mine --gpu my-4090 --model llama3-8b

    hardware/SOURCES.md and models/SOURCES.md explain the fields. Exit status: 0 all good, 2 problems.
    """
    from ..catalog_check import check_catalog
    from ..report.catalog_check import catalog_check_data, catalog_check_page

    found = check_catalog(paths, catalog)
    if as_json:
        click.echo(json.dumps(catalog_check_data(found), indent=1, ensure_ascii=False))
    else:
        echo_page(catalog_check_page(found, page_style()))
    return 0 if found.ok else 2
