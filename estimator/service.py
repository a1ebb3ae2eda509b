"""A model on a machine as a service: theory, simulation if wanted, and the largest arrival rate within an objective.

Imports `serving_theory`, `serving_simulation`, `request_times` and `request`: the library function of `llmcalc serve`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import InputError
from .lengths import IndependentLengths, RequestLengths, parse_length
from .memory import MemoryPlan, memory_plan
from .request_times import RequestTimes
from .serving import Server, ServingReport, Slo, largest_rate, server_of
from .serving_simulation import Requests, Users, poisson_requests, simulate, step_table, traced_requests
from .serving_theory import ServiceProfile, predict, service_profile
from .step_times import StepTable

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .request import Request
    from .traces import Trace

REQUESTS: Final = 20_000  # simulated
FEWEST_REQUESTS: Final = 10  # simulated
AGREEMENT: Final = 0.1  # theory and simulation are taken to say the same within this share
COMPARED: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "end_to_end_s": "whole answer"}
LOADS: Final = (0.2, 0.4, 0.6, 0.8, 0.9)  # of the capacity, shown where no rate is given
CHECKED_LOAD: Final = 3  # of `LOADS`, which a simulation checks
NEARLY: Final = 0.999  # of the capacity: the largest rate that is searched


@dataclass(frozen=True)
class Service:
    """What a server does under load. Reports are None where a rate was not given, or is more than it can do."""

    request: Request
    server: Server
    memory: MemoryPlan
    profile: ServiceProfile
    rate_per_s: float | None
    theory: ServingReport | None
    simulation: ServingReport | None
    loads: tuple[ServingReport, ...]  # by theory, at shares of the capacity; empty where a rate is given
    largest: ServingReport | None  # at the largest rate within the objective; None without one, or where none is
    checks: tuple[
        tuple[ServingReport, ServingReport], ...
    ] = ()  # what was simulated, beside the theory of the same rate

    @property
    def capacity_per_s(self) -> float:
        """Requests a second beyond which the queue grows."""
        return self.profile.capacity_per_s

    @property
    def overloaded(self) -> bool:
        """Whether more requests come than can be served."""
        return self.rate_per_s is not None and self.rate_per_s >= self.capacity_per_s

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Where theory and simulation differ by more than `AGREEMENT` and the simulation's own error, largest first."""
        found = [one for theory, simulation in self.checks for one in deviations(theory, simulation)]
        return tuple(sorted(found, key=lambda one: -abs(math.log1p(one.relative))))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.service import service_data

        return service_data(self)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.service import service_page

        return "\n".join(service_page(self, Style()))


@dataclass(frozen=True)
class Deviation:
    """A figure that theory and simulation do not agree on."""

    figure: str  # "TTFT p95"
    rate_per_s: float
    theory_s: float
    simulation_s: float

    @property
    def relative(self) -> float:
        """Theory over simulation, less 1."""
        return self.theory_s / self.simulation_s - 1


def deviations(theory: ServingReport, simulation: ServingReport) -> list[Deviation]:
    """Figures that differ by more than `AGREEMENT`, and TTFT by more than 2.5 standard errors of the simulation."""
    allowed = max(AGREEMENT, 2.5 * (simulation.ttft_error or 0.0))
    found = []
    for key, share in product(COMPARED, ("mean", "p50", "p95", "p99")):
        first, second = getattr(getattr(theory, key), share), getattr(getattr(simulation, key), share)
        one = Deviation(f"{COMPARED[key]} {share}", theory.arrival_rate_per_s, first, second)
        if second > 0 and abs(one.relative) > (allowed if key == "ttft_s" else AGREEMENT):
            found.append(one)
    return found


@dataclass(frozen=True)
class Load:
    """Who asks: requests at random times (`rate_per_s`), at the trace's own, or users who wait for their answers."""

    lengths: RequestLengths
    rate_per_s: float | None = None
    trace: Trace | None = None
    users: Users | None = None


