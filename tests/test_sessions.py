"""Prompts of sessions, and the prefix that two texts share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import InputError
from llmcalc.sessions import Segment, Session, Turn, common_prefix, interleaved, prompts_of

turns = st.builds(
    Turn,
    st.integers(1, 3000),
    st.integers(1, 800),
    st.integers(0, 800),
    st.sampled_from(["user", "tool"]),
    st.booleans(),
)
sessions = st.builds(
    Session,
    st.integers(0, 3000),
    st.lists(turns, min_size=1, max_size=6).map(tuple),
    st.sampled_from(["kept", "dropped", "dropped_at_user"]),
    st.booleans(),
)


@given(sessions)
def test_prompts_grow_by_what_was_said(session: Session) -> None:
    prompts = prompts_of(session)
    said = session.system_tokens
    for prompt, turn in zip(prompts, session.turns, strict=True):
        said += turn.prompt_tokens
        dropped = said - prompt.tokens
        assert 0 <= dropped <= sum(one.reasoning_tokens for one in session.turns)
        assert session.reasoning != "kept" or dropped == 0
        said += turn.reasoning_tokens + turn.answer_tokens


@given(st.lists(st.integers(1, 9), max_size=6), st.lists(st.integers(1, 9), max_size=6))
def test_common_prefix_is_that_of_the_tokens(a: list[int], b: list[int]) -> None:
    one, other = ([Segment("message", (0, key), key) for key in keys] for keys in (a, b))
    flat, flat_other = ([(k, i) for k in keys for i in range(k)] for keys in (a, b))
    shared = 0
    while shared < min(len(flat), len(flat_other)) and flat[: shared + 1] == flat_other[: shared + 1]:
        shared += 1
    # Keys differ whole, so that equal tokens only come in equal segments.
    assert common_prefix(one, other) == sum(k for k, _ in zip(a, range(_equal(a, b)), strict=False))
    assert common_prefix(one, other) == common_prefix(other, one) <= shared


def _equal(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.lists(sessions, min_size=1, max_size=4))
def test_interleaving_keeps_each_session_in_order(group: list[Session]) -> None:
    mixed = interleaved(group)
    for number, session in enumerate(group):
        own = tuple(prompt for prompt in mixed if prompt.session == number)
        assert own == prompts_of(session, number)
    assert [prompt.turn for prompt in mixed] == sorted(prompt.turn for prompt in mixed)


@pytest.mark.parametrize("make", [lambda: Turn(0, 1), lambda: Turn(1, 1, -1), lambda: Session(0, ())])
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
