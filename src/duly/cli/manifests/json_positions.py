"""Finds the position of every value in JSON, which Python's own parser does not tell."""

import json
import re
from dataclasses import dataclass, field

from duly.cli.manifests.positions import FileError, Lines, Path, Positions

LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(slots=True)
class _Open:
    """A list or an object whose end is still to come."""

    path: Path
    is_object: bool
    index: int = 0
    name: str | None = None
    """In an object, the name whose value comes next."""
    names: set[str] = field(default_factory=set)

    @property
    def next_path(self) -> Path:
        """The path of the value that comes next."""
        return (*self.path, self.name or "") if self.is_object else (*self.path, self.index)


def find_positions(text: str) -> Positions:
    """Return the positions of all values of valid JSON; raises FileError for a repeated name.

    That of a value in an object is the position of its name.
    """
    positions: Positions = {}
    lines, stack = Lines(text), list[_Open]()
    for found in LEXEME.finditer(text):
        at, top = lines.position(found.start()), stack[-1] if stack else None
        match found[0], top:
            case ":", _:
                pass
            case (("]" | "}"), _):
                stack.pop()
            case ",", _Open():
                top.index, top.name = top.index + 1, None
            case quoted, _Open(is_object=True, name=None):
                top.name = str(json.loads(quoted))
                if top.name in top.names:
                    raise FileError(at, f"{top.name[:60]!r} occurs twice. Write it once.")
                top.names.add(top.name)
                positions[top.next_path] = at
            case begin, _:
                path = () if top is None else top.next_path
                positions.setdefault(path, at)
                if begin in ("[", "{"):
                    stack.append(_Open(path, is_object=begin == "{"))
    return positions
