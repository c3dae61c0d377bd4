"""The output of calls that run side by side: what each writes to `sys.stdout` and `sys.stderr`.

A context variable tells whose output it is, in threads and coroutines alike. What C code and child
processes write cannot be told apart; it goes to the worker's own output.
"""

import io
import os
import sys
import threading
from contextvars import ContextVar
from typing import BinaryIO, TextIO, cast

from duly.agent.supervision.output import MAX_INLINE_BYTES, TRUNCATION_NOTICE

current_log: ContextVar["CallLog | None"] = ContextVar("current_log", default=None)


class CallLog:
    """The output of one call: in memory, until it is long or somebody follows it."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._room = max(0, limit - len(TRUNCATION_NOTICE))
        self._lock = threading.Lock()
        self._kept = bytearray()
        self._fd = -1
        self._size = 0
        self._is_full = self._is_over = False

    def write(self, data: bytes) -> None:
        """Add output, up to the limit; any thread may call it."""
        with self._lock:
            if self._is_full:
                return
            if self._size + len(data) > self._room:
                data = data[: self._room - self._size] + TRUNCATION_NOTICE
                self._is_full = True
            self._size += len(data)
            if self._fd >= 0:
                self._write(data)
                return
            self._kept += data
            if len(self._kept) > MAX_INLINE_BYTES:
                self._open()

    def follow(self) -> None:
        """Write to the file from now on."""
        with self._lock:
            if self._fd < 0 and not self._is_over:
                self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        self._write(self._kept)

    def _write(self, data: bytes | bytearray) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]

    def end(self) -> tuple[bytes, int, str]:
        """Return the output and its size, or the file that it is in; nothing is added any more."""
        with self._lock:
            self._is_full = self._is_over = True
            if self._fd < 0:
                return bytes(self._kept), self._size, ""
            os.close(self._fd)
            return b"", self._size, self._path


class _RoutedBytes(io.RawIOBase):
    """The `buffer` of a routed stream."""

    def __init__(self, fallback: TextIO) -> None:
        self._fallback = fallback

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        log = current_log.get()
        if log is None:
            self._fallback.buffer.write(data)
            self._fallback.flush()
        else:
            log.write(bytes(data))
        return len(data)


def route() -> None:
    """Replace `sys.stdout` and `sys.stderr`, before the application is imported."""
    for name in ("stdout", "stderr"):
        raw = _RoutedBytes(getattr(sys, name))
        text = io.TextIOWrapper(
            cast(BinaryIO, raw), encoding="utf-8", errors="replace", write_through=True
        )
        setattr(sys, name, text)
