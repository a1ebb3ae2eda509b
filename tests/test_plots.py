"""Charts: the artists hold the data they were given, texts do not collide, pictures look like the references.

References are drawn without letters, whose shapes differ between versions of matplotlib and FreeType, in axes of fixed
place. `LLMCALC_WRITE_REFERENCES=1 pytest tests/test_plots.py` writes them anew, to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from llmcalc import plots
from llmcalc.calibration.runs import Run
from llmcalc.calibration.validation import Prediction
from llmcalc.efficiency import Efficiency
from llmcalc.errors import InputError
from llmcalc.memory_stack import MemoryStack, memory_stack
from llmcalc.pareto import on_front
from llmcalc.plots.labels import Label, place_labels
from llmcalc.plots.style import plain_text, si_text, tokens_text
from llmcalc.request import Request, resolve
from llmcalc.roofline_view import ComputeRoof, RooflinePoint, RooflineView, roofline_view
from llmcalc.speed_curves import (
    BatchCurve,
    SpeedCurve,
    batch_curve,
    decode_curve,
    prefill_curve,
    prefill_depth_curve,
    series_names,
)
from llmcalc.units import GIB

PRIORS = Efficiency()
REFERENCES = Path(__file__).parent / "data" / "plots"
TOLERANCE = 4.0  # root mean square of pixel differences, of 255
DEVICES = (
    "rtx4090", "rtx3090", "rx-7900-xtx", "m2-ultra-76", "rtx3060", "rtx4060", "m1-max-32", "rtx5090", "rtx2080ti",
    "tesla-p40", "h100-sxm5-80gb", "m4-max-40", "rx-6800-xt", "rtx4070", "rtx3080", "m3-max-40", "arc-a770",
    "a100-sxm4-80gb", "rtx4080", "rtx3070",
)  # fmt: skip


# Fixed inputs, which no change of the time model moves.


def speed(name: str = "machine", scale: float = 1.0) -> SpeedCurve:
    tokens = np.linspace(0, 32767, 33)
    rate = scale * 100 / (1 + tokens / 40000)
    return SpeedCurve(name, tokens, rate, 1.4 * rate, 0.85 * rate, rate / 0.85, 0.7 * rate, rate / 0.7)


def batches(name: str = "machine", scale: float = 1.0, fit: int | None = 12) -> BatchCurve:
    n = np.arange(1.0, 33)
    rate = scale * 1500 * n / (n + 12)
    return BatchCurve(name, n, 1000, rate, rate * 0.8, rate / 0.8, n / rate, n / rate * 0.8, n / rate / 0.8, fit)


def stack(limit: int | None = 20480) -> MemoryStack:
    context = np.linspace(256, 32768, 17)
    parts = {"weights": np.full(17, 8 * GIB), "KV cache": context * 5e5, "compute and output buffers": context * 2e4}
    return MemoryStack("machine", context, parts, 24 * 2**30, int(23.5 * 2**30), limit, 24576)


def roofs(name: str = "machine", scale: float = 1.0) -> RooflineView:
    compute = (ComputeRoof("int8_matrix", 660e12 * scale, 280e12 * scale), ComputeRoof("fp32", 80e12 * scale, 50e12))
    points = (
        RooflinePoint("prefill", "prefill of 1,024", 1600, 160e12 * scale, 11000),
        RooflinePoint("decode", "decode, empty", 3.2, 2.4e12 * scale, 160),
        RooflinePoint("decode", "decode, 8,192 tokens", 3.3, 2.2e12 * scale, 150),
        *(RooflinePoint("batched", f"{n} sequences", 3.2 * n**0.9, 2.4e12 * n**0.85 * scale, 150 * n**0.85)
          for n in (2, 4, 8, 16, 32, 64)),
    )  # fmt: skip
    operations = (
        RooflinePoint("operation", "prefill: attention", 500, 60e12),
        RooflinePoint("operation", "decode: attention", 4, 3e12),
    )
    return RooflineView(name, "device", 1e12 * scale, 0.8e12 * scale, compute, points, operations)


def runs() -> tuple[np.ndarray, np.ndarray, list[str]]:
    measured = np.geomspace(5, 500, 30)
    predicted = measured * np.exp(0.25 * np.sin(np.arange(30.0)))
    return measured, predicted, ["CUDA", "Metal", "CPU"] * 10


def layers() -> tuple[np.ndarray, np.ndarray]:
    n = np.arange(34.0)
    return n, 1 / (0.03 * (33 - n) / 33 + 0.007 * n / 33)


CHARTS: dict[str, Callable[[Axes], Axes]] = {
    "roofline": lambda ax: plots.roofline(
        roofs(), ax, operations=True, measured=[RooflinePoint("measured", "m", 3.25, 2e12)]
    ),
    "rooflines": lambda ax: plots.roofline([roofs("a"), roofs("b", 0.4), roofs("c", 0.1)], ax),
    "decode": lambda ax: plots.decode_against_context(speed(), ax, measured=[(4096, 95.0)]),
    "decodes": lambda ax: plots.decode_against_context([speed("a"), speed("b", 0.6), speed("c", 0.3)], ax),
    "prefill_time": lambda ax: plots.prefill_time_against_prompt(prompt_speed(), ax),
    "memory": lambda ax: plots.memory_against_context(stack(), ax),
    "throughput": lambda ax: plots.throughput_against_batch(batches(), ax),
    "latency": lambda ax: plots.latency_against_batch([batches("a"), batches("b", 0.5, None)], ax),
    "layers": lambda ax: plots.throughput_against_layers(*layers(), ax, most_that_fit=20),
    "accuracy": lambda ax: plots.predicted_against_measured(*runs(), ax),
    "pareto": lambda ax: plots.pareto_front(list("abcde"), [100, 200, 300, 400, 500], [10, 30, 20, 60, 50], ax),
}


def prompt_speed() -> SpeedCurve:
    tokens = np.geomspace(16, 32768, 34)
    rate = 9000 * tokens / (tokens + 200)
    return SpeedCurve("machine", tokens, rate, 2 * rate, 0.85 * rate, rate / 0.85, 0.7 * rate, rate / 0.7)


def drawn(name: str) -> Axes:
    _, (ax,) = plots.figure((5.0, 4.0))
    return CHARTS[name](ax)


# What the artists hold.


def line(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    found = next(one for one in ax.lines if one.get_label() == label)
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def bands(ax: Axes) -> list[np.ndarray]:
    """Corners of the filled areas, the empty ones of legend entries left out. Shapes: [n, 2]."""
    areas = [one for one in ax.collections if isinstance(one, PolyCollection)]
    return [path.vertices for one in areas for path in one.get_paths() if len(path.vertices) > 4]


def offsets(ax: Axes, label: str) -> np.ndarray:
    found = next(one for one in ax.collections if isinstance(one, PathCollection) and one.get_label() == label)
    return np.asarray(found.get_offsets(), float)


def test_decode_line_and_bands_are_the_curves() -> None:
    asked = resolve(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="8k")
    curve = decode_curve(asked, PRIORS)
    ax = plots.decode_against_context(curve, plots.figure()[1][0])
    x, y = line(ax, "estimate")
    assert np.array_equal(x, curve.tokens)
    assert np.array_equal(y, curve.tokens_per_s)
    assert np.array_equal(line(ax, "datasheet ceiling")[1], curve.ceiling_tokens_per_s)
    wide, narrow = bands(ax)
    for area, low, high in ((wide, curve.low_95, curve.high_95), (narrow, curve.low_80, curve.high_80)):
        edges = {(float(a), float(b)) for a, b in area}
        assert set(zip(curve.tokens, low, strict=True)) <= edges
        assert set(zip(curve.tokens, high, strict=True)) <= edges


def test_a_far_ceiling_leaves_the_chart_and_is_named() -> None:
    near, far = speed(), SpeedCurve(**{**vars(speed()), "ceiling_tokens_per_s": 5000 / (1 + speed().tokens / 100)})
    assert "datasheet ceiling" in plots.decode_against_context(near).get_legend_handles_labels()[1]
    ax = plots.decode_against_context(far)
    assert "datasheet ceiling (up to 5,000)" in ax.get_legend_handles_labels()[1]
    assert ax.get_ylim()[1] < 200


def test_prefill_time_is_tokens_over_rate() -> None:
    curve = prompt_speed()
    x, y = line(plots.prefill_time_against_prompt(curve), "estimate")
    assert np.allclose(y, x / curve.tokens_per_s)


def test_batch_charts_hold_throughput_and_milliseconds() -> None:
    curve = batches()
    assert np.array_equal(line(plots.throughput_against_batch(curve), "estimate")[1], curve.tokens_per_s)
    assert np.allclose(line(plots.latency_against_batch(curve), "estimate")[1], 1e3 * curve.tpot_s)


def test_memory_areas_are_the_parts_on_top_of_each_other() -> None:
    one = stack()
    ax = plots.memory_against_context(one)
    hatches = [area.get_hatch() for area in ax.collections]
    assert len(set(hatches)) == len(one.parts)
    tops = [area[:, 1].max() for area in bands(ax)]
    assert tops == pytest.approx(np.cumsum([part[-1] for part in one.parts.values()]) / GIB)
    levels = {float(np.asarray(found.get_ydata())[0]) for found in ax.lines}
    assert {24.0, 23.5} <= levels
    words = {text.get_text() for text in ax.texts}
    assert words == {"20k fit", "trained for 24k"}


@pytest.mark.parametrize(("limit", "word"), [(0, "no context fits"), (20480, "20k fit")])
def test_memory_says_where_it_ends(limit: int, word: str) -> None:
    assert word in {text.get_text() for text in plots.memory_against_context(stack(limit)).texts}


def test_roofline_points_are_the_views() -> None:
    view = roofs()
    ax = drawn("roofline")
    for kind, label in (("prefill", "prefill"), ("decode", "decode"), ("batched", "batched decode")):
        points = [(point.intensity, point.flop_per_s) for point in view.points if point.kind == kind]
        assert offsets(ax, label).tolist() == [list(point) for point in points]
    assert len(offsets(ax, "single operations")) == 2
    assert offsets(ax, "measured").tolist() == [[3.25, 2e12]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_roofline_roofs_bend_at_their_ridges() -> None:
    view = roofs()
    x, y = line(drawn("roofline"), "machine")
    assert (x[1], y[1]) == pytest.approx((view.ridge(view.roofs[0]), view.peak_flop_per_s))
    assert y[0] == pytest.approx(view.bandwidth_bytes_per_s * x[0])
    assert y[2] == view.peak_flop_per_s


def test_roofline_names_every_roof_and_its_ridge() -> None:
    words = " ".join(text.get_text() for text in drawn("roofline").texts)
    for part in ("INT8 matrix 660 TFLOP/s, ridge at 660 FLOP/byte", "FP32 80 TFLOP/s", "memory 1 TB/s", "160 tok/s"):
        assert part in words


def test_accuracy_has_every_run_in_the_colour_of_its_backend() -> None:
    measured, predicted, _ = runs()
    ax = drawn("accuracy")
    points = np.concatenate([offsets(ax, f"{name} (10)") for name in ("CUDA", "Metal", "CPU")])
    assert sorted(map(tuple, points)) == sorted(zip(measured, predicted, strict=True))
    other = plots.predicted_against_measured([1.0], [1.1], ["Metal"])
    colors = [
        next(one for one in a.collections if one.get_label().startswith("Metal")).get_facecolor()[0, :3]
        for a in (ax, other)
    ]
    assert np.array_equal(*colors)


def test_accuracy_says_how_many_are_within_the_band() -> None:
    ax = plots.predicted_against_measured([100.0, 100.0, 100.0, 100.0], [100.0, 119.0, 121.0, 50.0], ["CUDA"] * 4)
    assert "50 % of 4 within ±20 %" in ax.texts[0].get_text()


@pytest.mark.parametrize(
    ("cost", "rate", "front"),
    [
        ([1, 2, 3], [1, 2, 3], [True, True, True]),
        ([1, 2, 3], [3, 2, 1], [True, False, False]),
        ([1, 1, 2], [1, 2, 2], [False, True, False]),
        ([1, 1], [1, 1], [True, True]),
        ([5], [1], [True]),
    ],
)
def test_front_holds_what_no_other_beats(cost: list[float], rate: list[float], front: list[bool]) -> None:
    assert on_front(cost, rate).tolist() == front


def test_layers_take_one_series_or_several() -> None:
    n, rate = layers()
    assert np.array_equal(line(plots.throughput_against_layers(n, rate), "estimate")[1], rate)
    ax = plots.throughput_against_layers(
        n, [rate, rate / 2], names=["a", "b"], low_80=[rate, rate], high_80=[rate, rate]
    )
    assert np.array_equal(line(ax, "b")[1], rate / 2)


def test_functions_draw_on_the_axes_that_they_are_given() -> None:
    for name in CHARTS:
        made, (ax,) = plots.figure((5.0, 4.0))
        assert CHARTS[name](ax) is ax
        assert made.axes == [ax]


def test_style_does_not_leak() -> None:
    before = dict(matplotlib.rcParams)
    for name in CHARTS:
        drawn(name)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("chart", [plots.decode_against_context, plots.roofline, plots.throughput_against_batch])
def test_no_series_is_an_error(chart: Any) -> None:
    with pytest.raises(InputError, match="nothing to plot"):
        chart([])


def test_twenty_series_all_look_different() -> None:
    styles = [plots.series_style(i) for i in range(20)]
    for a, b in combinations(styles, 2):
        assert (a.color, a.line) != (b.color, b.line)
    for i in range(19):
        assert styles[i].marker != styles[i + 1].marker


# Texts.


def words(made: Figure) -> list[Text]:
    """The texts that are drawn; slanted ones, whose boxes are larger than they are, left out."""
    found = [made._suptitle] if getattr(made, "_suptitle", None) is not None else []
    for ax in made.axes:
        legend = ax.get_legend()
        found += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        found += legend.get_texts() if legend else []
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [one for one in found if one.get_visible() and one.get_text().strip() and one.get_rotation() % 90 == 0]


def boxes(made: Figure) -> list[tuple[str, Any]]:
    """Each text with its place, arrows left out."""
    made.draw_without_rendering()
    renderer = made.canvas.get_renderer()  # type: ignore[attr-defined]
    return [(text.get_text(), Text.get_window_extent(text, renderer).padded(-1.0)) for text in words(made)]


def collisions(made: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that lie on one another."""
    return [(a, b) for (a, one), (b, other) in combinations(boxes(made), 2) if one.overlaps(other)]


