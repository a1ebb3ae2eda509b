"""Serving under load by queueing theory: an answer in milliseconds, exact where the theory is.

The server is a birth–death chain whose completion rate depends on the number of requests served together: under
processor sharing such a chain needs only mean service demands (Cohen 1979, "The multiple phase service network with
generalized processor sharing", Acta Informatica 12). With all slots taken, requests wait; their mean wait is that of
the Markovian queue times (1 + cv²)/2 (Lee & Longton 1959; for one slot this is Pollaczek and Khinchine's formula, exact
for M/G/1) and its tail is exponential (Kingman 1962), exact for M/M/k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .lengths import RequestLengths
from .serving import Percentiles, Server, ServingReport, Slo, percentiles
from .step_times import StepTimes, chunks, mixed_s, prompt_s

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ServiceProfile:
    """What requests cost a server, whatever their arrival rate. Arrays [slots] are by sequences served together."""

    server: Server
    times: StepTimes
    prompts: Values  # [points], with `outputs` and `shares`: requests that stand for all
    outputs: Values
    shares: Values
    cached: Values  # [points] prompt tokens that need no prefill
    occupied: float  # mean positions of a decoding sequence
    decode_step_s: Values  # [slots]
    prefill_s: Values  # [slots] what a mean prompt adds to the steps that it shares
    prefill_cv2: float  # squared coefficient of variation of the prefill, over prompts
    service_cv2: float  # squared coefficient of variation of the time in a slot, all slots taken
    notes: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """Sequences that slots and cache let the server serve together."""
        return len(self.decode_step_s)

    @property
    def parallel(self) -> Values:
        """[slots] 1, 2 … slots."""
        return np.arange(1.0, self.slots + 1)

    @property
    def later_tokens(self) -> float:
        """Mean output tokens after the first."""
        return float(self.shares @ self.outputs) - 1

    @property
    def token_s(self) -> Values:
        """[slots] TPOT: a decode step, and the share of it of the prefills of all others."""
        if self.later_tokens <= 0:
            return np.full(self.slots, math.nan)
        return self.decode_step_s + self.prefill_s * (self.parallel - 1) / self.later_tokens

    @property
    def completions_per_s(self) -> Values:
        """[slots] requests completed a second: each needs a prefill and its part of the decode steps."""
        return 1 / (self.prefill_s + self.later_tokens * self.decode_step_s / self.parallel)

    @property
    def capacity_per_s(self) -> float:
        """Arrival rate beyond which the queue grows without end."""
        return float(self.completions_per_s[-1])


@dataclass(frozen=True)
class Occupancy:
    """Steady state of the chain."""

    probabilities: Values  # [slots + 1] of 0, 1 … slots - 1 requests, and of `slots` or more
    wait_probability: float
    waiting: float  # mean requests without a slot, Markovian
    served: float  # mean requests in slots

    @property
    def utilisation(self) -> float:
        """Share of the time with at least one request."""
        return 1 - float(self.probabilities[0])


def service_profile(lengths: RequestLengths, server: Server, times: StepTimes) -> ServiceProfile:
    """Service demands of requests of these lengths. Raises InputError if a mean request is larger than the cache."""
    prompts, outputs, shares = lengths.points()
    slots, notes = _slots(server, float(shares @ (prompts + outputs)))
    later = shares * (outputs - 1)
    occupied = float(later @ (prompts + outputs / 2) / later.sum()) if later.any() else float(shares @ prompts)
    cached = np.minimum(server.cached_prefix, prompts - 1)
    parallel = np.arange(1.0, slots + 1)
    decode = np.broadcast_to(np.asarray(times.decode_s(parallel, occupied), float), parallel.shape)
    grid = _grid(slots)
    added = [_added_s(times, server, prompts - cached, cached, occupied, int(b)) for b in grid]
    prefill = np.interp(parallel, grid, [float(shares @ one) for one in added])
    per_token = decode[-1] + prefill[-1] * (slots - 1) / max(float(later.sum()), 1.0)
    in_slot = added[-1] + (outputs - 1) * per_token
    return ServiceProfile(
        server,
        times,
        prompts,
        outputs,
        shares,
        cached,
        occupied,
        decode,
        prefill,
        _cv2(added[0], shares),
        _cv2(in_slot, shares),
        notes,
    )


def _cv2(values: Values, shares: Values) -> float:
    mean = float(shares @ values)
    return max(float(shares @ values**2) / mean**2 - 1, 0.0)


def _slots(server: Server, mean_cells: float) -> tuple[int, tuple[str, ...]]:
    """Requests that fit at once, by slots and by cells of a mean request."""
    if server.kv_cells is None or not server.unified:
        return server.slots, ()
    held = int(server.kv_cells // mean_cells)
    if held < 1:
        raise InputError(f"kv_cells: {server.kv_cells} hold no mean request of {mean_cells:.0f} tokens")
    if held >= server.slots:
        return server.slots, ()
    return held, (f"the KV cache holds {held} mean requests at once, fewer than the {server.slots} slots",)


def _grid(slots: int) -> Values:
    """Concurrencies at which prefill is evaluated: doubling, and the ends."""
    return np.array(sorted({*(2**i for i in range(slots.bit_length())), slots}), float)


def _added_s(times: StepTimes, server: Server, fresh: Values, cached: Values, occupied: float, together: int) -> Values:
    """What prefilling each prompt adds to steps in which the other `together - 1` sequences decode anyway."""
    others = together - 1
    plain = float(np.asarray(times.decode_s(float(others), occupied))) if others else 0.0
    chunk = server.batch - others
    shared = prompt_s(times, fresh + cached, chunk, cached, float(others), occupied, server.unified)
    return np.asarray(shared - np.ceil(fresh / chunk) * plain, float)


def occupancy(rate_per_s: float, completions_per_s: Values) -> Occupancy:
    """Steady state of Poisson arrivals against completion rates by requests served; InputError if it has none."""
    load = rate_per_s / float(completions_per_s[-1])
    if not 0 < load < 1:
        raise InputError(
            f"arrival rate: {rate_per_s:.4g} requests/s must be above 0 and below the capacity of "
            f"{completions_per_s[-1]:.4g} requests/s"
        )
    slots = len(completions_per_s)
    logs = np.concatenate(([0.0], np.cumsum(math.log(rate_per_s) - np.log(completions_per_s))))
    weights = np.exp(logs - logs.max())
    weights[-1] /= 1 - load  # all states with every slot taken
    probabilities = weights / weights.sum()
    full = float(probabilities[-1])
    return Occupancy(probabilities, full, full * load / (1 - load), float(probabilities @ np.arange(slots + 1)))


def predict(profile: ServiceProfile, rate_per_s: float, slo: Slo | None = None) -> ServingReport:
    """The server under Poisson arrivals. Raises InputError for rates at or above its capacity."""
    state = occupancy(rate_per_s, profile.completions_per_s)
    queue = _Wait(state.wait_probability, state.waiting * (1 + profile.service_cv2) / 2 / rate_per_s)
    met = state.served / state.utilisation  # mean sequences in slots while the server works
    first = _first_token_s(profile, min(met, profile.slots))
    wait = queue.then(_prefill_wait(profile, rate_per_s)).later(_rest_of_step_s(profile, state))
    tokens = _token_weights(profile, state)
    spread = _TokenTime.of(profile, tokens)
    tpot = percentiles([], []) if spread is None else spread.percentiles()
    whole = first + (profile.outputs - 1) * (tpot.mean if profile.later_tokens > 0 else 0.0)
    end_to_end = wait.percentiles(whole, profile.shares)
    return ServingReport(
        method="theory",
        arrival_rate_per_s=rate_per_s,
        completed_per_s=rate_per_s,
        utilisation=state.utilisation,
        in_system=rate_per_s * end_to_end.mean,  # Little's law
        waiting=rate_per_s * queue.mean_s,
        queue_s=queue.percentiles(np.zeros(1), np.ones(1)),
        ttft_s=wait.percentiles(first, profile.shares),
        tpot_s=tpot,
        itl_s=_itl(profile, tokens, met),
        end_to_end_s=end_to_end,
        aggregate_tokens_per_s=rate_per_s * float(profile.shares @ profile.outputs),
        prompt_tokens_per_s=rate_per_s * float(profile.shares @ (profile.prompts - profile.cached)),
        capacity_per_s=profile.capacity_per_s,
        slo=slo,
        slo_share=None if slo is None else _slo_share(profile, slo, wait, first, spread),
        notes=profile.notes,
    )


@dataclass(frozen=True)
class _Wait:
    """A wait that is nothing with some probability and else exponential, behind a constant delay."""

    probability: float
    mean_s: float  # of all requests, without the delay
    delay_s: float = 0.0

    def then(self, other: _Wait) -> _Wait:
        """Both waits, one after the other: their means add, none is left if neither is."""
        return _Wait(1 - (1 - self.probability) * (1 - other.probability), self.mean_s + other.mean_s, self.delay_s)

    def later(self, seconds: float) -> _Wait:
        """The same wait and a constant delay."""
        return _Wait(self.probability, self.mean_s, self.delay_s + seconds)

    def below(self, seconds: Values) -> Values:
        """Probability that the wait is not above `seconds`."""
        left = np.asarray(seconds, float) - self.delay_s
        if self.mean_s <= 0:
            return np.where(left >= -1e-12, 1.0, 0.0)
        scale = self.mean_s / self.probability
        return np.where(left >= -1e-12, 1 - self.probability * np.exp(-np.maximum(left, 0.0) / scale), 0.0)

    def percentiles(self, after: Values, shares: Values) -> Percentiles:
        """Of the wait plus one of the times `after`, which occur with probabilities `shares`."""
        mean = self.mean_s + self.delay_s + float(shares @ after)
        longest = float(after.max()) + self.delay_s + 50 * self.mean_s / max(self.probability, 1e-12)

        def below(seconds: float) -> float:
            return float(shares @ self.below(seconds - after))

        return Percentiles(mean, *(_quantile(below, share, longest) for share in (0.5, 0.95, 0.99)))


@dataclass(frozen=True)
class _TokenTime:
    """TPOT over requests. Arrays [slots, outputs]: a decode step, and prefills of others as a gamma variable.

    While a request writes o tokens, each of the b - 1 others starts anew (o - 1)/(mean o - 1) times on average; that
    sum of random prefills has the mean and variance of a compound Poisson variable.
    """

    weights: Values
    step_s: Values
    shape: Values  # 0 where there are no others
    scale_s: Values

    @classmethod
    def of(cls, profile: ServiceProfile, tokens: Values) -> _TokenTime | None:
        """None if no output has a second token."""
        if profile.later_tokens <= 0:
            return None
        outputs, shares = _condensed(profile.outputs, profile.shares * (profile.outputs > 1))
        starts = np.outer(profile.parallel - 1, outputs - 1) / profile.later_tokens
        added = profile.token_s - profile.decode_step_s
        shape = starts / (1 + profile.prefill_cv2)
        scale = np.divide(added[:, None], shape, out=np.zeros_like(shape), where=shape > 0)
        return cls(np.outer(tokens, shares), profile.decode_step_s[:, None], shape, scale)

    @property
    def mean_s(self) -> float:
        """Mean over requests."""
        return float((self.weights * (self.step_s + self.shape * self.scale_s)).sum())

    def below(self, seconds: float) -> float:
        """Share of requests whose TPOT is not above `seconds`."""
        from scipy.special import gammainc

        left = seconds * (1 + 1e-9) - self.step_s
        scaled = np.divide(
            np.maximum(left, 0.0), self.scale_s, out=np.full(self.shape.shape, np.inf), where=self.scale_s > 0
        )
        inside = np.where(self.scale_s > 0, gammainc(np.maximum(self.shape, 1e-9), scaled), 1.0)
        return float((self.weights * np.where(left >= 0, inside, 0.0)).sum())

    def percentiles(self) -> Percentiles:
        """Mean and percentiles over requests."""
        longest = float((self.step_s + (self.shape + 20 + 10 * np.sqrt(self.shape)) * self.scale_s).max())
        return Percentiles(self.mean_s, *(_quantile(self.below, share, longest) for share in (0.5, 0.95, 0.99)))


def _condensed(values: Values, weights: Values, parts: int = 24) -> tuple[Values, Values]:
    """At most `parts` values that stand for weighted ones, with their probabilities."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    part = np.minimum((np.cumsum(weights) / weights.sum() * parts * (1 - 1e-9)).astype(int), parts - 1)
    sums, totals = np.bincount(part, weights * values), np.bincount(part, weights)
    kept = totals > 0
    return sums[kept] / totals[kept], totals[kept] / totals.sum()


