"""Side by side: the estimates of every combination of machines, models and settings.

Imports `parameter_sweep` for the axes, and `estimation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import InputError
from .estimation import Estimate, estimate_request
from .parameter_sweep import Sweep, sweep
from .sensitivity import Effect, sensitivities

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request
    from .system import Device

MOST: Final = 256  # combinations; more are for `sweep`


@dataclass(frozen=True)
class Comparison:
    """Estimates in the order of the axes; `names` say in what they differ, `same` what they have in common."""

    names: tuple[str, ...]
    same: str
    estimates: tuple[Estimate, ...]
    effects: tuple[tuple[Effect, ...], ...] = ()  # of each estimate, where they were asked for
    problems: tuple[str, ...] = field(default=())  # combinations that are impossible, and why

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.comparison import comparison_data

        return comparison_data(self)

    def __repr__(self) -> str:
        from .report.comparison import comparison_page
        from .report.layout import Style

        return "\n".join(comparison_page(self, Style()))

    def _repr_html_(self) -> str:
        from .report.comparison import comparison_html

        return comparison_html(self)


def compare(
    *,
    model: Any,
    sensitivity: bool = False,
    efficiency: Efficiency | None = None,
    catalog: Sequence[Path] = (),
    **axes: Any,
) -> Comparison:
    """The estimates of all combinations of what is given: see `sweep` for the axes and how they are written.

    Raises InputError for more than 256 combinations, and where not one is possible.
    """
    asked = sweep(model=model, efficiency=efficiency, catalog=catalog, **axes)
    if asked.points > MOST:
        raise InputError(f"compare: {asked.points:,} combinations are more than {MOST}; llmcalc sweep writes them")
    requests, problems = _requests(asked)
    if not requests:
        raise InputError(problems[0])
    estimates = tuple(estimate_request(request, efficiency) for request in requests)
    names, same = difference_names(requests)
    effects = tuple(sensitivities(one, efficiency) for one in estimates) if sensitivity else ()
    return Comparison(names, same, estimates, effects, tuple(dict.fromkeys(problems)))


def _requests(asked: Sweep) -> tuple[list[Request], list[str]]:
    requests, problems = [], []
    for number in range(asked.cells):
        cell = asked.cell(number)
        if cell.request is None:
            problems.append(cell.problem or "")
            continue
        made, failed = cell.requests()
        requests += made
        problems += failed
    return requests, problems


def machine_name(devices: Sequence[Device]) -> str:
    """Devices by name, with a count where there are several: "2x GeForce RTX 3090 + GeForce RTX 3060"."""
    counts = Counter(device.name for device in devices)
    return " + ".join(f"{count}x {name}" if count > 1 else name for name, count in counts.items())


def difference_names(requests: Sequence[Request]) -> tuple[tuple[str, ...], str]:
    """(names of what differs, what is the same); of a single request the name is the machine's."""
    parts = [_parts(request) for request in requests]
    varying = [i for i in range(len(parts[0])) if len({part[i] for part in parts}) > 1]
    same = [part for i, part in enumerate(parts[0]) if i not in (varying or [_MACHINE]) and part not in _USUAL]
    machines = {part[_MACHINE] for part in parts}
    if {_MACHINE, _BACKEND} <= set(varying) and len({(part[_MACHINE], part[_BACKEND]) for part in parts}) == len(
        machines
    ):
        varying.remove(_BACKEND)  # the machine tells it
    return tuple(" · ".join(part[i] for i in varying or [_MACHINE]) for part in parts), " · ".join(same)


_USUAL: Final = ("KV F16", "flash attention", "ubatch 512", "1 sequence", "0 cached", "all on the devices")
_MACHINE: Final = 2
_BACKEND: Final = 3


def _placed(request: Request) -> str:
    return " ".join(request.settings.flags()) if request.settings else "all on the devices"


def _parts(request: Request) -> tuple[str, ...]:
    w = request.workload
    cache = w.kv_type_k if w.kv_type_k == w.kv_type_v else f"{w.kv_type_k}/{w.kv_type_v}"
    return (
        request.model.name,
        request.quantisation,
        machine_name(request.devices),
        request.backend,
        _placed(request),
        f"KV {cache}",
        "flash attention" if w.flash_attention else "no flash attention",
        f"ubatch {w.ubatch}",
        f"context {w.context:,}",
        f"{w.parallel} sequence{'s' if w.parallel > 1 else ''}",
        f"prompt {request.prompts[0]:,}",
        f"{w.cached_prefix:,} cached",
    )
