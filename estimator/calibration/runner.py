"""Running the real llama-bench: a short plan that is chosen as it goes, within a budget of time.

One test is one process, and its result is appended to a file at once: an interruption loses one test at most, and the
same command goes on from there. After each test the machine's factors are updated, and the next test is the one that
narrows everyday predictions most for the time it takes.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InputError
from .experiments import TESTS, Test, candidate_case, experiments, own_candidates, test_seconds
from .machine_runs import Given, MachineRuns, machine_runs
from .readers import read_runs
from .runs import Run
from .update import calibrate

FIRST: Final = Test(0, 16)  # cheap anywhere, and says what the machine is
LEAST_GAIN: Final = 0.005  # share of the interval that a test must take off to be worth its time
FRESH_S: Final = 24 * 3600.0  # results older than this are not gone on from
FEW_REPETITIONS: Final = 2
MANY_REPETITIONS: Final = 3
LONG_S: Final = 20.0  # a test that takes longer gets few repetitions
MAX_ERROR_LINES: Final = 3
NOISY: Final = 0.1

Clock = Callable[[], float]
Progress = Callable[[str], None]
Execute = Callable[[Sequence[str], float], str]  # command, seconds at most → stdout


@dataclass(frozen=True)
class Plan:
    """What to run, how long at most, and where results are kept."""

    program: str
    model: Path
    budget_s: float
    kept: Path
    given: Given

    def command(self, test: Test, repetitions: int) -> list[str]:
        """llama-bench's command line for one test."""
        return [
            self.program, "-m", str(self.model), *test.arguments, "-r", str(repetitions), "-o", "jsonl",
        ]  # fmt: skip


class TimeUp(Exception):  # noqa: N818 (not an error: the budget is spent)
    """The budget ended while a test ran."""


def find_program(name: str) -> str:
    """The path of llama-bench. InputError where it is not found."""
    found = shutil.which(name)
    if found is None:
        raise InputError(f"--run: there is no program {name!r}; name the path of llama-bench")
    return found


def execute(command: Sequence[str], most_s: float) -> str:
    """Run a command to its end. TimeUp after `most_s`; InputError, with what it said, where it fails."""
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=max(most_s, 0.1))
    except subprocess.TimeoutExpired:
        raise TimeUp from None
    finally:
        _end(process)
    if process.returncode:
        said = " / ".join(line.strip() for line in err.strip().splitlines()[-MAX_ERROR_LINES:])
        raise InputError(
            f"{Path(command[0]).name} failed with status {process.returncode}: {said or 'it said nothing'}"
        )
    return out


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that still runs, also when this one is interrupted."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_plan(
    plan: Plan, progress: Progress, *, execute: Execute = execute, clock: Clock = time.monotonic
) -> tuple[Run, ...]:
    """Measure until the budget is spent or nothing more is worth it; all results, those kept from before included.

    Raises InputError where nothing could be measured, and lets KeyboardInterrupt through after ending llama-bench.
    """
    begun = clock()
    results = kept_runs(plan)
    if results:
        progress(f"going on with {len(results)} results in {plan.kept}")
    test: Test | None = next_test(plan, results, plan.budget_s) if results else FIRST
    while test is not None:
        left = plan.budget_s - (clock() - begun)
        try:
            results = (*results, *_measure(plan, test, left, results, execute, progress))
        except TimeUp:
            progress(f"{test.name}: not done within the budget")
            break
        test = next_test(plan, results, plan.budget_s - (clock() - begun))
    if not results:
        raise InputError(
            f"nothing was measured within {plan.budget_s:.0f} s; a larger --budget or a smaller file helps"
        )
    progress(f"{len(results)} results in {clock() - begun:.0f} s, kept in {plan.kept}")
    return results


def _measure(
    plan: Plan, test: Test, left_s: float, results: Sequence[Run], execute: Execute, progress: Progress
) -> tuple[Run, ...]:
    repetitions = MANY_REPETITIONS if results and _seconds(plan, results, test) < LONG_S else FEW_REPETITIONS
    progress(f"{test.name} … ({max(left_s, 0):.0f} s left)")
    out = execute(plan.command(test, repetitions), left_s)
    found = tuple(run for run in read_runs(out).runs if run.t_s > 0) if out.strip() else ()
    if not found:
        raise InputError(f"{plan.program} -o jsonl printed no result for {test.name}")
    plan.kept.parent.mkdir(parents=True, exist_ok=True)
    with plan.kept.open("a", encoding="utf-8") as file:
        file.write(out if out.endswith("\n") else out + "\n")
    for run in found:
        progress(f"{test.name}: {run.t_s:,.4g} tokens/s{_unsteady(run)}")
    return found


def _unsteady(run: Run) -> str:
    noise = (run.t_s_std or 0.0) / run.t_s
    return f", but repetitions vary by {noise:.0%}: is something else running?" if noise > NOISY else ""


def kept_runs(plan: Plan) -> tuple[Run, ...]:
    """Results of this file that an earlier call kept; none where they are of another file or too old."""
    try:
        if time.time() - plan.kept.stat().st_mtime > FRESH_S:
            plan.kept.rename(plan.kept.with_suffix(f".{int(plan.kept.stat().st_mtime)}.jsonl"))
            return ()
        if not plan.kept.stat().st_size:
            return ()
    except OSError:
        return ()
    runs = read_runs(plan.kept).runs
    return tuple(run for run in runs if run.model_file is None or Path(run.model_file).name == plan.model.name)


def next_test(plan: Plan, results: Sequence[Run], left_s: float) -> Test | None:
    """The test that takes most off the interval for its time, of those that fit the rest of the budget.

    The other phase comes first: a machine is not known by decode or prefill alone. None when nothing is worth it.
    """
    known = _resolved(plan, results)
    cases = known.cases
    if not cases:
        return None
    calibration = calibrate(next(iter(known.machines.values())))
    done = {(run.n_prompt, run.n_gen, run.n_depth) for run in results}
    phases = {run.phase for run in results}
    tests = [test for test in TESTS if (test.prompt, test.generated, test.depth) not in done]
    candidates = own_candidates(cases[:1], known.file, tests)
    found = [each for each in experiments(calibration, candidates, known.file) if each.seconds <= left_s]
    missing = [each for each in found if each.case.phase.phase not in phases]
    worth = missing or [each for each in found if each.gain > LEAST_GAIN]
    best = max(worth, key=lambda each: max(each.gain, 1e-6) / each.seconds, default=None)
    return best.test if best else None


def _seconds(plan: Plan, results: Sequence[Run], test: Test) -> float:
    known = _resolved(plan, results)
    if not known.cases:
        return 0.0
    case = candidate_case(known.cases[0], test, known.file)
    efficiency = calibrate(next(iter(known.machines.values()))).efficiency()
    return test_seconds(case, test, efficiency, MANY_REPETITIONS, known.file) if case else 0.0


def _resolved(plan: Plan, results: Sequence[Run]) -> MachineRuns:
    return machine_runs(results, plan.given)