def cut_off(made: Figure) -> list[str]:
    """Texts that reach beyond the picture."""
    width, height = made.canvas.get_width_height()
    return [
        text for text, box in boxes(made) if box.x0 < -2 or box.y0 < -2 or box.x1 > width + 2 or box.y1 > height + 2
    ]


def requests(count: int) -> list[Request]:
    return [resolve(gpu=name, model="llama3.1-8b", quant="q4", ctx="32k") for name in DEVICES[:count]]


def figure_of(kind: str, count: int) -> Figure:
    asked = requests(count)
    named = list(zip(asked, series_names(asked), strict=True))
    if kind == "roofline":
        return plots.roofline_figure([roofline_view(one, PRIORS, name) for one, name in named], operations=count == 1)
    if kind == "context":
        curves = [decode_curve(one, PRIORS, name) for one, name in named]
        return plots.context_figure(curves, [prefill_depth_curve(one, PRIORS, name) for one, name in named])
    if kind == "prefill":
        return plots.prefill_figure([prefill_curve(one, PRIORS, name) for one, name in named])
    if kind == "batch":
        return plots.batch_figure([batch_curve(one, PRIORS, name) for one, name in named])
    return plots.memory_figure([memory_stack(one, name, points=9) for one, name in named])


@pytest.mark.parametrize("count", [1, 4, 20])
@pytest.mark.parametrize("kind", ["roofline", "context", "prefill", "batch", "memory"])
def test_no_text_lies_on_another_or_is_cut_off(kind: str, count: int) -> None:
    made = figure_of(kind, count)
    assert collisions(made) == []
    assert cut_off(made) == []


