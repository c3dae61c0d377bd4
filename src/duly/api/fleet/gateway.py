"""The routes that agents call, with msgpack messages and the key of their node."""

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from duly import wire
from duly.api.auth import Access
from duly.api.requests.body import read_body
from duly.api.responses import no_content
from duly.api.routes import Handler, Route, components_of, route
from duly.errors import Fenced, Malformed, TooLarge
from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.fleet import nodes

T = TypeVar("T")
SHA256_BYTES = 32
LARGE_MESSAGES = (wire.ReportRequest, wire.LogChunk)
"""Messages that contain output of tasks; all others only name attempts."""
ATTEMPT_REF_PREFIX = b"\x93"
"""The first byte of an `AttemptRef`: a msgpack array of three elements."""
MIN_BYTES_PER_ATTEMPT = 10
"""Half of what real ids and tokens take. A reference of tiny numbers takes 4 bytes, and 70 once
decoded."""
UNCHECKED_BYTES = 64 * 1024
"""A message up to this size cannot name too many attempts."""


def _gateway_route(
    path: str, summary: str, request_body: Any, response_body: Any, *more: int
) -> Callable[[Handler], Route]:
    return route(
        "POST",
        f"/v1/gateway/{path}",
        summary,
        access=Access.NODE,
        request_body=request_body,
        response_body=response_body,
        statuses=(200,) if response_body else (204,),
        errors=(400, 409, 413, *more),
        media_type=wire.MEDIA_TYPE,
    )


@_gateway_route(
    "poll", "Poll for attempts to start and to stop", wire.PollRequest, wire.PollResponse
)
async def poll(request: Request) -> Response:
    """Long-poll for orders: respond once there are any, or when the wait is over."""
    message = await _decode_message(request, wire.PollRequest)
    return _encode_response(await components_of(request).polls.answer(_node_id(request), message))


@_gateway_route(
    "heartbeat", "Renew the lease of an incarnation", wire.Heartbeat, wire.HeartbeatResponse
)
async def heartbeat(request: Request) -> Response:
    """Renew the lease of a node, and repeat which of its attempts are to be stopped."""
    components, node_id = components_of(request), _node_id(request)
    message = await _decode_message(request, wire.Heartbeat)
    ttl = await components.cluster_manager.renew(
        node_id,
        message.incarnation,
        stopping=message.stopping,
        shortage=message.shortage,
        slots=message.slots,
    )
    stop = await components.polls.stops_for(node_id, message)
    return _encode_response(wire.HeartbeatResponse(ttl=ttl, stop=stop))


@_gateway_route("report", "Report how attempts ended", wire.ReportRequest, wire.ReportResponse)
async def report(request: Request) -> Response:
    """Report how attempts ended. The response tells for each report whether it was accepted."""
    message = await _decode_message(request, wire.ReportRequest)
    accepted = await components_of(request).queue_manager.report(_node_id(request), message.reports)
    return _encode_response(wire.ReportResponse(accepted=accepted))


@_gateway_route("logs", "Send part of the log of an attempt", wire.LogChunk, None)
async def append_log(request: Request) -> Response:
    """Append to the log of an attempt that this node still holds."""
    components = components_of(request)
    chunk = await _decode_message(request, wire.LogChunk)
    ref = (chunk.ref.task, chunk.ref.attempt, chunk.ref.token)
    async with components.database.connection(ConnectionClass.NODE) as conn:
        is_held = is_valid_ref(chunk.ref) and await nodes.holds_attempt(
            conn, _node_id(request), ref
        )
        if not is_held:
            raise Fenced("This node no longer holds the attempt; its log is not stored.")
    await components.log_store.append(chunk.ref, chunk.offset, chunk.data)
    components.wakeups.wake([chunk.ref.task])
    return no_content()


@_gateway_route(
    "inputs", "Fetch the upstream results of an attempt", wire.InputsRequest, wire.InputsPage
)
async def read_inputs(request: Request) -> Response:
    """Fetch a page of upstream results of an attempt that this node still holds."""
    message = await _decode_message(request, wire.InputsRequest)
    return _encode_response(
        await components_of(request).inputs.read_page(_node_id(request), message)
    )


@_gateway_route(
    "artifact",
    "Fetch part of an attempt's artifact",
    wire.ArtifactRequest,
    wire.ArtifactChunk,
    422,
)
async def read_artifact(request: Request) -> Response:
    """Fetch the next bytes of the artifact of an attempt that this node still holds."""
    message = await _decode_message(request, wire.ArtifactRequest)
    return _encode_response(
        await components_of(request).artifacts.read_piece(_node_id(request), message)
    )


@_gateway_route(
    "preparing", "Report attempts that are still being prepared", wire.PreparingReport, None
)
async def note_preparing(request: Request) -> Response:
    """Report attempts in preparation, which does not count towards their execution cap."""
    message = await _decode_message(request, wire.PreparingReport)
    await components_of(request).preparations.extend_deadlines(_node_id(request), message.refs)
    return no_content()


@_gateway_route("running", "Report the usage of running attempts", wire.RunningReport, None)
async def note_running(request: Request) -> Response:
    """Report the usage of running attempts, which is kept in case that the node is lost."""
    message = await _decode_message(request, wire.RunningReport)
    components, node_id = components_of(request), _node_id(request)
    if message.throttled:
        await components.queue_manager.throttling.record_running(node_id, message.throttled)
    await components.measurements.record(node_id, message.measured)
    return no_content()


@_gateway_route("attempt-key", "Register the key of an attempt", wire.AttemptKeyRegistration, None)
async def register_attempt_key(request: Request) -> Response:
    """Register the key of an attempt that this node still holds."""
    message = await _decode_message(request, wire.AttemptKeyRegistration)
    if len(message.digest) != SHA256_BYTES:
        raise Malformed("The digest of the key is not a SHA-256.")
    keys = components_of(request).attempt_keys
    await keys.register(_node_id(request), message.ref, message.digest)
    return no_content()


@_gateway_route("leave", "Leave the cluster", wire.LeaveRequest, None)
async def leave(request: Request) -> Response:
    """End an incarnation of the agent. Attempts that it still holds end as expired."""
    message = await _decode_message(request, wire.LeaveRequest)
    await components_of(request).cluster_manager.leave(_node_id(request), message.incarnation)
    return no_content()


async def _decode_message(request: Request, kind: type[T]) -> T:
    settings = components_of(request).settings.requests
    if kind in LARGE_MESSAGES:
        return wire.decode(await read_body(request, settings.batch_limit), kind)
    body = await read_body(request, settings.body_limit)
    if len(body) > UNCHECKED_BYTES and len(body) < MIN_BYTES_PER_ATTEMPT * body.count(
        ATTEMPT_REF_PREFIX
    ):
        raise TooLarge("The message names too many attempts for its size.")
    return wire.decode(body, kind)


def _node_id(request: Request) -> int:
    node_id: int = request.scope["auth"]
    return node_id


def _encode_response(message: Any) -> Response:
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
