"""Prefix caching: what each turn of a session finds in llama-server's caches, what it saves and holds.

Imports `sessions`, `kv_cache`, `step_times`. Rules of llama.cpp b11434, tools/server/server-context.cpp
(get_available_slot, update_slots, create_checkpoint) and server-task.cpp (server_prompt_cache): a prompt goes to the
idle slot that shares the longest prefix with it, else to the one unused for longest; what is about to be lost moves to
a cache in host memory; and the prefix is kept only where the model's memory can be wound back to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from .architecture import Attention, CompressedAttention, Model
from .errors import InputError
from .kv_cache import cached_layers, layer_cache, window_cells
from .sessions import Prompt, Segment, changed, common_prefix, length
from .step_times import StepTimes, prompt_s
from .units import MIB
from .workload import Workload

Source = Literal["none", "slot", "host"]

SLOT_SIMILARITY: Final = 0.1  # --slot-prompt-similarity: least shared part of a prompt for which a slot is chosen
KEPT_IN_SLOT: Final = 0.5  # a slot that would lose more than half is copied to the host first
KEPT_IN_HOST: Final = 0.25  # a cached prompt of which less would be kept is not loaded
CHECKPOINT_TAIL: Final = 4  # checkpoints this many tokens before the end of a prompt, and a micro-batch before that


@dataclass(frozen=True)
class StateSize:
    """What a model's memory of one sequence takes, and how far it can be wound back.

    Full attention can be cut anywhere. Window layers have forgotten what lies before the window and the cells beside
    it, and a recurrent state knows only its last position: there a saved checkpoint is needed.
    """

    token_bytes: float  # K and V of a position, in layers that keep all
    window_token_bytes: float = 0.0  # the same, in window layers
    window: int = 0  # positions that window layers attend
    window_cells: int = 0  # positions that they hold
    state_bytes: float = 0.0  # recurrent and convolution state
    rollback: int = 0  # positions that a recurrent state can go back, for drafts

    @property
    def needs_checkpoints(self) -> bool:
        """Whether a prefix can be lost although its tokens match."""
        return bool(self.window_cells or self.state_bytes)

    @property
    def checkpoint_bytes(self) -> float:
        """A checkpoint of a long prompt: the parts that cannot be wound back."""
        return self.window_token_bytes * self.window_cells + self.state_bytes

    def bytes(self, tokens: int) -> float:
        """Memory of a sequence of so many positions."""
        return self.token_bytes * tokens + self.window_token_bytes * min(tokens, self.window_cells) + self.state_bytes

    def winds_back(self, held: int, kept: int) -> bool:
        """Whether a memory of `held` positions can be cut to the first `kept` without a checkpoint."""
        if not self.needs_checkpoints:
            return True
        oldest = max(
            held - 1 - self.rollback if self.state_bytes else 0, held - self.window_cells if self.window_cells else 0, 0
        )
        return oldest < max(kept - self.window, 0)


def state_size(model: Model, workload: Workload, draft_tokens: int = 0) -> StateSize:
    """Memory of one sequence of `model` under the workload's cache types and window setting."""
    one = replace(workload, parallel=1, kv_unified=False)
    tokens = window_tokens = state = 0.0
    windows = {0}
    for layer in cached_layers(model):
        for mixer in layer.mixers:
            cache = layer_cache(mixer, model, one)
            state += float(cache.state)
            window = mixer.window if isinstance(mixer, Attention | CompressedAttention) else None
            if window is not None and not workload.swa_full:
                windows.add(window)
            if isinstance(mixer, Attention) and window in windows:
                window_tokens += float(cache.kv) / float(window_cells(window, one, one.context))
            else:
                tokens += float(cache.kv) / one.cells_per_sequence
    widest = max(windows)
    cells = int(window_cells(widest, one, one.context)) if widest else 0
    return StateSize(tokens, window_tokens, widest, cells, state, draft_tokens)


@dataclass(frozen=True)
class CacheSettings:
    """llama-server's prompt caching."""

    slots: int = 4  # -np
    unified: bool = True  # -kvu; with it idle slots move to the host cache whenever a request starts
    host_cache_bytes: float = 8192 * MIB  # --cache-ram; 0: none
    checkpoints: int = 32  # --ctx-checkpoints a slot; 0: none
    checkpoint_spacing: int = 8192  # tokens between checkpoints at messages
    batch: int = 2048  # -b
    ubatch: int = 512  # -ub
    context: int | None = None  # positions of one slot; None: as many as are asked for
    host_bytes_per_s: float | None = None  # link between host cache and device; None: copies cost no time

    def __post_init__(self) -> None:
        if self.slots < 1 or self.host_cache_bytes < 0 or self.checkpoints < 0:
            raise InputError("prompt cache: needs at least 1 slot, and no negative sizes")


