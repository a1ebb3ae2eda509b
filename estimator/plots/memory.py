"""Memory against configured context: the parts stacked, under the line of what the device has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from ..memory_stack import PARTS, MemoryStack
from ..units import GIB, gib
from .style import (
    BESIDE,
    COLORS,
    HATCHES,
    INK,
    VERMILLION,
    axes_or_new,
    legend,
    rate_axis,
    styled,
    token_axis,
    tokens_text,
)

HEADROOM = 1.28  # of the y axis above everything, for the legend


def memory_against_context(stack: MemoryStack, ax: Axes | None = None, *, with_legend: bool = True) -> Axes:
    """Weights, cache, state and buffers over the context, the capacity, what of it is usable, and where that ends."""
    with styled():
        ax = axes_or_new(ax)
        names = list(stack.parts)
        drawn = ax.stackplot(stack.context, [stack.parts[name] / GIB for name in names], labels=names)
        for name, part in zip(names, drawn, strict=True):
            index = PARTS.index(name)
            part.set(facecolor=COLORS[index], alpha=0.75, hatch=HATCHES[index], edgecolor="white", linewidth=0.6)
        token_axis(ax, float(stack.context[-1]), "configured context (tokens)")
        rate_axis(ax, "memory (GiB)")
        top = _capacity(ax, stack, with_legend)
        _marks(ax, stack)
        ax.set_ylim(0, top * (HEADROOM if with_legend else 1.05))
        ax.set_title("Memory against configured context")
        if with_legend:
            legend(ax, entries=1, loc="upper left", ncols=2)
    return ax


def memory_legend(ax: Axes, panels: Sequence[Axes]) -> None:
    """One legend for several charts, beside `ax`."""
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    order = sorted(entries, key=[*PARTS, *entries].index)
    ax.legend([entries[name] for name in order], order, **BESIDE)


def _capacity(ax: Axes, stack: MemoryStack, in_figures: bool) -> float:
    """Lines of capacity and of its usable part; the highest figure shown, in GiB."""
    top = float(sum(part[-1] for part in stack.parts.values())) / GIB
    if stack.capacity_bytes is None or stack.usable_bytes is None:
        return top
    capacity, usable = stack.capacity_bytes / GIB, stack.usable_bytes / GIB
    names = ["capacity", "usable"]
    if in_figures:
        names = [f"capacity {gib(stack.capacity_bytes)}", f"usable {gib(stack.usable_bytes)}"]
    ax.axhline(capacity, color=INK, linewidth=1.5, label=names[0])
    ax.axhline(usable, color=VERMILLION, linewidth=1.5, linestyle="--", label=names[1])
    return max(top, capacity)


def _marks(ax: Axes, stack: MemoryStack) -> None:
    """Where memory ends, and where the model's training does."""
    end = float(stack.context[-1])
    limit, trained = stack.max_context, stack.trained_context
    if limit is not None and 0 < limit < end:
        _mark(ax, limit, f"{tokens_text(limit)} fit", end)
    if limit == 0:
        _note(ax, "no context fits", 0, end)
    if trained is not None and trained < end:
        _mark(ax, trained, f"trained for {tokens_text(trained)}", end)


def _mark(ax: Axes, context: float, text: str, end: float) -> None:
    ax.axvline(context, color=INK, linestyle=(0, (1, 1.5)), linewidth=1.2)
    _note(ax, text, context, end)


def _note(ax: Axes, text: str, context: float, end: float) -> None:
    right = context > end / 2
    ax.annotate(
        text,
        (context, 0),
        xytext=(-4 if right else 4, 5),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=8,
        color=INK,
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )
