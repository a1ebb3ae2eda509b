"""Long sweeps over counts: each distinct count is evaluated once, and the result is looked up for all points.

Contexts, prompts and numbers of sequences are whole numbers, so a million points hold far fewer different ones.
Imports `timing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .timing import decode_time, prefill_time

if TYPE_CHECKING:
    from .architecture import Model
    from .inventory import Inventory
    from .quantization import Weights
    from .system import Device

Vector = NDArray[np.float64]

SHORT: Final = 4096  # points below which looking for repeats costs more than it saves
BLOCK: Final = 8192  # points evaluated at once: temporaries stay in the processor's cache


def decode_seconds(
    model: Model, weights: Weights | Inventory, device: Device, backend: str, *, occupied: Any, **given: Any
) -> Vector:
    """Seconds of a decode step at each of `occupied` positions (or, with one position, for an array of `parallel`).

    The figures are those of `timing.decode_time`, which takes the same arguments; only one may be an array here.
    """

    def evaluate(values: Vector) -> Any:
        settings = {"occupied": occupied, **given, name: values}
        return decode_time(model, weights, device, backend, **settings).seconds

    name, values = _swept(occupied=occupied, **given)
    return over_distinct(evaluate, values)


def prefill_seconds(
    model: Model, weights: Weights | Inventory, device: Device, backend: str, *, prompt: Any, **given: Any
) -> Vector:
    """Seconds of the prefill of each of `prompt` tokens (or, with one prompt, for an array of `cached` or `ubatch`).

    The figures are those of `timing.prefill_time`, which takes the same arguments; only one may be an array here.
    """

    def evaluate(values: Vector) -> Any:
        settings = {"prompt": prompt, **given, name: values}
        return prefill_time(model, weights, device, backend, **settings).seconds

    name, values = _swept(prompt=prompt, **given)
    return over_distinct(evaluate, values)


def over_distinct(evaluate: Callable[[Vector], Any], values: Vector) -> Vector:
    """`evaluate`, a function of each value alone, over an array in which whole numbers may repeat many times."""
    if values.size <= SHORT:
        return _full(evaluate, values)
    low, high = float(values.min()), float(values.max())
    if high - low >= values.size // 4 or not bool(np.all(values == np.floor(values))):
        return _blockwise(evaluate, values)
    table = _blockwise(evaluate, np.arange(low, high + 1.0))
    found: Vector = table[(values - low).astype(np.intp)]
    return found


def _swept(**given: Any) -> tuple[str, Vector]:
    """The argument that is an array; the first one if none is."""
    arrays = [name for name, value in given.items() if isinstance(value, np.ndarray) and value.ndim]
    if len(arrays) > 1:
        raise ValueError(f"only one argument may be an array here, not {' and '.join(arrays)}")
    name = arrays[0] if arrays else next(iter(given))
    return name, np.atleast_1d(np.asarray(given[name], float))


def _blockwise(evaluate: Callable[[Vector], Any], values: Vector) -> Vector:
    return np.concatenate([_full(evaluate, values[at : at + BLOCK]) for at in range(0, values.size, BLOCK)])


def _full(evaluate: Callable[[Vector], Any], values: Vector) -> Vector:
    return np.array(np.broadcast_to(np.asarray(evaluate(values), float), values.shape))
