"""`llmcalc calibrate --run`: the real llama-bench on this machine, with progress on stderr."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..units import parse

if TYPE_CHECKING:
    from ..calibration.machine_runs import Given


def run_bench(program: str, given: Mapping[str, Any], overrides: Given) -> tuple[Path, Given]:
    """Run the plan; where its results are kept, and what stands in for what they do not say."""
    from ..calibration.runner import Plan, find_program, run_plan

    model = Path(given["model"] or "")
    if given["model"] is None or not os.path.isfile(model):
        raise InputError("--run needs --model FILE, a .gguf file to measure with")
    budget_s = parse(given["budget"], "seconds", "budget")
    if budget_s <= 0:
        raise InputError("budget: must be positive")
    kept = given["keep"] or _kept(model)
    if given["fresh"]:
        kept.unlink(missing_ok=True)
    overrides = _with_this_machine(overrides)
    run_plan(Plan(find_program(program), model, budget_s, kept, overrides), _progress)
    return kept, overrides


def _kept(model: Path) -> Path:
    """A file of this model's results in the platform's place for a program's state."""
    import platformdirs

    stat = model.stat()
    key = hashlib.sha256(f"{model.resolve()} {stat.st_size} {int(stat.st_mtime)}".encode()).hexdigest()[:8]
    return Path(platformdirs.user_state_dir("llmcalc", appauthor=False)) / "runs" / f"{model.stem}-{key}.jsonl"


def _with_this_machine(overrides: Given) -> Given:
    """What was detected, in place of what neither options nor llama-bench's output name."""
    from dataclasses import replace

    from ..detection.machine import detect_machine

    if overrides.gpu is not None and overrides.cpu is not None:
        return overrides
    machine = detect_machine()
    gpus = [gpu.device for gpu in machine.gpus if gpu.device]
    return replace(
        overrides,
        gpu=overrides.gpu or (gpus[0] if len(gpus) == 1 else None),
        cpu=overrides.cpu or machine.host_cpu,
    )


def _progress(text: str) -> None:
    click.echo(text, err=True)