def _quantile(below: Callable[[float], float], share: float, longest: float) -> float:
    """The smallest value that is not exceeded with probability `share`; 0 if none is."""
    low, high = 0.0, longest
    if below(0.0) >= share:
        return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if below(middle) >= share else (middle, high)
    return high


def _first_token_s(profile: ServiceProfile, met: float) -> Values:
    """[points] prefill of each prompt in steps shared with the other sequences in slots."""
    others = max(met - 1.0, 0.0)
    chunk = profile.server.batch - math.ceil(others)
    shared = profile.server.unified
    seconds = [
        np.asarray(prompt_s(profile.times, profile.prompts, chunk, profile.cached, float(n), profile.occupied, shared))
        for n in (math.floor(others), math.ceil(others))
    ]
    part = others - math.floor(others)
    return np.asarray(seconds[0] * (1 - part) + seconds[1] * part, float)


def _prefill_wait(profile: ServiceProfile, rate_per_s: float) -> _Wait:
    """Prompts are read one after another, so one that has a slot waits as in an M/G/1 queue of prefills alone.

    Of the other requests ahead, one in `slots` would have held this very slot: with one slot nothing is left of it.
    """
    others = 1 - 1 / profile.slots
    fresh = profile.prompts - profile.cached
    added = _added_s(profile.times, profile.server, fresh, profile.cached, profile.occupied, 1)
    busy = min(rate_per_s * float(profile.prefill_s[-1]), 0.999)
    scale = float(profile.prefill_s[-1]) / float(profile.shares @ added)
    second_moment = float(profile.shares @ (added * scale) ** 2)
    return _Wait(busy * others, others * rate_per_s * second_moment / 2 / (1 - busy))


