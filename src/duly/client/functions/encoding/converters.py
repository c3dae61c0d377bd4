"""Chooses the converter of a type hint."""

import collections.abc
import dataclasses
import enum
import types
import typing
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from duly.client.functions.encoding.containers import (
    UNTYPED,
    Dictionary,
    FixedTuple,
    Items,
    MappingOf,
)
from duly.client.functions.encoding.converter import Converter
from duly.client.functions.encoding.records import (
    Dict,
    Model,
    Record,
    field_hints,
    is_model,
    is_struct,
)
from duly.client.functions.encoding.scalars import SCALARS, Choice, Member, Written, write_path
from duly.client.functions.encoding.unions import union_of

SEQUENCES = frozenset(
    {collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection}
)
SETS = frozenset({collections.abc.Set})
MAPPINGS = frozenset({collections.abc.Mapping, collections.abc.MutableMapping})
CHOICES = (str, int, bool, type(None))


class Unsupported(Exception):
    """A type hint whose values cannot be written as JSON; the message says which."""


def converter_of(hint: Any) -> Converter:
    """Return the converter of a type hint; raises Unsupported."""
    try:
        return _cached(hint)
    except TypeError:  # a hint that is not hashable, such as Annotated[int, []]
        return _choose(hint)


@lru_cache(maxsize=4096)
def _cached(hint: Any) -> Converter:
    return _choose(hint)


def _choose(hint: Any) -> Converter:
    if (scalar := _scalar(hint)) is not None:
        return scalar
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return UNTYPED
    if isinstance(hint, typing.NewType):
        return converter_of(hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return converter_of(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return union_of([converter_of(argument) for argument in arguments])
    if origin is typing.Literal:
        return _choice(arguments)
    if hasattr(hint, "__value__"):  # a type alias of Python 3.12
        return converter_of(hint.__value__)
    return _of_class(origin or hint, arguments)


def _scalar(hint: Any) -> Converter | None:
    try:
        return SCALARS.get(hint)
    except TypeError:
        return None


def _choice(choices: tuple[Any, ...]) -> Converter:
    for choice in choices:
        if type(choice) not in CHOICES:
            raise Unsupported(f"Literal[{choice!r}]")
    return Choice(choices)


def _of_class(kind: Any, arguments: tuple[Any, ...]) -> Converter:
    container = _container(kind, arguments)
    if container is not None:
        return container
    if not isinstance(kind, type):
        raise Unsupported(_name(kind))
    if issubclass(kind, enum.Enum):
        return Member(kind)
    if issubclass(kind, PurePath):
        return Written(kind, write_path, kind, exact=False)
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return Dict(_name(kind), hints, kind.__required_keys__, converter_of)  # type: ignore[attr-defined]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind, include_extras=True)
        items = [converter_of(hints.get(field, Any)) for field in kind._fields]
        return FixedTuple(_name(kind), kind, items, lambda values: kind(*values))
    if is_model(kind):
        return Model(kind)
    if is_struct(kind) or dataclasses.is_dataclass(kind):
        return Record(_name(kind), kind, field_hints(kind, arguments), converter_of)
    raise Unsupported(_name(kind))


def _container(kind: Any, arguments: tuple[Any, ...]) -> Converter | None:
    if kind is tuple:
        return _tuple(arguments)
    if kind in MAPPINGS or kind is dict:
        key, item = arguments or (str, Any)
        made = Dictionary if kind is dict else MappingOf
        return made("dict", converter_of(key), converter_of(item))
    if not (kind in (list, set, frozenset) or kind in SEQUENCES or kind in SETS):
        return None
    item = converter_of(arguments[0] if arguments else Any)
    if kind in SEQUENCES:
        return Items("list", item, (list, tuple), list)
    if kind in SETS:
        return Items("set", item, (set, frozenset), set, ordered=False)
    return Items(kind.__name__, item, (kind,), kind, ordered=kind is list)


def _tuple(arguments: tuple[Any, ...]) -> Converter:
    if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
        return Items("tuple", converter_of(arguments[0] if arguments else Any), (tuple,), tuple)
    items = [] if arguments == ((),) else [converter_of(argument) for argument in arguments]
    return FixedTuple("tuple", tuple, items, tuple)


def _name(kind: Any) -> str:
    return str(getattr(kind, "__qualname__", kind))
