"""Reads tar archives from untrusted sources: files and folders, and nothing else.

The standard library's `tarfile` supports more than we want, and holds a header in memory however
long it is; its regular expressions and its recursion can be made to take hours. This reader
supports the three ways in which tar writes a name (ustar, pax, GNU), reads forwards only, and
holds at most one header of limited length.

Decision: docs/adr/0025-artifacts-and-bundles.md.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Protocol

from duly.errors import Invalid
from duly.model.archives.bundle import (
    MAX_ENTRIES,
    MAX_UNPACKED_BYTES,
    bundle_error,
    quote_name,
    split_name,
)
from duly.model.archives.gunzip import Gunzip
from duly.model.wording import format_bytes

BLOCK_BYTES = 512
CHUNK_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
"""Size of one extended header, which precedes an entry and has its name or attributes."""
MAX_TOTAL_HEADER_BYTES = 64 * 1024**2
MAX_RECORDS = 10 * MAX_ENTRIES
"""In all extended headers together: they are parsed in Python, and compress to almost nothing."""
END_BLOCK = bytes(BLOCK_BYTES)
GZIP_MAGIC = b"\x1f\x8b"
FILE, OLD_FILE, FOLDER = b"0", b"\0", b"5"
PAX, PAX_GLOBAL, LONG_NAME = b"x", b"g", b"L"
UNSUPPORTED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"K": "a link",
    b"S": "a sparse file",
}


class Source(Protocol):
    """The stream that an archive is read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; no bytes only at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder of an archive."""

    parts: tuple[str, ...]
    size: int
    is_folder: bool
    is_executable: bool


@dataclass(slots=True)
class _ExtendedHeader:
    """The name and size of an entry, if extended headers before it give them."""

    name: str | None = None
    size: int | None = None


def decompressed(archive: "BufferedReader[Any]") -> Source:
    """Return the content of an archive, whether it is compressed with gzip or not at all."""
    is_gzip = archive.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)] == GZIP_MAGIC
    return BufferedReader(Gunzip(archive), CHUNK_BYTES) if is_gzip else archive


class Tar:
    """Reads an archive from start to end; raises Invalid if it cannot be accepted."""

    def __init__(
        self,
        source: Source,
        *,
        most_bytes: int = MAX_UNPACKED_BYTES,
        most_entries: int = MAX_ENTRIES,
    ) -> None:
        self._source = source
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._headers = 0
        self._header_bytes = 0
        self._records = 0
        self._left = 0
        self._padding = 0
        self.bytes = 0
        """Total size of the files so far."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in order; unread data of an entry is skipped."""
        said = _ExtendedHeader()
        while (block := self._header()) is not None:
            kind = block[156:157]
            if kind in (PAX, LONG_NAME):
                self._hear(kind, _number(block[124:136]), said)
            elif kind == PAX_GLOBAL:
                self._check_for_all(_number(block[124:136]))
            else:
                entry = self._entry(block, kind, said)
                said = _ExtendedHeader()
                if entry.parts:
                    yield entry
                for _ in self.data():
                    pass
                self._read(self._padding)

    def data(self) -> Iterator[bytes]:
        """Yield the bytes of the current entry."""
        while self._left:
            chunk = self._take(min(self._left, CHUNK_BYTES))
            self._left -= len(chunk)
            yield chunk

    def _header(self) -> bytes | None:
        block = self._read(BLOCK_BYTES)
        if block == END_BLOCK:
            return None
        self._headers += 1
        if self._headers > self._most_entries:
            raise bundle_error(f"it has more than {self._most_entries} files and folders.")
        if _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise bundle_error("it is not a tar archive, or is damaged: a checksum is wrong.")
        return block

    def _entry(self, block: bytes, kind: bytes, said: _ExtendedHeader) -> Entry:
        name = _name(block) if said.name is None else said.name
        is_folder = kind == FOLDER or (kind == OLD_FILE and name.endswith("/"))
        if not is_folder and kind not in (FILE, OLD_FILE):
            what = UNSUPPORTED_KINDS.get(kind, "something unknown")
            raise bundle_error(
                f"{quote_name(name)} is {what}; a bundle holds files and folders only."
            )
        size = _number(block[124:136]) if said.size is None else said.size
        parts = split_name(name)
        if not is_folder and (not parts or name.endswith("/")):
            raise bundle_error(
                f"{quote_name(name)} is the name of a folder, but the entry is a file."
            )
        if is_folder:
            size = 0
        self.bytes += size
        if self.bytes > self._most_bytes:
            raise UnpackedTooLarge(self._most_bytes)
        self._left, self._padding = size, -size % BLOCK_BYTES
        return Entry(parts, size, is_folder, bool(_number(block[100:108]) & 0o100))

    def _hear(self, kind: bytes, size: int, said: _ExtendedHeader) -> None:
        """Read an extended header, which precedes the header of an entry."""
        text = self._extension(size)
        if kind == LONG_NAME:
            if said.name is not None:
                raise bundle_error("an entry has two names.")
            said.name = _decode(text.split(b"\0", 1)[0])
            return
        for key, value in self._heard(text):
            if key.startswith(b"GNU.sparse"):
                raise bundle_error(
                    "it contains a sparse file; a bundle holds plain files and folders only."
                )
            if key == b"path":
                if said.name is not None:
                    raise bundle_error("an entry has two names.")
                said.name = _decode(value)
            elif key == b"size":
                said.size = _decimal(value)

    def _check_for_all(self, size: int) -> None:
        """Skip a global header, such as one with a commit id; raises Invalid for a name or size."""
        for key, _ in self._heard(self._extension(size)):
            if key in (b"path", b"size") or key.startswith(b"GNU.sparse"):
                raise bundle_error(
                    "its global header sets a name or a size, which only one entry can have."
                )

    def _heard(self, text: bytes) -> Iterator[tuple[bytes, bytes]]:
        for record in _records(text):
            self._records += 1
            if self._records > MAX_RECORDS:
                raise bundle_error(f"its headers have more than {MAX_RECORDS} records.")
            yield record

    def _extension(self, size: int) -> bytes:
        if size > MAX_HEADER_BYTES:
            raise bundle_error(f"a header has more than {format_bytes(MAX_HEADER_BYTES)}.")
        self._header_bytes += size
        if self._header_bytes > MAX_TOTAL_HEADER_BYTES:
            raise bundle_error(
                f"its headers have more than {format_bytes(MAX_TOTAL_HEADER_BYTES)} in total."
            )
        text = self._read(size)
        self._read(-size % BLOCK_BYTES)
        return text

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._take(size - len(found))
        return found

    def _take(self, size: int) -> bytes:
        try:
            found = self._source.read(size)
        except (EOFError, zlib.error):
            raise bundle_error("it is a damaged gzip archive.") from None
        if not found:
            raise bundle_error("it is not a tar archive, or is damaged: it ends too early.")
        return found


