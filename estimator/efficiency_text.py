"""The shipped efficiency file, of which only the machine in question is read: all of it takes longer than an estimate.

Its layout is fixed (fit_corpus writes it); tests/test_efficiency_text.py proves that this reads what YAML reads.
Imports `plain_yaml` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from .plain_yaml import load_plain

T = TypeVar("T")
Made = Callable[[float, float], T]  # of a pair [mean, standard deviation]

LEVELS: Final = ("backends", "hardware", "generations", "devices")
CORRECTIONS: Final = "corrections"


class Section(Mapping[str, T]):
    """The entries of a section by their keys, each read when it is asked for."""

    def __init__(self, text: str, read: Callable[[str, int], T]) -> None:
        self._text = text  # each entry begins with a line break, two spaces, its key and a colon
        self._read = read
        self._known: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._known:
            begin = self._text.find(f"\n  {key}:")
            if begin < 0:
                raise KeyError(key)
            self._known[key] = self._read(self._text, begin + len(f"\n  {key}:"))
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        lines = self._text.split("\n")
        return (line.strip().partition(":")[0] for line in lines if line[:2] == "  " != line[2:4])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Content(NamedTuple):
    """What the file holds: fields as YAML gives them, and sections."""

    head: dict[str, Any]
    levels: dict[str, Section[Mapping[str, Any]]]
    corrections: Section[Any]


def parse(text: str, made: Made[Any]) -> Content:
    """The content of an efficiency file, `made` of each pair."""
    bodies = _bodies(text)
    head: dict[str, Any] = load_plain(text[: text.index("\nbackends:")])
    levels = {name: Section(bodies[name], partial(_factors, made)) for name in LEVELS}
    return Content(head, levels, Section(bodies[CORRECTIONS], partial(_pair, made)))


def _bodies(text: str) -> dict[str, str]:
    """The lines of each section, a line break before and behind them; only that where it has none."""
    begins = {name: text.find(f"\n{name}:\n") for name in (*LEVELS, CORRECTIONS)}
    ends = [*begins.values(), len(text)]
    return {
        name: text[begin + len(name) + 2 : min(end for end in ends if end > begin)] + "\n" if begin >= 0 else "\n"
        for name, begin in begins.items()
    }


def _factors(made: Made[T], text: str, at: int) -> Mapping[str, T]:
    """The lines of one machine, from the end of its key on."""
    factors = {}
    while text.startswith("\n    ", at):
        colon = text.index(":", at)
        factors[text[at:colon].strip()] = _pair(made, text, colon + 1)
        at = text.index("\n", colon)
    return factors


def _pair(made: Made[T], text: str, at: int) -> T:
    """The pair behind a colon: " [mean, sd]"."""
    mean, sd = text[at + 2 : text.index("]", at)].split(", ")
    return made(float(mean), float(sd))
