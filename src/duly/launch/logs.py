"""What processes say while they run: plain lines on stderr, and few of them."""

import logging
import sys

from duly import clock

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STRANGERS_CAN_CAUSE = ("uvicorn.", "asyncio", "duly.api.")
"""Loggers that write because of what is sent to a port, before anybody knows by whom."""
LINES_PER_WINDOW = 10
WINDOW_SECONDS = 60.0


def log_to_stderr(*, verbose: bool) -> None:
    """Show warnings and errors; with `verbose` also what is going well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT, "%H:%M:%S"))
    handler.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    # It shows a traceback for every try while PostgreSQL is away; we say it in a line ourselves.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


class RateLimit(logging.Filter):
    """Drops what strangers can cause once there is much of it, or they could fill the disk.

    Lines are counted by the place in the code that writes them. The first line of a later window
    says how many were left out (`left_out`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line is written."""
        if not record.name.startswith(STRANGERS_CAN_CAUSE):
            return True
        now, place = clock.monotonic(), (record.pathname, record.lineno)
        began, count = self._windows.get(place, (now, 0))
        if now - began >= WINDOW_SECONDS:
            if count > LINES_PER_WINDOW:
                record.left_out = count - LINES_PER_WINDOW
            began, count = now, 0
        self._windows[place] = began, count + 1
        return count < LINES_PER_WINDOW


class _OneLine(logging.Formatter):
    """Keeps text from elsewhere from forging lines or steering the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        more = {key: value for key, value in vars(record).items() if key not in _USUAL}
        if more:
            first, rest, trace = text.partition("\n")
            named = " ".join(f"{key}={value}" for key, value in more.items())
            text = f"{first} ({named}){rest}{trace}"
        return "".join(
            char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
        )


_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
