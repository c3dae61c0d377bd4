"""What agents call: msgpack in, msgpack out, under the key of their node."""

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from duly import wire
from duly.api.auth import Access
from duly.api.body import read_body
from duly.api.responses import no_content
from duly.api.routes import Handler, Route, parts_of, route
from duly.errors import Fenced, Malformed, TooLarge
from duly.server.reports import is_possible
from duly.store import nodes
from duly.store.lanes import Lane

T = TypeVar("T")
SHA256_BYTES = 32
WITH_DATA = (wire.Reports, wire.LogChunk)
"""Messages that hold what tasks have written; all others only name attempts."""
ATTEMPT = b"\x93"
"""How an `AttemptRef` begins, a list of three numbers."""
BYTES_PER_ATTEMPT = 10
"""Half of what ids and tokens take; decoded it is 70, and made of tiny numbers 4."""
FEW_ATTEMPTS = 64 * 1024
"""Bytes of a message that names few attempts, whatever it holds."""


def _message(
    path: str, summary: str, takes: Any, gives: Any, *more: int
) -> Callable[[Handler], Route]:
    return route(
        "POST",
        f"/v1/gateway/{path}",
        summary,
        access=Access.NODE,
        takes=takes,
        gives=gives,
        statuses=(200,) if gives else (204,),
        errors=(400, 409, 413, *more),
        media_type=wire.MEDIA_TYPE,
    )


@_message("poll", "Ask what to start and what to end", wire.Poll, wire.Orders)
async def poll(request: Request) -> Response:
    """Response as soon as there is something to do, or when the wait is over."""
    message = await _read(request, wire.Poll)
    return _answer(await parts_of(request).polls.orders(_node(request), message))


@_message("heartbeat", "Renew the lease of an incarnation", wire.Heartbeat, wire.Renewed)
async def heartbeat(request: Request) -> Response:
    """Renew the lease, and repeat everything that is to be ended."""
    parts, node_id = parts_of(request), _node(request)
    beat = await _read(request, wire.Heartbeat)
    ttl = await parts.cluster_manager.renew(
        node_id, beat.incarnation, stopping=beat.stopping, shortage=beat.shortage
    )
    stop = await parts.polls.stops_for(node_id, beat)
    return _answer(wire.Renewed(ttl=ttl, stop=stop))


@_message("report", "Report how attempts ended", wire.Reports, wire.Receipts)
async def report(request: Request) -> Response:
    """Say for each report whether it counts."""
    message = await _read(request, wire.Reports)
    accepted = await parts_of(request).queue_manager.report(_node(request), message.reports)
    return _answer(wire.Receipts(accepted=accepted))


@_message("logs", "Send part of the log of an attempt", wire.LogChunk, None)
async def append_log(request: Request) -> Response:
    """Keep the chunk if the attempt is still this node's."""
    parts = parts_of(request)
    chunk = await _read(request, wire.LogChunk)
    ref = (chunk.ref.task, chunk.ref.attempt, chunk.ref.token)
    async with parts.database.connection(Lane.NODE) as conn:
        is_held = is_possible(chunk.ref) and await nodes.holds_attempt(conn, _node(request), ref)
        if not is_held:
            raise Fenced("The attempt has been given away; its log is not kept.")
    await parts.logbook.append(chunk.ref, chunk.offset, chunk.data)
    parts.bell.ring([chunk.ref.task])
    return no_content()


@_message("inputs", "Fetch what the upstreams of an attempt left", wire.InputsWanted, wire.Inputs)
async def read_inputs(request: Request) -> Response:
    """Give a page of results if the attempt is still this node's."""
    message = await _read(request, wire.InputsWanted)
    return _answer(await parts_of(request).inputs.page(_node(request), message))


@_message(
    "artifact",
    "Fetch bytes of an attempt's artifact",
    wire.ArtifactWanted,
    wire.ArtifactPiece,
    422,
)
async def read_artifact(request: Request) -> Response:
    """Give the next bytes if the attempt is still this node's."""
    message = await _read(request, wire.ArtifactWanted)
    return _answer(await parts_of(request).artifacts.piece(_node(request), message))


@_message("preparing", "Say that attempts have not begun yet", wire.Preparing, None)
async def note_preparing(request: Request) -> Response:
    """Leave those that are still this node's the time to run."""
    message = await _read(request, wire.Preparing)
    await parts_of(request).preparations.note(_node(request), message.refs)
    return no_content()


@_message("running", "Tell what running attempts have used", wire.Running, None)
async def note_running(request: Request) -> Response:
    """Keep what is told of those that are still this node's, in case that it is lost."""
    message = await _read(request, wire.Running)
    await parts_of(request).measurements.note(_node(request), message.measured)
    return no_content()


@_message("attempt-key", "Let a key speak for an attempt", wire.AttemptKey, None)
async def register_attempt_key(request: Request) -> Response:
    """Take the key if the attempt is still this node's."""
    message = await _read(request, wire.AttemptKey)
    if len(message.digest) != SHA256_BYTES:
        raise Malformed("The digest of the key is not a SHA-256.")
    keys = parts_of(request).attempt_keys
    await keys.register(_node(request), message.ref, message.digest)
    return no_content()


@_message("leave", "Leave: the agent stops", wire.Leave, None)
async def leave(request: Request) -> Response:
    """End the incarnation; whatever it still holds counts as lost."""
    message = await _read(request, wire.Leave)
    await parts_of(request).cluster_manager.leave(_node(request), message.incarnation)
    return no_content()


async def _read(request: Request, kind: type[T]) -> T:
    settings = parts_of(request).settings.requests
    if kind in WITH_DATA:
        return wire.decode(await read_body(request, settings.batch_limit), kind)
    body = await read_body(request, settings.body_limit)
    if len(body) > FEW_ATTEMPTS and len(body) < BYTES_PER_ATTEMPT * body.count(ATTEMPT):
        raise TooLarge("The message names more attempts than there can be.")
    return wire.decode(body, kind)


def _node(request: Request) -> int:
    node_id: int = request.scope["auth"]
    return node_id


def _answer(message: Any) -> Response:
    return Response(wire.encode(message), media_type=wire.MEDIA_TYPE)


HANDLERS = [
    poll,
    heartbeat,
    report,
    append_log,
    read_inputs,
    read_artifact,
    note_preparing,
    note_running,
    register_attempt_key,
    leave,
]
