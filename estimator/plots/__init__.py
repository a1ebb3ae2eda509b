"""Charts in matplotlib, which is imported only here: functions that draw on an Axes and return it, and whole figures.

Each takes what `roofline_view`, `speed_curves` and `memory_stack` make of an estimate, one or several, and an optional
Axes; without one it makes a figure with pyplot. A leaf: only the command line and reports import it.

    import llmcalc
    from llmcalc import plots
    from llmcalc.roofline_view import roofline_view

    ax = plots.roofline(roofline_view(llmcalc.estimate(gpu="rtx4090", model="llama3-8b")))
"""

from __future__ import annotations

from .accuracy import predicted_against_measured
from .devices import pareto_front
from .figures import (
    accuracy_figure,
    batch_figure,
    context_figure,
    front_figure,
    layers_figure,
    memory_figure,
    prefill_figure,
    roofline_figure,
    save_accuracy,
)
from .memory import memory_against_context
from .roofline import roofline
from .speed import (
    decode_against_context,
    latency_against_batch,
    prefill_against_context,
    prefill_against_prompt,
    prefill_time_against_prompt,
    throughput_against_batch,
    throughput_against_layers,
)
from .style import SeriesStyle, figure, picture, picture_format, save, series_style, show, styled

__all__ = [
    "SeriesStyle", "accuracy_figure", "batch_figure", "context_figure", "decode_against_context", "figure",
    "front_figure", "latency_against_batch", "layers_figure", "memory_against_context", "memory_figure",
    "pareto_front", "picture", "picture_format", "predicted_against_measured", "prefill_against_context",
    "prefill_against_prompt", "prefill_figure", "prefill_time_against_prompt", "roofline", "roofline_figure",
    "save", "save_accuracy", "series_style", "show", "styled", "throughput_against_batch",
    "throughput_against_layers",
]  # fmt: skip
