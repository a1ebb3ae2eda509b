"""Printing: the terminal's width, whether colours show, and pages of lines. The only place that asks the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..report.layout import Style

UNKNOWN_WIDTH = 80


def page_style() -> Style:
    """As wide as the terminal, from 40 to 100 columns; coloured on a terminal, unless NO_COLOR is set."""
    from ..report.layout import Style

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(min(max(_width(), 40), 100), color)


def _width() -> int:
    """Columns of the terminal, or as $COLUMNS says: what shutil would find, whose import takes as long as a look-up."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    with suppress(OSError, ValueError, AttributeError):
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or UNKNOWN_WIDTH  # type: ignore[union-attr]
    return UNKNOWN_WIDTH


def echo_page(lines: Iterable[str]) -> None:
    """Print lines to stdout."""
    click.echo("\n".join(lines), color=True)
