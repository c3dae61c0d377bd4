"""How handlers look things up: with a deadline, and one answer for all that is not there."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duly.api.operation import ApiRequest
from duly.errors import NotFound
from duly.model.task import NOT_STARTED, Reason, Status
from duly.policy.explain import Facts, explain
from duly.server.parts import Parts
from duly.store import overview, views
from duly.store.database import Connection
from duly.store.lanes import Lane
from duly.store.views import TaskView

ID = re.compile(r"[0-9]{1,19}")
MOST_AHEAD = 1000


@asynccontextmanager
async def reading(parts: Parts) -> AsyncIterator[Connection]:
    """Lend a connection for as long as a read may take."""
    async with parts.timeouts.reading(), parts.database.connection(Lane.GUEST) as conn:
        yield conn


def id_of(request: ApiRequest, thing: str) -> int:
    """Return the id in the path; what cannot be an id is as unknown as what is none."""
    text: str = request.path_params["id"]
    if not ID.fullmatch(text) or int(text) > views.LARGEST_ID:
        raise not_found(thing, text)
    return int(text)


def not_found(thing: str, name: object) -> NotFound:
    """Say that there is no such thing, or that it is another tenant's: the caller cannot tell."""
    return NotFound(f"There is no {thing} {str(name)[:60]}.")


async def read_task(conn: Connection, tenant_id: int, task_id: int) -> TaskView:
    """Return a task; raises NotFound when the tenant has no such task."""
    view = await views.read(conn, tenant_id, task_id)
    if view is None:
        raise not_found("task", task_id)
    return view


async def why(conn: Connection, tenant_id: int, view: TaskView) -> Reason:
    """Return the one reason why a task is where it is."""
    waits = view.status is Status.WAITING
    offers = await overview.read_offers(conn) if waits else []
    ahead = await views.count_ahead(conn, tenant_id, view.id, limit=MOST_AHEAD) if waits else 0
    return explain(
        Facts(
            status=view.status,
            attempt=view.attempt,
            ready_at=view.ready_at,
            needs=view.needs,
            requires=view.requires,
            stored=view.reason,
            node=view.node,
            leased_at=view.started_at,
            cancel_requested_at=view.cancel_requested_at,
            offers=offers,
            ahead=ahead,
        )
    )


async def reason_of(conn: Connection, tenant_id: int, view: TaskView) -> Reason | None:
    """Return what the answer about a task gives as its reason; None when it needs none."""
    if view.status in NOT_STARTED or view.cancel_requested_at is not None:
        return await why(conn, tenant_id, view)
    return view.reason
