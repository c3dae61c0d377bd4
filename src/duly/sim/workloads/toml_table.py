"""Reads tables of a workload file; every complaint names the file, the line and the key."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path as FilePath
from typing import Any, NoReturn, TypeVar, get_type_hints

import msgspec

from duly.duration import parse_duration
from duly.errors import ConfigError, Invalid
from duly.sim.workloads.toml_lines import Path, line_of

S = TypeVar("S", bound=msgspec.Struct)


class Table:
    """A table of the file, and where it is."""

    def __init__(
        self, values: Mapping[str, Any], path: Path, file: FilePath, lines: dict[Path, int]
    ) -> None:
        self._values = values
        self._path = path
        self._file = file
        self._lines = lines

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def keys(self) -> Sequence[str]:
        """Return the keys that are there."""
        return list(self._values)

    def refuse(self, key: str | None, message: str) -> NoReturn:
        """Raise an error about a key, or about the table."""
        path = self._path if key is None else (*self._path, key)
        raise ConfigError(f"{self._file}, line {line_of(self._lines, path)}: {message}")

    def check_keys(self, known: Sequence[str], what: str) -> None:
        """Refuse keys that do not exist."""
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
                self.refuse(key, f"There is no {key!r} in {what}; {hint}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._get(key, default)
        if not isinstance(value, str) or not value:
            self.refuse(key, f"{key} must be text, not {value!r}.")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 0) -> int:
        """Return a whole number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.refuse(key, f"{key} must be a whole number of at least {least}, not {value!r}.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, f"{key} must be a number, not {value!r}.")
        return float(value)

    def seconds(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return a duration in seconds."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.refuse(key, f'{key} is a duration; write it like "15s".')
        try:
            seconds = parse_duration(value, key).total_seconds()
        except Invalid as error:
            self.refuse(key, error.message)
        if positive and not seconds:
            self.refuse(key, f"{key} must be above 0.")
        return seconds

    def strings(self, key: str) -> dict[str, str]:
        """Return a table of strings, empty if there is none."""
        value = self._values.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            self.refuse(key, f'{key} is a table of texts, as in {{ zone = "a" }}.')
        return value

    def choice(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        """Return one of a few words."""
        value = self.text(key, default)
        if value not in known:
            near = difflib.get_close_matches(value, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
            self.refuse(key, f"There is no {key} {value!r}; {hint}")
        return value

    def table(self, key: str) -> "Table":
        """Return a table in this one; an empty one if it is not there."""
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            self.refuse(key, f"{key} is a table.")
        return Table(value, (*self._path, key), self._file, self._lines)

    def tables(self, key: str) -> Iterator["Table"]:
        """Yield the tables of an array."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.refuse(key, f"{key} is an array of tables; write [[{key}]] before each.")
        for number, each in enumerate(value):
            yield Table(each, (*self._path, key, number), self._file, self._lines)

    def settings(self, key: str, kind: type[S]) -> S:
        """Return a section of the servers' settings."""
        table = self.table(key)
        hints = get_type_hints(kind)
        table.check_keys(list(hints), f"[{key}]")
        return kind(
            **{
                name: timedelta(seconds=table.seconds(name))
                if hints[name] is timedelta
                else table.whole(name)
                for name in table.keys
            }
        )

    def value(self, key: str) -> Any:
        """Return a value as it is."""
        return self._get(key, None)

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if value is None:
            self.refuse(None, f"{key} is missing.")
        return value