@pytest.mark.parametrize("size", [(3.0, 3.0), (4.6, 4.2), (7.2, 5.0)])
@pytest.mark.parametrize("brief", [False, True])
def test_long_names_are_set_in_several_lines(size: tuple[float, float], brief: bool) -> None:
    made, (ax,) = plots.figure(size)
    name = "Qwen3-Coder 480B-A35B Instruct · UD-Q4_K_XL · RTX PRO 6000 Blackwell Server + GeForce RTX 4070 Ti SUPER"
    view = replace(roofs(name), whole=False, device="RTX PRO 6000 Blackwell Server Edition")
    assert "the part of the" in plots.roofline(view, ax, brief=brief).get_title(loc="left").replace("\n", " ")
    assert [text for text in cut_off(made) if text == ax.get_title(loc="left")] == []


def test_every_axis_has_a_label_with_its_unit() -> None:
    for name in CHARTS:
        ax = drawn(name)
        for label in (ax.get_xlabel(), ax.get_ylabel()):
            assert "(" in label or label in ("sequences at once", "time to read the prompt"), (name, label)


def test_labels_of_a_crowd_are_kept_apart() -> None:
    made, (ax,) = plots.figure((5.0, 4.0))
    ax.set_xlim(0, 10)
    ax.set_ylim(0, 10)
    points = [(3 + i % 3, 4 + i // 3) for i in range(6)]
    place_labels(ax, [Label(f"device number {i}", x, y) for i, (x, y) in enumerate(points)], points)
    assert len(ax.texts) == 6
    assert collisions(made) == []


def test_optional_labels_give_way() -> None:
    _, (ax,) = plots.figure((2.0, 1.5))
    ax.set_xlim(0, 10)
    ax.set_ylim(0, 10)
    labels = [Label("a rather long name of a device", 5, 5, optional=i > 0) for i in range(12)]
    placed = place_labels(ax, labels)
    assert 1 <= len(placed) < 12


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (512, "512"), (1000, "1,000"), (4096, "4k"), (131072, "128k"), (2**20, "1M")]
)
def test_token_ticks(value: float, text: str) -> None:
    assert tokens_text(value) == text


