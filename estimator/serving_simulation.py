"""Serving under load step by step: a discrete-event simulation of continuous batching with chunked prefill.

As llama-server does (b11434, tools/server/server-context.cpp: update_slots), each step decodes a token of every
generating sequence and fills the batch with prompt tokens, first come first served; a prompt's last chunk gives its
first token. Runs of plain decode steps between two events are taken at once, at the step time of their middle.

A request gets a slot when the cache can hold its prompt and its output to the end. llama-server itself does not look
ahead: it stops generating when cells run out.
Imports `serving`, `step_times`, `lengths` and `traces`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .lengths import RequestLengths
from .serving import Server, ServingReport, Slo, batch_error, percentiles
from .step_times import StepTable, StepTimes, tabulate
from .traces import Trace

Values = NDArray[np.float64]
Tokens = NDArray[np.int64]

WARM_UP: Final = 0.1  # of the requests, left out of percentiles: the server starts empty


@dataclass(frozen=True)
class Requests:
    """When requests come, in order, and how long they are. Arrays [requests]."""

    arrivals_s: Values
    prompts: Tokens
    outputs: Tokens

    def __post_init__(self) -> None:
        if not len(self.arrivals_s) == len(self.prompts) == len(self.outputs) > 0:
            raise InputError("requests: need arrivals, prompts and outputs of one length, at least one")
        if min(self.prompts.min(), self.outputs.min()) < 1:
            raise InputError("requests: prompts and outputs must have at least 1 token")
        if (np.diff(self.arrivals_s) < 0).any():
            raise InputError("requests: arrivals must be in order")


def poisson_requests(rate_per_s: float, lengths: RequestLengths, count: int, seed: int = 0) -> Requests:
    """`count` requests at random times. One seed gives the same requests at every rate, only closer together."""
    if not (rate_per_s > 0 and count > 0):
        raise InputError(f"requests: rate and count must be above 0, got {rate_per_s:g} and {count}")
    generator = np.random.default_rng(seed)
    arrivals = generator.exponential(1.0, count).cumsum() / rate_per_s
    return Requests(arrivals, *lengths.sample(generator, count))


def traced_requests(trace: Trace, speed: float = 1.0) -> Requests:
    """The requests of a trace at their own times, `speed` times as fast. Raises InputError without times."""
    if trace.arrivals_s is None:
        raise InputError("trace: has no arrival times; give an arrival rate instead")
    if not speed > 0:
        raise InputError(f"trace: the speed must be above 0, got {speed:g}")
    prompts, outputs = (np.array(tokens, np.int64) for tokens in (trace.lengths.prompts, trace.lengths.outputs))
    return Requests(np.array(trace.arrivals_s) / speed, prompts, outputs)


@dataclass(frozen=True)
class Users:
    """A closed loop: so many people, who each wait for an answer, think for a while and ask again."""

    count: int
    think_s: float = 0.0  # mean of an exponential distribution
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or not self.think_s >= 0:
            raise InputError(
                f"users: need at least 1 and a think time of at least 0, got {self.count}, {self.think_s:g}"
            )


@dataclass(frozen=True)
class Simulation:
    """What happened to every request. Arrays [requests] in order of arrival; NaN times for rejected ones."""

    arrivals_s: Values
    started_s: Values  # got a slot
    first_token_s: Values
    finished_s: Values
    prompts: Tokens
    outputs: Tokens
    prefilled: Tokens  # prompt tokens that were not in the cache
    itl_s: Values  # [steps] durations of steps that decode, with `itl_tokens`: sequences × steps of each
    itl_tokens: Values
    busy_s: float
    request_seconds: float  # time integral of the requests in the system
    truncated: int

    @property
    def elapsed_s(self) -> float:
        """First arrival to last token."""
        return float(np.nanmax(self.finished_s, initial=self.arrivals_s[0]) - self.arrivals_s[0])

    @property
    def ttft_s(self) -> Values:
        """[requests] arrival to first token."""
        return self.first_token_s - self.arrivals_s

    @property
    def tpot_s(self) -> Values:
        """[requests] mean time between tokens; NaN for outputs of one token."""
        later = np.where(self.outputs > 1, self.outputs - 1, np.nan)
        return np.asarray((self.finished_s - self.first_token_s) / later, float)

    def meets(self, slo: Slo) -> NDArray[np.bool_]:
        """[requests] which of them were in time; rejected ones were not."""
        in_time = np.nan_to_num(self.tpot_s, nan=0.0) <= slo.tpot_s
        return np.asarray((self.ttft_s <= slo.ttft_s) & in_time & ~np.isnan(self.finished_s))

    def report(self, slo: Slo | None = None, warm_up: float = WARM_UP) -> ServingReport:
        """Means and percentiles; those of requests leave out the first `warm_up` of them."""
        count, elapsed = len(self.arrivals_s), max(self.elapsed_s, 1e-12)
        steady = np.arange(count) >= int(count * warm_up)
        served = ~np.isnan(self.finished_s)
        shown = steady & served
        queue = self.started_s - self.arrivals_s
        tpot = self.tpot_s[shown]
        return ServingReport(
            method="simulation",
            arrival_rate_per_s=_rate(self.arrivals_s),
            completed_per_s=int(served.sum()) / elapsed,
            utilisation=self.busy_s / elapsed,
            in_system=self.request_seconds / elapsed,
            waiting=float(np.nansum(queue)) / elapsed,
            queue_s=percentiles(queue[shown]),
            ttft_s=percentiles(self.ttft_s[shown]),
            tpot_s=percentiles(tpot[~np.isnan(tpot)]),
            itl_s=percentiles(self.itl_s, self.itl_tokens),
            end_to_end_s=percentiles((self.finished_s - self.arrivals_s)[shown]),
            aggregate_tokens_per_s=float(self.outputs[served].sum()) / elapsed,
            prompt_tokens_per_s=float(self.prefilled[served].sum()) / elapsed,
            slo=slo,
            slo_share=None if slo is None else float(self.meets(slo)[steady].mean()),
            rejected=int(count - served.sum()),
            truncated=self.truncated,
            ttft_error=batch_error(self.ttft_s[shown]),
        )


def _rate(arrivals_s: Values) -> float:
    span = float(arrivals_s[-1] - arrivals_s[0])
    return (len(arrivals_s) - 1) / span if span > 0 else math.inf


def step_table(server: Server, times: StepTimes, longest: int) -> StepTable:
    """Step times for simulations of a server whose requests have up to `longest` tokens; worth keeping for several."""
    return tabulate(
        times,
        parallel=server.slots,
        longest=longest,
        batch=server.batch,
        ubatch=server.ubatch,
        shared_pass=server.unified,
    )


def simulate(
    requests: Requests, server: Server, times: StepTimes | StepTable, users: Users | None = None
) -> Simulation:
    """Serve the requests to the end.

    With `users` their arrivals are ignored: each user sends the next one after the last answer and a time to think.
    """
    longest = int((requests.prompts + requests.outputs).max())
    table = times if isinstance(times, StepTable) else step_table(server, times, longest)
    run = _Run(server, table, requests.prompts.tolist(), requests.outputs.tolist())
    run.plan_arrivals(requests.arrivals_s.tolist(), users)
    run.serve()
    return run.result()


@dataclass
class _Run:
    """The state of a simulation. Requests are indices into the lists."""

    server: Server
    table: StepTable
    prompts: list[int]
    outputs: list[int]
    now: float = 0.0
    coming: list[tuple[float, int]] = field(default_factory=list)  # heap of arrivals
    waiting: deque[int] = field(default_factory=deque)
    prefilling: deque[int] = field(default_factory=deque)
    generating: list[tuple[int, int]] = field(default_factory=list)  # heap of (decode step of the last token, request)
    steps: int = 0  # decode steps so far
    occupied: int = 0  # positions of generating requests
    reserved: int = 0  # positions of all requests in slots, at their end
    think: list[float] = field(default_factory=list)  # closed loop: by request, before the next one
    unsent: deque[int] = field(default_factory=deque)
    busy_s: float = 0.0
    request_seconds: float = 0.0
    truncated: int = 0
    itl_s: list[float] = field(default_factory=list)
    itl_tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.prompts)
        self.cached = [min(self.server.cached_prefix, prompt - 1) for prompt in self.prompts]
        self.read = list(self.cached)  # prompt tokens in the cache
        self.arrived, self.started = [math.nan] * count, [math.nan] * count
        self.first, self.finished = [math.nan] * count, [math.nan] * count

    def plan_arrivals(self, arrivals_s: list[float], users: Users | None) -> None:
        """All arrivals of an open loop, or the first request of every user of a closed one."""
        if users is None:
            self.coming = list(zip(arrivals_s, range(len(arrivals_s)), strict=True))
            return
        count = len(self.prompts)
        self.think = np.random.default_rng(users.seed).exponential(users.think_s, count).tolist()
        self.unsent = deque(range(count))
        for _ in range(min(users.count, count)):
            self._send_next(self.think[self.unsent[0]])

    def _send_next(self, at_s: float) -> None:
        if self.unsent:
            heapq.heappush(self.coming, (at_s, self.unsent.popleft()))

    def serve(self) -> None:
        """Step until nothing is left."""
        while True:
            self._arrive()
            self._fill_slots()
            if self.prefilling:
                self._mixed_step()
            elif self.generating:
                self._decode_steps()
            elif self.coming:
                self.now = self.coming[0][0]
            else:
                return

    def _arrive(self) -> None:
        cells = self.server.slot_cells
        while self.coming and self.coming[0][0] <= self.now:
            at, request = heapq.heappop(self.coming)
            self.arrived[request] = at
            if cells is not None and self.prompts[request] >= cells:
                self._send_next(self.now + self.think[request] if self.think else self.now)
                continue
            if cells is not None and self.prompts[request] + self.outputs[request] > cells:
                self.outputs[request] = cells - self.prompts[request]
                self.truncated += 1
            self.waiting.append(request)
            self.request_seconds += self.now - at

    def _fill_slots(self) -> None:
        server = self.server
        while self.waiting and self._free_slots():
            request = self.waiting[0]
            cells = self.prompts[request] + self.outputs[request]
            if server.unified and server.kv_cells is not None and self.reserved + cells > server.kv_cells:
                return
            self.reserved += cells
            self.started[request] = self.now
            self.prefilling.append(self.waiting.popleft())

    def _free_slots(self) -> int:
        return self.server.slots - len(self.prefilling) - len(self.generating)

    def _mixed_step(self) -> None:
        parallel = len(self.generating)
        room, tokens, positions, complete = self.server.batch - parallel, 0, 0, 0
        for request in self.prefilling:
            take = min(self.prompts[request] - self.read[request], room)
            tokens, positions, room = tokens + take, positions + take * self.read[request], room - take
            self.read[request] += take
            complete += self.read[request] == self.prompts[request]
            if not room:
                break
        mean = self.occupied / parallel + 1 if parallel else 1.0
        self._pass(self.table.mixed_s(tokens, positions / tokens, parallel, mean), 1, parallel)
        for _ in range(complete):
            self._first_token(self.prefilling.popleft())

    def _decode_steps(self) -> None:
        """Plain decode steps up to the next event: the end of an output, or an arrival that finds a slot."""
        parallel = len(self.generating)
        steps = self.generating[0][0] - self.steps
        mean = self.occupied / parallel + 1
        step_s = self.table.decode_s(parallel, mean + (steps - 1) / 2)
        if self.coming and not self.waiting and self._free_slots():
            until = self.coming[0][0] - self.now
            for _ in range(2):  # the step time depends on how many steps there are
                steps = min(steps, max(math.ceil(until / step_s), 1))
                step_s = self.table.decode_s(parallel, mean + (steps - 1) / 2)
        self._pass(step_s, steps, parallel)

    def _pass(self, step_s: float, steps: int, parallel: int) -> None:
        """Let time pass for equal steps that each write a token of `parallel` sequences."""
        seconds = step_s * steps
        self.now += seconds
        self.busy_s += seconds
        self.request_seconds += seconds * (len(self.waiting) + len(self.prefilling) + parallel)
        if not parallel:
            return
        self.itl_s.append(step_s)
        self.itl_tokens.append(steps * parallel)
        self.steps += steps
        self.occupied += steps * parallel
        while self.generating and self.generating[0][0] <= self.steps:
            request = heapq.heappop(self.generating)[1]
            self.occupied -= self.prompts[request] + self.outputs[request]
            self._finish(request)

    def _first_token(self, request: int) -> None:
        self.first[request] = self.now
        if self.outputs[request] == 1:
            self._finish(request)
            return
        heapq.heappush(self.generating, (self.steps + self.outputs[request] - 1, request))
        self.occupied += self.prompts[request] + 1

    def _finish(self, request: int) -> None:
        self.finished[request] = self.now
        self.reserved -= self.prompts[request] + self.outputs[request]
        if self.think:
            self._send_next(self.now + self.think[request])

    def result(self) -> Simulation:
        """The records, in order of arrival."""
        arrived = np.array(self.arrived)
        order = np.argsort(arrived, kind="stable")
        started, first, finished = (np.array(v)[order] for v in (self.started, self.first, self.finished))
        prompts, outputs, cached = (np.array(v, np.int64)[order] for v in (self.prompts, self.outputs, self.cached))
        return Simulation(
            arrived[order],
            started,
            first,
            finished,
            prompts,
            outputs,
            prompts - cached,
            np.array(self.itl_s),
            np.array(self.itl_tokens, float),
            self.busy_s,
            self.request_seconds,
            self.truncated,
        )
