"""The header of a GGUF file: metadata and tensor infos, read in constant memory and without touching the weights.

Layout: llama.cpp b11434, ggml/src/gguf.cpp. Big arrays (the tokenizer's) are counted and skipped. Every count and
length is checked against the bytes there are, or against a limit, before anything is allocated, so no input can hang
the reader or exhaust memory; whatever is wrong with it raises InputError.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from ..errors import InputError
from ..ggml_types import GGML_TYPES_BY_ID, GgmlType, tensor_bytes
from ..units import gib
from ..workload import padded

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

_Offsets = np.ndarray[Any, np.dtype[np.int64]]

CHUNK_BYTES: Final = 1 << 16  # small enough for the cache, and for malloc to reuse
MAX_KEYS: Final = 1024
MAX_KEY_BYTES: Final = 1024
MAX_KEPT_STRING_BYTES: Final = 4096  # longer ones (chat templates) are skipped
MAX_KEPT_ITEMS: Final = 1024  # longer arrays (vocabularies) are only counted
MAX_STRINGS: Final = 1 << 24  # in all arrays together
MAX_TENSORS: Final = 1 << 16
MAX_NAME_BYTES: Final = 256
MAX_DIMENSIONS: Final = 4
MAX_ELEMENTS: Final = (1 << 63) - 1
MAX_ALIGNMENT: Final = 1 << 16
MAX_STREAM_BYTES: Final = 1 << 30  # of a header in a stream without a known end
DEFAULT_ALIGNMENT: Final = 32

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_SPLIT_NAME: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


class TensorInfo(NamedTuple):
    """A tensor as the header describes it: shape with ne0 first, offset from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int

    @property
    def bytes(self) -> int:
        """Bytes of its data, without padding."""
        return tensor_bytes(self.type, self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """One file's header. Metadata has no entry for skipped strings and arrays; `array_lengths` counts every array."""

    where: str
    version: int
    metadata: Mapping[str, Value]
    array_lengths: Mapping[str, int]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    size: int | None  # of the file, when it can be known

    @property
    def data_bytes(self) -> int:
        """Bytes of all tensors with their padding."""
        return sum(padded(tensor.bytes, self.alignment) for tensor in self.tensors)

    @property
    def missing_bytes(self) -> int:
        """By how much the file is shorter than its header says; 0 when it is complete or its size unknown."""
        return max(0, self.data_offset + self.data_bytes - self.size) if self.size is not None else 0

    @property
    def missing_note(self) -> str | None:
        """A sentence about an incomplete file, None for a complete one."""
        missing = self.missing_bytes
        return (
            f"{self.where} is {gib(missing)} shorter than its header says: an incomplete download?" if missing else None
        )


def read_header(source: str | os.PathLike[str] | BinaryIO) -> GgufHeader:
    """The header of one GGUF file, from its path or from a binary stream of at least its first megabytes.

    Raises InputError for everything that is not a little-endian GGUF header of version 2 or 3.
    """
    if isinstance(source, (str, os.PathLike)):
        with _opened(Path(source)) as file:
            return _header(_Reader(file, str(source)))
    name = getattr(source, "name", None)
    return _header(_Reader(source, name if isinstance(name, str) else "GGUF stream"))


def read_headers(source: str | os.PathLike[str] | BinaryIO) -> tuple[GgufHeader, ...]:
    """The headers of all parts of a split file, in order; of a whole file, just its own.

    Any part's path will do, the others must lie beside it. A stream cannot lead to them, so a part of a split file in
    one raises InputError, as do missing parts and parts that do not belong together.
    """
    header = read_header(source)
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return (header,)
    match = _SPLIT_NAME.fullmatch(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None
    if match is None or int(match[3]) != count:
        raise InputError(
            f"{header.where}: this is one part of a split file of {count}; give the path of a part named "
            f"like model-00001-of-{count:05d}.gguf, with the others beside it"
        )
    parts = tuple(read_header(f"{match[1]}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1))
    _check_parts(parts, count)
    return parts


def _check_parts(parts: tuple[GgufHeader, ...], count: int) -> None:
    for index, part in enumerate(parts):
        if (part.metadata.get("split.no"), part.metadata.get("split.count")) != (index, count):
            raise InputError(f"{part.where}: its metadata does not say that it is part {index + 1} of {count}")
    names = [tensor.name for part in parts for tensor in part.tensors]
    total = parts[0].metadata.get("split.tensors.count", len(names))
    if total != len(names) or len(set(names)) != len(names):
        raise InputError(
            f"{parts[0].where}: its parts hold {len(names)} tensors, not the {total} different ones expected"
        )


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb", buffering=0)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with file:
        yield file


class _Reader:
    """A window of bytes that moves forward through a file or a pipe."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file = file
        self.where = where
        self.window = b""
        self.start = 0  # of the window in the stream
        self.at = 0  # in the window
        self.size = self._size()
        self.strings = 0  # in arrays so far

    def _size(self) -> int | None:
        """Bytes from here to the end, None for a pipe."""
        try:
            if not self.file.seekable():
                return None
            here = self.file.tell()
            end = self.file.seek(0, io.SEEK_END)
            self.file.seek(here)
        except (AttributeError, OSError, ValueError):
            return None
        return max(0, end - here)

    @property
    def offset(self) -> int:
        return self.start + self.at

    def fail(self, problem: str) -> InputError:
        return InputError(f"{self.where}: {problem}")

    def fits(self, size: int, what: str) -> None:
        """Refuses what cannot lie in the rest of the file, before anything is allocated for it."""
        end = MAX_STREAM_BYTES if self.size is None else self.size
        if size > end - self.offset:
            left = end - self.offset
            raise self.fail(
                f"{what} at byte {self.offset} takes {size} bytes, but only {left} are left: a truncated file?"
            )

    def need(self, size: int, what: str) -> None:
        """Makes `size` bytes available in the window."""
        if len(self.window) - self.at >= size:
            return
        self.fits(size, what)
        parts = [self.window[self.at :]]
        have = len(parts[0])
        while have < size:
            part = self._read(max(CHUNK_BYTES, size - have))
            if not part:
                raise self.fail(
                    f"ends at byte {self.start + self.at + have}, in {what}: the header is longer than that"
                )
            parts.append(part)
            have += len(part)
        self.start += self.at
        self.at = 0
        self.window = b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            part = self.file.read(size) or b""
        except (AttributeError, OSError, ValueError) as error:
            raise self.fail(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not isinstance(part, bytes):
            raise self.fail("is no binary stream")
        return part

    def take(self, size: int, what: str) -> bytes:
        self.need(size, what)
        self.at += size
        return self.window[self.at - size : self.at]

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        self.need(layout.size, what)
        self.at += layout.size
        return layout.unpack_from(self.window, self.at - layout.size)

    def u32(self, what: str) -> int:
        return int(self.unpack(_U32, what)[0])

    def u64(self, what: str) -> int:
        return int(self.unpack(_U64, what)[0])

    def skip(self, size: int, what: str) -> None:
        """Moves on by `size` bytes, by seeking where the file can."""
        inside = min(size, len(self.window) - self.at)
        self.at += inside
        left = size - inside
        if not left:
            return
        self.fits(left, what)
        self.start += len(self.window)
        self.at, self.window = 0, b""
        if self.size is not None:
            self.file.seek(left, io.SEEK_CUR)
            self.start += left
            return
        while left:
            part = self._read(min(left, CHUNK_BYTES))
            if not part:
                raise self.fail(f"ends at byte {self.offset}, in {what}: the header is longer than that")
            self.start += len(part)
            left -= len(part)

    def text(self, what: str, limit: int) -> str:
        size = self.u64(what)
        self.fits(size, what)
        if size > limit:
            raise self.fail(f"{what} has {size} bytes, more than the {limit} that are sensible")
        return self.take(size, what).decode("utf-8", "replace")

    def skip_strings(self, count: int, what: str) -> None:
        """Moves past `count` strings, each a length of 8 bytes and its text."""
        self.fits(8 * count, what)
        self.strings += count
        if self.strings > MAX_STRINGS:
            raise self.fail(f"{what} has {count} strings, more than any vocabulary")
        while count:
            self.need(8, what)
            passed, length = strings_in(self.window, self.at, count)
            self.at += length
            count -= passed
            if count and not passed:  # it ends beyond the window
                self.skip(self.u64(what), what)
                count -= 1


_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_START: Final = struct.Struct("<4sI")
_STEPS: Final = 512  # strings passed one by one before all at once is tried again


def strings_in(window: bytes, at: int, count: int) -> tuple[int, int]:
    """How many of `count` strings lie wholly in `window` from `at` on, and how many bytes they take.

    The length of a short string is one byte and seven zeros, which hardly occur elsewhere. So all such places are
    looked up at once, and where each one's string ends at the next one, the chain holds. Where it does not (empty,
    long or strange strings), lengths are followed one by one.
    """
    starts, ends = _short_strings(window, at)
    breaks = np.flatnonzero(ends[:-1] != starts[1:])
    here, passed, size = at, 0, len(window)
    while passed < count:
        first = int(np.searchsorted(starts, here))
        if first < len(starts) and starts[first] == here:
            following = int(np.searchsorted(breaks, first))
            last = int(breaks[following]) if following < len(breaks) else len(starts) - 1
            last = min(last, first + count - passed - 1)
            if ends[last] > size:
                last -= 1
            if last >= first:
                passed += last - first + 1
                here = int(ends[last])
                if last - first > _STEPS // 16:
                    continue
        stepped, here_after = _step(window, here, min(count - passed, _STEPS))
        passed += stepped
        if here_after == here:
            break
        here = here_after
    return passed, here - at


def _short_strings(window: bytes, at: int) -> tuple[_Offsets, _Offsets]:
    """Offsets of all bytes that seven zeros follow, and where strings of those lengths would end."""
    text = np.frombuffer(window, np.uint8, len(window) - at, at)
    zero = text == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    seven = four[1:-3] & four[4:]  # at i: bytes i + 1 to i + 7
    starts = np.flatnonzero(seven)
    return starts + at, starts + (at + 8) + text[starts]


def _step(window: bytes, here: int, count: int) -> tuple[int, int]:
    """Follows up to `count` lengths from `here`: strings passed, and where the next one starts."""
    size = len(window)
    unpack = _U64.unpack_from
    for passed in range(count):
        if here + 8 > size:
            return passed, here
        end = here + 8 + unpack(window, here)[0]
        if end > size:
            return passed, here
        here = end
    return count, here


def _header(reader: _Reader) -> GgufHeader:
    version, n_tensors, n_keys = _start(reader)
    metadata, lengths = _metadata(reader, n_keys)
    tensors = tuple(_tensor_infos(reader, n_tensors))
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise reader.fail(f"general.alignment is {alignment!r}, no power of two")
    _check_offsets(reader, tensors, alignment)
    data_offset = padded(reader.offset, alignment)
    return GgufHeader(reader.where, version, metadata, lengths, tensors, alignment, data_offset, reader.size)


def _start(reader: _Reader) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata keys."""
    magic, version = reader.unpack(_START, "the magic number")
    if magic != b"GGUF":
        raise reader.fail(f"is no GGUF file: it starts with {magic!r} instead of b'GGUF'")
    if version & 0xFFFF == 0:
        raise reader.fail("is a big-endian GGUF file; only little-endian ones are supported")
    if version not in (2, 3):
        raise reader.fail(f"is GGUF version {version}; only versions 2 and 3 are supported")
    n_tensors, n_keys = reader.u64("the number of tensors"), reader.u64("the number of keys")
    if n_tensors > MAX_TENSORS:
        raise reader.fail(f"claims {n_tensors} tensors; more than {MAX_TENSORS} are not supported")
    if n_keys > MAX_KEYS:
        raise reader.fail(f"claims {n_keys} metadata keys; more than {MAX_KEYS} are not supported")
    reader.fits(n_tensors * 33 + n_keys * 14, "the header")
    return version, n_tensors, n_keys


def _metadata(reader: _Reader, count: int) -> tuple[dict[str, Value], dict[str, int]]:
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    seen = set()
    for _ in range(count):
        key = reader.text("a metadata key", MAX_KEY_BYTES)
        what = _shown("metadata key", key)
        if key in seen or not key:
            raise reader.fail(f"{what} is {'there twice' if key else 'empty'}")
        seen.add(key)
        kind = reader.u32(what)
        kept: Value | None
        if kind == _ARRAY:
            kept, lengths[key] = _array(reader, what)
        else:
            kept = _value(reader, what, kind)
        if kept is not None:
            values[key] = kept
    return values, lengths


def _shown(kind: str, name: str) -> str:
    """A name from the file in an error message: short, on one line."""
    return f"{kind} {name[:60]!r}"


def _value(reader: _Reader, what: str, kind: int) -> Scalar | None:
    if kind == _STRING:
        size = reader.u64(what)
        reader.fits(size, what)
        if size > MAX_KEPT_STRING_BYTES:
            reader.skip(size, what)
            return None
        return reader.take(size, what).decode("utf-8", "replace")
    value: Scalar = reader.unpack(_layout(reader, what, kind, 1), what)[0]
    return value


def _array(reader: _Reader, what: str) -> tuple[tuple[Scalar, ...] | None, int]:
    kind, count = reader.u32(what), reader.u64(what)
    if kind == _STRING:
        reader.skip_strings(count, what)
        return None, count
    if count > MAX_KEPT_ITEMS:
        reader.skip(_layout(reader, what, kind, 1).size * count, what)
        return None, count
    return reader.unpack(_layout(reader, what, kind, count), what), count


def _layout(reader: _Reader, what: str, kind: int, count: int) -> struct.Struct:
    letter = _SCALARS.get(kind)
    if letter is None:
        kinds = "an array of arrays" if kind == _ARRAY else f"of the unknown type {kind}"
        raise reader.fail(f"{what} is {kinds}, which GGUF does not have")
    return struct.Struct(f"<{count}{letter}")


def _tensor_infos(reader: _Reader, count: int) -> Iterator[TensorInfo]:
    seen = set()
    for _ in range(count):
        name = reader.text("a tensor name", MAX_NAME_BYTES)
        if name in seen:
            raise reader.fail(f"{_shown('tensor', name)} is there twice")
        seen.add(name)
        yield _tensor_info(reader, name)


def _tensor_info(reader: _Reader, name: str) -> TensorInfo:
    what = _shown("tensor", name)
    dimensions = reader.u32(what)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise reader.fail(f"{what} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible")
    *shape, type_id, offset = reader.unpack(_INFO[dimensions], what)
    if 0 in shape or prod(shape) > MAX_ELEMENTS:
        raise reader.fail(f"{what} has the impossible shape {tuple(shape)}")
    found = GGML_TYPES_BY_ID.get(type_id)
    if found is None:
        raise reader.fail(f"{what} has the unknown type {type_id}")
    if shape[0] % found.block:
        raise reader.fail(f"{what}: rows of {shape[0]} cannot be {found.name}, which comes in blocks of {found.block}")
    return TensorInfo(name, tuple(shape), found, offset)


_INFO: Final = {n: struct.Struct(f"<{n}QIQ") for n in range(1, MAX_DIMENSIONS + 1)}


def _check_offsets(reader: _Reader, tensors: tuple[TensorInfo, ...], alignment: int) -> None:
    expected = 0
    for tensor in tensors:
        if tensor.offset != expected:
            raise reader.fail(f"{_shown('tensor', tensor.name)} has offset {tensor.offset} where {expected} is due")
        expected += padded(tensor.bytes, alignment)