def test_figures_in_words() -> None:
    assert si_text(1.008e12, "B/s") == "1.008 TB/s"
    assert si_text(83.2e9, "B/s") == "83.2 GB/s"
    assert [plain_text(v) for v in (0.05, 2.0, 1500.0)] == ["0.05", "2", "1,500"]


def test_points_of_many_rooflines_carry_the_number_of_their_entry() -> None:
    views = [roofs(f"machine {i}", 0.9**i) for i in range(12)]
    ax = plots.roofline(views, plots.figure((9.2, 5.0))[1][0])
    labels = ax.get_legend_handles_labels()[1]
    assert [f"{i + 1}  machine {i}" for i in range(12)] == labels[:12]
    for kind in ("prefill", "decode"):
        for number, view in enumerate(views, 1):
            point = next(point for point in view.points if point.kind == kind)
            at = [text.xy for text in ax.texts if text.get_text() == str(number)]  # type: ignore[attr-defined]
            assert (point.intensity, point.flop_per_s) in at
    few = plots.roofline(views[:4], plots.figure((9.2, 5.0))[1][0])
    assert not [text for text in few.texts if text.get_text().isdigit()]


# Pictures.


def bare(name: str, change: Callable[[Axes], object] | None = None) -> Figure:
    """A chart without letters and legend, in axes that no text can push."""
    with plots.styled():
        made = Figure(figsize=(4.0, 3.0), dpi=60, layout="none")
        FigureCanvasAgg(made)
        ax = made.add_axes((0.1, 0.1, 0.85, 0.85))
        CHARTS[name](ax)
        if change is not None:
            change(ax)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
        for area in ax.collections:
            area.set_hatch(None)  # drawn differently from version to version
        for text in (*ax.texts, ax.title):
            text.set_visible(False)
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set_visible(False)
            axis.set_tick_params(which="both", labelbottom=False, labelleft=False)
    return made


