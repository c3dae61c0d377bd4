"""Cancelling, pausing and resuming whole graphs."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import clock
from duly.api.auth import Access
from duly.api.query import query_of
from duly.api.reading import id_of
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import Cancelled
from duly.errors import Unavailable
from duly.server.wishes import Carried
from duly.store.wishes import WishKind

LONGEST = 20.0
"""Seconds that one call goes on; what is left then is done without it."""


class Paused(msgspec.Struct, frozen=True):
    """How many tasks were paused, how many run on, and whether there are more to do."""

    paused: int
    running: int
    more: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """How many tasks may go on again, and whether there are more to do."""

    resumed: int
    more: bool = False


@route(
    "POST",
    ["/v1/graphs/{id}/cancel"],
    "Cancel what is left of a graph",
    access=Access.SUBMIT,
    gives=Cancelled,
    errors=(404,),
)
async def cancel_graph(request: Request) -> Response:
    """End every task of a graph that has not ended; those that run, once their processes are gone.

    Of a large graph some may be left at the answer, which says so; they are cancelled without
    another call.
    """
    done = await _carry_out(request, WishKind.CANCEL)
    return as_json(Cancelled(done.changed, not done.is_over))


@route(
    "POST",
    ["/v1/graphs/{id}/pause"],
    "Pause what is left of a graph",
    access=Access.SUBMIT,
    gives=Paused,
    errors=(404, 409),
)
async def pause_graph(request: Request) -> Response:
    """Let no task of a graph start until it is resumed; those that run go on to their ends.

    One that runs and fails is not tried again before it is resumed. Of a large graph some may
    be left at the answer, which says so; they are paused without another call.
    """
    done = await _carry_out(request, WishKind.PAUSE)
    return as_json(Paused(done.changed - done.running, done.running, not done.is_over))


@route(
    "POST",
    ["/v1/graphs/{id}/resume"],
    "Resume a graph that is paused",
    access=Access.SUBMIT,
    gives=Resumed,
    errors=(404, 409),
)
async def resume_graph(request: Request) -> Response:
    """Let the tasks of a graph go on that are paused; their delay tolerances go on, too."""
    done = await _carry_out(request, WishKind.RESUME)
    return as_json(Resumed(done.changed, not done.is_over))


async def _carry_out(request: Request, kind: WishKind) -> Carried:
    """Write down what is wished, and do as much of it as there is time for."""
    parts, credential = parts_of(request), credential_of(request)
    graph_id = id_of(request, "graph")
    query_of(request)
    wish = await parts.timeouts.writing(parts.wishes.make(credential, graph_id, kind))
    until, done = clock.monotonic() + LONGEST, Carried(0, 0, is_over=False)
    while not done.is_over and clock.monotonic() < until:
        try:
            piece = await parts.timeouts.writing(parts.wishes.go_on(wish))
        except Unavailable:
            # It is written down, so the leader goes on with it.
            break
        done = Carried(done.changed + piece.changed, done.running + piece.running, piece.is_over)
    return done


HANDLERS = [cancel_graph, pause_graph, resume_graph]
