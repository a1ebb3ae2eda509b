"""Sessions from a few figures."""

from __future__ import annotations

import pytest

from llmcalc.errors import InputError
from llmcalc.session_patterns import chat_session
from llmcalc.sessions import prompts_of


def test_a_chat_grows_by_message_and_answer() -> None:
    prompts = prompts_of(chat_session(system=1000, turns=3, message=200, answer=300))
    assert [prompt.tokens for prompt in prompts] == [1200, 1700, 2200]


def test_tools_are_turns_of_their_own() -> None:
    session = chat_session(turns=2, message=200, answer=300, tool_calls=2, tool_result=900, tool_call=60)
    assert [turn.kind for turn in session.turns] == ["user", "tool", "tool"] * 2
    assert [turn.prompt_tokens for turn in session.turns] == [200, 900, 900] * 2
    assert [turn.answer_tokens for turn in session.turns] == [60, 60, 300] * 2


def test_edits_are_counted_from_one() -> None:
    session = chat_session(turns=3, tool_calls=1, edited=(2,))
    assert [turn.system_edited for turn in session.turns] == [False, False, True, False, False, False]
    with pytest.raises(InputError, match="no turn 4 of 3"):
        chat_session(turns=3, edited=(4,))


def test_endless_sessions_are_refused() -> None:
    with pytest.raises(InputError, match="at most 2,000"):
        chat_session(turns=100_000)
