"""Describes the JSON of a type field by field, so that two types can be compared."""

import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import Enum
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

Shape = dict[str, set[str]]
ABSENT = "absent"
"""Beside what a field may be, if it may also be left out."""
KINDS: dict[Any, str] = {
    None: "null",
    types.NoneType: "null",
    Any: "any",
    msgspec.Raw: "any",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    datetime: "string",
    date: "string",
    timedelta: "string",
}


def json_shape(kind: Any, *, defaults_are_sent: bool = False) -> Shape:
    """Return what may stand at every place of a value: `.name`, `[]` in a list, `{}` in a mapping.

    What a server answers holds every field of its structs: `defaults_are_sent`.
    """
    found: Shape = {}
    _describe(kind, "", found, defaults_are_sent)
    return found


def typed_dicts(kind: Any) -> set[Any]:
    """Return the TypedDicts that `kind` consists of, by all of their names."""
    whole = get_origin(kind) or kind
    parts = [*get_args(kind)]
    found = set()
    if is_typeddict(whole):
        found = {whole}
        parts += get_type_hints(whole).values()
    return found.union(*map(typed_dicts, parts))


def _describe(kind: Any, path: str, found: Shape, sent: bool) -> None:
    here = found.setdefault(path, set())
    for one in alternatives(kind):
        origin, args = get_origin(one) or one, get_args(one)
        if one is msgspec.UnsetType:
            here.add(ABSENT)
        elif origin is Literal:
            here |= {KINDS[type(value)] for value in args}
        elif origin in (dict, Mapping):
            here.add("object")
            _describe(args[1], f"{path}{{}}", found, sent)
        elif origin in (list, Iterable, Sequence):
            here.add("array")
            _describe(args[0], f"{path}[]", found, sent)
        elif is_typeddict(origin) or (
            isinstance(origin, type) and issubclass(origin, msgspec.Struct)
        ):
            here.add("object")
            for name, field, optional in _fields(one):
                _describe(field, f"{path}.{name}", found, sent)
                if optional and not (sent and not is_typeddict(origin)):
                    found[f"{path}.{name}"].add(ABSENT)
        elif isinstance(origin, type) and issubclass(origin, Enum):
            here.add("string")
        else:
            here.add(KINDS[one])


def alternatives(kind: Any) -> list[Any]:
    """Return the members of a union, or a type alone."""
    if get_origin(kind) in (Union, types.UnionType):
        return [each for one in get_args(kind) for each in alternatives(one)]
    if get_origin(kind) in (Required, NotRequired):
        return alternatives(get_args(kind)[0])
    return [kind]


def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Return name, type and whether it may be left out, of a TypedDict or a struct."""
    origin = get_origin(kind) or kind
    if not is_typeddict(origin):
        fields = msgspec.structs.fields(kind)
        return [(field.encode_name, field.type, not field.required) for field in fields]
    given = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=True))
    return [
        (name, _fill(hint, given), name in origin.__optional_keys__)
        for name, hint in get_type_hints(origin).items()
    ]


def _fill(hint: Any, given: Mapping[TypeVar, Any]) -> Any:
    """Return `hint` with the arguments of a generic type in place of its parameters."""
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given[one] for one in parameters)] if parameters else hint
