"""Slots, host cache and checkpoints: what a session finds again, why not, and what that takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_times import LinearTimes

from llmcalc.architecture import Model
from llmcalc.errors import InputError
from llmcalc.kv_cache import context_bytes
from llmcalc.model_catalog import find_model
from llmcalc.prompt_cache import CacheSettings, StateSize, replay, state_size
from llmcalc.sessions import Reasoning, Session, Turn, interleaved, prompts_of
from llmcalc.step_times import prompt_s
from llmcalc.workload import Workload

TIMES = LinearTimes()
FULL = StateSize(token_bytes=1000)
RECURRENT = StateSize(token_bytes=100, state_bytes=1e6)
WINDOW = StateSize(token_bytes=100, window_token_bytes=500, window=512, window_cells=1024)
NO_HOST = CacheSettings(host_cache_bytes=0)

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
sizes = st.sampled_from([FULL, RECURRENT, WINDOW])
cache_settings = st.builds(
    CacheSettings, st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 2e6, 1e9]), st.sampled_from([0, 2, 32])
)


def chat(*reasoning: int, mode: Reasoning = "kept") -> Session:
    """Turns of 100 tokens in and 200 out behind a system prompt of 1000."""
    return Session(1000, tuple(Turn(100, 200, tokens) for tokens in reasoning), mode)


def cached(session: Session, size: StateSize = FULL, settings: CacheSettings = NO_HOST) -> list[int]:
    return [turn.cached_tokens for turn in replay(prompts_of(session), size, TIMES, settings).turns]


def test_an_appended_conversation_reads_only_what_is_new() -> None:
    assert cached(chat(0, 0, 0)) == [0, 1300, 1600]
    assert cached(chat(50, 50), RECURRENT) == [0, 1350]


def test_dropped_reasoning_is_lost_from_there_on() -> None:
    report = replay(prompts_of(chat(50, 50, mode="dropped_at_user")), FULL, TIMES, NO_HOST)
    assert [turn.cached_tokens for turn in report.turns] == [0, 1100]
    assert report.turns[1].lost == "reasoning was dropped from the history"
    # The answer that followed the reasoning is read again.
    assert report.turns[1].prefilled_tokens == 200 + 100


def test_reasoning_stays_within_a_chain_of_tools() -> None:
    calls = (Turn(100, 50, 80), Turn(500, 50, 80, "tool"), Turn(500, 200, 80, "tool"), Turn(100, 50))
    kept = Session(0, calls, "dropped_at_user")
    assert [prompt.tokens for prompt in prompts_of(kept)] == [100, 730, 1360, 1500]
    one_slot = CacheSettings(1, host_cache_bytes=0)
    assert cached(kept, settings=one_slot) == [0, 230, 860, 100]
    assert cached(Session(0, calls, "dropped"), settings=one_slot) == [0, 100, 650, 1200]


def test_a_slot_that_shares_too_little_is_not_chosen() -> None:
    session = Session(0, (Turn(100, 50, 80), Turn(1500, 50)), "dropped_at_user")
    for slots, found in ((CacheSettings(2, host_cache_bytes=0), 0), (CacheSettings(1, host_cache_bytes=0), 100)):
        turn = replay(prompts_of(session), FULL, TIMES, slots).turns[1]
        assert turn.cached_tokens == found
        assert (turn.lost or "").endswith("its slot was not chosen") == (found == 0)


def test_an_edited_system_prompt_loses_everything() -> None:
    session = Session(1000, (Turn(100, 200), Turn(100, 200, system_edited=True), Turn(100, 200)))
    report = replay(prompts_of(session), FULL, TIMES, NO_HOST)
    assert [turn.cached_tokens for turn in report.turns] == [0, 0, 1600]
    assert report.turns[1].lost == "the system prompt was edited"
    assert report.turns[1].saved_s == 0


@pytest.mark.parametrize(("size", "found"), [(FULL, 1100), (RECURRENT, 1096), (WINDOW, 1096)])
def test_memory_that_cannot_rewind_goes_back_to_a_checkpoint(size: StateSize, found: int) -> None:
    session = chat(600, 0, mode="dropped_at_user")
    assert cached(session, size)[1] == found
    without = CacheSettings(host_cache_bytes=0, checkpoints=0)
    assert cached(session, size, without)[1] == (found if size is FULL else 0)
    if size is not FULL:
        turn = replay(prompts_of(session), size, TIMES, without).turns[1]
        assert turn.lost == "reasoning was dropped from the history; could not be rewound"


def test_window_layers_rewind_as_far_as_their_spare_cells() -> None:
    assert WINDOW.winds_back(held=5000, kept=4600)
    assert not WINDOW.winds_back(held=5000, kept=4400)
    assert RECURRENT.winds_back(5000, 5000)
    assert not RECURRENT.winds_back(5000, 4999)
    assert StateSize(1, state_bytes=1, rollback=3).winds_back(5000, 4997)


def test_sessions_that_share_a_system_prompt_share_it_in_one_slot() -> None:
    pair = interleaved([chat(0), chat(0)])
    one = replay(pair, FULL, TIMES, CacheSettings(slots=1, host_cache_bytes=0))
    assert [turn.cached_tokens for turn in one.turns] == [0, 1000]
    apart = [Session(1000, (Turn(100, 200),), shared_system=False)] * 2
    assert replay(interleaved(apart), FULL, TIMES, CacheSettings(slots=1, host_cache_bytes=0)).hit_rate == 0


@pytest.mark.parametrize(("slots", "hits"), [(1, 0), (2, 0), (3, 3)])
def test_least_recently_used_slots_are_taken(slots: int, hits: int) -> None:
    # Three conversations in turn need three slots; with two, each finds its own just overwritten.
    three = [Session(10, (Turn(1000, 100), Turn(1000, 100)), shared_system=False)] * 3
    report = replay(interleaved(three), FULL, TIMES, CacheSettings(slots, unified=False, host_cache_bytes=0))
    assert sum(turn.cached_tokens == 1110 for turn in report.turns) == hits
    if not hits:
        assert {turn.lost for turn in report.turns[3:]} == {"the cache was taken by other sessions"}


def test_the_host_cache_brings_them_back_while_it_lasts() -> None:
    three = [Session(10, (Turn(1000, 100), Turn(1000, 100)), shared_system=False)] * 3
    for host_bytes, found in ((1e9, 3), (1000 * 1109, 0)):
        settings = CacheSettings(1, host_cache_bytes=host_bytes)
        report = replay(interleaved(three), FULL, TIMES, settings)
        assert sum(turn.source == "host" and turn.cached_tokens == 1110 for turn in report.turns) == found
        assert report.peak_host_bytes <= host_bytes


def test_copies_take_time_on_the_link() -> None:
    pair = interleaved([Session(10, (Turn(1000, 100), Turn(1000, 100)), shared_system=False)] * 2)
    free, slow = (
        replay(pair, FULL, TIMES, CacheSettings(1, host_bytes_per_s=rate)).turns[2].prefill_s for rate in (None, 1e9)
    )
    assert slow - free == pytest.approx(2 * 1110 * 1000 / 1e9)  # one out, one in


@settings(deadline=None)
@given(st.lists(sessions, min_size=1, max_size=3), sizes, cache_settings)
def test_turns_add_up(group: list[Session], size: StateSize, cache: CacheSettings) -> None:
    prompts = interleaved(group)
    report = replay(prompts, size, TIMES, cache)
    assert len(report.turns) == sum(len(session.turns) for session in group)
    for turn, prompt in zip(report.turns, prompts, strict=True):
        assert 0 <= turn.cached_tokens < turn.prompt_tokens == prompt.tokens
        assert (turn.source == "none") == (turn.cached_tokens == 0)
        assert turn.saved_s == pytest.approx(
            prompt_s(TIMES, turn.prompt_tokens, 2048) - prompt_s(TIMES, turn.prompt_tokens, 2048, turn.cached_tokens)
        )
        assert turn.slot_bytes <= turn.device_bytes
    assert 0 <= report.hit_rate < 1
    assert all(turn.lost is None for turn in report.turns if turn.turn == 0)


@given(sessions, sizes)
@settings(deadline=None)
def test_checkpoints_never_hurt(session: Session, size: StateSize) -> None:
    some, none = (
        replay(prompts_of(session), size, TIMES, CacheSettings(host_cache_bytes=0, checkpoints=n)).hit_rate
        for n in (32, 0)
    )
    assert none <= some <= replay(prompts_of(session), FULL, TIMES, NO_HOST).hit_rate


@pytest.mark.parametrize("name", ["llama3.1-8b", "gemma3-27b", "qwen3-next-80b-a3b", "gpt-oss-20b"])
def test_state_of_a_full_context_is_the_memory_plan_s(name: str) -> None:
    model: Model = find_model(name)
    workload = Workload(context=16384)
    assert state_size(model, workload).bytes(16384) == pytest.approx(context_bytes(model, workload).total)


def test_kinds_of_models() -> None:
    workload = Workload(context=16384)
    assert not state_size(find_model("llama3.1-8b"), workload).needs_checkpoints
    assert state_size(find_model("qwen3-next-80b-a3b"), workload).state_bytes == 36 * 4 * (24_576 + 524_288)
    gemma = find_model("gemma3-27b")
    assert state_size(gemma, workload).window_cells == 1536
    assert not state_size(gemma, Workload(context=16384, swa_full=True)).needs_checkpoints


def test_prompts_beyond_the_slot_are_refused() -> None:
    with pytest.raises(InputError, match="turn 2: a prompt of 1400 tokens needs a slot of more than 1300"):
        replay(prompts_of(chat(0, 0)), FULL, TIMES, CacheSettings(context=1300))


def test_a_server_without_slots_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 slot"):
        CacheSettings(slots=0)
