"""Running llama-bench: the plan keeps to its budget, survives interruption, and goes on where it was."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmcalc.calibration.machine_runs import Given
from llmcalc.calibration.runner import FIRST, FRESH_S, Plan, TimeUp, execute, find_program, kept_runs, run_plan
from llmcalc.device_catalog import find_device
from llmcalc.errors import InputError

SPEED = {"prefill": 2000.0, "decode": 60.0}
PARAMS, SIZE = 1235814432, 799862784  # llama3.2-1b Q4_K_M


class FakeBench:
    """llama-bench on a machine of fixed speed whose clock only its tests move."""

    def __init__(self, fail_at: int | None = None, slowness: float = 1.0) -> None:
        self.commands: list[Sequence[str]] = []
        self.now = 0.0
        self.fail_at, self.slowness = fail_at, slowness

    def clock(self) -> float:
        return self.now

    def __call__(self, command: Sequence[str], most_s: float) -> str:
        if self.fail_at is not None and len(self.commands) == self.fail_at:
            raise KeyboardInterrupt
        self.commands.append(command)
        prompt, generated, depth, repetitions = (self._value(command, flag) for flag in ("-p", "-n", "-d", "-r"))
        rate = (SPEED["prefill"] if prompt else SPEED["decode"]) / self.slowness
        seconds = 1 + depth / SPEED["prefill"] + (repetitions + 1) * (prompt + generated) / rate
        if seconds > most_s:
            self.now += most_s
            raise TimeUp
        self.now += seconds
        return json.dumps(self._record(prompt, generated, depth, rate)) + "\n"

    @staticmethod
    def _value(command: Sequence[str], flag: str) -> int:
        return int(command[list(command).index(flag) + 1]) if flag in command else 0

    @staticmethod
    def _record(prompt: int, generated: int, depth: int, rate: float) -> dict[str, object]:
        return {
            "build_commit": "b11434", "build_number": 11434, "backends": "CUDA", "gpu_info": "NVIDIA GeForce RTX 4070",
            "model_filename": "model.gguf", "model_type": "llama 1B Q4_K - Medium", "model_size": SIZE,
            "model_n_params": PARAMS, "n_gpu_layers": 99, "n_ubatch": 512, "flash_attn": 1, "n_prompt": prompt,
            "n_gen": generated, "n_depth": depth, "avg_ts": rate, "stddev_ts": 0.01 * rate,
        }  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    return Plan("llama-bench", model, 120.0, tmp_path / "state" / "runs.jsonl", Given(gpu=find_device("rtx4070")))


def silent(_: str) -> None:
    pass


@pytest.mark.slow
def test_both_phases_come_first_and_no_test_comes_twice(plan: Plan) -> None:
    bench = FakeBench()
    results = run_plan(plan, silent, execute=bench, clock=bench.clock)
    assert {run.phase for run in results[:2]} == {"decode", "prefill"}
    assert (results[0].n_prompt, results[0].n_gen) == (FIRST.prompt, FIRST.generated)
    assert len({(run.n_prompt, run.n_gen, run.n_depth) for run in results}) == len(results)
    assert len(results) >= 4
    assert any(run.n_depth for run in results)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [4.0, 10.0, 30.0, 120.0])
def test_the_budget_is_kept(plan: Plan, budget: float) -> None:
    bench = FakeBench()
    short = Plan(plan.program, plan.model, budget, plan.kept, plan.given)
    results = run_plan(short, silent, execute=bench, clock=bench.clock)
    assert results
    assert bench.now <= budget


@pytest.mark.slow
def test_a_machine_slower_than_expected_keeps_it_too(plan: Plan) -> None:
    bench = FakeBench(slowness=8.0)
    run_plan(plan, silent, execute=bench, clock=bench.clock)
    assert bench.now <= plan.budget_s


@pytest.mark.slow
def test_an_interruption_loses_one_test_at_most(plan: Plan) -> None:
    first = FakeBench(fail_at=2)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, silent, execute=first, clock=first.clock)
    assert len(kept_runs(plan)) == 2
    said: list[str] = []
    second = FakeBench()
    results = run_plan(plan, said.append, execute=second, clock=second.clock)
    assert said[0].startswith("going on with 2 results")
    assert len(results) == 2 + len(second.commands)
    done = {(command[4], command[6]) for command in first.commands}
    assert not done & {(command[4], command[6]) for command in second.commands if "-d" not in command}


@pytest.mark.slow
def test_results_cut_off_by_a_crash_are_passed_over(plan: Plan) -> None:
    bench = FakeBench()
    run_plan(plan, silent, execute=bench, clock=bench.clock)
    whole = kept_runs(plan)
    with plan.kept.open("a", encoding="utf-8") as file:
        file.write('{"build_commit": "b11434", "n_pro')
    assert len(kept_runs(plan)) == len(whole)


@pytest.mark.slow
def test_old_results_are_kept_but_not_gone_on_from(plan: Plan) -> None:
    bench = FakeBench()
    run_plan(plan, silent, execute=bench, clock=bench.clock)
    past = time.time() - FRESH_S - 10
    os.utime(plan.kept, (past, past))
    assert kept_runs(plan) == ()
    assert len(list(plan.kept.parent.iterdir())) == 1
    assert not plan.kept.exists()


def test_nothing_within_the_budget_is_an_error(plan: Plan) -> None:
    bench = FakeBench(slowness=1e4)
    with pytest.raises(InputError, match="nothing was measured within 120 s"):
        run_plan(plan, silent, execute=bench, clock=bench.clock)


def test_output_without_a_result_is_an_error(plan: Plan) -> None:
    with pytest.raises(InputError, match="no result for tg16"):
        run_plan(plan, silent, execute=lambda *_: "\n")


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(InputError, match="no program 'llama-bench-of-nowhere'"):
        find_program("llama-bench-of-nowhere")


def test_a_failing_program_says_why() -> None:
    code = "import sys; print('error: failed to load model', file=sys.stderr); sys.exit(1)"
    with pytest.raises(InputError, match="failed with status 1: error: failed to load model"):
        execute([sys.executable, "-c", code], 20)


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import time, pathlib; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    with pytest.raises(TimeUp):
        execute([sys.executable, "-c", code], 0.3)
    assert not mark.exists()


def test_a_program_is_run_and_read(tmp_path: Path) -> None:
    program = tmp_path / "bench"
    program.write_text(f"#!{sys.executable}\nprint('out')\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert execute([find_program(str(program))], 20) == "out\n"
