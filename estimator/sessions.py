"""Multi-turn sessions: what each request's prompt holds, and how far two texts agree.

Imports `errors`. Texts are segments with names instead of tokens: equal names are equal tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from .errors import InputError

Reasoning = Literal["kept", "dropped", "dropped_at_user"]
Part = Literal["system", "message", "reasoning", "answer"]


@dataclass(frozen=True)
class Turn:
    """One request of a session: what is new in its prompt, and what the model answers."""

    prompt_tokens: int  # of the user's message or of a tool's result, with its markup
    answer_tokens: int
    reasoning_tokens: int = 0  # before the answer
    kind: Literal["user", "tool"] = "user"
    system_edited: bool = False  # the system prompt changed: a date in it, another set of tools

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.answer_tokens) < 1 or self.reasoning_tokens < 0:
            raise InputError("turn: needs a prompt and an answer of at least 1 token, and no negative reasoning")


@dataclass(frozen=True)
class Session:
    """A conversation. `reasoning`: whether the chat template sends earlier reasoning again.

    "kept": always; "dropped": never; "dropped_at_user": only within a chain of tool calls, as most templates do.
    """

    system_tokens: int
    turns: tuple[Turn, ...]
    reasoning: Reasoning = "dropped_at_user"
    shared_system: bool = True  # the same system prompt as the other sessions' (of the same length)

    def __post_init__(self) -> None:
        if self.system_tokens < 0 or not self.turns:
            raise InputError("session: needs at least one turn, and no negative system prompt")


@dataclass(frozen=True)
class Segment:
    """A stretch of text: segments of one key are equal token by token."""

    part: Part
    key: tuple[int, int]  # session and turn it comes from; of a system prompt, session and edition
    tokens: int


@dataclass(frozen=True)
class Prompt:
    """One request as the server sees it. `written`: what it adds to the cache after the prompt."""

    session: int
    turn: int
    segments: tuple[Segment, ...]
    written: tuple[Segment, ...]
    user_starts: tuple[int, ...]  # positions at which user messages begin

    @property
    def tokens(self) -> int:
        """Length of the prompt."""
        return length(self.segments)


def prompts_of(session: Session, number: int = 0) -> tuple[Prompt, ...]:
    """The requests of a session: each holds the system prompt and all that was said before."""
    edition = 0
    history: list[Segment] = []
    result: list[Prompt] = []
    users = {i for i, turn in enumerate(session.turns) if turn.kind == "user"}
    for i, turn in enumerate(session.turns):
        edition += turn.system_edited
        if i in users and session.reasoning == "dropped_at_user":
            history = [segment for segment in history if segment.part != "reasoning"]
        history.append(Segment("message", (number, i), turn.prompt_tokens))
        segments = _without_empty(_system(session, number, edition), *history)
        reasoning = _without_empty(Segment("reasoning", (number, i), turn.reasoning_tokens))
        answer = Segment("answer", (number, i), turn.answer_tokens)
        before = accumulate((segment.tokens for segment in segments), initial=0)
        starts = tuple(
            start
            for start, segment in zip(before, segments, strict=False)
            if segment.part == "message" and segment.key[1] in users
        )
        result.append(Prompt(number, i, segments, (*reasoning, answer), starts))
        history += [answer] if session.reasoning == "dropped" else [*reasoning, answer]
    return tuple(result)


def _system(session: Session, number: int, edition: int) -> Segment:
    """The system prompt; up to its first edit, sessions that share it have equal ones."""
    owner = -1 if session.shared_system and not edition else number
    return Segment("system", (owner, edition), session.system_tokens)


def _without_empty(*segments: Segment) -> tuple[Segment, ...]:
    return tuple(segment for segment in segments if segment.tokens)


def interleaved(sessions: Sequence[Session]) -> tuple[Prompt, ...]:
    """The requests of several sessions that take turns: the first of each, the second of each, and so on."""
    everyone = [prompts_of(session, number) for number, session in enumerate(sessions)]
    rounds = max(map(len, everyone), default=0)
    return tuple(prompts[i] for i in range(rounds) for prompts in everyone if i < len(prompts))


def common_prefix(a: Sequence[Segment], b: Sequence[Segment]) -> int:
    """Tokens that two texts share from their beginning."""
    total = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            return total
        total += one.tokens
    return total


def changed(old: Sequence[Segment], new: Sequence[Segment]) -> str:
    """Why one text stops following the other."""
    first = next((one for one, other in zip(old, new, strict=False) if one != other), old[-1])
    if first.part == "reasoning":
        return "reasoning was dropped from the history"
    return "the system prompt was edited" if first.part == "system" else "the history was changed"


def length(segments: Iterable[Segment]) -> int:
    """Tokens of a text."""
    return sum(segment.tokens for segment in segments)
