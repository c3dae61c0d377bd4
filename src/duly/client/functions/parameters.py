"""The parameters of a function: how its arguments are bound, converted, and kept secret."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from duly.client.functions.encoding.converter import Converter
from duly.client.functions.encoding.converters import Unsupported, converter_of
from duly.errors import ArgumentError, ResultError

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Secret:
    """Marks a parameter as secret: `token: Annotated[str, duly.Secret]`.

    Its values are shown as "***" wherever the task is. They are stored and sent as they are.
    """


class Parameters:
    """The parameters of a function and the type of its result, examined at first use.

    Type hints are resolved late, because they may name what is defined after the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = inspect.unwrap(function)
        self.signature = inspect.signature(function)
        """The signature, as Python sees it."""
        self._converters: dict[str, Converter] = {}
        parameters = self.signature.parameters.values()
        self._positional = [p.name for p in parameters if p.kind in POSITIONAL]
        self._rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._extra = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Bind arguments as a call would; raises ArgumentError with Python's own words."""
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            name = self._function.__name__
            raise ArgumentError("", f"{name}() {error}.") from None

    def pair(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[int | str, str, str]]:
        """Yield the key, the parameter and the name for messages of each argument."""
        for index in range(len(args)):
            if index < len(self._positional):
                yield index, self._positional[index], self._positional[index]
            else:
                rest = self._rest or ""
                yield index, rest, f"*{rest}[{index - len(self._positional)}]"
        for keyword in kwargs:
            is_own = keyword in self.signature.parameters and keyword != self._extra
            yield keyword, keyword if is_own else (self._extra or ""), keyword

    def converter(self, parameter: str) -> Converter:
        """Return the converter of a parameter; raises ArgumentError if its type has none."""
        converter = self._converters.get(parameter)
        if converter is None:
            try:
                converter = converter_of(self._hint(parameter))
            except (Unsupported, NameError) as error:
                raise ArgumentError(parameter, unsupported(error)) from None
            self._converters[parameter] = converter
        return converter

    @cached_property
    def result(self) -> Converter:
        """Return the converter of the result; raises ResultError if its type has none."""
        try:
            return converter_of(self._hint("return"))
        except (Unsupported, NameError) as error:
            raise ResultError("return", unsupported(error)) from None

    def is_secret(self, parameter: str) -> bool:
        """Return True for a parameter that is annotated with Secret."""
        return parameter in self._secrets

    @cached_property
    def _secrets(self) -> frozenset[str]:
        return frozenset(p for p in self.signature.parameters if self._has_secret(p))

    def _has_secret(self, parameter: str) -> bool:
        try:
            hint = self._hint(parameter)
        except NameError:
            # The name is never sent: its converter is refused. Were it, it would be hidden.
            return True
        return any(mark is Secret or isinstance(mark, Secret) for mark in _marks(hint))

    def _hint(self, name: str) -> Any:
        """Return the resolved hint of a parameter, or of "return"; raises NameError."""
        annotations = getattr(self._function, "__annotations__", {})
        if name not in annotations:
            return Any
        owner = _Annotated({name: annotations[name]})
        scope = getattr(self._function, "__globals__", {})
        hint = typing.get_type_hints(owner, scope, include_extras=True)[name]
        parameter = self.signature.parameters.get(name)
        is_optional = parameter is not None and parameter.default is None
        return typing.Optional[hint] if is_optional else hint  # noqa: UP045 - built at run time


class _Annotated:
    """Something with annotations, for `typing.get_type_hints`, which resolves all or none."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def _marks(hint: Any) -> Iterator[Any]:
    yield from getattr(hint, "__metadata__", ())
    for argument in typing.get_args(hint):
        if typing.get_origin(argument) is typing.Annotated:
            yield from argument.__metadata__


def unsupported(error: Exception) -> str:
    """Describe a type hint that has no converter."""
    if isinstance(error, NameError):
        return f"its type hint cannot be resolved: {error}."
    return (
        f"its type {error} cannot be written as JSON. Use a dataclass, or pass what identifies "
        "the value, such as an id."
    )
