"""Numbers that cannot be meant: every numeric option of the commands refuses them in one line, with exit status 2."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from llmcalc.cli import run
from llmcalc.errors import InputError
from llmcalc.fit_search import Limits
from llmcalc.surroundings import network_link

COMMANDS = (
    "estimate", "memory", "fit", "offload", "plan", "serve", "session", "speculate", "compare", "sweep",
)  # fmt: skip
MACHINE = ["--gpu", "rtx3060", "--model", "smollm2-135m"]
# Options that take names, texts or files; every other one that is no switch and no choice takes numbers.
NAMES = {
    "add", "backend", "catalog", "columns", "cpu", "device_class", "draft_model", "draft_quant", "flash_attn", "gpu",
    "kind", "kv_type", "kv_type_k", "kv_type_v", "model", "output_file", "overrides", "picture", "profile", "quant",
    "rpc", "scheduler", "trace", "vendor",
}  # fmt: skip
# 0 is meant there: none of it, the first one, no bound.
MAY_BE_ZERO = {
    "--accepted-share", "--acceptance", "--cached-prefix", "--cache-ram", "--checkpoints", "--main-gpu", "--max-price",
    "--max-ttft", "--max-watts", "--min-prefill", "--min-tps", "--n-cpu-ffn", "--n-cpu-moe", "--network-latency",
    "--ngl", "--ngram", "--occupied", "--output", "--price", "--queue", "--reasoning", "--seed", "--system",
    "--tariff", "--think", "--tool-result", "--tools",
}  # fmt: skip
TAKES_A_NAME = {"--price": "rtx3060="}  # what stands before the number
UNITS = {"bytes": "GiB", "rate": "GB/s", "flops": "TFLOPS", "time": "s", "power": "W", "network": "GbE"}


def numeric_options() -> Iterator[tuple[str, click.Option]]:
    """Every option of the commands that takes a number, found by asking the commands themselves."""
    for name in COMMANDS:
        command: click.Command = import_module(f"llmcalc.cli.{name}").command
        for option in command.params:
            if isinstance(option, click.Option) and _takes_a_number(option):
                yield name, option


def _takes_a_number(option: click.Option) -> bool:
    return not option.is_flag and option.name not in NAMES and not isinstance(option.type, click.Choice)


OPTIONS = [pytest.param(name, option, id=f"{name} {option.opts[0]}") for name, option in numeric_options()]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command that must fail with status 2 and print nothing else."""
    status = run(arguments)
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, ""), f"{' '.join(arguments)}: {status} {captured.err}"
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def written(option: click.Option, number: str) -> str:
    """A number as the option takes it, with its unit."""
    return TAKES_A_NAME.get(option.opts[0], "") + number + UNITS.get(option.type.name, "")


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_negative_infinite_and_absurd_numbers_are_refused_in_one_line(
    name: str, option: click.Option, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ("-3", "nan", "inf", "1e300"):
        line = refusal([name, *MACHINE, option.opts[0], written(option, number)], capsys)
        assert option.opts[0].lstrip("-").replace("-", "_") in line.replace("-", "_"), line


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_text_is_no_number(name: str, option: click.Option, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("many", ""):
        refusal([name, *MACHINE, option.opts[0], text], capsys)


@pytest.mark.parametrize(
    ("name", "option"),
    [case for case in OPTIONS if case.values[1].opts[0] not in MAY_BE_ZERO],  # type: ignore[union-attr]
)
def test_zero_is_refused_where_nothing_can_be_meant_by_it(
    name: str, option: click.Option, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal([name, *MACHINE, option.opts[0], written(option, "0")], capsys)


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf")])
def test_limits_of_a_fit_are_rates(number: float) -> None:
    with pytest.raises(InputError, match="min_tps"):
        Limits(min_decode=number)
    with pytest.raises(InputError, match="min_prefill"):
        Limits(min_prefill=number)


@pytest.mark.parametrize("rate", ["0GbE", "0 GB/s", "-1 GB/s", "1e30 TB/s", "fast", 0])
def test_a_network_has_a_rate_above_zero(rate: object) -> None:
    with pytest.raises(InputError, match="network"):
        network_link(rate)
