"""Reading checked values out of a mapping somebody wrote: right types, sane ranges, no unknown keys.

Imports `errors` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from .errors import FieldError, InputError

LARGEST: Final = 2**31  # no width, vocabulary or context is beyond it
LONGEST_LIST: Final = 4096
_REPEATED: Final = r"(?i)\s*(\d+)\s*x\s*(\d+)\s*"
_T = TypeVar("_T")


class FieldReader:
    """The fields of one entry; every method raises FieldError, naming the entry, the field and what would be right.

    `path`: the groups that the fields lie in.
    """

    def __init__(self, fields: Mapping[str, Any], where: str, known: Iterable[str], path: tuple[str, ...] = ()) -> None:
        self.fields = fields
        self.where = where
        self.path = path
        self._refuse_unknown(tuple(known))

    def _refuse_unknown(self, known: tuple[str, ...]) -> None:
        for key in self.fields:
            if key not in known:
                from difflib import get_close_matches

                close = get_close_matches(str(key), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise FieldError(f"{self.where}: unknown field {key!r}; {hint}", (*self.path, key))

    def __contains__(self, key: str) -> bool:
        return self.fields.get(key) is not None

    def fail(self, key: str, problem: str) -> InputError:
        """The error for what is wrong with the field `key`."""
        return FieldError(f"{self.where}: {key}: {problem}", (*self.path, key))

    def integer(self, key: str, default: int | None = None, minimum: int = 1, maximum: int = LARGEST) -> int:
        """A whole number from `minimum` to `maximum`."""
        value = self.fields.get(key)
        if value is None:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        return self._whole(key, value, minimum, maximum)

    def optional_integer(self, key: str, minimum: int = 1) -> int | None:
        """As `integer`, or None when the field is absent."""
        return self.integer(key, minimum=minimum) if key in self else None

    def _whole(self, key: str, value: Any, minimum: int, maximum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"expected a whole number, got {str(value)[:60]!r}")
        if not minimum <= value <= maximum:
            raise self.fail(key, f"{value} is not between {minimum} and {maximum}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.fields.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, got {str(value)[:60]!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Text that is not empty."""
        value = self.fields.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "is missing" if value is None else f"expected text, got {str(value)[:60]!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Text or a list of texts, as a tuple; empty when the field is absent."""
        value = self.fields.get(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in items):
            raise self.fail(key, "expected text or a list of texts")
        return tuple(map(str, items))

    def count(self, key: str) -> int | None:
        """A whole number of any size, or None when the field is absent."""
        return self.integer(key, maximum=10**18) if key in self else None

    def choice(self, key: str, default: _T, choices: tuple[_T, ...]) -> _T:
        """One of `choices`."""
        value = self.fields.get(key)
        if value is None:
            return default
        for choice in choices:
            if value == choice:
                return choice
        raise self.fail(key, f"expected one of {', '.join(map(str, choices))}, got {str(value)[:60]!r}")

    def group(self, key: str, known: Iterable[str]) -> FieldReader | None:
        """The mapping in the field `key` as a reader of its own, None when it is absent."""
        value = self.fields.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail(key, f"expected a mapping, got {str(value)[:60]!r}")
        return FieldReader(value, f"{self.where}: {key}", known, (*self.path, key))

    def per_layer(self, key: str, layers: int, default: int | None = None, minimum: int = 0) -> tuple[int, ...]:
        """A whole number for each layer, from one for all or from a list in which "9216 x 15" stands for fifteen."""
        value = self.fields.get(key)
        if not isinstance(value, list):
            return (self.integer(key, default, minimum),) * layers
        values: list[int] = []
        for item in value:
            number, count = self._repeated(key, item)
            values += [self._whole(key, number, minimum, LARGEST)] * min(count, layers + 1)
            if len(values) > layers:
                break
        if len(values) != layers:
            there = f"has {len(values)}" if len(values) < layers else "has more"
            raise self.fail(key, f"the list must have one value for each of the {layers} layers, but {there}")
        return tuple(values)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 on; empty when the field is absent."""
        value = self.fields.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > LONGEST_LIST:
            raise self.fail(key, f"expected a list of whole numbers, got {str(value)[:60]!r}")
        return tuple(self._whole(key, item, 0, LARGEST) for item in value)

    def _repeated(self, key: str, item: Any) -> tuple[Any, int]:
        match = re.fullmatch(_REPEATED, item) if isinstance(item, str) and len(item) < 40 else None
        if match:
            return int(match[1]), int(match[2])
        return item, 1

    def pattern(self, key: str, default: str, letters: str, layers: int) -> str:
        """One of `letters` a layer. What is in parentheses, or else the whole, is repeated: "FF(FSSS)"."""
        text = self.text(key, default).replace(" ", "")
        start, _, rest = text.partition("(")
        cycle = rest.removesuffix(")")
        if not rest:
            start, cycle = "", start
        if not cycle or set(start + cycle) - set(letters):
            raise self.fail(key, f"{text[:60]!r} is not a pattern of the letters {', '.join(letters)}")
        filled = start + cycle * max(0, -(-(layers - len(start)) // len(cycle)))
        return filled[:layers]
