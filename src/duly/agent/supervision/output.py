"""What a task writes: one pipe for both streams, kept up to a limit.

Short output stays in memory and travels with the news of the exit. Longer output,
and any that somebody may want to follow, goes to a spool file that the task cannot
reach. What comes after the limit, or does not fit on the disk, is read and dropped,
because a task must not block or die for having talked too much.
"""

import fcntl
import os
from contextlib import suppress

INLINE = 4096
"""Output up to this size needs no file."""
CHUNK = 65536
DROPPED_CHUNK = 2**20
"""How much is read and dropped at once: a task that goes on writing waits seldom, and costs us
little. It is what the pipe holds then, too."""
LAST_DRAIN = 2**20
"""How much is still read once all processes are gone: more than any pipe holds."""
NOTICE = b"\n[duly: the output is longer than its limit; the rest was dropped]\n"
DISK_FULL = b"\n[duly: the disk of the node is full; the rest of the output was dropped]\n"


class Output:
    """The reading end of a task's output."""

    def __init__(self, fd: int, path: str, limit: int) -> None:
        self.fd = fd
        self.size = 0
        """How many bytes are kept, in memory or in the file."""
        self.notice = b""
        """What is to be said after them, when the file could not hold it."""
        self._path = path
        self._room = max(limit - len(NOTICE), 0)
        self._buffer = bytearray()
        self._file: int | None = None
        self.is_full = False
        """Whether what comes now is dropped."""

    @property
    def inline(self) -> bytes | None:
        """Return all of the output if it never went to a file."""
        if self._file is not None:
            return None
        return bytes(self._buffer[: INLINE - len(self.notice)] + self.notice)

    def read(self) -> bool:
        """Take in what is there; False means that nobody can write any more."""
        try:
            data = os.read(self.fd, DROPPED_CHUNK if self.is_full else CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        if not self.is_full:
            if len(data) > self._room - self.size:
                data = data[: self._room - self.size] + NOTICE
                self._drop_from_now()
            self._keep(data)
        return True

    def drain(self) -> None:
        """Take in the rest, once every process is gone; somebody else may hold the pipe open."""
        for _ in range(LAST_DRAIN // CHUNK):
            before = self.size
            if not self.read() or (self.size == before and not self.is_full):
                break

    def spill(self) -> None:
        """Put what is in memory into the file, for others to read."""
        if self._file is not None or self.notice:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            self._give_up()
            return
        self.size = 0
        self._write(self._buffer)

    def close(self) -> None:
        """Release the pipe and the file."""
        os.close(self.fd)
        if self._file is not None:
            os.close(self._file)

    def _drop_from_now(self) -> None:
        self.is_full = True
        with suppress(OSError):  # Its user may have no more; then it waits more often.
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, DROPPED_CHUNK)

    def _keep(self, data: bytes) -> None:
        if self._file is None and self.size + len(data) <= INLINE:
            self._buffer += data
            self.size += len(data)
            return
        self.spill()
        if self._file is not None:
            self._write(data)
        if self._file is None:
            self._buffer += data[:INLINE]

    def _write(self, data: bytes | bytearray) -> None:
        assert self._file is not None  # noqa: S101
        left = memoryview(data)
        try:
            while left:
                written = os.write(self._file, left)
                self.size += written
                left = left[written:]
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        """Drop what comes from now on: a full disk costs the rest of the output, not the task.

        If the file holds no more than memory can, what is in memory is told instead.
        """
        self._drop_from_now()
        self.notice = DISK_FULL
        if self._file is not None and self.size < INLINE:
            os.close(self._file)
            os.unlink(self._path)  # noqa: PTH108 -- the supervisor imports little
            self._file = None
