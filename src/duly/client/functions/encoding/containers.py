"""Converters of containers, and of values without a type hint."""

import json as json_text
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duly.client.functions.encoding.converter import (
    ANY_KIND,
    RESULT_KEY,
    Converter,
    Kind,
    Mismatch,
    convert_part,
    describe,
)
from duly.client.functions.encoding.scalars import Text


class Untyped(Converter):
    """A value without a type hint: only what JSON has itself, because nothing could restore it."""

    kinds = ANY_KIND

    def to_json(self, value: Any) -> Any:
        """Return the value if it is JSON as it is."""
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is int:
            return TEXT.to_json(value) if kind is str else value
        if kind is float:
            if not math.isfinite(value):
                raise Mismatch(f"{value} is not a number of JSON")
            return value
        if kind is list:
            return [convert_part(self.encode, item, f"[{i}]") for i, item in enumerate(value)]
        if kind is dict:
            return {
                check_key(key): convert_part(self.encode, item, f"[{key!r}]")
                for key, item in value.items()
            }
        raise Mismatch(f"{describe(value)} cannot be restored without a type hint. Annotate it")

    def decode(self, json: Any) -> Any:
        """Return the value as it is."""
        return json


class Items(Converter):
    """A list, tuple or set of any length, as an array."""

    kinds = frozenset({Kind.ARRAY})

    def __init__(
        self,
        name: str,
        item: Converter,
        accepted: tuple[type, ...],
        build: Callable[[Any], Any],
        *,
        ordered: bool = True,
    ) -> None:
        super().__init__(name)
        self._item = item
        self._accepted = accepted
        self._build = build
        self._is_ordered = ordered

    def to_json(self, value: Any) -> Any:
        """Return an array; that of a set is sorted, so that equal sets make equal requests."""
        if type(value) not in self._accepted:
            raise self.mismatch(value)
        encode = self._item.encode
        items = [convert_part(encode, item, f"[{i}]") for i, item in enumerate(value)]
        return items if self._is_ordered else sorted(items, key=json_text.dumps)

    def decode(self, json: Any) -> Any:
        """Return the container."""
        if type(json) is not list:
            raise self.mismatch(json)
        decode = self._item.decode
        return self._build([convert_part(decode, item, f"[{i}]") for i, item in enumerate(json)])


class FixedTuple(Converter):
    """A tuple with a type for each place, or a named tuple."""

    kinds = frozenset({Kind.ARRAY})

    def __init__(
        self, name: str, kind: type, items: Sequence[Converter], build: Callable[[Any], Any]
    ) -> None:
        super().__init__(name)
        self._kind = kind
        self._items = items
        self._build = build

    def to_json(self, value: Any) -> Any:
        """Return an array of the same length."""
        if type(value) is not self._kind:
            raise self.mismatch(value)
        return self._convert([item.encode for item in self._items], value)

    def decode(self, json: Any) -> Any:
        """Return the tuple."""
        if type(json) is not list:
            raise self.mismatch(json)
        return self._build(self._convert([item.decode for item in self._items], json))

    def _convert(self, converters: list[Callable[[Any], Any]], value: Any) -> list[Any]:
        if len(value) != len(converters):
            raise Mismatch(f"it has {len(value)} items; {self.name} has {len(converters)}")
        pairs = zip(converters, value, strict=True)
        return [convert_part(convert, item, f"[{i}]") for i, (convert, item) in enumerate(pairs)]


class Dictionary(Converter):
    """A dict: an object if its keys are text, otherwise an array of pairs."""

    def __init__(self, name: str, key: Converter, item: Converter) -> None:
        super().__init__(name)
        self._key = key
        self._item = item
        self._is_object = key.kinds == {Kind.STRING}
        self.kinds = frozenset({Kind.OBJECT if self._is_object else Kind.ARRAY})

    def to_json(self, value: Any) -> Any:
        """Return an object or an array of pairs."""
        if type(value) is not dict:
            raise self.mismatch(value)
        pairs = [
            (
                convert_part(self._key.to_json, key, f"[{key!r}]"),
                convert_part(self._item.encode, item, f"[{key!r}]"),
            )
            for key, item in value.items()
        ]
        if not self._is_object:
            return [list(pair) for pair in pairs]
        return {check_key(key): item for key, item in pairs}

    def decode(self, json: Any) -> Any:
        """Return the dict."""
        if self._is_object:
            if type(json) is not dict:
                raise self.mismatch(json)
            pairs: Any = json.items()
        else:
            if type(json) is not list or any(type(p) is not list or len(p) != 2 for p in json):
                raise self.mismatch(json)
            pairs = json
        return {
            convert_part(self._key.decode, key, f"[{key!r}]"): convert_part(
                self._item.decode, item, f"[{key!r}]"
            )
            for key, item in pairs
        }


class MappingOf(Dictionary):
    """A mapping of any type, which comes back as a dict."""

    def to_json(self, value: Any) -> Any:
        """Return an object or an array of pairs."""
        if not isinstance(value, Mapping):
            raise self.mismatch(value)
        return super().to_json(dict(value))


def check_key(key: Any) -> Any:
    """Return the key of an object; raises Mismatch if it is no text, or is reserved."""
    if type(key) is not str:
        raise Mismatch(f"the key {key!r:.60} is not text; annotate the dict with the type of keys")
    if key == RESULT_KEY:
        raise Mismatch(f"the key {RESULT_KEY!r} is reserved for results of other tasks")
    return TEXT.to_json(key)


TEXT = Text("str")
UNTYPED = Untyped("JSON")
