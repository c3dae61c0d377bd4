"""Bodies: read up to a limit, decoded into values, refused in words.

What is not JSON at all is malformed (400); JSON that says something else than was
asked for is invalid (422), with the path of the field and what to write instead.
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
from duly.api.body_pace import BodyPace
from duly.api.routes import parts_of
from duly.api.value_limit import ONE_THING, ValueLimit
from duly.errors import Invalid, Malformed, TooLarge
from duly.http.limits import BODY_IS_COMPLETE
from duly.model.tenant import Credential

MIN_BODY_RATE = 8 * 1024
"""Bytes a second that a client sends at least: one that sends less keeps room from others."""
MAX_BODY_SECONDS = 75 * 60.0
"""Enough for the largest batch at 16 KiB a second, which takes 68 minutes."""
SLOWEST_UPLOAD = 32 * 1024
"""Bytes a second of an upload, which is long and of which there are few at once."""
LONGEST_UPLOAD = 12 * 3600.0
"""Seconds; bytes that are older than a day and have no row are nobody's (`server/curator.py`)."""
SLOW = 1.0
"""Seconds after which a body has come so slowly that its sender is checked once more."""
PATH = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
EXPECTED = re.compile(r"Expected `(.+)`, got `(.+)`$")
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(.*)`$")
LONGEST_COMPLAINT = 1000
"""Characters of a message that are read; a name in the middle of it can be as long as the body."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}

CLAIM = "duly.claim"
"""In the scope of a request: holds memory for a tenant until the request is answered."""
DECODED_FACTOR = 10
"""How much larger than a body is what it is decoded to, at most and beyond a few MiB."""
LENGTH_DIGITS = 18
"""Digits of a Content-Length that are read: no limit has as many."""
ANYTHING = msgspec.json.Decoder()
SKIM = msgspec.json.Decoder(msgspec.Raw)

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raises TooLarge as soon as it is known to be longer than `limit`."""
    announced = announced_bytes(request.scope)
    if announced is not None and announced > limit:
        raise _too_large(limit)
    chunks = bytearray()
    began = clock.monotonic()
    pace = _pace(request, announced)
    while True:
        message = await _next(request, pace)
        if message["type"] == "http.disconnect":
            raise Malformed("The client hung up before the end of the body.")
        body: bytes = message.get("body", b"")
        if len(chunks) + len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            await _check_again(request, began)
            if not chunks:
                return body
            chunks += body
            del body, message
            return bytes(chunks)
        chunks += body


def announced_bytes(scope: Scope) -> int | None:
    """Return how many bytes the client says that its body has; None if it does not."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:LENGTH_DIGITS])
    return None


async def stream_body(request: Request) -> AsyncIterator[bytes]:
    """Yield a body as it comes, which may be of any length; raises Malformed if it stops."""
    began = clock.monotonic()
    pace = BodyPace(SLOWEST_UPLOAD, LONGEST_UPLOAD)
    while True:
        message = await _next(request, pace)
        if message["type"] == "http.disconnect":
            raise Malformed("The client hung up before the end of the body.")
        body: bytes = message.get("body", b"")
        if body:
            yield body
        if not message.get("more_body", False):
            await _check_again(request, began)
            return


async def _check_again(request: Request, began: float) -> None:
    """Raise what the guard does if the key has been revoked while the body came.

    Or one could begin to send, lose the key, and have what one asks for done much later.
    """
    if clock.monotonic() - began > SLOW:
        await guard(request)


def _pace(request: Request, announced: int | None) -> BodyPace:
    """Return how slowly a body may come, and begin: a small one of a client has to begin soon.

    Nodes have room of their own, and a report that is refused costs them more than time.
    """
    is_client = isinstance(request.scope.get("auth"), Credential | None)
    return BodyPace(MIN_BODY_RATE, MAX_BODY_SECONDS, announced if is_client else None)


async def _next(request: Request, pace: BodyPace) -> Any:
    """Return what comes next of a body, which most of the time is here already."""
    if BODY_IS_COMPLETE in request.scope:
        return await request.receive()
    began = clock.monotonic()
    try:
        async with asyncio.timeout(pace.patience(began)):
            message: Any = await request.receive()
    except TimeoutError:
        raise Malformed("The body stopped before its end, or came too slowly.") from None
    pace.count(len(message.get("body", b"")), clock.monotonic() - began)
    return message


def claim_memory(request: Request, amount: int) -> None:
    """Hold memory for what is decoded, until the request is answered; raises Unavailable."""
    claim: Any = request.scope.get(CLAIM)
    caller = request.scope.get("auth")
    if claim is not None and isinstance(caller, Credential):
        claim(caller.tenant_id, amount)


async def read_json(request: Request) -> bytes:
    """Return the body of an ordinary request, with the memory claimed that decoding it takes."""
    body = await read_body(request, parts_of(request).settings.requests.body_limit)
    claim_memory(request, DECODED_FACTOR * len(body))
    return body


async def read_as(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the body of an ordinary request as what `decoder` is for."""
    return decode(await read_json(request), decoder)


def decode(
    body: bytes, decoder: msgspec.json.Decoder[T], limit: ValueLimit | None = ONE_THING
) -> T:
    """Read `body` as what `decoder` is for; raises TooLarge, Malformed or Invalid.

    Only a decoder that makes little of any body may go without a `limit`.
    """
    if limit is not None and not limit.holds(body):
        check_json(body)
        raise limit.exceeded("The body")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        check_json(body)
        raise translate(str(error), decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        check_json(body)
        raise Malformed("The body is not valid JSON.") from None


def translate(message: str, kind: Any) -> Invalid | Malformed:
    """Say what is wrong with a field in words for people."""
    if len(message) > LONGEST_COMPLAINT:
        half = LONGEST_COMPLAINT // 2
        message = message[:half] + message[-half:]
    found = PATH.search(message)
    path = (found[1] if found else "").removeprefix(".").replace("[...]", "")
    bare = message[: found.start()] if found else message
    if unknown := UNKNOWN.match(bare):
        return _unknown(unknown[1], path, kind)
    if missing := MISSING.match(bare):
        field = f"{path}.{missing[1]}" if path else missing[1]
        return Invalid(field, f"{field} is missing.")
    if not path:
        return Malformed("The body must be a JSON object.")
    if expected := EXPECTED.match(bare):
        wanted = " or ".join(WORDS.get(word, word) for word in expected[1].split(" | "))
        return Invalid(path, f"{path} must be {wanted}, not {WORDS.get(expected[2], expected[2])}.")
    return Invalid(path, f"{path}: {bare[:1].lower()}{bare[1:]}.")


def _unknown(name: str, path: str, kind: Any) -> Invalid:
    shown = name.encode("unicode_escape").decode()[:60]
    field = f"{path}.{shown}" if path else shown
    near = difflib.get_close_matches(name[:60], _fields_at(kind, path), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return Invalid(field, f"There is no field {shown!r} here.{hint}")


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the names of the fields of the struct that `path` leads to."""
    info = msgspec.inspect.type_info(kind)
    for step in re.findall(r"\w+|\[", path):
        info = _step(info, step)
    if isinstance(info, msgspec.inspect.StructType):
        return [field.encode_name for field in info.fields]
    return []


def _step(info: Any, step: str) -> Any:
    if isinstance(info, msgspec.inspect.ListType) and step.isidentifier():
        # One of many by name: which one, the path does not say.
        info = info.item_type
    if isinstance(info, msgspec.inspect.StructType) and not step.isdigit():
        info = next((f.type for f in info.fields if f.encode_name == step), None)
    elif isinstance(info, msgspec.inspect.ListType) and step.isdigit():
        info = info.item_type
    if isinstance(info, msgspec.inspect.UnionType):
        known = (msgspec.inspect.StructType, msgspec.inspect.ListType)
        info = next((kind for kind in info.types if isinstance(kind, known)), None)
    return info


def check_json(body: bytes) -> None:
    """Raise Malformed unless `body` is JSON at all, of a depth that anything can read.

    A body with very many values is only skimmed, which keeps nothing of it and does not look
    into strings.
    """
    try:
        (ANYTHING if ONE_THING.holds(body) else SKIM).decode(body)
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


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body may have at most {limit} bytes.", limit=limit)
