"""Finds the line of a key in a TOML file, for messages about values that parse but make no sense.

`tomllib` tells positions only of syntax errors. This looks at tables and keys at the start of
lines; a key within an inline table or a multi-line array is on the line of its parent.
"""

import re
from collections import Counter

Path = tuple[str | int, ...]
"""Keys, and positions in arrays of tables: ("tenants", 0, "arrivals", 1, "rate")."""

TABLE = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
TABLE_OF_ARRAY = re.compile(r"^\s*\[\[([^\[\]]+)\]\]\s*(?:#.*)?$")
KEY = re.compile(
    r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def key_lines(text: str) -> dict[Path, int]:
    """Return the line of each table and key, from 1; the text must be valid TOML."""
    lines: dict[Path, int] = {(): 1}
    counts: Counter[Path] = Counter()
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := TABLE_OF_ARRAY.match(line):
            array = _resolve(_parts(match[1]), counts)
            table = (*array, counts[array])
            counts[array] += 1
            lines.setdefault(array, number)
            lines[table] = number
        elif match := TABLE.match(line):
            table = _resolve(_parts(match[1]), counts)
            lines[table] = number
        elif match := KEY.match(line):
            lines.setdefault((*table, *_parts(match[1])), number)
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of a key, or of the nearest table or key that contains it."""
    while path not in lines:
        path = path[:-1]
    return lines[path]


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _resolve(parts: tuple[str, ...], counts: Counter[Path]) -> Path:
    """Return the path of a table: a name of an array of tables before it means its last one."""
    path: Path = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if position < len(parts) - 1 and counts[path]:
            path = (*path, counts[path] - 1)
    return path
