"""What processes say while they run: plain lines on stderr, and few of them."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(*, verbose: bool) -> None:
    """Show warnings and errors; with `verbose` also what is going well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(FORMAT, "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    # It shows a traceback for every try while PostgreSQL is away; we say it in a line ourselves.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


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
