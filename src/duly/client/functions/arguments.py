"""Turns the arguments of a call into JSON text and back.

Every refusal names the argument. The text passes through Duly untouched, so numbers keep their
precision and objects the order of their keys.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duly.client.functions.encoding.converter import RESULT_KEY, Converter, Mismatch, Reference
from duly.client.functions.parameters import Parameters
from duly.errors import ArgumentError, ResultError

MAX_DEPTH = 100
"""How deeply arguments may be nested: servers and tools read JSON recursively."""


@dataclass(frozen=True, slots=True)
class EncodedArguments:
    """The arguments of one call."""

    args: list[Any]
    kwargs: dict[str, Any]
    secret: tuple[int | str, ...]
    """The positions and keywords of the secret ones."""
    upstreams: tuple[str, ...]
    """The tasks whose results are among the arguments: their ids, or refs in a graph."""

    def text(self) -> str:
        """Return the JSON of the arguments."""
        return to_text({"args": self.args, "kwargs": self.kwargs})


def encode_arguments(
    parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> EncodedArguments:
    """Bind and encode the arguments of a call; raises ArgumentError."""
    parameters.bind(args, kwargs)
    encoded_args: list[Any] = []
    encoded_kwargs: dict[str, Any] = {}
    secret: list[int | str] = []
    for key, parameter, name in parameters.pair(args, kwargs):
        value = args[key] if isinstance(key, int) else kwargs[key]
        encoded = _encode(parameters.converter(parameter), value, name)
        if isinstance(key, int):
            encoded_args.append(encoded)
        else:
            encoded_kwargs[key] = encoded
        if parameters.is_secret(parameter):
            secret.append(key)
    upstreams = _references([encoded_args, encoded_kwargs])
    return EncodedArguments(encoded_args, encoded_kwargs, tuple(secret), tuple(upstreams))


def decode_arguments(
    parameters: Parameters, text: bytes, results: Mapping[str, bytes]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call; raises ArgumentError."""
    call = _parse(text)
    if b'"$result"' in text:
        call = _replace_references(call, results)
    args, kwargs = call.get("args", []), call.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ArgumentError("args", "the arguments are not a list and an object.")
    parameters.bind(args, kwargs)
    values: dict[int | str, Any] = {}
    for key, parameter, name in parameters.pair(args, kwargs):
        value = args[key] if isinstance(key, int) else kwargs[key]
        try:
            values[key] = parameters.converter(parameter).decode(value)
        except Mismatch as error:
            raise ArgumentError(name + error.path, f"{error.problem}.") from None
    return (
        [value for key, value in values.items() if isinstance(key, int)],
        {key: value for key, value in values.items() if isinstance(key, str)},
    )


def encode_result(converter: Converter, value: Any) -> bytes:
    """Return the JSON of what a function returned; raises ResultError."""
    try:
        return to_text(converter.encode(value)).encode()
    except Mismatch as error:
        raise ResultError(f"return{error.path}", f"{error.problem}.") from None
    except (RecursionError, ValueError) as error:
        raise ResultError("return", f"it cannot be written as JSON: {error}.") from None


def decode_result(converter: Converter, value: Any) -> Any:
    """Return the result that parsed JSON stands for; raises ResultError."""
    try:
        return converter.decode(value)
    except Mismatch as error:
        raise ResultError(f"return{error.path}", f"{error.problem}.") from None


def to_text(value: Any) -> str:
    """Return JSON text, in ASCII and without spaces."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _encode(converter: Converter, value: Any, name: str) -> Any:
    try:
        encoded = converter.encode(value)
        if isinstance(encoded, (list, dict)):
            to_text(encoded)
            _check_depth(encoded, name)
        return encoded
    except Mismatch as error:
        raise ArgumentError(name + error.path, f"{error.problem}.") from None
    except RecursionError:
        raise ArgumentError(name, "it contains itself, or is nested too deeply.") from None
    except ValueError as error:
        raise ArgumentError(name, f"it cannot be written as JSON: {error}.") from None


def _check_depth(value: Any, name: str) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for item in level
            for part in (item.values() if isinstance(item, dict) else item)
            if isinstance(part, (list, dict))
        ]
        if not level:
            return
    raise ArgumentError(name, f"it is nested more than {MAX_DEPTH} deep.")


def _references(value: Any) -> Iterator[str]:
    """Yield the upstream tasks in encoded arguments, each once."""
    seen: dict[str, None] = {}
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, Reference):
            seen.setdefault(part.task)
        elif isinstance(part, dict):
            if RESULT_KEY in part:
                raise ArgumentError("", f"the key {RESULT_KEY!r} is reserved.")
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
    return iter(seen)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError("args", f"the arguments are not JSON: {error}.") from None
    if not isinstance(call, dict):
        raise ArgumentError("args", "the arguments are not an object with args and kwargs.")
    return call


def _replace_references(value: Any, results: Mapping[str, bytes]) -> Any:
    if isinstance(value, list):
        return [_replace_references(part, results) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {RESULT_KEY}:
        return {key: _replace_references(part, results) for key, part in value.items()}
    # An upstream that failed, where the task runs nevertheless, or that left no result.
    return json.loads(results.get(value[RESULT_KEY], b"null"))
