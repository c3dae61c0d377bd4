"""Converters of types with named fields: dataclasses, structs, typed dicts, pydantic models."""

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from duly.client.functions.encoding.converter import Converter, Kind, Mismatch, convert_part

ConverterOf = Callable[[Any], Converter]


class Record(Converter):
    """An object with a converter for each field; they are built at first use, so types may nest."""

    kinds = frozenset({Kind.OBJECT})

    def __init__(self, name: str, kind: type, hints: Mapping[str, Any], of: ConverterOf) -> None:
        super().__init__(name)
        self._kind = kind
        self._hints = hints
        self._of = of

    @cached_property
    def _fields(self) -> list[tuple[str, Converter]]:
        return [(field, self._of(hint)) for field, hint in self._hints.items()]

    def to_json(self, value: Any) -> Any:
        """Return an object; a value of a subclass is refused, because it would lose its type."""
        if type(value) is not self._kind:
            raise self.mismatch(value)
        return {
            field: convert_part(converter.encode, getattr(value, field), f".{field}")
            for field, converter in self._fields
        }

    def decode(self, json: Any) -> Any:
        """Return the value, made by its constructor."""
        if type(json) is not dict:
            raise self.mismatch(json)
        values = self._decode_fields(json)
        try:
            return self._kind(**values)
        except (TypeError, ValueError) as error:
            raise Mismatch(f"{self.name} refuses it: {error}") from None

    def _decode_fields(self, json: dict[str, Any]) -> dict[str, Any]:
        fields = self._fields
        if unknown := json.keys() - {field for field, _ in fields}:
            raise Mismatch(f"{self.name} has no field {min(unknown)!r:.60}")
        return {
            field: convert_part(converter.decode, json[field], f".{field}")
            for field, converter in fields
            if field in json
        }


class Dict(Record):
    """A TypedDict."""

    def __init__(
        self,
        name: str,
        hints: Mapping[str, Any],
        required: Iterable[str],
        of: ConverterOf,
    ) -> None:
        super().__init__(name, dict, hints, of)
        self._required = frozenset(required)

    def to_json(self, value: Any) -> Any:
        """Return an object with the keys that the value has."""
        if type(value) is not dict:
            raise self.mismatch(value)
        self._check(value)
        return {
            key: convert_part(converter.encode, value[key], f"[{key!r}]")
            for key, converter in self._fields
            if key in value
        }

    def _check(self, value: dict[str, Any]) -> None:
        if missing := self._required - value.keys():
            raise Mismatch(f"it has no key {min(missing)!r}")
        if unknown := value.keys() - self._hints.keys():
            raise Mismatch(f"{self.name} has no key {min(unknown, key=str)!r:.60}")

    def decode(self, json: Any) -> Any:
        """Return the dict."""
        if type(json) is not dict:
            raise self.mismatch(json)
        self._check(json)
        return self._decode_fields(json)


class Model(Converter):
    """A pydantic model, which converts and checks itself."""

    kinds = frozenset({Kind.OBJECT})

    def __init__(self, kind: Any) -> None:
        super().__init__(kind.__qualname__)
        self._kind = kind

    def to_json(self, value: Any) -> Any:
        """Return the model's own JSON."""
        if type(value) is not self._kind:
            raise self.mismatch(value)
        try:
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        except ValueError as error:  # pydantic's own errors are
            raise Mismatch(f"{self.name} refuses it: {error}") from None

    def decode(self, json: Any) -> Any:
        """Return the model, checked by itself."""
        try:
            return self._kind.model_validate(json)
        except ValueError as error:
            raise Mismatch(f"{self.name} refuses it: {error}") from None


def is_model(kind: Any) -> bool:
    """Return True for a pydantic model; pydantic is never imported for that."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_struct(kind: Any) -> bool:
    """Return True for a struct of msgspec."""
    return isinstance(kind, type) and hasattr(kind, "__struct_fields__")


def field_hints(kind: type, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return the hints of the fields of a dataclass or struct, with its parameters filled in."""
    hints = typing.get_type_hints(kind, include_extras=True)
    parameters = getattr(kind, "__parameters__", ())
    bound = dict(zip(parameters, arguments, strict=False))
    if is_struct(kind):
        names = list(kind.__struct_fields__)  # type: ignore[attr-defined]
    else:
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    return {name: _substitute(hints[name], bound) for name in names}


def _substitute(hint: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, Any)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or not bound:
        return hint
    return hint[tuple(bound.get(parameter, Any) for parameter in parameters)]
