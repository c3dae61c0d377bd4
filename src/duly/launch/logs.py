"""Logging to stderr: one line per event, escaped and rate limited."""

import logging
import sys

from duly import clock

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
UNAUTHENTICATED_LOGGERS = ("uvicorn.", "asyncio", "duly.api.")
"""Loggers that unauthenticated requests can trigger."""
AGENT_LOGGERS = "duly.agent."
MAX_LINES = 1000
"""Different lines that are remembered."""
LINES_PER_WINDOW = 10
WINDOW_SECONDS = 60.0


def log_to_stderr(*, verbose: bool) -> None:
    """Log warnings and errors to stderr; with `verbose`, also informational messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT, "%H:%M:%S"))
    handler.addFilter(RateLimit())
    handler.addFilter(RepeatLimit())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    # The pool logs a traceback per attempt while PostgreSQL is down; we log a line ourselves.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


class RateLimit(logging.Filter):
    """Limits the lines that unauthenticated requests can trigger, so they cannot fill the disk.

    Lines are counted per logging call. The first line of a later window has the number of dropped
    lines (`left_out`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the line is to be written."""
        if not record.name.startswith(UNAUTHENTICATED_LOGGERS):
            return True
        now, call_site = clock.monotonic(), (record.pathname, record.lineno)
        began, count = self._windows.get(call_site, (now, 0))
        if now - began >= WINDOW_SECONDS:
            if count > LINES_PER_WINDOW:
                record.left_out = count - LINES_PER_WINDOW
            began, count = now, 0
        self._windows[call_site] = began, count + 1
        return count < LINES_PER_WINDOW


class RepeatLimit(logging.Filter):
    """Writes what an agent says again and again, as in an outage, once a minute.

    The line that comes after the minute has how often it was left out (`repeated`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the line is to be written."""
        if not record.name.startswith(AGENT_LOGGERS) or record.exc_info:
            return True
        now, line = clock.monotonic(), f"{record.name} {record.getMessage()} {_extra(record)}"
        written_at, left_out = self._lines.get(line, (now - WINDOW_SECONDS, 0))
        if now - written_at < WINDOW_SECONDS:
            self._lines[line] = written_at, left_out + 1
            return False
        if len(self._lines) >= MAX_LINES:
            self._lines.clear()
        self._lines[line] = now, 0
        if left_out:
            record.repeated = left_out
        return True


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}


class _OneLine(logging.Formatter):
    """Escapes control characters, so that logged text cannot forge lines or drive a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if extra := _extra(record):
            first, newline, trace = text.partition("\n")
            fields = " ".join(f"{key}={value}" for key, value in extra.items())
            text = f"{first} ({fields}){newline}{trace}"
        return "".join(
            char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
        )


_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
}
