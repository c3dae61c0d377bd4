"""The output of a task: one pipe for both streams, stored up to a limit.

Short output stays in memory and is sent with the exit event. Longer output, and any that may be
followed, goes to a spool file that the task cannot reach. Output beyond the limit, or for which the
disk has no room, is read and dropped, so that a task neither blocks nor dies for writing too much.
"""

import fcntl
import os
from contextlib import suppress

MAX_INLINE_BYTES = 4096
"""Output up to this size needs no spool file."""
READ_BYTES = 65536
DROPPED_READ_BYTES = 2**20
"""Bytes per read, and size of the pipe, while output is dropped: a task that goes on writing rarely
waits, and costs the supervisor little."""
MAX_FINAL_DRAIN_BYTES = 2**20
"""Bytes that are still read once all processes are gone: more than any pipe holds."""
TRUNCATION_NOTICE = b"\n[duly: the output is longer than its limit; the rest was dropped]\n"
DISK_FULL_NOTICE = b"\n[duly: the disk of the node is full; the rest of the output was dropped]\n"


class Output:
    """The read end of a task's output pipe, and the output stored so far."""

    def __init__(self, fd: int, path: str, limit: int) -> None:
        self.fd = fd
        self.size = 0
        """Bytes that are stored, in memory or in the file."""
        self.notice = b""
        """Appended to the stored output if the disk was full."""
        self._path = path
        self._room = max(limit - len(TRUNCATION_NOTICE), 0)
        self._buffer = bytearray()
        self._file: int | None = None
        self.is_full = False
        """Whether further output is dropped."""

    @property
    def inline(self) -> bytes | None:
        """Return the complete output; None if it is in the file."""
        if self._file is not None:
            return None
        return bytes(self._buffer[: MAX_INLINE_BYTES - len(self.notice)] + self.notice)

    def read(self) -> bool:
        """Read available output; False at end of file, when no process can write any more."""
        try:
            data = os.read(self.fd, DROPPED_READ_BYTES if self.is_full else READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        if not self.is_full:
            if len(data) > self._room - self.size:
                data = data[: self._room - self.size] + TRUNCATION_NOTICE
                self._drop_from_now()
            self._keep(data)
        return True

    def drain(self) -> None:
        """Read the rest once every process is gone; a foreign process may hold the pipe open."""
        for _ in range(MAX_FINAL_DRAIN_BYTES // READ_BYTES):
            before = self.size
            if not self.read() or (self.size == before and not self.is_full):
                break

    def spill(self) -> None:
        """Move the output from memory to the spool file, for others to read."""
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
        with suppress(OSError):  # At its user's pipe limit: then the task waits more often.
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, DROPPED_READ_BYTES)

    def _keep(self, data: bytes) -> None:
        if self._file is None and self.size + len(data) <= MAX_INLINE_BYTES:
            self._buffer += data
            self.size += len(data)
            return
        self.spill()
        if self._file is not None:
            self._write(data)
        if self._file is None:
            self._buffer += data[:MAX_INLINE_BYTES]

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
        """Drop further output: a full disk costs the rest of the output, not the task.

        If the file holds no more than memory can, the output in memory is used instead.
        """
        self._drop_from_now()
        self.notice = DISK_FULL_NOTICE
        if self._file is not None and self.size < MAX_INLINE_BYTES:
            os.close(self._file)
            os.unlink(self._path)  # noqa: PTH108 -- the supervisor imports little
            self._file = None
