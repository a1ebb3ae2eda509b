"""A text as numbered lines, cleaned of what terminals and chats put around them, with a cursor for the readers."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_QUOTE: Final = re.compile(r"(?:\s{0,3}>){1,8} ?")


class Lines:
    """Lines of a text; `index` is the next one to read, line numbers count from 1."""

    def __init__(self, text: str) -> None:
        self._lines = [_clean(line) for line in text.splitlines()]
        self.text = "\n".join(self._lines)
        self.index = 0
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def at_end(self) -> bool:
        """Whether every line was read."""
        return self.index >= len(self._lines)

    @property
    def number(self) -> int:
        """Number of the current line."""
        return self.index + 1

    @property
    def current(self) -> str:
        """The current line; empty at the end."""
        return "" if self.at_end else self._lines[self.index]

    @property
    def offset(self) -> int:
        """Where the current line begins in `text`."""
        return self._starts[self.index]

    def ahead(self, n: int) -> list[str]:
        """Up to `n` lines from the current one on."""
        return self._lines[self.index : self.index + n]

    def number_at(self, offset: int) -> int:
        """Number of the line that holds character `offset` of `text`."""
        return min(bisect_right(self._starts, offset), max(1, len(self._lines)))

    def move_to(self, offset: int) -> None:
        """Go to the first line that begins at or after character `offset` of `text`, at least one line on."""
        line = bisect_right(self._starts, max(0, offset - 1))
        self.index = max(self.index + 1, min(line, len(self._lines)))


def _clean(line: str) -> str:
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    if ">" in line[:8] and (match := _QUOTE.match(line)):
        line = line[match.end() :]
    return line.replace("\x00", "")
