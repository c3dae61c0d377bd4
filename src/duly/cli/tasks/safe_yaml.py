"""YAML, read so that a text from anywhere can do no harm, and with the line of every value.

Values are built from the parser's events, one after the other: nothing recurses, no tag is
obeyed, what anchors repeat is counted, and a name that is there twice is refused. Words mean
what they say, as in YAML 1.2: `on` and `no` are text, and so is 06:30.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from duly.errors import Invalid

DEEPEST = 50
MOST_REPEATED = 100_000
"""Values that anchors may add to what is written out."""
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
NUMBER = re.compile(
    r"[-+]?([0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?"
    r"|[-+]?[0-9]{1,30}[eE][-+]?[0-9]{1,3}"
)
WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

Path = tuple[str | int, ...]
IsText = Callable[[Path], bool]


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: Any
    path: Path
    anchor: str | None
    key: str | None = None
    """The name whose value comes next, in a mapping."""
    names: set[str] = field(default_factory=set)
    """Those that were written out; what is merged in gives way to them."""
    size: int = 1


def read_yaml(text: str, is_text: IsText, lines: dict[Path, int] | None = None) -> Any:
    """Return the value that `text` says; raises Invalid with the line of what is wrong.

    Where `is_text`, a number stays as it was written. `lines` is filled with the line of
    every value, if it is given.
    """
    return _Builder(is_text, lines).build(_events(text))


def _events(text: str) -> Iterator[Any]:
    import yaml

    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be read"
        if mark and _character(text, mark.line, mark.column) == "\t":
            problem = "there is a tab where only spaces may be"
        raise wrong((mark.line + 1) if mark else None, f"this is not YAML: {problem}.") from None
    except yaml.YAMLError as error:
        problem = str(error).partition("\n")[0]
        raise wrong(None, f"this is not YAML: {problem}.") from None


def _character(text: str, line: int, column: int) -> str:
    """Return what is there, or nothing at the end."""
    return "".join(text.split("\n")[line : line + 1])[column : column + 1]


def wrong(line: int | None, message: str, path: str = "") -> Invalid:
    """Return the error of a file: on which line, and what is the matter."""
    return Invalid(path, message if line is None else f"line {line}: {message}")


class _Builder:
    def __init__(self, is_text: IsText, lines: dict[Path, int] | None) -> None:
        self._is_text = is_text
        self._lines = lines
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._repeated = 0
        self._documents = 0
        self._root: Any = None

    def build(self, events: Iterator[Any]) -> Any:
        for event in events:
            line = event.start_mark.line + 1
            if getattr(event, "tag", None) is not None:
                raise wrong(line, f"there is a tag, {event.tag[:60]!r}; tags mean nothing here.")
            match type(event).__name__:
                case "DocumentStartEvent":
                    self._documents += 1
                    if self._documents > 1:
                        raise wrong(line, "there is a second document; write a list of tasks.")
                case "ScalarEvent":
                    self._scalar(event, line)
                case "SequenceStartEvent":
                    self._begin([], event.anchor, line)
                case "MappingStartEvent":
                    self._begin({}, event.anchor, line)
                case "SequenceEndEvent" | "MappingEndEvent":
                    self._end(line)
                case "AliasEvent":
                    self._alias(event.anchor, line)
        return self._root

    def _begin(self, value: Any, anchor: str | None, line: int) -> None:
        if len(self._open) >= DEEPEST:
            raise wrong(line, f"it is nested more than {DEEPEST} deep.")
        path = self._next_path(line)
        self._note(path, line)
        self._open.append(_Open(value, path, anchor))

    def _end(self, line: int) -> None:
        done = self._open.pop()
        self._put(done.value, done.size, line)
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.value, done.size)

    def _scalar(self, event: Any, line: int) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            top.key = _name(event.value, top, line)
            self._note((*top.path, top.key), line)
            return
        path = self._next_path(line)
        plain = event.implicit[0]
        value = _resolve(event.value, self._is_text(path)) if plain else event.value
        self._note(path, line)
        self._put(value, 1, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            raise wrong(line, f"*{anchor[:60]} has no anchor before it.")
        value, size = self._anchors[anchor]
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            raise wrong(line, f"anchors repeat more than {MOST_REPEATED} values.")
        self._note(self._next_path(line), line)
        self._put(value, size, line)

    def _next_path(self, line: int) -> Path:
        """Return where the next value belongs; raises Invalid if a name should be there."""
        if not self._open:
            return ()
        top = self._open[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        if top.key is None:
            raise wrong(line, "a name must be a word, not a list, a mapping or an alias.")
        return (*top.path, top.key)

    def _put(self, value: Any, size: int, line: int) -> None:
        if not self._open:
            self._root = value
            return
        top = self._open[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key == "<<":
            _merge(top, value, line)
        else:
            top.value[top.key] = value
        top.key = None

    def _note(self, path: Path, line: int) -> None:
        if self._lines is not None:
            self._lines.setdefault(path, line)


def _name(text: str, top: _Open, line: int) -> str:
    if text in top.names:
        raise wrong(line, f"{text[:60]!r} is there twice.")
    top.names.add(text)
    return text


def _merge(top: _Open, value: Any, line: int) -> None:
    """Add what `<<` names, but for what is written out: also if that comes later."""
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            raise wrong(line, "<< takes a mapping, or a list of them.")
        for name, merged in one.items():
            if name not in top.names:
                top.value.setdefault(name, merged)


def _resolve(text: str, is_text: bool) -> Any:
    """Return what a plain word means."""
    if text in WORDS:
        return None
    if is_text:
        return text
    if text in TRUTHS:
        return TRUTHS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
