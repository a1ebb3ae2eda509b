"""Which run would teach most: the expected narrowing of everyday predictions, for tests that llama-bench can do.

For a linear model with Gaussian unknowns the variance that a run takes off a prediction does not depend on its outcome:
(gᵀΣh)² / (hᵀΣh + noise), with g the gradient of the prediction, h that of the run, Σ the covariance of the unknowns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Final

import numpy as np

from ..efficiency import Efficiency
from ..errors import InputError
from ..inventory import Inventory
from ..model_catalog import find_model
from ..system import Device
from ..timing import phase_time
from .measurements import Case, UnpredictableError, case_of
from .runs import Run
from .update import FILE_SHARE, MODEL_SD, Calibration, Sensitivity, Vector
from .validation import checked

# What people run, the smallest first; those that the device has no memory for are left out.
EVERYDAY_MODELS: Final = ("llama3.2-1b", "llama3-8b", "qwen3-30b-a3b", "gemma3-27b", "llama3-70b")
EVERYDAY_TYPE: Final = "Q4_K_M"
EVERYDAY_TESTS: Final = ((512, 0, 0), (4096, 0, 0), (0, 64, 0), (0, 64, 8192))  # prompt, generated, depth
MEMORY_SHARE: Final = 0.85  # of a device's memory that weights may take
PATIENCE_S: Final = 900.0
OWN_FILE_PREFERENCE: Final = 1.5
START_S: Final = 2.0  # to start llama-bench and map the file
REPETITIONS: Final = 3
REPETITION_SD: Final = 0.02


@dataclass(frozen=True)
class Test:
    """One llama-bench test: a prompt of `prompt` tokens or `generated` tokens, behind `depth` cached ones."""

    prompt: int
    generated: int
    depth: int = 0
    flash_attention: bool = True

    @property
    def name(self) -> str:
        """As llama-bench prints it: pp512, tg64 @ d4096."""
        what = f"pp{self.prompt}" if self.prompt else f"tg{self.generated}"
        return what + (f" @ d{self.depth}" if self.depth else "")

    @property
    def arguments(self) -> tuple[str, ...]:
        """llama-bench's, without model, repetitions and output format."""
        depth = ("-d", str(self.depth)) if self.depth else ()
        flash = ("-fa", "1" if self.flash_attention else "0")
        return ("-p", str(self.prompt), "-n", str(self.generated), *depth, *flash)


TESTS: Final = (
    Test(512, 0),
    Test(0, 64),
    Test(128, 0),
    Test(2048, 0),
    Test(0, 32, 4096),
    Test(0, 32, 16384),
    Test(512, 0, 8192),
)


@dataclass(frozen=True)
class Experiment:
    """A run that could be made, and what it would do to the 80 % interval of everyday predictions, as ± shares."""

    case: Case
    test: Test
    margin_before: float
    margin_after: float
    seconds: float  # that it is expected to take
    own_file: bool  # of a file that runs were made with

    @property
    def gain(self) -> float:
        """Share of the interval's width that it takes off."""
        return 1 - self.margin_after / self.margin_before

    @property
    def command(self) -> str:
        """The llama-bench command that makes it."""
        run = self.case.run
        name = PurePath(run.model_file.replace("\\", "/")).name if run.model_file else ""
        file = name or f"{self.case.model.id}-{run.quant}.gguf"
        threads = f" -t {run.threads}" if self.case.conditions.backend == "CPU" and run.threads else ""
        return f"llama-bench -m {file} {' '.join(self.test.arguments)}{threads} -r {REPETITIONS} -o json"


def best_experiments(calibration: Calibration, file: Inventory | None = None, most: int = 3) -> tuple[Experiment, ...]:
    """The runs of at most `PATIENCE_S` that would narrow everyday predictions most, best first, each of another kind.

    A file that the user has ranks before a file that they would have to fetch, unless that teaches half as much again.
    `file`: the weights that all runs were made with, where they were read from the file.
    """
    candidates = [*own_candidates(calibration.cases, file), *_other_candidates(calibration)]
    found = [each for each in experiments(calibration, candidates, file) if each.seconds <= PATIENCE_S]
    found.sort(key=lambda each: -each.gain * (OWN_FILE_PREFERENCE if each.own_file else 1.0))
    best: dict[str, Experiment] = {}
    for each in found:
        best.setdefault(each.test.name, each)
    return tuple(best.values())[:most]


def test_seconds(
    case: Case,
    test: Test,
    efficiency: Efficiency,
    repetitions: int = REPETITIONS,
    file: Inventory | None = None,
) -> float:
    """How long llama-bench takes for a test: the depth once, a warm-up, and the repetitions."""
    step = float(phase_time(case.phase, case.model, case.device, case.conditions, efficiency).seconds)
    filled = candidate_case(case, Test(test.depth, 0), file) if test.depth else None
    depth = phase_time(filled.phase, filled.model, filled.device, filled.conditions, efficiency) if filled else None
    runs = repetitions * test.generated + 1 if test.generated else repetitions + 1
    return START_S + (float(depth.seconds) if depth else 0.0) + runs * step


