"""Printing: the terminal's width, whether colours show, and pages of lines. The only place that asks the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import click

from ..report.layout import Style


def page_style() -> Style:
    """As wide as the terminal, from 40 to 100 columns; coloured on a terminal, unless NO_COLOR is set."""
    width = shutil.get_terminal_size((80, 24)).columns
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(min(max(width, 40), 100), color)


def echo_page(lines: Iterable[str]) -> None:
    """Print lines to stdout."""
    click.echo("\n".join(lines), color=True)
