"""Captures what a function prints and logs, while it still appears where it would."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO


class Tee(io.TextIOBase):
    """A stream that copies what is written into a log."""

    def __init__(self, stream: TextIO, log: io.StringIO) -> None:
        self._stream = stream
        self._log = log

    def write(self, text: str) -> int:
        """Write to both."""
        self._log.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


@contextmanager
def captured_output() -> Iterator[io.StringIO]:
    """Capture stdout, stderr and the records of loggers during the block."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with redirect_stdout(Tee(sys.stdout, log)), redirect_stderr(Tee(sys.stderr, log)):
            yield log
    finally:
        root.removeHandler(handler)
