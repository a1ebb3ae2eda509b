"""Sweeps: every combination of machines, models, settings and token counts, a block of rows at a time.

Imports `axes`, `sweep_points` and `request`. Settings (model, quantisation, machine, cache types …) make cells, each a
request of its own; the token counts of a cell are a grid, which the engine takes as arrays. What depends on only some
of the axes is computed once for these, so that a hundred million rows cost little more than their text, and the memory
of a few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .axes import Counts, machine_axis, name_axis, number_axis
from .errors import InputError
from .placement_settings import PlacementSettings
from .request import (
    DEFAULT_CONTEXT,
    DEFAULT_OUTPUT,
    EVERYDAY_PROMPT,
    ModelRequest,
    Request,
    resolve_backend,
    resolve_model,
    resolve_system,
    resolve_workload,
    sequence_room,
)
from .sweep_points import (
    DECODE_COLUMNS,
    FIRST_COLUMNS,
    MEMORY_COLUMNS,
    PREFILL_COLUMNS,
    Column,
    Columns,
    MemoryColumns,
    blockwise,
    decode_columns,
    first_columns,
    prefill_columns,
    room_of,
)
from .units import MAX_TOKENS, parse_tokens
from .workload import MAX_SEQUENCES

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .system import System

ROWS: Final = 1 << 16  # of a block
LARGEST_TABLE: Final = 1 << 18  # points that are computed ahead for all blocks of a cell
FULL: Final = -1  # of the context of one sequence
EVERYDAY: Final = -2  # as `estimate` does: 1,024 tokens, or what the context holds

SETTINGS: Final = (
    "model", "quantisation", "devices", "backend", "ngl", "n_cpu_moe", "kv_type_k", "kv_type_v", "flash_attention",
    "ubatch",
)  # fmt: skip
COUNTS: Final = ("ctx", "parallel", "prompt", "cached_prefix", "occupied")
COLUMNS: Final = (*SETTINGS, *COUNTS, *MEMORY_COLUMNS, *PREFILL_COLUMNS, *FIRST_COLUMNS, *DECODE_COLUMNS)


@dataclass(eq=False)
class Part:
    """Columns over the points of some axes, [points] each; `texts`: the same as text, by format, made when needed."""

    columns: Columns
    texts: dict[str, NDArray[np.object_]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one cell: constants, and parts with the point of each row [rows]."""

    constants: Mapping[str, Any]
    parts: tuple[tuple[Part, Counts], ...]
    rows: int
    left_out: int = 0  # points whose context does not hold the prompt and its output, or the occupied positions
    problem: str | None = None  # why the cell has no rows at all

    def columns(self) -> Columns:
        """Every column in full, [rows] each."""
        constants = {
            name: np.full(self.rows, np.nan if value is None else value) for name, value in self.constants.items()
        }
        return constants | {name: values[at] for part, at in self.parts for name, values in part.columns.items()}


@dataclass(frozen=True)
class Grid:
    """All combinations of token counts, the last axis fastest."""

    counts: Mapping[str, Counts]

    @property
    def shape(self) -> tuple[int, ...]:
        """Values of each axis."""
        return tuple(map(len, self.counts.values()))

    @property
    def size(self) -> int:
        """Points."""
        return prod(self.shape)

    def part(self, names: Sequence[str]) -> Grid:
        """The grid of these axes alone."""
        return Grid({name: self.counts[name] for name in names})

    def positions(self, points: Counts) -> dict[str, Counts]:
        """[points] index on each axis."""
        return dict(zip(self.counts, np.unravel_index(points, self.shape), strict=True))

    def values(self, positions: Mapping[str, Counts]) -> dict[str, Counts]:
        """[points] value on each axis."""
        return {name: values[positions[name]] for name, values in self.counts.items()}

    def points(self, positions: Mapping[str, Counts]) -> Counts:
        """[points] number of the point at these indices."""
        return np.asarray(np.ravel_multi_index([positions[name] for name in self.counts], self.shape), np.int64)


