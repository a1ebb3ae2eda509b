"""Options that belong together, as one decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def apply_options(options: Sequence[Callable[[F], F]], command: F) -> F:
    """`command` with these options, which --help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command
