"""Serving under load by queueing theory: an answer in milliseconds, exact where the theory is.

The server is a birth–death chain whose completion rate depends on the number of requests served together: under
processor sharing such a chain needs only mean service demands (Cohen 1979, "The multiple phase service network with
generalized processor sharing", Acta Informatica 12). With all slots taken, requests wait; their mean wait is that of
the Markovian queue times (1 + cv²)/2 (Lee & Longton 1959; for one slot this is Pollaczek and Khinchine's formula, exact
for M/G/1) and its tail is exponential (Kingman 1962), exact for M/M/k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .lengths import RequestLengths
from .serving import Percentiles, Server, ServingReport, Slo, percentiles
from .serving_distributions import TokenTime, Wait, condensed
from .step_times import StepTimes, chunks, mixed_s, prompt_s

Values = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ServiceProfile:
    """What requests cost a server, whatever their arrival rate. Arrays [slots] are by sequences served together."""

    server: Server
    times: StepTimes
    prompts: Values  # [prompts] different lengths
    prompt_shares: Values  # [prompts] their probabilities
    cached: Values  # [prompts] tokens that need no prefill
    prompt_of: Indices  # [requests] with `outputs` and `shares`: requests that stand for all, by index of their prompt
    outputs: Values
    shares: Values
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
    requested, outputs, shares = lengths.points()
    prompts, prompt_of = np.unique(requested, return_inverse=True)
    prompt_shares = np.asarray(np.bincount(prompt_of, shares), float)
    slots, notes = _slots(server, float(shares @ (requested + outputs)))
    later = shares * (outputs - 1)
    occupied = float((later @ (requested + outputs / 2) / later.sum()) if later.any() else shares @ requested)
    cached = np.minimum(server.cached_prefix, prompts - 1)
    parallel = np.arange(1.0, slots + 1)
    decode = np.broadcast_to(np.asarray(times.decode_s(parallel, occupied), float), parallel.shape)
    grid = _grid(slots)
    added = [_added_s(times, server, prompts, cached, occupied, int(b)) for b in grid]
    prefill = np.interp(parallel, grid, [float(prompt_shares @ one) for one in added])
    per_token = decode[-1] + prefill[-1] * (slots - 1) / max(float(later.sum()), 1.0)
    return ServiceProfile(
        server=server,
        times=times,
        prompts=prompts,
        prompt_shares=prompt_shares,
        cached=cached,
        prompt_of=prompt_of,
        outputs=outputs,
        shares=shares,
        occupied=occupied,
        decode_step_s=decode,
        prefill_s=prefill,
        prefill_cv2=_cv2(added[0], prompt_shares),
        service_cv2=_cv2(added[-1][prompt_of] + (outputs - 1) * per_token, shares),
        notes=notes,
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


def _added_s(
    times: StepTimes, server: Server, prompts: Values, cached: Values, occupied: float, together: int
) -> Values:
    """What prefilling each prompt adds to steps in which the other `together - 1` sequences decode anyway."""
    others = together - 1
    plain = float(np.asarray(times.decode_s(float(others), occupied))) if others else 0.0
    chunk = server.batch - others
    shared = prompt_s(times, prompts, chunk, cached, float(others), occupied, server.unified)
    return np.asarray(shared - np.ceil((prompts - cached) / chunk) * plain, float)


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
    queue = Wait(state.wait_probability, state.waiting * (1 + profile.service_cv2) / 2 / rate_per_s)
    met = state.served / state.utilisation  # mean sequences in slots while the server works
    first = _first_token_s(profile, min(met, profile.slots))
    wait = queue.then(_prefill_wait(profile, rate_per_s)).later(_rest_of_step_s(profile, state))
    tokens = _token_weights(profile, state)
    spread = _token_time(profile, tokens)
    tpot = percentiles([], []) if spread is None else spread.percentiles()
    whole = first[profile.prompt_of] + (profile.outputs - 1) * (tpot.mean if profile.later_tokens > 0 else 0.0)
    end_to_end = wait.percentiles(whole, profile.shares)
    return ServingReport(
        method="theory",
        arrival_rate_per_s=rate_per_s,
        completed_per_s=rate_per_s,
        utilisation=state.utilisation,
        in_system=rate_per_s * end_to_end.mean,  # Little's law
        waiting=rate_per_s * queue.mean_s,
        queue_s=queue.percentiles(np.zeros(1), np.ones(1)),
        ttft_s=wait.percentiles(first, profile.prompt_shares),
        tpot_s=tpot,
        itl_s=_itl(profile, tokens, met),
        end_to_end_s=end_to_end,
        aggregate_tokens_per_s=rate_per_s * float(profile.shares @ profile.outputs),
        prompt_tokens_per_s=rate_per_s * float(profile.prompt_shares @ (profile.prompts - profile.cached)),
        capacity_per_s=profile.capacity_per_s,
        slo=slo,
        slo_share=None if slo is None else _slo_share(profile, slo, wait, first, spread),
        notes=profile.notes,
    )


def _first_token_s(profile: ServiceProfile, met: float) -> Values:
    """[prompts] prefill of each prompt in steps shared with the other sequences in slots."""
    others = max(met - 1.0, 0.0)
    chunk = profile.server.batch - math.ceil(others)
    shared = profile.server.unified
    seconds = [
        np.asarray(prompt_s(profile.times, profile.prompts, chunk, profile.cached, float(n), profile.occupied, shared))
        for n in (math.floor(others), math.ceil(others))
    ]
    part = others - math.floor(others)
    return np.asarray(seconds[0] * (1 - part) + seconds[1] * part, float)


def _prefill_wait(profile: ServiceProfile, rate_per_s: float) -> Wait:
    """Prompts are read one after another, so one that has a slot waits as in an M/G/1 queue of prefills alone.

    Of the other requests ahead, one in `slots` would have held this very slot: with one slot nothing is left of it.
    """
    others = 1 - 1 / profile.slots
    prefill_s = float(profile.prefill_s[-1])
    busy = min(rate_per_s * prefill_s, 0.999)
    second_moment = prefill_s**2 * (1 + profile.prefill_cv2)
    return Wait(busy * others, others * rate_per_s * second_moment / 2 / (1 - busy))


def _rest_of_step_s(profile: ServiceProfile, state: Occupancy) -> float:
    """An arrival that finds a free slot waits half a decode step on average, if others are decoding."""
    if profile.later_tokens <= 0 or profile.slots == 1:
        return 0.0
    return float(state.probabilities[1:-1] @ profile.decode_step_s[:-1]) / 2


def _token_time(profile: ServiceProfile, tokens: Values) -> TokenTime | None:
    """TPOT over requests; None if no output has a second token."""
    if profile.later_tokens <= 0:
        return None
    outputs, shares = condensed(profile.outputs, profile.shares * (profile.outputs > 1))
    starts = np.outer(profile.parallel - 1, outputs - 1) / profile.later_tokens
    shape = starts / (1 + profile.prefill_cv2)
    added = (profile.token_s - profile.decode_step_s)[:, None]
    scale = np.divide(added, shape, out=np.zeros_like(shape), where=shape > 0)
    return TokenTime(np.outer(tokens, shares), profile.decode_step_s[:, None], shape, scale)


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
    weights = np.tile(profile.prompt_shares, len(steps)) * (sizes > 0)
    mixed = mixed_s(
        profile.times, np.maximum(sizes, 1.0), done, float(round(met)), profile.occupied, profile.server.unified
    )
    per_token = np.minimum((profile.parallel - 1) * weights.sum() / profile.later_tokens, 1.0)
    disturbed = float(tokens @ per_token)
    values = np.concatenate([profile.decode_step_s, np.broadcast_to(np.asarray(mixed, float), sizes.shape)])
    return percentiles(values, np.concatenate([tokens * (1 - per_token), weights / weights.sum() * disturbed]))


def _slo_share(profile: ServiceProfile, slo: Slo, wait: Wait, first: Values, spread: TokenTime | None) -> float:
    """Requests in time with the first token and with the others, taken as independent."""
    in_time = float(profile.prompt_shares @ wait.below(slo.ttft_s - first))
    return in_time if spread is None else in_time * spread.below(slo.tpot_s)
