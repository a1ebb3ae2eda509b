"""How many requests a server holds: a Markov chain in which prompts go first and the others decode together.

Prompts are read one after another while decoding (nearly) stands still; without one, all sequences in slots decode at a
rate that depends on how many they are. Levels are requests in the system, phases the prompt work that is left: a
level-dependent quasi-birth-death process, solved level by level (Gaver, Jacobs & Latouche 1984, "Finite birth-and-death
models in randomly changing environments", Adv. Appl. Prob. 16); above the slots it repeats and is matrix-geometric
(Neuts 1981, "Matrix-Geometric Solutions in Stochastic Models"). Without prompts it is the birth-death chain of M/M/k or
of processor sharing.
Imports `errors` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

Values = NDArray[np.float64]

MOST_PROMPTS: Final = 12  # that wait for their prefill at once; more count as so many
MOST_STAGES: Final = 3


@dataclass(frozen=True)
class Occupancy:
    """Steady state of the chain, as a random arrival finds it."""

    decoding: Values  # [slots] probabilities of 0, 1 … slots - 1 requests, none of which is in prefill
    prefilling: Values  # [slots] the same, while a prompt is read
    full_decoding: float  # all slots taken, none in prefill
    full_prefilling: float
    waiting: float  # mean requests without a slot, for exponential service
    served: float  # mean requests in slots
    stages: int  # of the prefill's Erlang distribution

    @property
    def wait_probability(self) -> float:
        """Probability that all slots are taken."""
        return self.full_decoding + self.full_prefilling

    @property
    def utilisation(self) -> float:
        """Share of the time with at least one request."""
        return 1 - float(self.decoding[0])


def prefill_stages(cv2: float) -> int:
    """Stages of an Erlang distribution of about this squared coefficient of variation, 1 / stages."""
    return int(min(max(round(1 / max(cv2, 1e-9)), 1), MOST_STAGES))


def occupancy(rate_per_s: float, decoded_per_s: Values, prefill_s: Values | float = 0.0, stages: int = 1) -> Occupancy:
    """Steady state of Poisson arrivals. Raises InputError for a rate at or above the capacity.

    `decoded_per_s` [slots]: requests that 1, 2 … slots decoding ones complete a second; `prefill_s`, likewise: what a
    prompt adds before that.
    """
    slots = len(decoded_per_s)
    prefill = np.broadcast_to(np.asarray(prefill_s, float), (slots,))
    capacity = 1 / float(prefill[-1] + 1 / decoded_per_s[-1])
    if not 0 < rate_per_s < capacity * (1 - 1e-9):
        raise InputError(
            f"arrival rate: {rate_per_s:.4g} requests/s must be above 0 and below the capacity of "
            f"{capacity:.4g} requests/s"
        )
    chain = _Chain(rate_per_s, decoded_per_s, prefill, stages)
    levels, growth = chain.steady_state()
    beyond = np.linalg.inv(np.eye(len(growth)) - growth)
    full = levels[-1] @ beyond
    total = levels[:-1].sum() + full.sum()
    below, full = levels[:-1] / total, full / total
    return Occupancy(
        decoding=below[:, 0],
        prefilling=below[:, 1:].sum(axis=1),
        full_decoding=float(full[0]),
        full_prefilling=float(full[1:].sum()),
        waiting=float((full @ growth @ beyond).sum()),
        served=float(below.sum(axis=1) @ np.arange(slots) + full.sum() * slots),
        stages=stages,
    )


@dataclass(frozen=True)
class _Chain:
    """Generator of the chain. Phases count the Erlang stages of prompts that are still to be read."""

    rate_per_s: float
    decoded_per_s: Values
    prefill_s: Values
    stages: int

    @property
    def slots(self) -> int:
        return len(self.decoded_per_s)

    @property
    def phases(self) -> int:
        prompts = min(self.slots, MOST_PROMPTS) if self.prefill_s.max() > 0 else 0
        return prompts * self.stages + 1

    def up(self, level: int) -> Values:
        """An arrival: its prompt is next if a slot is free."""
        n = self.phases
        added = self.stages if level < self.slots and n > 1 else 0
        rates = np.zeros((n, n))
        rates[np.arange(n), np.minimum(np.arange(n) + added, n - 1)] = self.rate_per_s
        return rates

    def down(self, level: int) -> Values:
        """The end of an output: whoever waits gets the slot."""
        n = self.phases
        rates = np.zeros((n, n))
        rates[0, min(self.stages, n - 1) if level > self.slots else 0] = self.decoded_per_s[min(level, self.slots) - 1]
        return rates

    def local(self, level: int) -> Values:
        """Progress of a prefill, and minus all rates on the diagonal."""
        n, busy = self.phases, min(max(level, 1), self.slots) - 1
        rates = np.zeros((n, n))
        if n > 1:
            rates[np.arange(1, n), np.arange(n - 1)] = self.stages / self.prefill_s[busy]
        leaving = rates.sum(axis=1) + self.rate_per_s
        leaving[0] += self.decoded_per_s[busy] if level > 0 else 0.0
        return rates - np.diag(leaving)

    def steady_state(self) -> tuple[Values, Values]:
        """[slots + 1, phases] of the levels up to all slots taken, unnormalised, and the ratio of those beyond.

        From above the slots the chain always falls into the same phase, a new prompt's, so that the ratio is explicit.
        """
        slots, first = self.slots, min(self.stages, self.phases - 1)
        fall = np.zeros((self.phases, self.phases))
        fall[:, first] = 1.0
        above = slots + 1
        growth = self.up(above) @ np.linalg.inv(-self.local(above) - self.up(above) @ fall)
        ratios = [growth]
        for level in range(slots, 0, -1):  # ratio of `level` to the one below
            leaving = self.local(level) + ratios[-1] @ self.down(level + 1)
            ratios.append(self.up(level - 1) @ np.linalg.inv(-leaving))
        levels = np.zeros((slots + 1, self.phases))
        levels[0, 0] = 1.0
        for level in range(1, slots + 1):
            levels[level] = levels[level - 1] @ ratios[slots + 1 - level]
            levels /= levels[: level + 1].sum()
        return levels, growth
