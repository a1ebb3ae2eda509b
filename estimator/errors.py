"""The package's own errors: what a user did that cannot be answered, in one sentence.

Imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Sequence


class LlmcalcError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(LlmcalcError, ValueError):
    """Unreadable, contradictory or out-of-range input; the message says what is wrong and what would be right."""


class FieldError(InputError):
    """Something wrong with one field of a catalog entry; `path`: the field within its groups, ("experts", "used")."""

    def __init__(self, message: str, path: Sequence[str]) -> None:
        super().__init__(message)
        self.path = tuple(path)


class UnknownNameError(InputError):
    """A name that no catalog entry claims, or that several do; `candidates` holds the closest ids."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)