@dataclass(frozen=True)
class TurnReport:
    """What the caches did for one turn."""

    session: int
    turn: int
    prompt_tokens: int
    cached_tokens: int
    source: Source  # where they were
    lost: str | None  # why less was found than the session had sent before; None: nothing was lost
    prefill_s: float  # with copies from the host
    uncached_s: float  # without any cache
    slot_bytes: float  # KV and state of this session after the turn
    device_bytes: float  # of all slots
    host_bytes: float  # of host cache and checkpoints

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens that had to be read."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def saved_s(self) -> float:
        """Seconds that the cache saved."""
        return self.uncached_s - self.prefill_s


@dataclass(frozen=True)
class SessionReport:
    """All turns, in the order in which the server saw them."""

    turns: tuple[TurnReport, ...]

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that were cached."""
        return sum(turn.cached_tokens for turn in self.turns) / sum(turn.prompt_tokens for turn in self.turns)

    @property
    def saved_s(self) -> float:
        """Seconds saved in all turns."""
        return sum(turn.saved_s for turn in self.turns)

    @property
    def peak_device_bytes(self) -> float:
        """Most KV and state in slots at one time."""
        return max(turn.device_bytes for turn in self.turns)

    @property
    def peak_host_bytes(self) -> float:
        """Most host memory at one time."""
        return max(turn.host_bytes for turn in self.turns)


@dataclass
class _Memory:
    """A cached sequence: in a slot, or as a copy in the host cache."""

    segments: tuple[Segment, ...] = ()
    checkpoints: tuple[int, ...] = ()  # positions, in order
    used: int = -1  # when last

    @property
    def tokens(self) -> int:
        return length(self.segments)


def replay(
    prompts: Iterable[Prompt], size: StateSize, times: StepTimes, settings: CacheSettings | None = None
) -> SessionReport:
    """Send requests one after another to a server with prompt caching.

    Raises InputError for a prompt that no slot can hold.
    """
    server = _Server(settings or CacheSettings(), size, times)
    return SessionReport(tuple(server.answer(prompt) for prompt in prompts))


@dataclass
class _Server:
    settings: CacheSettings
    size: StateSize
    times: StepTimes
    host: list[_Memory] = field(default_factory=list)  # oldest first
    clock: int = 0
    left: dict[int, tuple[Segment, ...]] = field(default_factory=dict)  # by session: what its last turn left in a slot
    copied_bytes: float = 0.0

    def __post_init__(self) -> None:
        self.slots = [_Memory() for _ in range(self.settings.slots)]

    def answer(self, prompt: Prompt) -> TurnReport:
        """Serve one request and report on it."""
        limit = self.settings.context
        if limit is not None and prompt.tokens >= limit:
            raise InputError(
                f"session {prompt.session + 1}, turn {prompt.turn + 1}: a prompt of {prompt.tokens} tokens needs a "
                f"slot of more than {limit}"
            )
        self.copied_bytes = 0.0
        slot, source = self._choose(prompt)
        matched = common_prefix(slot.segments, prompt.segments)
        cached = self._wind_back(slot, matched, prompt.tokens)
        lost = self._lost(prompt, matched, cached)
        self._write(slot, prompt, cached)
        if self.settings.unified:
            self._clear_idle(slot)
        return self._report(prompt, slot, cached, source if cached else "none", lost)

    def _choose(self, prompt: Prompt) -> tuple[_Memory, Source]:
        """The slot that shares the largest part of the prompt, else the least recently used; host copies if better."""
        slot = max(self.slots, key=lambda one: common_prefix(one.segments, prompt.segments))
        shared = common_prefix(slot.segments, prompt.segments)
        if shared <= SLOT_SIMILARITY * prompt.tokens:
            slot = min(self.slots, key=lambda one: one.used)
        elif shared >= KEPT_IN_SLOT * slot.tokens:
            return slot, "slot"
        return slot, self._exchange(slot, prompt)

    def _exchange(self, slot: _Memory, prompt: Prompt) -> Source:
        """Copy the slot to the host cache, and load the copy that keeps more of itself and of the prompt, if any."""
        if not self.settings.host_cache_bytes:
            return "slot"
        self._save(slot)
        shared = common_prefix(slot.segments, prompt.segments)
        kept = shared / slot.tokens if slot.tokens else -1.0
        best: _Memory | None = None
        for memory in self.host:
            found = common_prefix(memory.segments, prompt.segments)
            part = found / memory.tokens
            if part >= KEPT_IN_HOST and part > kept and found > shared:
                best, shared, kept = memory, found, part
        if best is None:
            return "slot"
        self.host.remove(best)
        self.copied_bytes += self.size.bytes(best.tokens)
        slot.segments, slot.checkpoints = best.segments, best.checkpoints
        return "host"

    def _save(self, slot: _Memory) -> None:
        """Put a copy of a slot into the host cache: once, in place of its own beginnings, the oldest making room."""
        needed = self._host_bytes(slot)
        if not slot.tokens or needed > self.settings.host_cache_bytes:
            return
        if any(common_prefix(memory.segments, slot.segments) == slot.tokens for memory in self.host):
            return
        self.host = [m for m in self.host if common_prefix(m.segments, slot.segments) < m.tokens]
        while sum(map(self._host_bytes, self.host)) + needed > self.settings.host_cache_bytes:
            self.host.pop(0)
        self.host.append(replace(slot))
        self.copied_bytes += self.size.bytes(slot.tokens)

    def _host_bytes(self, memory: _Memory) -> float:
        return self.size.bytes(memory.tokens) + self._checkpoint_bytes(memory)

    def _checkpoint_bytes(self, memory: _Memory) -> float:
        size = self.size
        return sum(
            size.window_token_bytes * min(position, size.window_cells) + size.state_bytes
            for position in memory.checkpoints
        )

    def _wind_back(self, slot: _Memory, matched: int, prompt_tokens: int) -> int:
        """Tokens of the prefix that stay usable: all, those up to a checkpoint, or none; one token must be read."""
        kept = matched
        if matched and not self.size.winds_back(slot.tokens, min(matched, prompt_tokens - 1)):
            kept = max((position for position in slot.checkpoints if position <= matched), default=0)
        slot.checkpoints = tuple(position for position in slot.checkpoints if position <= kept)
        return min(kept, prompt_tokens - 1)

    def _lost(self, prompt: Prompt, matched: int, cached: int) -> str | None:
        """Why less is cached than what this session's last turn left in its slot."""
        left = self.left.get(prompt.session)
        if left is None:
            return None
        shared = common_prefix(left, prompt.segments)
        reasons = [] if shared == length(left) else [changed(left, prompt.segments)]
        if matched < shared:
            there = any(common_prefix(one.segments, prompt.segments) >= shared for one in (*self.slots, *self.host))
            reasons.append("its slot was not chosen" if there else "the cache was taken by other sessions")
        if cached < matched - 1:
            reasons.append("rewound to a checkpoint" if cached else "could not be rewound")
        return "; ".join(reasons) or None

    def _write(self, slot: _Memory, prompt: Prompt, cached: int) -> None:
        """Read the rest of the prompt, with checkpoints on the way, and write the answer."""
        slot.checkpoints = self._with_checkpoints(slot.checkpoints, prompt, cached)
        slot.segments = (*prompt.segments, *prompt.written)
        self.clock += 1
        slot.used = self.clock
        self.left[prompt.session] = slot.segments

    def _with_checkpoints(self, positions: tuple[int, ...], prompt: Prompt, cached: int) -> tuple[int, ...]:
        """Checkpoints after the prompt: at its last user message and at others far enough apart, and near its end."""
        if not (self.size.needs_checkpoints and self.settings.checkpoints):
            return ()
        result = list(positions)
        for start in prompt.user_starts:
            last = start == prompt.user_starts[-1]
            if start > cached and (last or not result or start > result[-1] + self.settings.checkpoint_spacing):
                result.append(start)
        near_end = (prompt.tokens - CHECKPOINT_TAIL - self.settings.ubatch, prompt.tokens - CHECKPOINT_TAIL)
        result = sorted({*result, *(position for position in near_end if position > cached)})
        return tuple(result[-self.settings.checkpoints :])

    def _clear_idle(self, busy: _Memory) -> None:
        """With a unified cache, idle slots give their cells back: saved to the host, then empty."""
        if not self.settings.host_cache_bytes:
            return
        for slot in self.slots:
            if slot is not busy and slot.tokens:
                self._save(slot)
                slot.segments, slot.checkpoints = (), ()

    def _report(self, prompt: Prompt, slot: _Memory, cached: int, source: Source, lost: str | None) -> TurnReport:
        chunk, copied = self.settings.batch, 0.0
        if self.settings.host_bytes_per_s:
            copied = self.copied_bytes / self.settings.host_bytes_per_s
        everyone = [*self.slots, *self.host]
        return TurnReport(
            session=prompt.session,
            turn=prompt.turn,
            prompt_tokens=prompt.tokens,
            cached_tokens=cached,
            source=source,
            lost=lost,
            prefill_s=float(np.asarray(prompt_s(self.times, prompt.tokens, chunk, cached))) + copied,
            uncached_s=float(np.asarray(prompt_s(self.times, prompt.tokens, chunk))),
            slot_bytes=self.size.bytes(slot.tokens),
            device_bytes=sum(self.size.bytes(one.tokens) for one in self.slots if one.tokens),
            host_bytes=sum(self.size.bytes(one.tokens) for one in self.host)
            + sum(map(self._checkpoint_bytes, everyone)),
        )
