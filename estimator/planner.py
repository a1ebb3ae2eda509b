"""Which devices of the catalog, one or several, run a model as well as is asked: the inverse of an estimate.

Imports `key_figures`, `request`, `pareto` and `energy`. Devices that cannot do it by their memory or bandwidth alone
are passed over; the others are estimated, from one device of a kind upwards, until the goals are met.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .device_catalog import find_device, list_devices
from .energy import Energy, energy_per_token
from .errors import InputError
from .key_figures import KeyFigures, key_figures
from .kv_cache import context_bytes
from .memory import memory_plan, model_bytes, usable_memory
from .multi_device import layer_shares, weights_ceiling_tokens_per_s
from .pareto import on_front
from .placement import HOST, place
from .request import ModelRequest, Request, resolve_backend, resolve_model, resolve_workload
from .system import Device, Host, System
from .units import parse, parse_tokens
from .workload import MAX_SEQUENCES

if TYPE_CHECKING:
    from .efficiency import Efficiency

Rank = Literal["price", "watts", "tokens", "value"]
RANKS: Final[tuple[Rank, ...]] = ("price", "watts", "tokens", "value")
STACKABLE_CLASSES: Final = frozenset({"desktop", "workstation", "datacenter"})  # GPUs that one machine takes several of
# An estimate does not exceed the datasheet's ceiling; caches may hold part of the weights of the smallest models.
CEILING_SLACK: Final = 1.25


@dataclass(frozen=True)
class Goals:
    """What is asked. Rates and times are those of one user, while all the others decode too."""

    tokens_per_s: float = 0.0  # at least, with the context full unless `occupied` says otherwise
    ttft_s: float = math.inf  # at most
    users: int = 1  # at once
    price_usd: float = math.inf  # at most, of the devices alone
    power_watts: float = math.inf  # at most, by their limits

    def __post_init__(self) -> None:
        if not (self.tokens_per_s >= 0 and self.ttft_s > 0 and self.users >= 1):
            raise InputError("goals: tokens/s must not be negative, TTFT must be above 0, users at least 1")


@dataclass(frozen=True)
class Arrangement:
    """So many devices as `instances` equal servers, each with its share of the users."""

    request: Request  # of one instance
    instances: int
    figures: KeyFigures  # of one instance

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices."""
        return self.request.devices * self.instances

    @property
    def tokens_per_s(self) -> float:
        """Of one user."""
        return self.figures.tokens_per_s

    @property
    def aggregate_tokens_per_s(self) -> float:
        """Of all users together, with every sequence of every instance in use."""
        return self.figures.aggregate_tokens_per_s * self.instances

    @property
    def ttft_s(self) -> float:
        """Of one user, while all the others decode."""
        return self.figures.busy_ttft_s

    @property
    def price_usd(self) -> float | None:
        """Of the devices alone, as the catalog or the user says; None if one's is unknown."""
        return _total([device.price_usd for device in self.devices])

    @property
    def power_watts(self) -> float | None:
        """Sum of the power limits; None if one's is unknown."""
        return _total([device.power_watts for device in self.devices])

    @property
    def tokens_per_s_per_1000_usd(self) -> float | None:
        """Rate of all users for a thousand dollars of devices."""
        return None if not self.price_usd else self.aggregate_tokens_per_s / self.price_usd * 1000

    @property
    def energy(self) -> Energy | None:
        """Of a token of output."""
        instance = self.figures.aggregate_tokens_per_s
        return energy_per_token(self.request.devices, layer_shares(self.request), instance)

    def misses(self, goals: Goals) -> tuple[str, ...]:
        """Which goals it does not meet: memory, tokens/s, TTFT, price, watts; unknown figures miss theirs."""
        price, watts = self.price_usd, self.power_watts
        failed = {
            "memory": not self.figures.fits,
            "tokens/s": self.tokens_per_s < goals.tokens_per_s,
            "TTFT": self.ttft_s > goals.ttft_s,
            "price": goals.price_usd < math.inf and (price is None or price > goals.price_usd),
            "watts": goals.power_watts < math.inf and (watts is None or watts > goals.power_watts),
        }
        return tuple(name for name, missed in failed.items() if missed)


