"""Reads request bodies up to a limit, decodes them and explains what is wrong with them.

A body that is not JSON is malformed (400). JSON that does not match the expected type is invalid
(422), and the error names the field and what it must be.
"""

import asyncio
import difflib
import re
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from duly import clock
from duly.api.auth import guard
from duly.api.limits.decoding_limit import SINGLE_REQUEST_LIMIT, DecodingLimit
from duly.api.limits.slow_bodies import BodyTimeout
from duly.api.routes import components_of
from duly.errors import Invalid, Malformed, TooLarge
from duly.http.connection_limits import BODY_IS_COMPLETE
from duly.model.tenant import Credential
from duly.model.wording import either, format_bytes

MIN_BODY_RATE = 8 * 1024
"""Bytes per second: a slower client would occupy capacity that others need."""
MAX_BODY_SECONDS = 75 * 60.0
"""Enough for the largest batch at 16 KiB per second, which takes 68 minutes."""
MIN_UPLOAD_RATE = 32 * 1024
"""Bytes per second. Uploads are long, and few run at once."""
MAX_UPLOAD_SECONDS = 12 * 3600.0
"""Less than the day after which garbage collection removes objects without a row."""
RECHECK_KEY_AFTER_SECONDS = 1.0
"""A key is checked again after a body that took longer than this to arrive."""
ERROR_PATH = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`$")
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
UNKNOWN_CHOICE = re.compile(r"Invalid enum value '(.*)'$", re.DOTALL)
MISSING_FIELD = re.compile(r"Object missing required field `(.*)`$")
MAX_ERROR_CHARACTERS = 1000
"""Longer messages are shortened in the middle: a field's name can be as long as the body."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
TYPE_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}

GIVEN_TYPE_NAMES = {**TYPE_NAMES, "float": "a number with a fraction"}

CLAIM_MEMORY = "duly.claim"
"""In the scope of a request: a function that claims memory for a tenant until the request ends."""
DECODED_FACTOR = 10
"""A decoded body takes at most this many times its size, beyond a few MiB."""
MAX_LENGTH_DIGITS = 18
"""Digits of a Content-Length that are parsed: no limit has as many."""
JSON_DECODER = msgspec.json.Decoder()
RAW_JSON_DECODER = msgspec.json.Decoder(msgspec.Raw)

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raises TooLarge as soon as it is known to be longer than `limit`."""
    length = content_length(request.scope)
    if length is not None and length > limit:
        raise _too_large_error(limit)
    chunks = bytearray()
    began_at = clock.monotonic()
    timeout = _body_timeout(request, length)
    while True:
        message = await _receive(request, timeout)
        if message["type"] == "http.disconnect":
            raise Malformed("The client disconnected before the end of the body.")
        body: bytes = message.get("body", b"")
        if len(chunks) + len(body) > limit:
            raise _too_large_error(limit)
        if not message.get("more_body", False):
            await _recheck_key(request, began_at)
            if not chunks:
                return body
            chunks += body
            del body, message
            return bytes(chunks)
        chunks += body


def content_length(scope: Scope) -> int | None:
    """Return the value of the Content-Length header, or None without one."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:MAX_LENGTH_DIGITS])
    return None


async def stream_body(request: Request) -> AsyncIterator[bytes]:
    """Yield the chunks of a body of any length; raises Malformed if it stops or is too slow."""
    began_at = clock.monotonic()
    timeout = BodyTimeout(MIN_UPLOAD_RATE, MAX_UPLOAD_SECONDS)
    while True:
        message = await _receive(request, timeout)
        if message["type"] == "http.disconnect":
            raise Malformed("The client disconnected before the end of the body.")
        body: bytes = message.get("body", b"")
        if body:
            yield body
        if not message.get("more_body", False):
            await _recheck_key(request, began_at)
            return


async def _recheck_key(request: Request, began_at: float) -> None:
    """Raise the guard's error if the key was revoked while the body arrived.

    Otherwise a caller could start sending, lose its key, and still have the request carried out
    much later.
    """
    if clock.monotonic() - began_at > RECHECK_KEY_AFTER_SECONDS:
        await guard(request)


def _body_timeout(request: Request, length: int | None) -> BodyTimeout:
    """Return the timeout of a body; a client's small body must also begin soon.

    Nodes are exempt from that: they have capacity of their own, and a refused report costs them
    more than time.
    """
    is_client = isinstance(request.scope.get("auth"), Credential | None)
    return BodyTimeout(MIN_BODY_RATE, MAX_BODY_SECONDS, length if is_client else None)


async def _receive(request: Request, timeout: BodyTimeout) -> Any:
    """Return the next ASGI message of a body, which has usually arrived already."""
    if BODY_IS_COMPLETE in request.scope:
        return await request.receive()
    began_at = clock.monotonic()
    try:
        async with asyncio.timeout(timeout.seconds_left(began_at)):
            message: Any = await request.receive()
    except TimeoutError:
        raise Malformed("The body stopped before its end, or came too slowly.") from None
    timeout.record(len(message.get("body", b"")), clock.monotonic() - began_at)
    return message


def claim_memory(request: Request, amount: int) -> None:
    """Claim memory for a decoded body until the request ends; raises Unavailable."""
    claim: Any = request.scope.get(CLAIM_MEMORY)
    caller = request.scope.get("auth")
    if claim is not None and isinstance(caller, Credential):
        claim(caller.tenant_id, amount)


async def read_json_body(request: Request) -> bytes:
    """Return the body of an ordinary request, after claiming the memory to decode it."""
    body = await read_body(request, components_of(request).settings.requests.body_limit)
    claim_memory(request, DECODED_FACTOR * len(body))
    return body


async def decode_body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Read and decode the body of an ordinary request."""
    return decode(await read_json_body(request), decoder)


def decode(
    body: bytes,
    decoder: msgspec.json.Decoder[T],
    limit: DecodingLimit | None = SINGLE_REQUEST_LIMIT,
) -> T:
    """Decode `body`; raises TooLarge, Malformed or Invalid.

    Only a decoder whose result is small for any body may go without a `limit`.
    """
    if limit is not None and not limit.allows(body):
        check_json(body)
        raise limit.error("The body")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        check_json(body)
        raise translate_validation_error(str(error), decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        check_json(body)
        raise Malformed("The body is not valid JSON.") from None


def translate_validation_error(message: str, kind: Any) -> Invalid | Malformed:
    """Return the error for a decoder's message, reworded for people."""
    if len(message) > MAX_ERROR_CHARACTERS:
        half = MAX_ERROR_CHARACTERS // 2
        message = message[:half] + message[-half:]
    match = ERROR_PATH.search(message)
    path = (match[1] if match else "").removeprefix(".").replace("[...]", "")
    problem = message[: match.start()] if match else message
    if unknown := UNKNOWN_FIELD.match(problem):
        return _unknown_field_error(unknown[1], path, kind)
    if missing := MISSING_FIELD.match(problem):
        field = f"{path}.{missing[1]}" if path else missing[1]
        return Invalid(field, "it is missing. Add it.")
    if not path:
        return Malformed("The body must be a JSON object.")
    if types := WRONG_TYPE.match(problem):
        names = [name for name in types[1].split(" | ") if name != "null"] or ["null"]
        expected = either(TYPE_NAMES.get(name, name) for name in names)
        given = GIVEN_TYPE_NAMES.get(types[2], types[2])
        return Invalid(path, f"it must be {expected}, not {given}.")
    if value := UNKNOWN_CHOICE.match(problem):
        return Invalid(path, f"{value[1][:40]!r} is unknown.{_choices_at(kind, path)}")
    return Invalid(path, f"{problem[:1].lower()}{problem[1:]}.")


def _unknown_field_error(name: str, path: str, kind: Any) -> Invalid:
    shown = name.encode("unicode_escape").decode()[:60]
    field = f"{path}.{shown}" if path else shown
    near = difflib.get_close_matches(name[:60], _fields_at(kind, path), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return Invalid(field, f"there is no such field.{hint}")


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the field names of the struct at `path`."""
    info = _type_at(kind, path)
    if isinstance(info, msgspec.inspect.StructType):
        return [field.encode_name for field in info.fields]
    return []


def _choices_at(kind: Any, path: str) -> str:
    """Return a sentence with the values of the enumeration at `path`."""
    info = _type_at(kind, path)
    if isinstance(info, msgspec.inspect.EnumType):
        return f" Use {either(str(choice.value) for choice in info.cls)}."
    return ""


def _type_at(kind: Any, path: str) -> Any:
    info = msgspec.inspect.type_info(kind)
    for step in re.findall(r"\w+|\[", path):
        info = _descend(info, step)
    return info


def _descend(info: Any, step: str) -> Any:
    if isinstance(info, msgspec.inspect.ListType) and step.isidentifier():
        # An item addressed by name; the path does not tell its index.
        info = info.item_type
    if isinstance(info, msgspec.inspect.StructType) and not step.isdigit():
        info = next((f.type for f in info.fields if f.encode_name == step), None)
    elif isinstance(info, msgspec.inspect.ListType) and step.isdigit():
        info = info.item_type
    if isinstance(info, msgspec.inspect.UnionType):
        containers = (msgspec.inspect.StructType, msgspec.inspect.ListType)
        info = next((kind for kind in info.types if isinstance(kind, containers)), None)
    return info


def check_json(body: bytes) -> None:
    """Raise Malformed unless `body` is JSON of a depth that can be decoded.

    A body with very many values is only skimmed, which takes no memory and does not check
    strings.
    """
    try:
        (JSON_DECODER if SINGLE_REQUEST_LIMIT.allows(body) else RAW_JSON_DECODER).decode(body)
    except RecursionError:
        raise Malformed("The body is nested too deeply.") from None
    except UnicodeDecodeError:
        raise Malformed("The body is not valid UTF-8.") from None
    except msgspec.ValidationError as error:
        raise Malformed(f"The body cannot be read: {error}.") from None
    except msgspec.DecodeError as error:
        hint = " Half of a surrogate pair is not a character." if SURROGATE.search(body) else ""
        problem = str(error).removeprefix("JSON is malformed: ")
        raise Malformed(f"The body is not valid JSON: {problem}.{hint}") from None


def _too_large_error(limit: int) -> TooLarge:
    return TooLarge(
        f"The body has more than {format_bytes(limit)}, which is the limit.", limit=limit
    )
