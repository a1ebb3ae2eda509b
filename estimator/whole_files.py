"""Files written whole: who reads one, or comes after a crash, finds the old content or the new one, never a part.

Imports `errors` alone.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from .errors import InputError


def write_output(path: str | Path, content: str | bytes) -> None:
    """Write what a user named: through links, and straight into what is no file, such as a pipe.

    Raises InputError for a path that cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(_bytes(content))
        else:
            _replace(target, _bytes(content))
    except OSError as error:
        raise InputError(f"{path}: cannot be written, {(error.strerror or str(error)).lower()}") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file of our own in place of whatever has its name, a link too. Raises InputError if it fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, _bytes(content))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _replace(path: Path, content: bytes) -> None:
    """Write beside the file, wait for the disk, and take the file's place, with its rights."""
    beside = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}")
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(beside, stat.S_IMODE(path.stat().st_mode))
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