@dataclass(frozen=True)
class Plan:
    """What meets the goals, best first, and what happened to the rest."""

    goals: Goals
    rank: Rank
    priced: tuple[Arrangement, ...]  # ranked; of every kind of device the smallest number that meets the goals
    unpriced: tuple[Arrangement, ...]  # the same, where no price is known
    missed: Mapping[str, int]  # reason → kinds of devices that do not meet the goals
    notes: tuple[str, ...] = ()

    @property
    def on_front(self) -> tuple[bool, ...]:
        """Of each of `priced`: whether no other one is both cheaper and faster."""
        prices = [one.price_usd or math.nan for one in self.priced]
        return tuple(on_front(prices, [one.tokens_per_s for one in self.priced]).tolist())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, for --json."""
        from .report.plan import plan_data

        return plan_data(self)

    def __repr__(self) -> str:
        from .report.layout import Style
        from .report.plan import plan_page

        return "\n".join(plan_page(self, Style()))


@dataclass(frozen=True)
class Task:
    """A model with what is asked of it: makes the request of any number of devices."""

    made: ModelRequest
    goals: Goals
    context: int  # of one user
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `resolve_workload`
    backend: str | None = None
    occupied: int | None = None
    host: Host = field(default_factory=Host)
    efficiency: Efficiency | None = None

    def request(self, devices: Sequence[Device], users: int) -> Request:
        """`users` sequences on one instance of these devices."""
        system = System(tuple(devices), self.host)
        workload, prompts = resolve_workload(self.made.model, ctx=self.context * users, parallel=users, **self.settings)
        return Request(
            system=system,
            backend=resolve_backend(system, self.backend),
            model=self.made.model,
            weights=self.made.weights,
            quantisation=self.made.quantisation,
            workload=workload,
            prompts=prompts,
            notes=self.made.notes,
        )

    def arrange(self, devices: Sequence[Device], instances: int = 1, users: int | None = None) -> Arrangement | None:
        """The users on so many instances of these devices each; None where it does not fit, or is beyond llama.cpp.

        An instance with unknown memory counts as one that does not fit.
        """
        share = -(-(self.goals.users if users is None else users) // instances)
        if share > MAX_SEQUENCES:
            return None
        request = self.request(devices, share)
        plan = memory_plan(request.model, request.weights, request.workload, request.system, request.placement)
        if not plan.fits:
            return None
        return Arrangement(request, instances, key_figures(request, self.efficiency, self.occupied, plan))


def task(
    *,
    model: Any,
    quant: str | None = None,
    ctx: object = 8192,
    goals: Goals | None = None,
    backend: str | None = None,
    occupied: object = None,
    ram: object = None,
    catalog: Sequence[Path] = (),
    efficiency: Efficiency | None = None,
    **settings: Any,
) -> Task:
    """A task from names and quantities: `ctx` tokens for every user; `settings` as in `resolve_workload`."""
    return Task(
        made=resolve_model(model, quant, catalog),
        goals=goals or Goals(),
        context=parse_tokens(ctx, "ctx"),
        settings=settings,
        backend=backend,
        occupied=None if occupied is None else parse_tokens(occupied, "occupied"),
        host=Host(None, None if ram is None else parse(ram, "bytes", "ram")),
        efficiency=efficiency,
    )


def plan(
    *,
    model: Any,
    quant: str | None = None,
    ctx: object = 8192,
    goals: Goals | None = None,
    devices: Iterable[Device | str] | None = None,
    most: int = 4,
    mixed: bool = False,
    rank: Rank = "price",
    prices: Mapping[str, float] | None = None,
    catalog: Sequence[Path] = (),
    **given: Any,
) -> Plan:
    """Which devices run `model` with `ctx` tokens for every user and meet the goals, of each kind as few as will do.

    `devices`: by default all of the catalog; `most`: of one kind, together; `mixed`: also pairs of different priced
    GPUs; `prices`: name → USD in place of the catalog's rounded launch prices. `given`: backend, occupied, ram,
    efficiency, and the settings of `resolve_workload`. Raises InputError for names and goals that make no sense.
    """
    asked = task(model=model, quant=quant, ctx=ctx, goals=goals, catalog=catalog, **given)
    kinds = with_prices(_devices(devices, catalog), prices or {}, catalog)
    kinds = [_with_ram(device, asked.host.memory_bytes) for device in kinds]
    search = _Search(asked, most)
    found = [one for one in map(search.smallest, kinds) if one is not None]
    if mixed:
        found += [one for one in map(search.pair, _pairs(kinds)) if one is not None]
    priced = [one for one in found if one.price_usd is not None]
    unpriced = [one for one in found if one.price_usd is None]
    return Plan(
        goals=asked.goals,
        rank=rank,
        priced=tuple(sorted(priced, key=lambda one: rank_key(one, rank))),
        unpriced=tuple(sorted(unpriced, key=lambda one: rank_key(one, "watts" if rank == "watts" else "tokens"))),
        missed=search.missed,
        notes=asked.made.notes,
    )


def with_prices(devices: Iterable[Device], prices: Mapping[str, float], folders: Sequence[Path] = ()) -> list[Device]:
    """The devices, with the prices that the user gave by name."""
    by_id = {find_device(name, None, folders).id: price for name, price in prices.items()}
    return [replace(device, price_usd=by_id.get(device.id, device.price_usd)) for device in devices]


def rank_key(one: Arrangement, rank: Rank) -> tuple[float, float]:
    """What arrangements are sorted by, the better one first; unknown figures last."""
    first = {
        "price": _or_inf(one.price_usd),
        "watts": _or_inf(one.power_watts),
        "tokens": -one.tokens_per_s,
        "value": -(one.tokens_per_s_per_1000_usd or 0.0),
    }[rank]
    return first, -one.tokens_per_s


def splits(total: int, users: int) -> Iterator[tuple[int, int]]:
    """(devices of an instance, instances) of `total` devices, no more instances than users."""
    return ((total // n, n) for n in range(1, min(total, users) + 1) if total % n == 0)


def stackable(device: Device) -> bool:
    """Whether one machine takes several of it."""
    return device.kind == "gpu" and device.device_class in STACKABLE_CLASSES


@dataclass
class _Search:
    """Estimates as few arrangements as it can, and counts why kinds of devices were passed over."""

    asked: Task
    most: int
    missed: dict[str, int] = field(default_factory=dict)
    _context_bytes: dict[int, int] = field(default_factory=dict)  # by sequences

    def __post_init__(self) -> None:
        made = self.asked.made
        loaded = model_bytes(made.model, made.weights, place(made.model))
        self.device_bytes = sum(size for device, size in loaded.items() if device != HOST)
        one = self.asked.request([_UNIT], 1)
        self.weight_bytes_per_token = _UNIT.bandwidth_bytes_per_s / weights_ceiling_tokens_per_s(one)

    def smallest(self, device: Device) -> Arrangement | None:
        """The fewest of this device that meet the goals, in the fastest arrangement of so many."""
        reason = self._hopeless(device)
        if reason is None:
            reasons: list[str] = []
            slow: set[int] = set()
            for total in range(1, (self.most if stackable(device) else 1) + 1):
                tried = [
                    self._split(device, size, n, slow, reasons) for size, n in splits(total, self.asked.goals.users)
                ]
                met = [one for one in tried if one is not None]
                if met:
                    return max(met, key=lambda one: one.tokens_per_s)
            reason = reasons[-1] if reasons else "memory"
        self.missed[reason] = self.missed.get(reason, 0) + 1
        return None

    def _split(
        self, device: Device, size: int, instances: int, slow: set[int], reasons: list[str]
    ) -> Arrangement | None:
        """Equal instances; `slow`: users of an instance at which decode is too slow, however many devices it has."""
        share = -(-self.asked.goals.users // instances)
        if share in slow:
            return None
        found = self._tried((device,) * size, instances, reasons)
        if found is None and reasons[-1] == "tokens/s":
            slow.add(share)
        return found

    def pair(self, devices: tuple[Device, Device]) -> Arrangement | None:
        """Two different devices as one instance."""
        usable = sum(usable_memory(device)[1] or 0 for device in devices)
        rate = sum(device.bandwidth_bytes_per_s for device in devices) / self.weight_bytes_per_token
        if usable < self.device_bytes or rate * CEILING_SLACK < self.asked.goals.tokens_per_s:
            return None
        return self._tried(devices, 1, [])

    def _hopeless(self, device: Device) -> str | None:
        """Why no number of this device can do, without an estimate."""
        if not device.backends or (self.asked.backend and self.asked.backend not in device.backends):
            return "backend"
        usable = usable_memory(device)[1]
        if usable is None:
            return "unknown memory"
        if usable * (self.most if stackable(device) else 1) < self.device_bytes:
            return "memory"
        ceiling = device.bandwidth_bytes_per_s / self.weight_bytes_per_token
        return "tokens/s" if ceiling * CEILING_SLACK < self.asked.goals.tokens_per_s else None

    def _tried(self, devices: Sequence[Device], instances: int, reasons: list[str]) -> Arrangement | None:
        """The arrangement if it meets the goals; else the reason is noted."""
        usable = sum(usable_memory(device)[1] or 0 for device in devices)
        if usable < self.device_bytes + self._context(-(-self.asked.goals.users // instances)):
            reasons.append("memory")
            return None
        try:
            made = self.asked.arrange(devices, instances)
        except InputError:
            reasons.append("figures that the catalog lacks")
            return None
        misses = ("memory",) if made is None else made.misses(self.asked.goals)
        reasons.extend(misses[:1])
        return None if misses else made

    def _context(self, users: int) -> int:
        """KV cache and state of so many users, on however many devices; without limit beyond what llama.cpp takes."""
        if users > MAX_SEQUENCES:
            return _NO_LIMIT
        if users not in self._context_bytes:
            request = self.asked.request([_UNIT], users)
            self._context_bytes[users] = int(context_bytes(request.model, request.workload).total)
        return self._context_bytes[users]


_NO_LIMIT: Final = 1 << 62
_UNIT: Final = Device("unit", "unit", "nvidia", "gpu", "desktop", "Ada Lovelace", 1e12, 1e15)


def _devices(given: Iterable[Device | str] | None, folders: Sequence[Path]) -> list[Device]:
    if given is None:
        return list(list_devices(folders))
    return [one if isinstance(one, Device) else find_device(one, None, folders) for one in given]


def _with_ram(device: Device, ram_bytes: float | None) -> Device:
    """A CPU or APU, which the catalog knows no memory of, with that of the host."""
    if device.memory_bytes is None and (device.is_cpu or device.unified_memory) and ram_bytes is not None:
        return replace(device, memory_bytes=ram_bytes)
    return device


def _pairs(devices: Sequence[Device]) -> Iterator[tuple[Device, Device]]:
    """Pairs of different priced GPUs that share a backend, the one with more memory first."""
    usable = [device for device in devices if stackable(device) and device.price_usd is not None and device.backends]
    ordered = sorted(usable, key=lambda device: -(device.memory_bytes or 0))
    return ((a, b) for a, b in combinations(ordered, 2) if a.default_backend == b.default_backend)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
