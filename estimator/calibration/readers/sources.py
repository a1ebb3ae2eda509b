"""Where texts come from: files, folders, streams, or the text itself; decoded, and kept within limits."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from ...errors import InputError

MAX_BYTES: Final = 32 * 2**20  # of one file
MAX_FILES: Final = 5000  # of one folder
STDIN: Final = "<stdin>"
TEXT: Final = "<text>"

Source = Path | TextIO | str

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


def texts(source: Source) -> Iterator[tuple[str, str | InputError]]:
    """(name, text) of everything in `source`, with the error in place of a text that a folder holds but cannot be read.

    A path that does not exist, or one that was named and cannot be read, raises InputError.
    """
    if isinstance(source, str):
        path = _as_path(source)
        if path is None:
            yield TEXT, source
            return
        source = path
    if not isinstance(source, Path):
        yield _stream_name(source), _read_stream(source)
    elif str(source) == "-":
        yield STDIN, _read_stream(sys.stdin)
    elif os.path.isdir(source):
        yield from _read_folder(source)
    else:
        yield str(source), read_file(source)


def read_file(path: Path) -> str:
    """The text of a file. Raises InputError when it is missing, too large or no text."""
    try:
        if path.exists() and not path.is_file() and not path.is_fifo():
            raise InputError(f"{path}: neither a file nor a folder")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, InputError) else InputError(f"{path}: {_reason(error)}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB, which no benchmark output is")
    return decode(data, str(path))


def decode(data: bytes, name: str) -> str:
    """Text of `data`: UTF-8, UTF-16 with a byte order mark (as Windows' shell writes), or Windows' code page."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if b"\x00" in data[:4096]:
        raise InputError(f"{name}: not a text file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _as_path(text: str) -> Path | None:
    """The path that a string of one line names; None when it is benchmark output itself."""
    if "\n" in text or len(text) > 4096:
        return None
    try:
        path = Path(text)
        return path if text == "-" or os.path.exists(path) else None
    except (OSError, ValueError):
        return None


def _read_folder(folder: Path) -> Iterator[tuple[str, str | InputError]]:
    paths = [
        path for path in folder.rglob("*") if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    files = sorted(path for path in paths if path.is_file())
    if len(files) > MAX_FILES:
        raise InputError(
            f"{folder}: {len(files)} files are too many to be a folder of benchmark output; name a subfolder"
        )
    for path in files:
        try:
            yield str(path), read_file(path)
        except InputError as error:
            yield str(path), error


def _read_stream(stream: TextIO) -> str:
    name = _stream_name(stream)
    try:
        text: object = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: {_reason(error)}") from None
    text = decode(text, name) if isinstance(text, bytes) else text
    if not isinstance(text, str):
        raise InputError(f"{name}: not a text stream")
    if len(text) > MAX_BYTES:
        raise InputError(f"{name}: larger than {MAX_BYTES >> 20} MiB, which no benchmark output is")
    return text.removeprefix("\ufeff")


def _stream_name(stream: TextIO) -> str:
    name = getattr(stream, "name", None)
    return name if isinstance(name, str) and stream is not sys.stdin else STDIN


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
