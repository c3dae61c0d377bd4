"""Which calls of a process have begun, in memory that it shares with the session.

A call is marked before its function's first instruction, without a system call. So when a process
has died, the session knows for certain what it had begun, and what it can give to another process.
"""

import mmap
import os
import struct

RING_CALLS = 1024
"""More calls than a process is ever given at a time."""
NUMBER, TIME = struct.Struct("<Q"), struct.Struct("<d")
ENTRY_BYTES = NUMBER.size + TIME.size


class BegunRing:
    """A ring with the number and the start of the last calls, in a file that both ends map."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(fd, (RING_CALLS + 1) * ENTRY_BYTES)
            self._memory = mmap.mmap(fd, (RING_CALLS + 1) * ENTRY_BYTES)
        finally:
            os.close(fd)

    def mark(self, number: int, at: float) -> None:
        """Record that a call begins."""
        offset = (number % RING_CALLS + 1) * ENTRY_BYTES
        NUMBER.pack_into(self._memory, 0, number)
        TIME.pack_into(self._memory, offset + NUMBER.size, at)
        NUMBER.pack_into(self._memory, offset, number)

    def begun_at(self, number: int) -> float | None:
        """Return when a call began; None if it has not."""
        offset = (number % RING_CALLS + 1) * ENTRY_BYTES
        if NUMBER.unpack_from(self._memory, offset)[0] != number:
            return None
        at: float = TIME.unpack_from(self._memory, offset + NUMBER.size)[0]
        return at

    def latest(self) -> int:
        """Return the number of the call that has begun last."""
        number: int = NUMBER.unpack_from(self._memory, 0)[0]
        return number

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
