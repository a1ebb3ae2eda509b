"""Write ACCURACY.md: `python -m llmcalc.calibration.accuracy [-o ACCURACY.md] [--pictures docs/accuracy]`.

Every table is computed from hardware/measurements when this runs; the prose about what is unexplained is kept in
docs/accuracy_notes.md and included as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ..architecture import MoeFfn
from ..model_catalog import find_model
from ..whole_files import write_output
from . import proof
from .measurements import MEASUREMENTS
from .offload_accuracy import markdown, offload_report
from .readers import read_runs
from .resolved import shipped_runs
from .runs import Run
from .validation import Prediction, Report, Statistics, by_phase, depth_ratio_errors, statistics, validate

HEAD: Final = (
    "| | runs | devices | median error | 90th pct. | bias | ≤ 10 % | ≤ 20 % | ≤ 30 % | in the 80 % interval |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)
INTRODUCTION: Final = """\
# Accuracy

How far predicted tokens/s are from measured ones, on the public llama.cpp runs in `hardware/measurements` (single
device, whole model on it, nothing suspicious about the row). An error is |predicted − measured| ÷ measured; bias is the
median of predicted ÷ measured; every device weighs the same, however many runs it has. "Left out" means that the
efficiency factors were fitted without any run of the device (or of the model) that is predicted, but with all others
in `hardware/measurements`.

This file is written by `python -m llmcalc.calibration.accuracy`; `llmcalc validate` prints the same for any runs.
"""


def table(rows: Sequence[tuple[str, Statistics]]) -> list[str]:
    """A Markdown table, a line a set of runs."""
    return [*HEAD, *(_row(name, s) for name, s in rows)]


def _row(name: str, s: Statistics) -> str:
    shares = (s.within_10, s.within_20, s.within_30, s.coverage_80)
    cells = [name, f"{s.n:,}", str(s.devices), f"{s.median_abs_error:.1%}", f"{s.p90_abs_error:.0%}", f"{s.bias:.2f}"]
    return f"| {' | '.join([*cells, *(f'{share:.0%}' for share in shares)])} |"


def headline(runs: Sequence[Run], left_out: dict[str, Report]) -> list[str]:
    """The main table: the model, device and model left out, against the same rows by the two rules of thumb."""
    rows: list[tuple[str, Statistics]] = []
    reports = {
        "llmcalc, device left out": left_out["device"],
        "llmcalc, model left out": left_out["model"],
        "llmcalc, as shipped": validate(runs),
        "bare ceiling (datasheet roofline)": validate(runs, method="ceiling"),
        "fixed fractions (0.7 of bandwidth, 0.35 of the FP16 peak)": validate(runs, method="fraction"),
    }
    for phase in ("decode", "prefill"):
        rows += [(f"{phase}: {name}", report.overall[phase]) for name, report in reports.items()]
    return table(rows)


def by_group(report: Report, name: str) -> list[str]:
    """A table of one grouping of a report."""
    groups = report.groups[name]
    return table([(f"{value} {phase}", s) for value, phases in groups.items() for phase, s in phases.items()])


def experts_and_dense(predictions: Sequence[Prediction]) -> list[str]:
    """Mixtures of experts against dense models."""
    sparse = {id for id in {one.run.model_id for one in predictions} if id and _has_experts(id)}
    rows = []
    for name, inside in (("dense", False), ("mixture of experts", True)):
        chosen = [one for one in predictions if (one.run.model_id in sparse) == inside]
        rows += [(f"{name} {phase}", s) for phase, s in by_phase(chosen).items()]
    return table(rows)


def _has_experts(model_id: str) -> bool:
    return any(isinstance(layer.ffn, MoeFfn) for layer in find_model(model_id).layers)


def worst(report: Report, count: int = 15) -> list[str]:
    """The devices with the largest median error."""
    every = [(f"{id} {phase}", s) for id, phases in report.groups["device"].items() for phase, s in phases.items()]
    return table(sorted(every, key=lambda one: -one[1].median_abs_error)[:count])


def placed(runs: Sequence[Run]) -> list[str]:
    """Runs on several devices, and with part of the model on the host."""
    return markdown(offload_report(runs)).split("\n")


def calibrated() -> list[str]:
    """What calibrating on a few runs of a machine does for the others."""
    return proof.sections(seed=0, number=9)[2:]


def document(runs: Sequence[Run], left_out: dict[str, Report], pictures: Sequence[str], notes: str) -> str:
    """The whole file."""
    by_device = left_out["device"]
    depth = table([("decode at 4k–64k relative to depth 0", statistics(depth_ratio_errors(by_device.judged)))])
    sections: list[tuple[str, list[str]]] = [
        ("Overall", headline(runs, left_out)),
        ("Predicted against measured", [f"![{Path(p).stem.replace('_', ' ')}]({p})" for p in pictures]),
        ("By backend (device left out)", by_group(by_device, "backend")),
        ("By depth (device left out)", by_group(by_device, "depth")),
        ("Experts and dense models (device left out)", experts_and_dense(by_device.judged)),
        ("What depth costs (device left out)", depth),
        ("Devices predicted worst (device left out)", worst(by_device)),
        ("Several devices, and part of the model on the host (as shipped)", placed(runs)),
        ("Calibration on a machine's own runs", calibrated()),
        ("What is not predicted", [f"- {count:,} rows: {reason}" for reason, count in by_device.skipped.items()]),
    ]
    parts = [INTRODUCTION, *(f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections if lines), notes]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("ACCURACY.md"), show_default=True)
@click.option("--pictures", type=click.Path(path_type=Path), default=Path("docs/accuracy"), show_default=True)
@click.option("--notes", type=click.Path(path_type=Path), default=Path("docs/accuracy_notes.md"), show_default=True)
def main(output: Path, pictures: Path, notes: Path) -> None:
    """Write ACCURACY.md and its pictures."""
    from ..plots import save_accuracy

    runs = read_runs(MEASUREMENTS / "public_runs.csv").runs
    others = shipped_runs(runs)
    left_out = {"device": validate(runs, "device", others=others), "model": validate(runs, "model", others=others)}
    pictures.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, report in left_out.items():
        path = pictures / f"{name}_left_out.png"
        save_accuracy(report, path)
        paths.append(path.relative_to(output.parent).as_posix() if output.parent in path.parents else path.as_posix())
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    write_output(output, document(runs, left_out, paths, text))


if __name__ == "__main__":
    main()
