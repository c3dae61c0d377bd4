"""Routes that cancel, pause and resume whole graphs.

An operation is stored before it is carried out. A call works on it for a bounded time; the leader
finishes the rest.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import clock
from duly.api.auth import Access
from duly.api.requests.names import graph_id_of
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import Cancelled
from duly.errors import Unavailable
from duly.server.lifecycle.graph_operations import OperationProgress
from duly.store.tasks.graph_operations import OperationKind

MAX_CALL_SECONDS = 20.0
"""After this a call returns, and the rest of the operation continues without it."""


class Paused(msgspec.Struct, frozen=True):
    """The numbers of paused and still running tasks, and whether there is more to do."""

    paused: int
    running: int
    more: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """The number of resumed tasks, and whether there is more to do."""

    resumed: int
    more: bool = False


@route(
    "POST",
    ["/v1/graphs/{id}/cancel"],
    "Cancel the unfinished tasks of a graph",
    access=Access.SUBMIT,
    response_body=Cancelled,
    errors=(404, 409),
)
async def cancel_graph(request: Request) -> Response:
    """Cancel all unfinished tasks of a graph; running ones end once their processes have ended.

    If `more` is true, the rest of a large graph is cancelled in the background.
    """
    done = await _carry_out(request, OperationKind.CANCEL)
    return as_json(Cancelled(done.changed, not done.is_over))


@route(
    "POST",
    ["/v1/graphs/{id}/pause"],
    "Pause the unfinished tasks of a graph",
    access=Access.SUBMIT,
    response_body=Paused,
    errors=(404, 409),
)
async def pause_graph(request: Request) -> Response:
    """Pause a graph: none of its tasks starts until it is resumed. Running attempts continue.

    A task that fails meanwhile is not retried before it is resumed. If `more` is true, the rest
    of a large graph is paused in the background.
    """
    done = await _carry_out(request, OperationKind.PAUSE)
    return as_json(Paused(done.changed - done.running, done.running, not done.is_over))


@route(
    "POST",
    ["/v1/graphs/{id}/resume"],
    "Resume a paused graph",
    access=Access.SUBMIT,
    response_body=Resumed,
    errors=(404, 409),
)
async def resume_graph(request: Request) -> Response:
    """Resume the paused tasks of a graph. The time paused does not count as delay."""
    done = await _carry_out(request, OperationKind.RESUME)
    return as_json(Resumed(done.changed, not done.is_over))


async def _carry_out(request: Request, kind: OperationKind) -> OperationProgress:
    """Store an operation on a graph, and carry out as much of it as there is time for."""
    components, credential = components_of(request), credential_of(request)
    graph_id = await graph_id_of(request, to_change=True)
    query_of(request)
    operation = await components.timeouts.writing(
        components.graph_operations.request(credential, graph_id, kind)
    )
    deadline, done = clock.monotonic() + MAX_CALL_SECONDS, OperationProgress(0, 0, is_over=False)
    while not done.is_over and clock.monotonic() < deadline:
        try:
            batch = await components.timeouts.writing(
                components.graph_operations.run_batch(operation)
            )
        except Unavailable:
            # The operation is stored, so the leader continues it.
            break
        done = OperationProgress(
            done.changed + batch.changed, done.running + batch.running, batch.is_over
        )
    return done


HANDLERS = [cancel_graph, pause_graph, resume_graph]