def difference(made: Figure, name: str, folder: Path) -> str | None:
    actual, expected = folder / f"{name}.png", folder / f"{name}_expected.png"
    made.savefig(actual, dpi=60, metadata={"Software": None})
    expected.write_bytes((REFERENCES / f"{name}.png").read_bytes())
    result: str | None = compare_images(str(expected), str(actual), TOLERANCE)
    return result


@pytest.mark.parametrize("name", CHARTS)
def test_picture_looks_like_its_reference(name: str, tmp_path: Path) -> None:
    if os.environ.get("LLMCALC_WRITE_REFERENCES"):
        bare(name).savefig(REFERENCES / f"{name}.png", dpi=60, metadata={"Software": None})
    assert difference(bare(name), name, tmp_path) is None


@pytest.mark.parametrize("name", ["roofline", "decode", "memory", "throughput", "accuracy"])
def test_the_comparison_sees_what_is_missing(name: str, tmp_path: Path) -> None:
    def spoil(ax: Axes) -> None:
        for artist in [*ax.lines, *ax.collections][:3]:
            artist.remove()

    assert difference(bare(name, spoil), name, tmp_path) is not None


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_save_by_ending_gives_the_same_bytes_twice(ending: str, magic: bytes, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    plots.save(plots.prefill_figure([prompt_speed()]), first)
    plots.save(plots.prefill_figure([prompt_speed()]), str(second))
    assert first.read_bytes().startswith(magic)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "missing/picture.png"])
def test_save_says_what_is_wrong_with_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="picture"):
        plots.save(plots.prefill_figure([prompt_speed()]), tmp_path / name)


def predictions(count: int) -> Sequence[Prediction]:
    return [
        Prediction(Run(phase="decode", backend="CUDA", t_s=10.0 + i), "decode", 10.0 + i, 11.0 + i, 9.0, 13.0)
        for i in range(count)
    ]


def test_accuracy_figure_has_a_panel_for_each_phase_that_was_measured() -> None:
    skipped = Prediction(Run(phase="prefill", t_s=1.0), skipped="unknown device")
    assert [ax.get_title(loc="left") for ax in plots.accuracy_figure([*predictions(3), skipped]).axes] == ["Decode"]
    with pytest.raises(InputError, match="none of the runs"):
        plots.accuracy_figure([skipped])


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")