def _rest_of_step_s(profile: ServiceProfile, state: Occupancy) -> float:
    """An arrival that finds a free slot waits half a decode step on average, if others are decoding."""
    if profile.later_tokens <= 0 or profile.slots == 1:
        return 0.0
    return float(state.probabilities[1:-1] @ profile.decode_step_s[:-1]) / 2


def _token_weights(profile: ServiceProfile, state: Occupancy) -> Values:
    """[slots] share of output tokens written while so many sequences are served."""
    if profile.later_tokens <= 0:
        return np.zeros(profile.slots)
    rates = state.probabilities[1:] * profile.parallel / profile.token_s
    return np.asarray(rates / rates.sum(), float)


def _itl(profile: ServiceProfile, tokens: Values, met: float) -> Percentiles:
    """Time between tokens: plain decode steps, and steps that also carry a chunk of another's prompt."""
    if profile.later_tokens <= 0:
        return percentiles([], [])
    others = max(met - 1.0, 0.0)
    chunk = profile.server.batch - math.ceil(others)
    steps = [(done, now) for done, now in chunks(profile.prompts, chunk, profile.cached)]
    sizes = np.concatenate([now for _, now in steps])
    done = np.concatenate([np.broadcast_to(before, now.shape) for before, now in steps])
    weights = np.tile(profile.shares, len(steps)) * (sizes > 0)
    mixed = mixed_s(
        profile.times, np.maximum(sizes, 1.0), done, float(round(met)), profile.occupied, profile.server.unified
    )
    per_token = np.minimum((profile.parallel - 1) * weights.sum() / profile.later_tokens, 1.0)
    disturbed = float(tokens @ per_token)
    values = np.concatenate([profile.decode_step_s, np.broadcast_to(np.asarray(mixed, float), sizes.shape)])
    return percentiles(values, np.concatenate([tokens * (1 - per_token), weights / weights.sum() * disturbed]))


def _slo_share(profile: ServiceProfile, slo: Slo, wait: _Wait, first: Values, spread: _TokenTime | None) -> float:
    """Requests in time with the first token and with the others, taken as independent."""
    in_time = float(profile.shares @ wait.below(slo.ttft_s - first))
    return in_time if spread is None else in_time * spread.below(slo.tpot_s)
