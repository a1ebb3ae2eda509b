"""Sessions from a few figures: a chat of so many turns, with tool calls, and edits of the system prompt.

Imports `sessions`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from .errors import InputError
from .sessions import Reasoning, Session, Turn

MOST_REQUESTS: Final = 2000  # each holds all before it


def chat_session(
    *,
    system: int = 1000,
    turns: int = 8,
    message: int = 200,
    answer: int = 300,
    reasoning: int = 0,
    tool_calls: int = 0,
    tool_result: int = 1000,
    tool_call: int = 60,
    edited: Collection[int] = (),
    template: Reasoning = "dropped_at_user",
    shared_system: bool = True,
) -> Session:
    """`turns` messages of a user, each followed by `tool_calls` results of tools before the answer; counts are tokens.

    `reasoning`: tokens before every answer and tool call; `edited`: messages (from 1) at which the system prompt
    changes. Raises InputError for an edit that is no turn, and for more
    requests than `MOST_REQUESTS`.
    """
    if turns * (1 + tool_calls) > MOST_REQUESTS:
        raise InputError(
            f"session: {turns * (1 + tool_calls):,} requests are too many to follow, at most {MOST_REQUESTS:,}"
        )
    wrong = [turn for turn in edited if not 1 <= turn <= turns]
    if wrong:
        raise InputError(f"edited system prompt: there is no turn {wrong[0]} of {turns}")
    result: list[Turn] = []
    for number in range(1, turns + 1):
        first = tool_call if tool_calls else answer
        result.append(Turn(message, first, reasoning, "user", number in edited))
        for call in range(1, tool_calls + 1):
            result.append(Turn(tool_result, answer if call == tool_calls else tool_call, reasoning, "tool"))
    return Session(system, tuple(result), template, shared_system)
