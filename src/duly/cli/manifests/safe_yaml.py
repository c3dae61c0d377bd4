"""Parses untrusted YAML safely, and records the position of every value.

Values are built from the parser's events without recursion. Tags and repeated names are refused,
and the values that aliases add are bounded. Words are read as in YAML 1.2: `on` and `no` are
text, and so is 06:30.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from duly.cli.manifests.positions import START, FileError, Lines, Path, Position, Positions

MAX_DEPTH = 50
MAX_ALIASED_VALUES = 100_000
"""Values that aliases may add, against exponential expansion."""
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
NUMBER = re.compile(
    r"[-+]?([0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?"
    r"|[-+]?[0-9]{1,30}[eE][-+]?[0-9]{1,3}"
)
NULLS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}

IsText = Callable[[Path], bool]


@dataclass(slots=True)
class _Collection:
    """A list or mapping that is being built."""

    value: Any
    path: Path
    anchor: str | None
    key: str | None = None
    """In a mapping, the name whose value comes next."""
    names: set[str] = field(default_factory=set)
    """The names written out, which take precedence over merged ones."""
    size: int = 1


def read_yaml(text: str, is_text: IsText, positions: Positions | None = None) -> Any:
    """Parse `text`; raises FileError with the position of the mistake.

    At paths where `is_text` is true, numbers stay text as written. `positions`, if given, is filled
    with the position of every value; that of a value in a mapping is the position of its name.
    """
    return _Builder(is_text, positions).build(_events(text))


def _events(text: str) -> Iterator[Any]:
    import yaml

    if (found := yaml.reader.Reader.NON_PRINTABLE.search(text)) is not None:
        problem = f"the character {found[0]!r} is not allowed"
        raise FileError(Lines(text).position(found.start()), f"this is not YAML: {problem}.")
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be read"
        if mark and _character(text, mark.line, mark.column) == "\t":
            problem = "tabs are not allowed for indentation"
        position = START if mark is None else _position(mark)
        raise FileError(position, f"this is not YAML: {problem}.") from None
    except yaml.YAMLError as error:
        problem = str(error).partition("\n")[0]
        raise FileError(START, f"this is not YAML: {problem}.") from None


def _character(text: str, line: int, column: int) -> str:
    """Return the character at a position; empty beyond the end."""
    return "".join(text.split("\n")[line : line + 1])[column : column + 1]


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


class _Builder:
    def __init__(self, is_text: IsText, positions: Positions | None) -> None:
        self._is_text = is_text
        self._positions = positions
        self._stack: list[_Collection] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._repeated = 0
        self._documents = 0
        self._root: Any = None

    def build(self, events: Iterator[Any]) -> Any:
        for event in events:
            at = _position(event.start_mark)
            if getattr(event, "tag", None) is not None:
                raise FileError(at, f"the tag {event.tag[:60]!r} is not allowed. Remove it.")
            match type(event).__name__:
                case "DocumentStartEvent":
                    self._documents += 1
                    if self._documents > 1:
                        raise FileError(at, "only one document is allowed. Write a list of tasks.")
                case "ScalarEvent":
                    self._scalar(event, at)
                case "SequenceStartEvent":
                    self._begin([], event.anchor, at)
                case "MappingStartEvent":
                    self._begin({}, event.anchor, at)
                case "SequenceEndEvent" | "MappingEndEvent":
                    self._end(at)
                case "AliasEvent":
                    self._alias(event.anchor, at)
        return self._root

    def _begin(self, value: Any, anchor: str | None, at: Position) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise FileError(at, f"it is nested more than {MAX_DEPTH} levels deep.")
        path = self._next_path(at)
        self._note(path, at)
        self._stack.append(_Collection(value, path, anchor))

    def _end(self, at: Position) -> None:
        collection = self._stack.pop()
        self._put(collection.value, collection.size, at)
        if collection.anchor is not None:
            self._anchors[collection.anchor] = (collection.value, collection.size)

    def _scalar(self, event: Any, at: Position) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            top.key = _name(event.value, top, at)
            self._note((*top.path, top.key), at)
            return
        path = self._next_path(at)
        plain = event.implicit[0]
        value = _resolve(event.value, self._is_text(path)) if plain else event.value
        self._note(path, at)
        self._put(value, 1, at)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)

    def _alias(self, anchor: str, at: Position) -> None:
        if anchor not in self._anchors:
            raise FileError(at, f"the alias *{anchor[:60]} has no anchor before it.")
        value, size = self._anchors[anchor]
        self._repeated += size
        if self._repeated > MAX_ALIASED_VALUES:
            raise FileError(at, f"aliases add more than {MAX_ALIASED_VALUES} values.")
        self._note(self._next_path(at), at)
        self._put(value, size, at)

    def _next_path(self, at: Position) -> Path:
        """Return the path of the next value; raises FileError if a name is expected instead."""
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        if top.key is None:
            raise FileError(at, "a name must be a scalar, not a list, a mapping or an alias.")
        return (*top.path, top.key)

    def _put(self, value: Any, size: int, at: Position) -> None:
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key == "<<":
            _merge(top, value, at)
        else:
            top.value[top.key] = value
        top.key = None

    def _note(self, path: Path, at: Position) -> None:
        if self._positions is not None:
            self._positions.setdefault(path, at)


def _name(text: str, top: _Collection, at: Position) -> str:
    if text in top.names:
        raise FileError(at, f"{text[:60]!r} occurs twice. Write it once.")
    top.names.add(text)
    return text


def _merge(top: _Collection, value: Any, at: Position) -> None:
    """Merge the mappings of `<<`; names written out take precedence, even later ones."""
    for mapping in value if isinstance(value, list) else [value]:
        if not isinstance(mapping, dict):
            raise FileError(at, "<< takes a mapping or a list of mappings.")
        for name, merged in mapping.items():
            if name not in top.names:
                top.value.setdefault(name, merged)


def _resolve(text: str, is_text: bool) -> Any:
    """Return the value of a plain scalar."""
    if text in NULLS:
        return None
    if is_text:
        return text
    if text in BOOLEANS:
        return BOOLEANS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
