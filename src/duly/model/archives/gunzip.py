"""Takes gzip off an archive that anybody may have made.

The library's `gzip` reads the header of each member byte by byte in Python, however long it
is, and goes through any number of empty members within one read: an archive of nothing but
those takes minutes, in which nobody can stop it. Here all of that is zlib's, and members
are counted.
"""

import zlib
from io import BufferedReader, RawIOBase
from typing import Any

from duly.model.bundle import refuse

CHUNK = 64 * 1024
MOST_MEMBERS = 100_000
"""What is packed in blocks, to be read from the middle, has one for every 64 KiB at least."""
GZIP_ONLY = 16 + zlib.MAX_WBITS


class Gunzip(RawIOBase):
    """What a gzip archive holds, forwards only; raises zlib.error or EOFError if it is damaged."""

    def __init__(self, archive: "BufferedReader[Any]") -> None:
        self._archive = archive
        self._member = zlib.decompressobj(GZIP_ONLY)
        self._members = 1
        self._rest = b""
        """What was read, and is not unpacked yet."""

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes next; 0 is the end."""
        while not self._member.eof or self._is_followed():
            data = self._rest or self._archive.read1(CHUNK)
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
        """Go on to the next member, if there is one; zeros between two are passed over."""
        self._rest = self._rest.lstrip(b"\0")
        while not self._rest:
            data = self._archive.read1(CHUNK)
            if not data:
                return False
            self._rest = data.lstrip(b"\0")
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise refuse(f"It is made of more than {MOST_MEMBERS} gzip archives.")
        self._member = zlib.decompressobj(GZIP_ONLY)
        return True
