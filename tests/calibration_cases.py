"""Cases and machines for the tests of calibration: real models on a device whose true factors the test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from llmcalc.calibration.measurements import Case, case_of
from llmcalc.calibration.runs import Run
from llmcalc.calibration.update import unit_prior
from llmcalc.device_catalog import find_device
from llmcalc.efficiency import MACHINE_FACTORS, Efficiency, Gaussian, MachineFactors, shipped
from llmcalc.timing import phase_time

DEVICE = "geforce-rtx-4070"
BACKEND = "CUDA"
FILES = (
    ("llama3.2-1b", "Q4_K_M"),
    ("llama3.2-1b", "F16"),
    ("llama3-8b", "Q4_K_M"),
    ("llama3-8b", "Q8_0"),
    ("qwen3-4b", "Q4_0"),
    ("gemma3-4b", "Q6_K"),
)
TESTS = ((512, 0, 0), (2048, 0, 0), (0, 128, 0), (0, 32, 8192))


def run(model: str, quant: str, prompt: int, generated: int, depth: int = 0, **given: object) -> Run:
    """A run of one test at one token a second, on the device of these tests."""
    values: dict[str, object] = {
        "backend": BACKEND,
        "hardware_id": DEVICE,
        "device_count": 1,
        "model_id": model,
        "quant": quant,
        "phase": "prefill" if prompt else "decode",
        "n_prompt": prompt,
        "n_gen": generated,
        "n_depth": depth,
        "era": "2026H1",
        "flash_attn": "1",
        "t_s": 1.0,
    }
    return Run(**(values | given))  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """Every test of every file, without a measured time."""
    return tuple(case_of(run(*file, *test)) for file in FILES for test in TESTS)


def truth(shifts: dict[str, float]) -> Efficiency:
    """The shipped factors with those of the test's machine moved by so many prior standard deviations."""
    device, base = find_device(DEVICE), shipped()
    prior = unit_prior(base, BACKEND, device)
    values = {name: prior(name) for name in MACHINE_FACTORS}
    moved = {name: Gaussian(value.mean + shifts.get(name, 0.0) * value.sd, 0.0) for name, value in values.items()}
    return base.with_machine(BACKEND, DEVICE, MachineFactors(moved, "truth", True))


def measured(cases: Sequence[Case], efficiency: Efficiency, noise: float = 0.0, seed: int = 0) -> list[Case]:
    """Cases as a machine with these factors would measure them, with Gaussian noise of the log time."""
    random = np.random.default_rng(seed)
    made = []
    for case in cases:
        time = phase_time(case.phase, case.model, case.device, case.conditions, efficiency)
        seconds = float(time.seconds) * float(np.exp(noise * random.standard_normal()))
        made.append(replace(case, seconds=seconds, run=replace(case.run, t_s=case.tokens / seconds)))
    return made