def experiments(
    calibration: Calibration, candidates: Sequence[tuple[Case, Test, bool]], file: Inventory | None = None
) -> list[Experiment]:
    """What each candidate (case, its test, whether its file is the user's) would do to everyday predictions."""
    targets = everyday_cases(calibration.device, calibration.cases[0])
    if not candidates or not targets:
        return []
    knowledge = _Knowledge(calibration.sensitivity([*targets, *(case for case, _, _ in candidates)]), len(targets))
    spread = np.array([MODEL_SD[case.phase.phase] for case in targets])
    efficiency = calibration.efficiency()
    found = []
    for number, (case, test, own) in enumerate(candidates):
        seconds = test_seconds(case, test, efficiency, file=file if own else None)
        found.append(Experiment(case, test, *knowledge.margins(number, case, spread), seconds, own))
    return found


@dataclass(frozen=True)
class _Knowledge:
    """What is known of the targets, the first rows of `of`, and how candidates, the rows after them, bear on them."""

    of: Sensitivity
    targets: int

    @cached_property
    def _before(self) -> Vector:
        gradient = self.of.gradient[: self.targets]
        return np.asarray(np.einsum("tu,uv,tv->t", gradient, self.of.covariance, gradient), float)

    def margins(self, number: int, case: Case, spread: Vector) -> tuple[float, float]:
        row = self.targets + number
        gradient, noise = self.of.gradient[row].copy(), MODEL_SD[case.phase.phase] ** 2
        file = self.of.files[row]
        if file is not None:
            gradient[file] += 1.0
            noise *= 1 - FILE_SHARE
        tied = self.of.covariance @ gradient
        shared = self.of.gradient[: self.targets] @ tied
        taken = np.square(shared) / (gradient @ tied + noise + REPETITION_SD**2)
        return _margin(self._before, spread), _margin(self._before - taken, spread)


def _margin(variance: Vector, spread: Vector) -> float:
    """Half the 80 % interval, as a share of the rate, on the average."""
    return float(np.mean(np.expm1(1.2816 * np.sqrt(np.maximum(variance, 0.0) + np.square(spread)))))


def everyday_cases(device: Device, like: Case) -> list[Case]:
    """Everyday predictions for a machine, under the settings of one of its runs."""
    cases = []
    for prompt, generated, depth in EVERYDAY_TESTS:
        for name in _fitting_models(device):
            case = _catalog_case(name, like, Test(prompt, generated, depth))
            cases += [case] if case else []
    return cases


def own_candidates(
    cases: Sequence[Case], file: Inventory | None = None, tests: Sequence[Test] = TESTS
) -> list[tuple[Case, Test, bool]]:
    """Tests of the files that runs were made with."""
    files = {(case.model.id, case.run.quant): case for case in cases}
    made = ((candidate_case(case, test, file), test, True) for case in files.values() for test in tests)
    return [(case, test, own) for case, test, own in made if case is not None]


def candidate_case(like: Case, test: Test, file: Inventory | None = None) -> Case | None:
    """`test` on the machine and file of a case; None where the time model cannot predict it."""
    longest = like.model.max_context
    if longest and test.depth + test.prompt + test.generated > longest:
        return None
    try:
        return checked(case_of(_run(like.run, test), like.device, like.model, file))
    except (UnpredictableError, InputError):
        return None


def _run(like: Run, test: Test) -> Run:
    return replace(
        like,
        phase="prefill" if test.prompt else "decode",
        n_prompt=test.prompt,
        n_gen=test.generated,
        n_depth=test.depth,
        n_parallel=1,
        flash_attn="1" if test.flash_attention else "0",
        type_k=None,
        type_v=None,
        class_=None,
        t_s=1.0,
        t_s_std=None,
        samples_t_s=(),
    )


def _other_candidates(calibration: Calibration) -> list[tuple[Case, Test, bool]]:
    """The same tests with everyday models that were not run."""
    like = calibration.cases[0]
    seen = {case.model.id for case in calibration.cases}
    names = [name for name in _fitting_models(calibration.device) if name not in seen]
    made = ((_catalog_case(name, like, test), test, False) for name in names for test in TESTS)
    return [(case, test, own) for case, test, own in made if case is not None]


def _catalog_case(name: str, like: Case, test: Test) -> Case | None:
    run = replace(like.run, model_id=name, quant=EVERYDAY_TYPE, weights_gib=None, params_b=None, model_file=None)
    return candidate_case(replace(like, run=run, model=find_model(name)), test)


def _fitting_models(device: Device) -> list[str]:
    memory = device.memory_bytes or math.inf
    return [name for name in EVERYDAY_MODELS if _weights_bytes(name) <= MEMORY_SHARE * memory] or [EVERYDAY_MODELS[0]]


def _weights_bytes(name: str) -> float:
    from ..quantization import weights

    return float(weights(find_model(name), EVERYDAY_TYPE).file_bytes)
