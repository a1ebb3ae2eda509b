"""How this machine is asked: external tools with a time limit, and files of /proc and /sys. The only I/O of detection.

`Runner` is what the probes are given, so that recorded outputs can stand in for a machine.
"""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_LONGEST_OUTPUT = 4_000_000  # characters; the longest honest output, of rocminfo on eight GPUs, is a tenth of that


@dataclass(frozen=True)
class Output:
    """What a tool printed; `failure` says why it did not end well, in words that follow its name."""

    text: str
    failure: str | None = None


class Runner(Protocol):
    """A machine that can be asked."""

    @property
    def system(self) -> str:
        """One of "Linux", "Darwin", "Windows"."""
        ...

    @property
    def description(self) -> str:
        """The operating system, its release and the instruction set, for people."""
        ...

    def run(self, command: Sequence[str], timeout_s: float) -> Output | None:
        """What `command` prints; None where there is no such tool. Raises nothing."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file; None where there is none or it may not be read."""
        ...

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, in order."""
        ...


class LocalRunner:
    """The machine that this process runs on."""

    @property
    def system(self) -> str:
        return platform.system()

    @property
    def description(self) -> str:
        return f"{platform.system()} {platform.release()} {platform.machine()}"

    def run(self, command: Sequence[str], timeout_s: float) -> Output | None:
        tool = shutil.which(command[0])
        if tool is None:
            return None
        try:
            done = subprocess.run(
                [tool, *command[1:]],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
                # Tools translate what they print, and lscpu writes decimal commas.
                env={**os.environ, "LC_ALL": "C", "LANG": "C"},
            )
        except subprocess.TimeoutExpired:
            return Output("", f"did not answer within {timeout_s:g} s")
        except OSError as error:
            return Output("", f"cannot be started: {error.strerror or error}")
        text = done.stdout.decode("utf-8", "replace")[:_LONGEST_OUTPUT]
        if done.returncode == 0:
            return Output(text)
        complaint = first_line(done.stderr.decode("utf-8", "replace")) or first_line(text)
        return Output(text, f"failed with status {done.returncode}" + (f": {complaint}" if complaint else ""))

    def read(self, path: str) -> str | None:
        try:
            with open(path, "rb") as file:
                return file.read(_LONGEST_OUTPUT).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def glob(self, pattern: str) -> list[str]:
        return sorted(glob.glob(pattern))


def first_line(text: str, longest: int = 160) -> str:
    """The first line that says something, cut to `longest` characters."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "")[:longest]
