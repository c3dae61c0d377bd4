"""Where the values of a manifest are in its file: the line and column of each, by its path."""

import re
from bisect import bisect_right
from typing import NamedTuple

Path = tuple[str | int, ...]
"""The way to a value: names in mappings, indexes in lists."""
NEWLINE = re.compile(r"\n")


class Position(NamedTuple):
    """A place in a file; both numbers count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


START = Position(1, 1)
Positions = dict[Path, Position]


class FileError(Exception):
    """A mistake in a file that keeps it from being read."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class Lines:
    """The lines of a text, to turn an offset into a position."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in NEWLINE.finditer(text))]

    def position(self, offset: int) -> Position:
        """Return the position of the character at an offset."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


def nearest(positions: Positions, path: Path) -> Position:
    """Return the position of a value, or of the nearest value that contains it."""
    for end in range(len(path), -1, -1):
        if path[:end] in positions:
            return positions[path[:end]]
    return START