class UnpackedTooLarge(Invalid):
    """The files of an archive exceed the limit on their total size."""

    def __init__(self, limit: int) -> None:
        super().__init__("bundle", f"its files have more than {format_bytes(limit)} in total.")


def _name(block: bytes) -> str:
    name, prefix = block[:100].split(b"\0", 1)[0], block[345:500].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return _decode(name)


def _decode(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise bundle_error(f"the name {name[:80]!r} is not UTF-8 text.") from None


def _number(field: bytes) -> int:
    """Parse a number: octal digits or, after a first byte of 0x80, a big-endian integer."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise bundle_error("it is not a tar archive, or is damaged: a number is wrong.")
    return int(digits, 8)


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 20:
        raise bundle_error("it is not a tar archive, or is damaged: a size is wrong.")
    return int(digits)


def _records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a pax header, each a line `LENGTH KEY=VALUE`."""
    at = 0
    while at < len(text):
        space = text.find(b" ", at, at + 21)
        length = _decimal(text[at:space]) if space > at else 0
        record = text[space + 1 : at + length - 1]
        key, equals, value = record.partition(b"=")
        # A record of length 0 would be read forever.
        if not (length and key and equals) or text[at + length - 1 : at + length] != b"\n":
            raise bundle_error("it is not a tar archive, or is damaged: a header cannot be parsed.")
        yield key, value
        at += length
