"""A machine that answers from a transcript: what each tool printed and each file held.

A transcript has a header (`# …`, `system:`, `description:`) and sections. `$ command` begins what a tool printed; a
command that ends in " …" stands for any command that begins so. `< path` begins what a file held. A first line that
begins with `!` says how the tool failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from llmcalc.detection.runner import Output

FOLDER = Path(__file__).parent / "data" / "detection"
MACHINES = sorted(path.stem for path in FOLDER.glob("*.txt"))


class RecordedRunner:
    """Answers of one transcript; nothing of the machine that the tests run on."""

    def __init__(self, text: str) -> None:
        header, *sections = re.split(r"(?m)^(?=[$<] )", text)
        fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line and line[0] != "#")
        self.system, self.description = fields["system"], fields["description"]
        parts = [section.split("\n", 1) for section in sections]
        self.outputs = {head[2:]: body for head, body in parts if head[0] == "$"}
        self.files = {head[2:]: body for head, body in parts if head[0] == "<"}
        self.asked: list[str] = []

    def run(self, command: Sequence[str], timeout_s: float) -> Output | None:
        asked = " ".join(command)
        self.asked.append(asked)
        for recorded, text in self.outputs.items():
            if asked == recorded or (recorded.endswith(" …") and f"{asked} ".startswith(recorded[:-1])):
                if text.startswith("! "):
                    failure, _, rest = text[2:].partition("\n")
                    return Output(rest, failure)
                return Output(text)
        return None

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if fnmatchcase(path, pattern))


def recorded(name: str) -> RecordedRunner:
    """The machine of tests/data/detection/`name`.txt."""
    return RecordedRunner((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