@dataclass(frozen=True)
class Sweep:
    """What is swept. Settings of cells: model, quant, machine, backend, ngl, n_cpu_moe, kv_type, flash_attention,
    ubatch."""

    settings: Mapping[str, tuple[Any, ...]]
    grid: Grid
    fixed: Mapping[str, Any]  # arguments of `resolve_system` and `resolve_workload` that are the same everywhere
    columns: tuple[str, ...] = COLUMNS
    efficiency: Efficiency | None = None

    @property
    def cells(self) -> int:
        """Combinations of settings."""
        return prod(map(len, self.settings.values()))

    @property
    def points(self) -> int:
        """All combinations."""
        return self.cells * self.grid.size

    @property
    def blocks_per_cell(self) -> int:
        """Blocks that a cell's grid makes."""
        return -(-self.grid.size // ROWS)

    @property
    def block_count(self) -> int:
        """Blocks in all; each can be made on its own."""
        return self.cells * self.blocks_per_cell

    def block(self, number: int, cell: Cell | None = None) -> Block:
        """One block; `cell`: the one that it belongs to, if it is at hand."""
        which, part = divmod(number, self.blocks_per_cell)
        start = part * ROWS
        return (cell or self.cell(which)).block(start, min(start + ROWS, self.grid.size))

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """All blocks in order, from number `first` on."""
        cell: Cell | None = None
        for number in range(first, self.block_count):
            which = number // self.blocks_per_cell
            if cell is None or cell.number != which:
                cell = self.cell(which)
            yield self.block(number, cell)

    def cell(self, number: int) -> Cell:
        """The cell of one combination of settings."""
        at = np.unravel_index(number, tuple(map(len, self.settings.values())))
        chosen = {name: values[int(i)] for (name, values), i in zip(self.settings.items(), at, strict=True)}
        try:
            return Cell(number, self, _request(chosen, self.fixed), None)
        except InputError as problem:
            return Cell(number, self, None, str(problem))

    def table(self) -> Columns:
        """Every column in full, all rows together. Raises InputError if there are none."""
        blocks = [block for block in self.blocks() if block.rows]
        if not blocks:
            raise InputError(self.why_empty())
        parts = [block.columns() for block in blocks]
        return {name: np.concatenate([part[name] for part in parts]) for name in self.columns}

    def why_empty(self) -> str:
        """The reason why a sweep has no rows: the first cell's problem, or contexts that are too short."""
        problem = self.cell(0).problem
        return problem or "sweep: no context holds its prompt and output, or the occupied positions; raise --ctx"


@dataclass(eq=False)
class Cell:
    """One combination of settings, with what is computed ahead for its blocks."""

    number: int
    sweep: Sweep
    request: Request | None
    problem: str | None
    tables: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.request is not None:
            self._memory = MemoryColumns(self.request)
            self._groups = _groups(self.sweep, self.request, self._memory)

    def block(self, start: int, stop: int) -> Block:
        """The rows of the grid's points `start` to `stop`."""
        if self.request is None:
            return Block({}, (), 0, 0, self.problem)
        grid = self.sweep.grid
        positions = grid.positions(np.arange(start, stop))
        counts = _resolved(self.request, grid.values(positions))
        kept = _possible(self.request, counts)
        if not kept.all():
            positions = {name: index[kept] for name, index in positions.items()}
            counts = {name: values[kept] for name, values in counts.items()}
        rows = int(kept.sum())
        parts = tuple(self._part(group, positions, counts) for group in self._groups) if rows else ()
        return Block(_constants(self.sweep, self.request), parts, rows, stop - start - rows)

    def requests(self) -> tuple[list[Request], list[str]]:
        """A request for every point of the grid that is possible, and why others are not."""
        assert self.request is not None
        grid = self.sweep.grid
        counts = _resolved(self.request, grid.values(grid.positions(np.arange(grid.size))))
        made, problems = [], []
        for i in range(grid.size):
            point = {name: int(values[i]) for name, values in counts.items()}
            try:
                made.append(_at_point(self.request, point))
            except InputError as problem:
                problems.append(str(problem))
        return made, problems

    def _part(self, group: Group, positions: Mapping[str, Counts], counts: Mapping[str, Counts]) -> tuple[Part, Counts]:
        """A group's columns: from the table of its axes where that is small enough, else for these rows."""
        grid = self.sweep.grid.part(group.axes)
        if grid.size > LARGEST_TABLE:
            return Part(group.evaluate(counts)), np.arange(len(counts["ctx"]))
        if group.name not in self.tables:
            self.tables[group.name] = Part(group.evaluate(self._all(grid)))
        return self.tables[group.name], grid.points(positions)

    def _all(self, grid: Grid) -> dict[str, Counts]:
        """[points] token counts of all points of some axes; those of the other axes do not matter."""
        assert self.request is not None
        values = grid.values(grid.positions(np.arange(grid.size)))
        others = {name: np.full(grid.size, axis[0]) for name, axis in self.sweep.grid.counts.items()}
        return _resolved(self.request, others | values)


@dataclass(frozen=True, eq=False)
class Group:
    """Columns that depend on the same axes."""

    name: str
    axes: tuple[str, ...]
    evaluate: Callable[[Mapping[str, Counts]], Columns]


def sweep(
    *,
    model: Any,
    gpu: Any = None,
    cpu: Any = None,
    quant: Any = None,
    backend: Any = None,
    ngl: Any = None,
    n_cpu_moe: Any = None,
    kv_type: Any = "f16",
    flash_attention: Any = "auto",
    ubatch: Any = 512,
    ctx: Any = DEFAULT_CONTEXT,
    parallel: Any = 1,
    prompt: Any = "everyday",
    cached_prefix: Any = 0,
    occupied: Any = "full",
    output: object = DEFAULT_OUTPUT,
    columns: Sequence[str] = COLUMNS,
    efficiency: Efficiency | None = None,
    catalog: Sequence[Path] = (),
    **fixed: Any,
) -> Sweep:
    """A sweep over any arguments: a value, a list of values, or text such as "q4,q5", "1k..128k*2", "1..32".

    `gpu`: machines, each one device or several ("2x rtx3090+rtx3060", or a tuple); without any, `cpu` is what is swept.
    `ngl`, `n_cpu_moe`: layers on the GPUs, layers whose experts are on the CPU.
    `kv_type`: of both caches ("q8_0") or "q8_0/q4_0" for K and V. `ctx` counts the tokens of all `parallel` sequences
    together, as llama.cpp's -c does; `occupied`: positions of each when decode is timed, "full" for all that it has;
    `prompt`: tokens, "full", or "everyday". `fixed`: ram, figures, threads, batch, kv_unified, swa_full, and profile:
    the name of a calibration, or True for the newest one of each machine.
    Raises InputError for texts that cannot be read; names are looked up when their rows are made.
    """
    hosts = name_axis(cpu) if cpu is not None else (None,)
    machines = machine_axis(gpu) if gpu is not None else ((),)
    if machines != ((),) and len(hosts) > 1:
        raise InputError("--cpu: with --gpu it is the host's, and there can be only one")
    settings = {
        "model": name_axis(model),
        "quant": name_axis(quant),
        "machine": tuple((devices, host) for devices in machines for host in hosts),
        "backend": name_axis(backend),
        "ngl": _layer_axis(ngl, "ngl"),
        "n_cpu_moe": _layer_axis(n_cpu_moe, "n_cpu_moe"),
        "kv_type": name_axis(kv_type),
        "flash_attention": name_axis(flash_attention),
        "ubatch": tuple(int(n) for n in number_axis(ubatch, "ubatch", True)),
    }
    counts = {
        "ctx": _within(number_axis(ctx, "ctx", True), "ctx", 1, MAX_TOKENS),
        "parallel": _within(number_axis(parallel, "parallel"), "parallel", 1, MAX_SEQUENCES),
        "prompt": _within(_positions(prompt, "prompt"), "prompt", 1, MAX_TOKENS),
        "cached_prefix": _within(number_axis(cached_prefix, "cached_prefix", True), "cached_prefix", 0, MAX_TOKENS),
        "occupied": _within(_positions(occupied, "occupied"), "occupied", 0, MAX_TOKENS),
    }
    same = dict(fixed) | {"output": parse_tokens(output, "output"), "catalog": tuple(map(Path, catalog))}
    return Sweep(settings, Grid(counts), same, _known_columns(columns), efficiency)


def _known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or not columns:
        raise InputError(f"columns: {', '.join(unknown) or 'none given'}; known are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in columns)


def _positions(given: object, what: str) -> Counts:
    """Token counts among which the words "full" and "everyday" may stand."""
    listed = given if isinstance(given, list) else [given]
    texts = [part for one in listed for part in (one.split(",") if isinstance(one, str) else [one])]
    words = {"full": FULL, "everyday": EVERYDAY} if what == "prompt" else {"full": FULL}
    values = [
        np.array([words[one.strip()]])
        if isinstance(one, str) and one.strip() in words
        else number_axis(one, what, True)
        for one in texts
    ]
    return np.asarray(np.concatenate(values), np.int64)


def _layer_axis(given: object, what: str) -> tuple[int | None, ...]:
    """Numbers of layers; None and "all" are llama.cpp's default."""
    layers = tuple(
        None if one in (None, "all") else number
        for one in name_axis(given)
        for number in ([None] if one in (None, "all") else number_axis(one, what).tolist())
    )
    if not layers:
        raise InputError(f"{what}: has no values")
    return layers


def _within(values: Counts, what: str, least: int, most: int) -> Counts:
    wrong = values[((values < least) & (values >= 0)) | (values > most)]
    if len(wrong):
        raise InputError(f"{what}: must be from {least} to {most:,}, got {wrong[0]:,}")
    return values


def _request(chosen: Mapping[str, Any], fixed: Mapping[str, Any]) -> Request:
    folders = fixed["catalog"]
    devices, host = chosen["machine"]
    made = _model(chosen["model"], chosen["quant"], folders)
    system = resolve_system(devices, host, fixed.get("ram"), fixed.get("figures"), folders)
    type_k, _, type_v = chosen["kv_type"].partition("/")
    settings = {name: fixed[name] for name in ("batch", "kv_unified", "swa_full") if name in fixed}
    workload, prompts = resolve_workload(
        made.model,
        output=fixed["output"],
        kv_type_k=type_k,
        kv_type_v=type_v or type_k,
        flash_attention=chosen["flash_attention"],
        ubatch=chosen["ubatch"],
        **settings,
    )
    backend = resolve_backend(system, chosen["backend"])
    placed = PlacementSettings(chosen["ngl"], chosen["n_cpu_moe"])
    factors, said = _profile(fixed.get("profile"), backend, system)
    return Request(
        system=system,
        backend=backend,
        model=made.model,
        weights=made.weights,
        quantisation=made.quantisation,
        workload=workload,
        prompts=prompts,
        threads=fixed.get("threads"),
        notes=(*said, *made.notes),
        efficiency=factors,
        settings=None if placed.is_default else placed,
    )


def _profile(profile: str | bool | None, backend: str, system: System) -> tuple[Efficiency | None, tuple[str, ...]]:
    """The factors of the named calibration, or of the newest one of these devices, and what to say of it."""
    if not profile:
        return None, ()
    from .calibration.profile_use import named_profile, own_profile

    if isinstance(profile, str):
        return named_profile(profile, backend, system.devices)
    return own_profile(backend, system.devices)


def _at_point(request: Request, point: Mapping[str, int]) -> Request:
    """The cell's request with these token counts. Raises InputError if its context does not hold them."""
    w = request.workload
    made = replace(
        w,
        context=point["ctx"],
        parallel=point["parallel"],
        prompt=point["prompt"],
        cached_prefix=point["cached_prefix"],
    )
    room = sequence_room(made)
    if point["prompt"] + w.output > room:
        raise InputError(
            f"prompt {point['prompt']:,} + output {w.output:,} do not fit the {room:,} tokens of context that one "
            f"sequence has; raise --ctx or lower --prompt or --output"
        )
    return replace(request, workload=made, prompts=(point["prompt"],))


@lru_cache(maxsize=8)
def _model(model: Any, quant: str | None, folders: tuple[Path, ...]) -> ModelRequest:
    return resolve_model(model, quant, folders)


def _constants(sweep: Sweep, request: Request) -> dict[str, Any]:
    w = request.workload
    every = {
        "model": request.model.id,
        "quantisation": request.quantisation,
        "devices": "+".join(device.id for device in request.devices),
        "backend": request.backend,
        "ngl": request.settings.ngl if request.settings else None,
        "n_cpu_moe": request.settings.n_cpu_moe if request.settings else None,
        "kv_type_k": w.kv_type_k,
        "kv_type_v": w.kv_type_v,
        "flash_attention": w.flash_attention,
        "ubatch": w.ubatch,
    }
    return {name: value for name, value in every.items() if name in sweep.columns}


def _resolved(request: Request, counts: Mapping[str, Counts]) -> dict[str, Counts]:
    """[points] token counts with numbers in place of "full" and "everyday"."""
    room = room_of(request.workload, counts["ctx"], counts["parallel"])
    longest = np.maximum(room - request.workload.output, 1)
    prompt, occupied = counts["prompt"], counts["occupied"]
    prompt = np.where(prompt == EVERYDAY, np.minimum(EVERYDAY_PROMPT, longest), prompt)
    prompt = np.where(prompt == FULL, longest, prompt)
    occupied = np.where(occupied == FULL, room - 1, occupied)
    return {**counts, "prompt": prompt, "occupied": occupied}


def _possible(request: Request, counts: Mapping[str, Counts]) -> NDArray[np.bool_]:
    """[points] whether the context of one sequence holds what is asked."""
    room = room_of(request.workload, counts["ctx"], counts["parallel"])
    held = counts["prompt"] + request.workload.output <= room
    return np.asarray(held & (counts["occupied"] < room) & (counts["cached_prefix"] <= counts["prompt"]))


def _groups(sweep: Sweep, request: Request, memory: MemoryColumns) -> tuple[Group, ...]:
    """What has to be computed for the columns that are wanted, in the order of `COLUMNS`."""
    wanted, efficiency = sweep.columns, sweep.efficiency
    sized = ("ctx", "parallel")
    prompt = _axes(sweep, "prompt", *(sized if (sweep.grid.counts["prompt"] < 0).any() else ()))
    occupied = _axes(sweep, "occupied", *(sized if (sweep.grid.counts["occupied"] < 0).any() else ()))
    by_prompt = _axes(sweep, *prompt, "cached_prefix")

    def prefill(counts: Mapping[str, Counts]) -> Columns:
        ranges = bool({"prefill_low_80", "prefill_high_80"} & set(wanted))
        return _blocks(
            lambda p, c: prefill_columns(request, efficiency, p, c, ranges), counts, "prompt", "cached_prefix"
        )

    def first(counts: Mapping[str, Counts]) -> Columns:
        names = ("prompt", "cached_prefix", "parallel")
        return _blocks(lambda p, c, n: first_columns(request, efficiency, p, c, n), counts, *names)

    def decode(counts: Mapping[str, Counts]) -> Columns:
        ranges = bool({"decode_low_80", "decode_high_80"} & set(wanted))
        return _blocks(lambda o, n: decode_columns(request, efficiency, o, n, ranges), counts, "occupied", "parallel")

    every = (
        *(Group(name, (name,), _own(name)) for name in ("ctx", "parallel")),
        Group("prompt", prompt, _own("prompt")),
        Group("cached_prefix", ("cached_prefix",), _own("cached_prefix")),
        Group("occupied", occupied, _own("occupied")),
        Group("memory", sized, lambda counts: memory(counts["ctx"], counts["parallel"])),
        Group("prefill", by_prompt, prefill),
        Group("first", _axes(sweep, *by_prompt, "parallel"), first),
        Group("decode", _axes(sweep, *occupied, "parallel"), decode),
    )
    return tuple(
        _only(group, wanted) for group in every if set(_COLUMNS_OF.get(group.name, (group.name,))) & set(wanted)
    )


_COLUMNS_OF: Final[dict[str, tuple[str, ...]]] = {
    "memory": MEMORY_COLUMNS,
    "prefill": PREFILL_COLUMNS,
    "first": FIRST_COLUMNS,
    "decode": DECODE_COLUMNS,
}


def _axes(sweep: Sweep, *names: str) -> tuple[str, ...]:
    """These axes in the order of the grid."""
    return tuple(name for name in sweep.grid.counts if name in names)


def _own(name: str) -> Callable[[Mapping[str, Counts]], Columns]:
    return lambda counts: {name: counts[name]}


def _only(group: Group, wanted: tuple[str, ...]) -> Group:
    """The group with the columns that are wanted, in their order."""

    def evaluate(counts: Mapping[str, Counts]) -> Columns:
        columns = group.evaluate(counts)
        return {name: columns[name] for name in wanted if name in columns}

    return replace(group, evaluate=evaluate)


def _blocks(evaluate: Callable[..., Columns], counts: Mapping[str, Counts], *names: str) -> Columns:
    arrays: list[Column] = [counts[name].astype(float) for name in names]
    return blockwise(evaluate, *arrays)
