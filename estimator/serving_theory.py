"""Serving under load by queueing theory: an answer in milliseconds, exact where the theory is.

How many requests the server holds is a Markov chain (`serving_chain`) that knows how fast each number of sequences
decodes and that prompts go first. A request that finds a free slot waits for the end of the running step, then shares
the next one with the prompts that came meanwhile. One that finds none waits as in M/G/1 with one slot (Pollaczek and
Khinchine; exact), and with several as in M/G/k by the approximation of Tijms, van Hoorn & Federgruen (1981,
"Approximations for the steady-state probabilities in the M/G/c queue", Adv. Appl. Prob. 13).
Imports `serving`, `serving_chain`, `serving_distributions`, `step_times` and `lengths`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .lengths import RequestLengths
from .serving import Percentiles, Server, ServingReport, Slo, percentiles
from .serving_chain import Occupancy, occupancy, prefill_stages
from .serving_distributions import Spread, TokenTime, compound_wait, mixture, smallest_residual_s
from .step_times import StepTimes, chunks, mixed_s, prompt_s

Values = NDArray[np.float64]
Indices = NDArray[np.int64]

POSITIONS: Final = 96  # of decoding sequences, over which a decode step is averaged
MOST_PROMPTS: Final = 5  # that share a prefill step
LEAST_CV2: Final = 0.01  # of the prefills that a request meets


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
    grid: Values  # sequences served together for which the next two are known
    first_s: Values  # [grid, prompts] reading a prompt in steps shared with the others
    added_s: Values  # [grid, prompts] what a prompt adds to the steps that it shares
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
    def prefill_s(self) -> Values:
        """[slots] what a mean prompt adds to the steps that it shares."""
        return np.interp(self.parallel, self.grid, self.added_s @ self.prompt_shares)

    @property
    def prefill_cv2(self) -> float:
        """Squared coefficient of variation of the prefill, over prompts."""
        added = Spread.of(self.added_s[-1], self.prompt_shares)
        return max(added.second_moment / added.mean**2 - 1, 0.0)

    @property
    def output_cv2(self) -> float:
        """Squared coefficient of variation of the tokens after the first."""
        later = Spread.of(self.outputs - 1, self.shares)
        return later.second_moment / later.mean**2 - 1 if later.mean > 0 else 0.0

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
    def decoded_per_s(self) -> Values:
        """[slots] outputs completed a second while no prompt is read; very many if outputs have one token."""
        steps_s = max(self.later_tokens, 1e-6) * self.decode_step_s
        return self.parallel / steps_s

    @property
    def completions_per_s(self) -> Values:
        """[slots] requests completed a second: each needs a prefill and its part of the decode steps."""
        return 1 / (self.prefill_s + 1 / self.decoded_per_s)

    @property
    def capacity_per_s(self) -> float:
        """Arrival rate beyond which the queue grows without end."""
        return float(self.completions_per_s[-1])

    @property
    def work_s(self) -> Spread:
        """Of a request: its prefill and its part of the decode steps, all slots taken."""
        decode = (self.outputs - 1) * self.decode_step_s[-1] / self.slots
        return Spread.of(self.added_s[-1][self.prompt_of] + decode, self.shares)


def service_profile(lengths: RequestLengths, server: Server, times: StepTimes) -> ServiceProfile:
    """Service demands of requests of these lengths. Raises InputError if a mean request is larger than the cache."""
    requested, outputs, shares = lengths.points()
    prompts, prompt_of = np.unique(requested, return_inverse=True)
    slots, notes = _slots(server, float(shares @ (requested + outputs)))
    positions = _positions(requested, outputs, shares)
    occupied = positions.mean
    cached = np.minimum(server.cached_prefix, prompts - 1)
    parallel = np.arange(1.0, slots + 1)
    decode = np.asarray(times.decode_s(parallel[:, None], positions.values), float)
    decode = np.broadcast_to(decode, (slots, len(positions.values))) @ positions.weights
    grid = _grid(slots)
    both = [_prompt_times(times, server, prompts, cached, occupied, int(together)) for together in grid]
    return ServiceProfile(
        server=server,
        times=times,
        prompts=prompts,
        prompt_shares=np.asarray(np.bincount(prompt_of, shares), float),
        cached=cached,
        prompt_of=prompt_of,
        outputs=outputs,
        shares=shares,
        occupied=occupied,
        decode_step_s=decode,
        grid=grid,
        first_s=np.array([first for first, _ in both]),
        added_s=np.array([added for _, added in both]),
        notes=notes,
    )


def _positions(prompts: Values, outputs: Values, shares: Values) -> Spread:
    """Positions of a decoding sequence at a random step: caches are read in blocks, so a mean would not do."""
    later = outputs - 1
    if not (shares * later).any():
        return Spread.of([float(shares @ prompts)])
    parts = max(POSITIONS // len(later), 4) if len(later) < POSITIONS else 4
    within = (np.arange(parts) + 0.5) / parts
    values = np.add.outer(prompts + 1, np.zeros(parts)) + np.multiply.outer(later, within)
    return Spread.of(values, (shares * later)[:, None]).condensed(POSITIONS)


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


def _prompt_times(
    times: StepTimes, server: Server, prompts: Values, cached: Values, occupied: float, together: int
) -> tuple[Values, Values]:
    """[prompts] seconds in steps in which the other `together - 1` sequences decode, and those that they add."""
    others = together - 1
    plain = float(np.asarray(times.decode_s(float(others), occupied))) if others else 0.0
    chunk = server.batch - others
    shared = np.asarray(prompt_s(times, prompts, chunk, cached, float(others), occupied, server.unified), float)
    return shared, shared - np.ceil((prompts - cached) / chunk) * plain


def predict(profile: ServiceProfile, rate_per_s: float, slo: Slo | None = None) -> ServingReport:
    """The server under Poisson arrivals. Raises InputError for rates at or above its capacity."""
    state = occupancy(rate_per_s, profile.decoded_per_s, profile.prefill_s, prefill_stages(profile.prefill_cv2))
    queue, first = _waits(profile, state, rate_per_s)
    tokens = _token_weights(profile, state)
    spread = _token_time(profile, tokens)
    tpot, writing = _writing(profile, spread)
    end_to_end = first.plus(writing).percentiles()
    return ServingReport(
        method="theory",
        arrival_rate_per_s=rate_per_s,
        completed_per_s=rate_per_s,
        utilisation=state.utilisation,
        in_system=rate_per_s * end_to_end.mean,  # Little's law
        waiting=rate_per_s * queue.mean,
        queue_s=queue.percentiles(),
        ttft_s=first.percentiles(),
        tpot_s=percentiles([], []) if tpot is None else tpot.percentiles(),
        itl_s=_itl(profile, tokens, state.served / state.utilisation),
        end_to_end_s=end_to_end,
        aggregate_tokens_per_s=rate_per_s * float(profile.shares @ profile.outputs),
        prompt_tokens_per_s=rate_per_s * float(profile.prompt_shares @ (profile.prompts - profile.cached)),
        capacity_per_s=profile.capacity_per_s,
        slo=slo,
        slo_share=None if slo is None else first.below(slo.ttft_s) * (1 if tpot is None else tpot.below(slo.tpot_s)),
        notes=profile.notes,
    )


def _waits(profile: ServiceProfile, state: Occupancy, rate_per_s: float) -> tuple[Spread, Spread]:
    """Arrival to slot, and arrival to first token, over what an arrival finds: nothing, a step, or no free slot."""
    prompts = profile.prompt_shares
    alone, crowded = (Spread.of(profile.first_s[i], prompts).condensed(64) for i in (0, -1))
    idle = float(state.decoding[0])
    queues, firsts = [(idle, Spread.of([0.0]))], [(idle, alone)]
    for at, decoding, prefilling in _on_grid(profile, state):
        own = Spread.of(profile.first_s[at], prompts).condensed(24)
        for share, step in zip((decoding, prefilling), _running_steps(profile, at, rate_per_s), strict=True):
            queues.append((share, step[0]))
            firsts.append((share, step[1].plus(own)))
    if profile.slots == 1 or state.wait_probability > 1e-12:
        wait = _slot_wait(profile, state, rate_per_s)
        queues.append((state.wait_probability, wait))
        firsts.append((state.wait_probability, wait.plus(crowded)))
    return mixture(queues), mixture(firsts).condensed()


def _on_grid(profile: ServiceProfile, state: Occupancy) -> list[tuple[int, float, float]]:
    """(index in the grid, probabilities of a decode step and of a prefill step) with some slots taken and some free.

    A prefill step also decodes: that part of it counts as decoding in the chain.
    """
    taken = np.arange(1, profile.slots)
    decode = profile.decode_step_s[:-1]
    moved = np.minimum(state.prefilling[1:] * decode / profile.prefill_s[:-1], state.decoding[1:])
    lower = np.interp(taken, profile.grid, np.arange(len(profile.grid)))
    found = []
    for at in range(len(profile.grid)):
        near = np.maximum(1 - np.abs(lower - at), 0.0)
        found.append((at, float(near @ (state.decoding[1:] - moved)), float(near @ (state.prefilling[1:] + moved))))
    return found


def _running_steps(profile: ServiceProfile, at: int, rate_per_s: float) -> list[tuple[Spread, Spread]]:
    """The rest of a running decode step and prefill step; and that plus the prompts of others who came in the step.

    A slot is given at the end of a step, that is of a chunk; the first token comes after all that was there before.
    """
    together = int(profile.grid[at])
    plain = float(profile.decode_step_s[together - 1])
    added, shares = profile.added_s[at], profile.prompt_shares
    pieces = np.ceil((profile.prompts - profile.cached) / (profile.server.batch - together + 1))
    whole = _sums(Spread.of(added, shares))
    chunk = _prefill_steps(plain, _sums(Spread.of(added / pieces, shares * pieces)), rate_per_s)
    left = [_rest(steps, whole, rate_per_s) for steps in (Spread.of([plain]), _prefill_steps(plain, whole, rate_per_s))]
    return [left[0], (_rest(chunk, whole[:1], rate_per_s)[0], left[1][1])]


def _sums(one: Spread) -> list[Spread]:
    """Of 0, 1, 2 … prompts, what they add to a step."""
    sums = [Spread.of([0.0]), one.condensed(16)]
    while len(sums) <= MOST_PROMPTS:
        sums.append(sums[-1].plus(sums[1], 16))
    return sums


def _prefill_steps(plain_s: float, sums: list[Spread], rate_per_s: float) -> Spread:
    """Prefill steps as one meets them: long ones oftener."""
    batches = _batches(plain_s, sums, rate_per_s)
    seconds = np.concatenate([plain_s + spread.values for _, spread in batches])
    weights = np.concatenate([visits * spread.weights for visits, spread in batches])
    return Spread.of(seconds, weights * seconds).condensed(12)


def _batches(plain_s: float, sums: list[Spread], rate_per_s: float) -> list[tuple[float, Spread]]:
    """How often prefill steps carry 1, 2 … prompts: who comes during one is in the next (a gated bulk queue)."""
    count = len(sums)
    seconds = np.array([plain_s + spread.mean for spread in sums])
    came = np.array([_poisson(rate_per_s * s, count) for s in seconds])[1:, 1:]
    first = _poisson(rate_per_s * plain_s, count)[1:]
    first = first / first.sum() if first.sum() > 0 else np.eye(count - 1)[0]
    visits = np.linalg.solve(np.eye(count - 1) - came.T, first)
    return list(zip(visits.tolist(), sums[1:], strict=True))


def _poisson(mean: float, count: int) -> Values:
    """Probabilities of 0, 1 … count - 1 events; more count as that."""
    weights = np.array([math.exp(-mean) * mean**j / math.factorial(j) for j in range(count)])
    weights[-1] += max(1 - weights.sum(), 0.0)
    return weights


def _rest(steps: Spread, sums: list[Spread], rate_per_s: float) -> tuple[Spread, Spread]:
    """What is left of a step at a random moment, and that plus the prompts of others who came during the step."""
    rests, waits = [], []
    for seconds, weight in zip(steps.values, steps.weights, strict=True):
        left = Spread.uniform(float(seconds))
        came = _poisson(rate_per_s * float(seconds), len(sums))
        rests.append((float(weight), left))
        others = mixture((float(share), spread) for share, spread in zip(came, sums, strict=True) if share > 1e-4)
        waits.append((float(weight), left.plus(others, 48)))
    return mixture(rests), mixture(waits).condensed(96)


def _slot_wait(profile: ServiceProfile, state: Occupancy, rate_per_s: float) -> Spread:
    """The wait for a slot of those who find none.

    Its mean is the chain's, and the difference that the spread of lengths makes in the time to the first free slot and
    in the work of those ahead; its shape is that of the queue with one server of the same work.
    """
    work = profile.work_s
    load = rate_per_s * work.mean
    wait = compound_wait(work, load)
    if profile.slots == 1:
        return wait
    decode_s = 1 / float(profile.decoded_per_s[-1])  # between two ends of outputs
    prefill = float(profile.prefill_s[-1])
    markov = prefill**2 * (1 + 1 / state.stages) + 2 * prefill * decode_s + 2 * decode_s**2
    outputs = Spread.of((profile.outputs - 1) * profile.decode_step_s[-1], profile.shares)
    sooner = smallest_residual_s(outputs, profile.slots) - decode_s if outputs.mean > 0 else 0.0
    ahead = load / (1 - load) * (work.second_moment - markov) / 2 / work.mean
    mean = state.waiting / rate_per_s / state.wait_probability + sooner + ahead
    return wait.times(max(mean, 0.25 * wait.mean) / wait.mean)


def _token_time(profile: ServiceProfile, tokens: Values) -> TokenTime | None:
    """TPOT over requests; None if no output has a second token.

    The others start anew as a renewal process of outputs, whose count varies by `output_cv2` (Cox 1962, "Renewal
    Theory", section 3.3): of fixed lengths, all whom one meets at the end have started in one's time, and no others.
    """
    if profile.later_tokens <= 0:
        return None
    outputs = Spread.of(profile.outputs, profile.shares * (profile.outputs > 1)).condensed(24)
    starts = np.outer(profile.parallel - 1, outputs.values - 1) / profile.later_tokens
    shape = starts / max(min(profile.output_cv2, 1.0) + profile.prefill_cv2, LEAST_CV2)
    added = (profile.token_s - profile.decode_step_s)[:, None]
    scale = np.divide(added, shape, out=np.zeros_like(shape), where=shape > 0)
    return TokenTime(np.outer(tokens, outputs.weights), profile.decode_step_s[:, None] + 0 * shape, shape, scale)


def _writing(profile: ServiceProfile, spread: TokenTime | None) -> tuple[Spread | None, Spread]:
    """TPOT over requests, and the time from the first token to the last."""
    if spread is None:
        return None, Spread.of([0.0])
    outputs = Spread.of(profile.outputs, profile.shares * (profile.outputs > 1)).condensed(24).values
    values, weights = spread.spread()
    writing = Spread.of(values * (outputs - 1)[:, None], weights).condensed(200)
    single = float(profile.shares[profile.outputs == 1].sum())
    return Spread.of(values, weights).condensed(), mixture([(1 - single, writing), (single, Spread.of([0.0]))])


def _token_weights(profile: ServiceProfile, state: Occupancy) -> Values:
    """[slots] share of output tokens written while so many sequences are served."""
    if profile.later_tokens <= 0:
        return np.zeros(profile.slots)
    decoding = np.concatenate((state.decoding[1:], [state.full_decoding]))
    rates = decoding * profile.parallel / profile.decode_step_s
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