def serve(
    request: Request,
    load: Load,
    *,
    slo: Slo | None = None,
    simulated: int = 0,
    seed: int = 0,
    efficiency: Efficiency | None = None,
) -> Service:
    """The server that the request's workload describes (its `parallel` are the slots), under a load.

    `simulated`: requests of an event simulation, 0 for theory alone; users are always simulated. Raises InputError for
    a cache that holds no mean request.
    """
    server = server_of(request.workload)
    times = RequestTimes(request, efficiency)
    profile = service_profile(load.lengths, server, times)
    rate = load.rate_per_s
    within = rate is not None and rate < profile.capacity_per_s
    count = simulated or (REQUESTS if load.users else 0)
    service = Service(
        request=request,
        server=server,
        memory=memory_plan(request.model, request.weights, request.workload, request.system, request.placement),
        profile=profile,
        rate_per_s=rate,
        theory=predict(profile, rate, slo) if within and rate is not None and not load.users else None,
        simulation=_simulated(load, server, times, slo, count, seed) if count else None,
        loads=() if rate or load.users else _loads(profile, slo),
        largest=_largest(profile, slo) if slo else None,
    )
    return replace(service, checks=_checks(service, load, times, count, seed)) if count else service


def _checks(
    service: Service, load: Load, times: RequestTimes, count: int, seed: int
) -> tuple[tuple[ServingReport, ServingReport], ...]:
    """(theory, simulation) of the rate asked for, or a busy one of several, and of the largest within the objective."""
    found = [] if service.theory is None or service.simulation is None else [(service.theory, service.simulation)]
    shown = [service.loads[CHECKED_LOAD]] if service.loads else []
    for theory in [*shown, *([service.largest] if service.largest and not load.users else [])]:
        random = Load(load.lengths, theory.arrival_rate_per_s)
        simulation = _simulated(random, service.server, times, theory.slo, count, seed)
        found += [(theory, simulation)] if simulation else []
    return tuple(found)


def load_of(
    prompt: str | int = 512,
    output: str | int = 256,
    *,
    rate_per_s: float | None = None,
    trace: str | Path | None = None,
    users: int | None = None,
    think_s: float = 0.0,
    seed: int = 0,
    longest: int | None = None,
) -> Load:
    """A load from texts: lengths such as "512", "mean=512,cv=1", "median=300,p95=2k", or the file of a trace.

    `longest`: prompts and outputs are cut there. A trace's own rate counts where none is given.
    """
    people = None if users is None else Users(users, think_s, seed)
    if trace is None:
        lengths = IndependentLengths(parse_length(prompt, "prompt", longest), parse_length(output, "output", longest))
        return Load(lengths, rate_per_s, None, people)
    from .traces import read_trace

    read = read_trace(trace)
    return Load(read.lengths, rate_per_s or read.rate_per_s, read, people)


def _loads(profile: ServiceProfile, slo: Slo | None) -> tuple[ServingReport, ...]:
    return tuple(predict(profile, share * profile.capacity_per_s, slo) for share in LOADS)


def _largest(profile: ServiceProfile, slo: Slo) -> ServingReport | None:
    return largest_rate(lambda rate: predict(profile, rate, slo), profile.capacity_per_s * NEARLY)


def _simulated(
    load: Load, server: Server, times: RequestTimes, slo: Slo | None, count: int, seed: int
) -> ServingReport | None:
    """The simulation's report; None without a rate, arrival times or users."""
    requests = _requests(load, count, seed)
    if requests is None:
        return None
    longest = int((requests.prompts + requests.outputs).max())
    table: StepTable = step_table(server, times, longest)
    report = simulate(requests, server, table, load.users).report(slo)
    return replace(report, arrival_rate_per_s=report.completed_per_s) if load.users else report


def _requests(load: Load, count: int, seed: int) -> Requests | None:
    if count < FEWEST_REQUESTS:
        raise InputError(f"simulation: needs at least {FEWEST_REQUESTS} requests, got {count}")
    if load.users is not None:
        return poisson_requests(1.0, load.lengths, count, seed)  # whose times do not matter
    timed = load.trace is not None and load.trace.arrivals_s is not None
    if load.trace is not None and timed:
        own = load.trace.rate_per_s
        speed = load.rate_per_s / own if load.rate_per_s and own else 1.0
        return traced_requests(load.trace, speed)
    return None if load.rate_per_s is None else poisson_requests(load.rate_per_s, load.lengths, count, seed)


def finite(value: float | None) -> float | None:
    """A number for JSON: None where it is not finite."""
    return value if value is not None and math.isfinite(value) else None
