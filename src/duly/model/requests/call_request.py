"""The part of a request that calls a function of a worker, and its completion into a `Call`.

Arguments are passed through as JSON text: numbers keep every digit, and nothing but the worker
gives them types.
"""

from typing import Any

import msgspec

from duly.errors import Invalid, Malformed
from duly.model.requests.amounts import ResourcesRequest
from duly.model.requests.texts import bounded_text, check_text
from duly.model.task import Call

MAX_FUNCTION_CHARS = 200
MAX_ARGUMENTS = 10_000
MAX_ARGUMENT_DEPTH = 100
"""Lists and objects within each other: workers need not be able to read what is deeper."""
MAX_SECRETS = 100
HIDDEN_JSON = msgspec.Raw(b'"***"')


class CallRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A function of a worker, and its arguments as JSON; with an artifact, that has them."""

    function: str
    args: list[msgspec.Raw] | None = None
    kwargs: dict[str, msgspec.Raw] | None = None
    secret: list[str | int] | None = None
    """The names or positions of arguments that no answer shows."""


class Arguments(msgspec.Struct):
    """The arguments of a call; each is JSON text."""

    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


ARGUMENTS_DECODER = msgspec.json.Decoder(Arguments)
JSON_DECODER = msgspec.json.Decoder()


def check_call(request: CallRequest, *, has_artifact: bool) -> None:
    """Raise Invalid unless the function and its arguments can be stored and read by a worker."""
    bounded_text(request.function, "call.function", MAX_FUNCTION_CHARS)
    if has_artifact and (request.args is not None or request.kwargs is not None):
        field = "args" if request.args is not None else "kwargs"
        raise Invalid(
            f"call.{field}", "the artifact has the arguments. Leave out either of the two."
        )
    count = len(request.args or ()) + len(request.kwargs or ())
    if count > MAX_ARGUMENTS:
        raise Invalid("call", f"it has {count} arguments; at most {MAX_ARGUMENTS} are allowed.")
    for position, argument in enumerate(request.args or ()):
        _check_argument(argument, f"call.args[{position}]")
    for name, argument in (request.kwargs or {}).items():
        _check_argument(argument, f"call.kwargs.{check_text(name, 'call.kwargs')[:60]}")
    if len(request.secret or ()) > MAX_SECRETS:
        raise Invalid("call.secret", f"it is too long; at most {MAX_SECRETS} are allowed.")
    for secret in request.secret or ():
        if isinstance(secret, str):
            bounded_text(secret, "call.secret", MAX_FUNCTION_CHARS)
        elif not 0 <= secret < MAX_ARGUMENTS:
            raise Invalid("call.secret", f"{secret} is not a position. Count from 0.")


def check_call_resources(asked: ResourcesRequest | None) -> None:
    """Raise Invalid if a call asks for anything but memory: its worker holds the rest."""
    if asked is None:
        return
    for field, value in msgspec.structs.asdict(asked).items():
        if field not in ("memory", "memory_mb") and value:
            raise Invalid(
                f"resources.{field}",
                "a call takes one slot of its worker, whatever that has. Leave it out.",
            )


def complete_call(request: CallRequest, memory_mb: int) -> Call:
    """Return a checked call as it is stored."""
    arguments = ""
    if request.args is not None or request.kwargs is not None:
        arguments = _encode(Arguments(request.args or [], request.kwargs or {}))
    return Call(
        function=request.function,
        arguments=arguments,
        secret=tuple(request.secret or ()),
        memory_mb=memory_mb,
    )


def call_as_request(call: Call, *, redacted: bool = False) -> CallRequest:
    """Return a stored call as requested; `redacted` is for answers, and hides what is secret."""
    request = CallRequest(function=call.function, secret=list(call.secret) or None)
    if call.arguments:
        given = ARGUMENTS_DECODER.decode(call.arguments)
        request.args, request.kwargs = given.args, given.kwargs
    return _redact(request) if redacted else request


def call_as_fields(call: CallRequest) -> dict[str, Any]:
    """Return a call as a schedule stores it: each argument as text, so that it keeps its digits."""
    return {
        "function": call.function,
        "args": None if call.args is None else [bytes(value).decode() for value in call.args],
        "kwargs": None
        if call.kwargs is None
        else {name: bytes(value).decode() for name, value in call.kwargs.items()},
        "secret": call.secret,
    }


def call_of_fields(fields: dict[str, Any], *, redacted: bool = False) -> CallRequest:
    """Return a call that a schedule has stored."""
    args, kwargs = fields.get("args"), fields.get("kwargs")
    request = CallRequest(
        function=fields["function"],
        args=None if args is None else [msgspec.Raw(text.encode()) for text in args],
        kwargs=None
        if kwargs is None
        else {name: msgspec.Raw(text.encode()) for name, text in kwargs.items()},
        secret=fields.get("secret"),
    )
    return _redact(request) if redacted else request


def keep_hidden(new: CallRequest, old: CallRequest) -> None:
    """Put back the secret arguments that `new` has as an answer hides them.

    Who reads a call, changes it and sends it back keeps what is secret, without having seen it.
    """
    if new.function != old.function:
        return
    for name in set(new.secret or ()) & set(old.secret or ()):
        if isinstance(name, int):
            if _item(new.args, name) == HIDDEN_JSON and (kept := _item(old.args, name)) is not None:
                (new.args or [])[name] = kept
        elif (new.kwargs or {}).get(name) == HIDDEN_JSON and name in (old.kwargs or {}):
            (new.kwargs or {})[name] = (old.kwargs or {})[name]


def _item(args: list[msgspec.Raw] | None, position: int) -> msgspec.Raw | None:
    return args[position] if args is not None and position < len(args) else None


def _redact(request: CallRequest) -> CallRequest:
    """Hide the arguments that the call names as secret."""
    for name in request.secret or ():
        if isinstance(name, int):
            if request.args is not None and name < len(request.args):
                request.args[name] = HIDDEN_JSON
        elif request.kwargs is not None and name in request.kwargs:
            request.kwargs[name] = HIDDEN_JSON
    return request


def _check_argument(argument: msgspec.Raw, field: str) -> None:
    """Raise Invalid or Malformed for JSON that is malformed inside of strings, or nested deeply."""
    text = bytes(argument)
    try:
        value = JSON_DECODER.decode(text)
    except RecursionError:
        raise Invalid(field, "it is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"{field}: not valid JSON: {error}.") from None
    if (
        text.count(b"[") + text.count(b"{") > MAX_ARGUMENT_DEPTH
        and _depth(value) > MAX_ARGUMENT_DEPTH
    ):
        raise Invalid(
            field,
            f"its lists and objects are nested deeper than {MAX_ARGUMENT_DEPTH}. Flatten them.",
        )


def _depth(value: Any) -> int:
    """Return how many lists and objects are within each other."""
    level, depth = [value], 0
    while level:
        containers = [item for item in level if isinstance(item, list | dict)]
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        depth += bool(containers)
    return depth


def _encode(arguments: Arguments) -> str:
    return msgspec.json.encode(arguments).decode()
