"""The blocks of a sweep made by a Dask cluster: the same rows in the same order as on one machine.

Optional: needs `dask[distributed]` here, and llmcalc on every worker: the same version, catalog folders and profiles.
Blocks are independent and made anew when a worker is lost. Imports `parameter_sweep` and `sweep_output`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .errors import InputError
from .parameter_sweep import Cell, Sweep
from .sweep_output import Format, Made, made_of

if TYPE_CHECKING:
    from distributed import Client

AHEAD: Final = 4  # blocks waiting for each thread of the cluster
RETRIES: Final = 5  # of a block whose worker was lost


def dask_blocks(sweep: Sweep, form: Format, client: Client, first: int = 0) -> Iterator[Made]:
    """All blocks from number `first` on, in order, a bounded number of them at a time."""
    shared = client.scatter(sweep, broadcast=True, hash=False)
    waiting: deque[Any] = deque()
    numbers = iter(range(first, sweep.block_count))
    for number in numbers:
        waiting.append(client.submit(make_block, shared, number, form, pure=False, retries=RETRIES))
        if len(waiting) >= _window(client):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def connect(scheduler: str) -> Client:
    """A client of the scheduler at this address. Raises InputError where Dask is missing or nobody answers."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--engine dask needs Dask: pip install 'llmcalc-roofline[dask]'") from None
    try:
        return Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"--scheduler: {scheduler!r} does not answer: {problem}") from None


def make_block(sweep: Sweep, number: int, form: Format) -> Made:
    """One block, on a worker."""
    which = number // sweep.blocks_per_cell
    return made_of(number, sweep.block(number, _cell(_Held(sweep), which)), form)


class _Held:
    """A sweep that is the same for as long as the worker holds it."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __hash__(self) -> int:
        return id(self.sweep)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.sweep is self.sweep


@lru_cache(maxsize=4)
def _cell(held: _Held, number: int) -> Cell:
    """The last cells of this worker, with what they have computed ahead."""
    return held.sweep.cell(number)


def _window(client: Client) -> int:
    threads = int(sum(client.nthreads().values()))
    return max(AHEAD * threads, AHEAD)
