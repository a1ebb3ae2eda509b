"""Where a picture goes: a file, a window, or the terminal as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InputError
from .option_groups import apply_options
from .output import echo_page, page_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..report.terminal_charts import Chart

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Output:
    """Where a picture goes: a file, a window, or the terminal as text."""

    path: Path | None
    show: bool
    ascii: bool


def output_options(function: F) -> F:
    """--out and --show."""
    options = [
        click.option("--out", "-o", type=FILE, metavar="FILE", help="Picture to write: .png, .svg or .pdf."),
        click.option("--show", is_flag=True, help="Open a window with the picture."),
    ]
    return apply_options(options, function)


def output_of(given: dict[str, Any]) -> Output:
    """The place of output, checked before anything is computed."""
    out = Output(given["out"], given["show"], given.get("ascii", False))
    if out.path is not None:
        from ..plots import picture_format

        picture_format(out.path)
    return out


def deliver(out: Output, figure: Callable[[], Figure], text: Callable[[], Chart] | None) -> None:
    """Write the picture, show it, or print its text version."""
    if out.path is not None:
        from ..plots import save

        save(figure(), out.path)
    if out.show:
        from ..plots import show

        show(figure)
    if out.path is not None or out.show:
        return
    if text is None:
        raise InputError("this picture has no text version: write it with -o FILE (.png, .svg or .pdf) or use --show")
    from ..report.terminal_charts import render

    echo_page(render(text(), page_style(), out.ascii or not _braille()))


def _braille() -> bool:
    """Whether stdout takes Braille dots: an encoding that has them, and a terminal that is not a dumb one."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding.startswith("utf") and os.environ.get("TERM") != "dumb"
