"""Decompresses gzip archives from untrusted sources.

The standard library's `gzip` parses the header of each member byte by byte in Python, however long
it is, and skips any number of empty members within one read: an archive of nothing but empty
members takes minutes, during which it cannot be stopped. Here zlib parses the headers, and members
are counted.
"""

import zlib
from io import BufferedReader, RawIOBase
from typing import Any

from duly.model.archives.bundle import bundle_error

READ_BYTES = 64 * 1024
MAX_MEMBERS = 100_000
"""Archives compressed in blocks, for random access, have at least one member per 64 KiB."""
GZIP_ONLY = 16 + zlib.MAX_WBITS


class Gunzip(RawIOBase):
    """Decompresses an archive, forwards only; raises zlib.error or EOFError if it is damaged."""

    def __init__(self, archive: "BufferedReader[Any]") -> None:
        self._archive = archive
        self._member = zlib.decompressobj(GZIP_ONLY)
        self._members = 1
        self._rest = b""
        """Bytes that were read but not decompressed yet."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into `buffer`, and return their number; 0 is the end."""
        while not self._member.eof or self._is_followed():
            data = self._rest or self._archive.read1(READ_BYTES)
            found = self._member.decompress(data, len(buffer))
            ended = self._member.eof
            self._rest = self._member.unused_data if ended else self._member.unconsumed_tail
            if found:
                buffer[: len(found)] = found
                return len(found)
            if not data and not ended:
                raise EOFError
        return 0

    def _is_followed(self) -> bool:
        """Advance to the next member, if there is one; zero bytes between members are skipped."""
        self._rest = self._rest.lstrip(b"\0")
        while not self._rest:
            data = self._archive.read1(READ_BYTES)
            if not data:
                return False
            self._rest = data.lstrip(b"\0")
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise bundle_error(f"it consists of more than {MAX_MEMBERS} gzip archives.")
        self._member = zlib.decompressobj(GZIP_ONLY)
        return True
