"""The output of one call at a time: descriptors 1 and 2 of the process, in a file.

So output of C code and of child processes is caught as well. The file is emptied between calls. A
file with more than a report carries is left for the session, and the next call gets another one.
"""

import os
import sys
from contextlib import suppress

from duly.agent.supervision.output import MAX_INLINE_BYTES, TRUNCATION_NOTICE

FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def capture_path(folder: str, process: str, serial: int) -> str:
    """Return the file that catches the output of a process after `serial` files were left."""
    return f"{folder}/{process}-{serial}.out"


class CapturedOutput:
    """Catches the output of this process from now on."""

    def __init__(self, folder: str, process: str) -> None:
        self._folder, self._process = folder, process
        self._serial = 0
        self._is_silent = False
        self._fd = -1
        self._open()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def _open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._path = capture_path(self._folder, self._process, self._serial)
        self._fd = os.open(self._path, FLAGS, 0o600)
        self._show()

    def _show(self) -> None:
        for stream in (1, 2):
            os.dup2(self._fd, stream)

    def begin(self) -> None:
        """Drop what was written since the last call."""
        _flush()
        if os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, 0)

    def silence(self) -> None:
        """Drop what is written from now on; any thread may call it."""
        self._is_silent = True
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            for stream in (1, 2):
                os.dup2(nowhere.fileno(), stream)

    def end(self, limit: int) -> tuple[bytes, int, str]:
        """Return the output of the call and its size, or the file that it is in."""
        _flush()
        size = os.fstat(self._fd).st_size
        if not size:
            return b"", 0, ""
        if size > limit or self._is_silent:
            os.ftruncate(self._fd, max(0, min(size, limit) - len(TRUNCATION_NOTICE)))
            os.write(self._fd, TRUNCATION_NOTICE)
            size = os.fstat(self._fd).st_size
        if size <= MAX_INLINE_BYTES:
            text = os.pread(self._fd, size, 0)
            os.ftruncate(self._fd, 0)
            if self._is_silent:
                self._show()
            self._is_silent = False
            return text, size, ""
        left, self._is_silent = self._path, False
        self._serial += 1
        self._open()
        return b"", size, left


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # The function may have closed it.
            stream.flush()
