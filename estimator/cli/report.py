"""`llmcalc report`: an estimate as one HTML page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .options import request_of, request_options

STDOUT = "-"
ENDINGS = (".html", ".htm")


@click.command(name="report")
@request_options
@click.option("--out", "-o", required=True, metavar="FILE", help="The page to write: .html; - is stdout.")
def command(out: str, **given: Any) -> None:
    """One HTML page with the estimate, its charts, its derivation and the commands that check it.

    The page needs neither network nor scripts, is readable on a phone, and follows dark mode.

    \b
    Examples:
      llmcalc report --gpu rtx4090 --model llama3-8b --quant q4 --ctx 32k -o report.html
      llmcalc report --gpu m2-ultra-76 --model gpt-oss-120b --ctx 128k -o gpt-oss.html
    """
    if out != STDOUT and Path(out).suffix.lower() not in ENDINGS:
        raise InputError(f"-o {out}: a report is an HTML page; end its name in .html")
    from ..estimation import estimate_request
    from ..report.page import page
    from ..whole_files import write_output

    text = page(estimate_request(request_of(given)), shlex.join(["llmcalc", *_arguments(out)]))
    if out == STDOUT:
        click.echo(text, nl=False)
        return
    write_output(out, text)


def _arguments(out: str) -> list[str]:
    """The command's arguments as they were typed; no more than its name where a program called it."""
    typed = sys.argv[1:]
    return typed if typed[:1] == ["report"] else ["report", "…", "-o", out]
