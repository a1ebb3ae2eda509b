"""llama-bench's SQL: INSERT statements into `llama_bench` (`test` in old versions), and dumps of such a table."""

from __future__ import annotations

import re
from typing import Final

from .collector import Collector
from .lines import Lines
from .values import Malformed

_CREATE: Final = re.compile(r"\s{0,8}CREATE TABLE (?:IF NOT EXISTS )?[`\"]?(\w{1,60})[`\"]? {0,4}\(", re.IGNORECASE)
_INSERT: Final = re.compile(
    r"\s{0,8}INSERT INTO [`\"]?(?P<table>\w{1,60})[`\"]?\s{0,4}(?:\((?P<columns>[^()']{1,4000})\)\s{0,4})?"
    r"VALUES\s{0,4}\(",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^',()\s][^',()]*))\s*([,)])")
_COLUMN: Final = re.compile(r"[`\"]?(\w{1,60})[`\"]?")


class SqlReader:
    """Reads statements; remembers the columns of created tables for INSERTs that do not name theirs."""

    def __init__(self, lines: Lines, out: Collector) -> None:
        self._lines = lines
        self._out = out
        self._columns: dict[str, list[str]] = {}

    def read(self) -> bool:
        """Read the statement at the cursor and go beyond it; False where none begins."""
        line = self._lines.current
        if create := _CREATE.match(line):
            self._create(create[1].lower())
            return True
        insert = _INSERT.match(line[:8000])
        if insert is None:
            return False
        try:
            self._insert(insert, line)
        except Malformed as error:
            self._out.problem(self._lines.number, str(error))
        self._lines.index += 1
        return True

    def _create(self, table: str) -> None:
        columns: list[str] = []
        self._lines.index += 1
        for line in self._lines.ahead(200):
            match = _COLUMN.match(line.strip())
            if match is None:
                break
            columns.append(match[1].lower())
            self._lines.index += 1
        self._columns[table] = columns

    def _insert(self, insert: re.Match[str], line: str) -> None:
        if insert["columns"]:
            columns = [name.strip(' `"').lower() for name in insert["columns"].split(",")]
        else:
            columns = self._columns.get(insert["table"].lower(), [])
        if not columns:
            raise Malformed("this INSERT names no columns and no CREATE TABLE before it does")
        values = _values(line, insert.end())
        if len(values) != len(columns):
            raise Malformed(f"{len(values)} values for {len(columns)} columns")
        record = dict(zip(columns, values, strict=True))
        if not ("n_prompt" in record or "n_gen" in record):
            raise Malformed("this INSERT is no llama-bench test: it has neither n_prompt nor n_gen")
        self._out.add(record, self._lines.number)


def _values(text: str, position: int) -> list[str | None]:
    values: list[str | None] = []
    while match := _VALUE.match(text, position):
        bare = (match[2] or "").strip()
        values.append(match[1].replace("''", "'") if match[1] is not None else None if bare.upper() == "NULL" else bare)
        position = match.end()
        if match[3] == ")":
            return values
    raise Malformed("the VALUES of this INSERT are malformed or cut off")
