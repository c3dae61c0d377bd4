"""Converters of unions: the JSON tells which member a value has, with a tag where it must."""

from collections.abc import Sequence
from typing import Any

from duly.client.functions.encoding.converter import Converter, Mismatch
from duly.client.functions.encoding.scalars import Float, Integer

TYPE_KEY = "$type"
VALUE_KEY = "value"


def union_of(members: Sequence[Converter]) -> Converter:
    """Return the converter of a union; float includes int, whose values it keeps."""
    if any(isinstance(member, Float) for member in members):
        members = [member for member in members if not isinstance(member, Integer)]
    if len(members) == 1:
        return members[0]
    kinds = [kind for member in members for kind in member.kinds]
    if len(kinds) == len(set(kinds)):
        return Union(members)
    return TaggedUnion(members)


class Union(Converter):
    """A union whose members make different kinds of JSON, such as an optional value."""

    def __init__(self, members: Sequence[Converter]) -> None:
        super().__init__(" or ".join(member.name for member in members))
        self._members = members
        self.kinds = frozenset().union(*(member.kinds for member in members))

    def to_json(self, value: Any) -> Any:
        """Return the JSON of the first member that accepts the value."""
        return self._member_json(value)[1]

    def _member_json(self, value: Any) -> tuple[int, Any]:
        problems = []
        for index, member in enumerate(self._members):
            try:
                return index, member.to_json(value)
            except Mismatch as error:
                problems.append(error)
        raise _most_specific(problems) or self.mismatch(value)

    def decode(self, json: Any) -> Any:
        """Return the value of the first member that accepts the JSON."""
        problems = []
        for member in self._members:
            try:
                return member.decode(json)
            except Mismatch as error:
                problems.append(error)
        raise _most_specific(problems) or self.mismatch(json)


class TaggedUnion(Union):
    """A union whose members make the same kinds of JSON: an object names the member."""

    def __init__(self, members: Sequence[Converter]) -> None:
        super().__init__(members)
        names = [member.name for member in members]
        self._tags = [
            name if names.count(name) == 1 else f"{name}#{index}"
            for index, name in enumerate(names)
        ]

    def to_json(self, value: Any) -> Any:
        """Return an object with the name of the member and its JSON; None is null."""
        index, json = self._member_json(value)
        return None if value is None else {TYPE_KEY: self._tags[index], VALUE_KEY: json}

    def decode(self, json: Any) -> Any:
        """Return the value; JSON without a tag, as people write it, is of the first that fits."""
        if type(json) is not dict or json.keys() != {TYPE_KEY, VALUE_KEY}:
            return super().decode(json)
        if json[TYPE_KEY] not in self._tags:
            raise Mismatch(f"{json[TYPE_KEY]!r:.60} is none of {', '.join(self._tags)}")
        return self._members[self._tags.index(json[TYPE_KEY])].decode(json[VALUE_KEY])


def _most_specific(problems: Sequence[Mismatch]) -> Mismatch | None:
    """Return the problem of the member that came furthest; None if none got beyond its type."""
    inside = [problem for problem in problems if problem.path]
    return max(inside, key=lambda problem: len(problem.path), default=None)
