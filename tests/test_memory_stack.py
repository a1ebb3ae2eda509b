"""The memory stack against the memory plan of the same contexts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmcalc.memory import memory_plan
from llmcalc.memory_stack import memory_stack
from llmcalc.request import Request, resolve


def request(**changes: object) -> Request:
    given: dict[str, object] = {"gpu": "rtx3090", "model": "gemma3-27b", "quant": "q4", "ctx": "32k"}
    return resolve(**(given | changes))  # type: ignore[arg-type]


CASES = {
    "one card": {},
    "two cards": {"gpu": ["rtx3090", "rtx3060"]},
    "unified memory": {"gpu": "m2-ultra-76"},
    "several sequences": {"parallel": 4, "ctx": "64k"},
    "recurrent": {"model": "qwen3-next-80b-a3b", "gpu": "m2-ultra-76"},
    "cpu": {"gpu": None, "cpu": "ryzen-9-7950x", "ram": "64GiB"},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_parts_add_up_to_the_plan(changes: dict[str, object]) -> None:
    asked = request(**changes)
    stack = memory_stack(asked, points=5)
    total = sum(stack.parts.values())
    for context, n_bytes in zip(stack.context, total, strict=True):
        workload = replace(asked.workload, context=int(context), prompt=1, cached_prefix=0)
        plan = memory_plan(asked.model, asked.weights, workload, asked.system)
        assert n_bytes == plan.device_bytes


def test_the_longest_context_is_where_the_stack_meets_what_is_usable() -> None:
    stack = memory_stack(request())
    total = sum(stack.parts.values())
    assert stack.max_context is not None
    assert stack.usable_bytes is not None
    fits = total <= stack.usable_bytes
    assert np.array_equal(fits, stack.context <= stack.max_context)
    assert fits.any()
    assert not fits.all()


def test_recurrent_state_is_a_part_of_its_own_and_does_not_grow() -> None:
    stack = memory_stack(request(**CASES["recurrent"]))
    assert len(set(stack.parts["recurrent state"])) == 1
    assert np.all(np.diff(stack.parts["KV cache"]) > 0)
    assert "recurrent state" not in memory_stack(request()).parts


def test_unknown_memory_has_no_limit() -> None:
    stack = memory_stack(request(gpu=None, cpu="ryzen-9-7950x"))
    assert (stack.capacity_bytes, stack.usable_bytes, stack.max_context) == (None, None, None)


def test_the_range_ends_with_training_or_with_what_was_asked() -> None:
    small = {"gpu": "m2-ultra-76", "model": "llama3-8b"}
    assert memory_stack(request(**small)).context[-1] == 32768  # asked for, beyond the 8k of training
    assert memory_stack(request(**(small | {"ctx": "4k"}))).context[-1] == 8192
