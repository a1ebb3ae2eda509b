"""The `llmcalc` command: a group whose subcommands are imported only when they run, and one place for errors.

Imports click only, so that `--help` and shell completion cost no more than that.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

import click

from ..errors import InputError

# name → (module of this package, one line for --help)
COMMANDS = {
    "estimate": ("estimate", "Memory, time to first token and tokens/s of a model on a machine."),
    "compare": ("compare", "Machines, models and settings side by side; what would change them."),
    "plan": ("plan", "Which devices, models or numbers of GPUs do what you need; what an upgrade brings."),
    "sweep": ("sweep", "Every combination of axes as CSV, JSON lines or Parquet."),
    "serve": ("serve", "A server under load: queueing, TTFT and TPOT percentiles, the largest rate."),
    "session": ("session", "A multi-turn session: what prompt caching saves, turn by turn."),
    "speculate": ("speculate", "Speculative decoding and MTP: speed-up, best draft length, break-even."),
    "fit": ("fit", "Best placement and settings for a machine, with ready commands."),
    "offload": ("offload", "Speed against layers on the GPUs and experts on the CPU."),
    "memory": ("memory", "Bytes per device as llama.cpp allocates them, and what still fits."),
    "hardware": ("hardware", "Devices of the catalog: list, show."),
    "models": ("models", "Model architectures of the catalog: list, show."),
    "catalog": ("catalog", "Check the YAML of devices and models: fields, units, names, sums."),
    "detect": ("detect", "This machine: GPUs, CPU, memory, and its CPU's roofs measured."),
    "plot": ("plot", "Pictures: roofline, context, prefill, memory, batch, layers, pareto, accuracy; also as text."),
    "report": ("report", "A one-page HTML report of an estimate, with its charts."),
    "calibrate": ("calibrate", "Fit the factors of your machine to its own llama.cpp runs."),
    "profile": ("profile", "Calibrations that were kept: list, show, remove, export, import."),
    "benchmark": ("benchmark", "Read a benchmark aright: what each figure is, and how near to the roofs."),
    "check": ("check", "Data errors and suspects among runs, and likely causes of slowness."),
    "validate": ("validate", "Predicted against measured, for runs in CSV or llama-bench output."),
}


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{COMMANDS[cmd_name][0]}", __package__).command
        if ctx and ctx.resilient_parsing:  # the shell asks for completions
            from .completion import complete

            return complete(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"llmcalc {version('llmcalc-roofline')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def group() -> None:
    """Roofline estimates of LLM inference: does it fit, how fast is it, what limits it, how sure are we?

    \b
    Examples:
      llmcalc estimate --gpu rtx4090 --model llama3-8b --quant q4 --ctx 32k
      llmcalc estimate --cpu ryzen-9-7950x --model qwen3-30b-a3b --quant q4
      llmcalc memory --gpu rtx3090 --model gemma3-27b --quant q4 --ctx 64k
      llmcalc hardware list --vendor apple
      llmcalc models show qwen3-30b-a3b

    Shell completion: add  eval "$(_LLMCALC_COMPLETE=bash_source llmcalc)"  to ~/.bashrc
    (zsh_source for zsh; for fish: _LLMCALC_COMPLETE=fish_source llmcalc | source).

    Exit status: 0 answered (also "does not fit"), 2 wrong use or unreadable input, 1 anything else.
    """


def main() -> None:
    """Run the command line; errors are one line on stderr."""
    _write_utf8()
    sys.exit(run(sys.argv[1:]))


def _write_utf8() -> None:
    """Print UTF-8 whatever the locale's code page is, which may lack bars and dashes; what was asked for stays."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            if os.environ.get("PYTHONIOENCODING"):
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def run(arguments: list[str]) -> int:
    """The exit status of one command line: 0 answered, 2 wrong use or unreadable input, 1 anything else."""
    try:
        result = group.main(arguments, prog_name="llmcalc", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path.partition(" ")[2] if error.ctx else ""
        return _fail(f"{command}: {error.format_message()}" if command else error.format_message(), 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except InputError as error:
        return _fail(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1)
    except BrokenPipeError:
        # The reader went away (llmcalc … | head); silence the flush at exit too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("LLMCALC_DEBUG"):
            raise
        return _fail(f"internal error, {type(error).__name__}: {error} (LLMCALC_DEBUG=1 shows where)", 1)
    return result if isinstance(result, int) else 0


def _fail(message: str, status: int) -> int:
    click.echo(f"llmcalc: {' '.join(message.split())}", err=True)
    return status
