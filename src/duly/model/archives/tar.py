"""Reads tar archives that anybody may have made: files and folders, and nothing else.

The library's `tarfile` reads more than we want, and holds what an archive calls a header in
memory, however long; its patterns and its recursion can be made to take hours. This reader
knows the three ways in which tar writes a name (ustar, pax, GNU), reads forwards only, and
holds a header of limited length at most.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Protocol

from duly.errors import Invalid
from duly.model.bundle import MOST_BYTES, MOST_ENTRIES, refuse, say, split_name
from duly.model.gunzip import Gunzip

BLOCK = 512
CHUNK = 64 * 1024
LONGEST_HEADER = 64 * 1024
"""Bytes of a header that goes before an entry, with its name or its attributes."""
MOST_HEADER_BYTES = 64 * 1024**2
MOST_RECORDS = 10 * MOST_ENTRIES
"""In all of these together: they are gone through in Python, and compress to nothing."""
END = bytes(BLOCK)
GZIP = b"\x1f\x8b"
FILE, OLD_FILE, FOLDER = b"0", b"\0", b"5"
PAX, PAX_FOR_ALL, LONG_NAME = b"x", b"g", b"L"
KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"K": "a link",
    b"S": "a sparse file",
}


class Source(Protocol):
    """Where the bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, and none at the end only."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder of an archive."""

    parts: tuple[str, ...]
    size: int
    is_folder: bool
    is_executable: bool


@dataclass(slots=True)
class _Said:
    """What headers before that of an entry have said of it."""

    name: str | None = None
    size: int | None = None


def plain(archive: "BufferedReader[Any]") -> Source:
    """Return what an archive holds, whether it is compressed with gzip or not at all."""
    is_gzip = archive.peek(len(GZIP))[: len(GZIP)] == GZIP
    return BufferedReader(Gunzip(archive), CHUNK) if is_gzip else archive


class Tar:
    """An archive, from its beginning to its end; raises Invalid for what cannot be accepted."""

    def __init__(
        self, source: Source, *, most_bytes: int = MOST_BYTES, most_entries: int = MOST_ENTRIES
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
        """Of the files so far."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in their order; what was not read of one is passed over."""
        said = _Said()
        while (block := self._header()) is not None:
            kind = block[156:157]
            if kind in (PAX, LONG_NAME):
                self._hear(kind, _number(block[124:136]), said)
            elif kind == PAX_FOR_ALL:
                self._check_for_all(_number(block[124:136]))
            else:
                entry = self._entry(block, kind, said)
                said = _Said()
                if entry.parts:
                    yield entry
                for _ in self.data():
                    pass
                self._read(self._padding)

    def data(self) -> Iterator[bytes]:
        """Yield the bytes of the entry that came last."""
        while self._left:
            chunk = self._take(min(self._left, CHUNK))
            self._left -= len(chunk)
            yield chunk

    def _header(self) -> bytes | None:
        block = self._read(BLOCK)
        if block == END:
            return None
        self._headers += 1
        if self._headers > self._most_entries:
            raise refuse(f"It has more than {self._most_entries} entries.")
        if _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise refuse("It is not a tar archive, or a damaged one: a checksum is wrong.")
        return block

    def _entry(self, block: bytes, kind: bytes, said: _Said) -> Entry:
        name = _name(block) if said.name is None else said.name
        is_folder = kind == FOLDER or (kind == OLD_FILE and name.endswith("/"))
        if not is_folder and kind not in (FILE, OLD_FILE):
            what = KINDS.get(kind, "something unknown")
            raise refuse(f"{say(name)} is {what}; a bundle holds files and folders only.")
        size = _number(block[124:136]) if said.size is None else said.size
        parts = split_name(name)
        if not is_folder and (not parts or name.endswith("/")):
            raise refuse(f"{say(name)} is the name of a folder, and not of a file.")
        if is_folder:
            size = 0
        self.bytes += size
        if self.bytes > self._most_bytes:
            raise TooMuch(self._most_bytes)
        self._left, self._padding = size, -size % BLOCK
        return Entry(parts, size, is_folder, bool(_number(block[100:108]) & 0o100))

    def _hear(self, kind: bytes, size: int, said: _Said) -> None:
        """Take in a header that goes before that of an entry."""
        text = self._extension(size)
        if kind == LONG_NAME:
            if said.name is not None:
                raise refuse("It gives an entry two names.")
            said.name = _decode(text.split(b"\0", 1)[0])
            return
        for key, value in self._heard(text):
            if key.startswith(b"GNU.sparse"):
                raise refuse("It holds a sparse file; a bundle holds plain ones only.")
            if key == b"path":
                if said.name is not None:
                    raise refuse("It gives an entry two names.")
                said.name = _decode(value)
            elif key == b"size":
                said.size = _decimal(value)

    def _check_for_all(self, size: int) -> None:
        """Pass over what is said of all entries, such as the commit that they are from."""
        for key, _ in self._heard(self._extension(size)):
            if key in (b"path", b"size") or key.startswith(b"GNU.sparse"):
                raise refuse("It says of all its entries what can be true of one only.")

    def _heard(self, text: bytes) -> Iterator[tuple[bytes, bytes]]:
        for record in _records(text):
            self._records += 1
            if self._records > MOST_RECORDS:
                raise refuse(f"It says more than {MOST_RECORDS} things of its entries.")
            yield record

    def _extension(self, size: int) -> bytes:
        if size > LONGEST_HEADER:
            raise refuse(f"It has a header of more than {LONGEST_HEADER} bytes.")
        self._header_bytes += size
        if self._header_bytes > MOST_HEADER_BYTES:
            raise refuse(f"It has headers of more than {MOST_HEADER_BYTES} bytes together.")
        text = self._read(size)
        self._read(-size % BLOCK)
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
            raise refuse("It is a damaged gzip archive.") from None
        if not found:
            raise refuse("It is not a tar archive, or a damaged one: it ends too early.")
        return found


class TooMuch(Invalid):
    """The files of an archive have more bytes together than they may have."""

    def __init__(self, limit: int) -> None:
        super().__init__("bundle", f"Its files have more than {limit} bytes together.")


def _name(block: bytes) -> str:
    name, prefix = block[:100].split(b"\0", 1)[0], block[345:500].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return _decode(name)


def _decode(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise refuse(f"The name {name[:80]!r} is not a text in UTF-8.") from None


def _number(field: bytes) -> int:
    """Read a number: octal digits, or, after a first bit, the bytes themselves."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise refuse("It is not a tar archive, or a damaged one: a number is wrong.")
    return int(digits, 8)


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 20:
        raise refuse("It is not a tar archive, or a damaged one: a size is wrong.")
    return int(digits)


def _records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a pax header says: `LENGTH KEY=VALUE` and the end of the line, one by one."""
    at = 0
    while at < len(text):
        space = text.find(b" ", at, at + 21)
        length = _decimal(text[at:space]) if space > at else 0
        record = text[space + 1 : at + length - 1]
        key, equals, value = record.partition(b"=")
        # One without a length would be followed by itself.
        if not (length and key and equals) or text[at + length - 1 : at + length] != b"\n":
            raise refuse("It is not a tar archive, or a damaged one: a header makes no sense.")
        yield key, value
        at += length
