"""What a converter is, and how it refuses a value."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any

RESULT_KEY = "$result"
"""The key of an object that stands for the result of an upstream task."""
MAX_SHOWN_CHARS = 60


class Kind(StrEnum):
    """The kinds of JSON values that a union can tell apart."""

    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


ANY_KIND = frozenset(Kind)


class Mismatch(Exception):
    """A value does not fit its type hint; `path` leads to the innermost one that does not."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def under(self, part: str) -> "Mismatch":
        """Return the same mismatch for a value that has this one's at `part`."""
        return Mismatch(self.problem, part + self.path)


class Reference(dict[str, str]):
    """The JSON that stands for the result of an upstream task."""

    def __init__(self, task: str) -> None:
        """Name the task by its id, or by its ref in the same graph."""
        super().__init__({RESULT_KEY: task})
        self.task = task


class ResultReference(ABC):
    """A value that stands for the result of a task: a handle, or the result of a node."""

    @abstractmethod
    def reference(self) -> Reference:
        """Return its JSON."""


class Converter(ABC):
    """Converts the values of one type to JSON and back."""

    kinds: frozenset[Kind]
    """The kinds of JSON values that it makes."""

    def __init__(self, name: str) -> None:
        self.name = name
        """What messages and unions call the type."""

    def encode(self, value: Any) -> Any:
        """Return `value` as JSON; raises Mismatch."""
        if isinstance(value, ResultReference):
            return value.reference()
        return self.to_json(value)

    @abstractmethod
    def to_json(self, value: Any) -> Any:
        """Return `value`, which is no reference, as JSON; raises Mismatch."""

    @abstractmethod
    def decode(self, json: Any) -> Any:
        """Return the value that `json` stands for; raises Mismatch."""

    def mismatch(self, value: Any) -> Mismatch:
        """Return the error for a value of another type."""
        return Mismatch(f"{describe(value)} is not {self.name}")


def describe(value: Any) -> str:
    """Return a short description of a value for messages, with its type."""
    if value is None:
        return "None"
    return f"a value of type {type(value).__qualname__}"


def convert_part(convert: Callable[[Any], Any], value: Any, part: str) -> Any:
    """Convert one part of a value; a mismatch tells where it was."""
    try:
        return convert(value)
    except Mismatch as error:
        raise error.under(part) from None
