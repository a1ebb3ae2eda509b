"""What the decorator makes behaves as what `dataclasses.dataclass(frozen=True)` makes of the same class."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.frozen_dataclass import OFTEN, dataclass

Decorator = Callable[[type], Any]


def make(decorator: Decorator) -> Any:
    class Point:
        """A point."""

        x: int
        y: float = 1.0
        label: str = dataclasses.field(default="", compare=False)
        extra: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    return decorator(Point)


Ours = make(dataclass(frozen=True))
Standard = make(dataclasses.dataclass(frozen=True))
arguments = st.tuples(
    st.lists(st.integers(-1, 2), max_size=5),
    st.dictionaries(st.sampled_from(["x", "y", "label", "extra", "z"]), st.integers(-1, 2)),
)


@dataclass(frozen=True)
class Pair:
    left: int
    right: str = "r"


@dataclass(frozen=True, eq=False)
class Same:
    value: int


def made(cls: Any, args: list[Any], named: dict[str, Any]) -> Any:
    try:
        return cls(*args, **named)
    except (TypeError, ValueError) as error:
        return type(error)


@given(arguments)
def test_instances_are_made_alike(call: tuple[list[int], dict[str, int]]) -> None:
    ours, standard = made(Ours, *call), made(Standard, *call)
    if isinstance(standard, type):
        assert ours is standard
    else:
        assert dataclasses.astuple(ours) == dataclasses.astuple(standard)
        assert repr(ours) == repr(standard)


@given(st.builds(dict, x=st.integers(0, 2), y=st.integers(0, 1), label=st.sampled_from("ab")), st.data())
def test_equality_and_hash_are_alike(one: dict[str, Any], data: st.DataObject) -> None:
    other = data.draw(st.builds(dict, x=st.integers(0, 2), y=st.integers(0, 1), label=st.sampled_from("ab")))
    assert (Ours(**one) == Ours(**other)) == (Standard(**one) == Standard(**other))
    assert Ours(**one) != Standard(**one)
    if Ours(**one) == Ours(**other):
        assert hash(Ours(**one)) == hash(Ours(**other))


def test_instances_are_made_alike_however_many_there_are() -> None:
    cls = make(dataclass(frozen=True))
    shared = cls.__init__
    points = [cls(n, label=str(n)) for n in range(OFTEN + 5)]
    assert cls.__init__ is not shared
    assert points[OFTEN + 4] == cls(OFTEN + 4) and points[OFTEN + 4].label == str(OFTEN + 4)
    assert len({id(point.extra) for point in points}) == len(points)
    for wrong in ((), (1, 2, 3, 4, 5), (-1,)):
        with pytest.raises((TypeError, ValueError)):
            cls(*wrong)


def test_instances_are_frozen() -> None:
    pair = Pair(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="left"):
        pair.left = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="left"):
        del pair.left
    with pytest.raises(TypeError):
        dataclass(frozen=False)


def test_without_eq_instances_equal_only_themselves() -> None:
    one, other = Same(1), Same(1)
    assert one == one and one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize(("args", "named", "says"), [
    ((), {}, "missing left"), ((1, "r", 2), {}, "too many"), ((1,), {"up": 2}, "up; the fields are left, right"),
])  # fmt: skip
def test_wrong_arguments_are_named(args: tuple[Any, ...], named: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Pair(*args, **named)


def test_the_tools_for_dataclasses_work() -> None:
    pair = Pair(1)
    assert dataclasses.replace(pair, left=3) == Pair(3)
    assert dataclasses.asdict(pair) == {"left": 1, "right": "r"}
    assert copy.deepcopy(pair) == pickle.loads(pickle.dumps(pair)) == pair
    assert str(inspect.signature(Pair)) == "(left: 'int', right: 'str' = 'r')"


def test_no_module_of_the_main_job_uses_the_standard_decorator() -> None:
    code = (
        "import sys, llmcalc.cli; llmcalc.cli.run('estimate --gpu rtx4090 --model llama3-8b --quant q4'.split());"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('llmcalc')), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = [Path(line) for line in done.stderr.splitlines() if not line.endswith("frozen_dataclass.py")]
    assert len(files) > 40
    standard = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    assert [file.name for file in files if standard.search(file.read_text(encoding="utf-8"))] == []
