"""How handlers look things up: with a deadline, and one answer for all that is not there."""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import msgspec
from starlette.requests import Request

from duly.config import SchedulingSettings
from duly.errors import NotFound
from duly.model.limits import UNLIMITED
from duly.model.request import check_text
from duly.model.task import NOT_STARTED, Reason, Status
from duly.model.tenant import Credential
from duly.policy.explain import Facts, explain
from duly.policy.limits import NO_KEY_USE
from duly.policy.queueing import queue_of
from duly.server.limit_book import in_use
from duly.server.parts import Parts
from duly.store import edges, leases, quotas, stock, views, wishes
from duly.store.database import Connection
from duly.store.lanes import Lane
from duly.store.views import TaskView

ID = re.compile(r"[0-9]{1,19}")
MOST_AHEAD = 1000
MOST_AWAITED = 5


@asynccontextmanager
async def reading(parts: Parts, credential: Credential) -> AsyncIterator[Connection]:
    """Lend a connection that sees the rows of the caller's tenant, for as long as a read may take.

    An administrator who acts for another tenant has that tenant's credential, and sees its rows.
    """
    tenant_id = credential.tenant_id
    async with parts.timeouts.reading(), parts.database.reading_for(tenant_id) as conn:
        yield conn


@asynccontextmanager
async def overseeing(parts: Parts, tenant_id: int | None = None) -> AsyncIterator[Connection]:
    """Lend a connection that sees the rows of every tenant, for as long as a read may take.

    For what is nobody's own (nodes, servers, the room that is left) and for the lists of
    administrators. Whoever uses it is named in tests/api/test_confinement.py. `tenant_id` says
    whose share of the connections it takes.
    """
    lent = parts.database.connection(Lane.GUEST, tenant_id)
    async with parts.timeouts.reading(), lent as conn:
        yield conn


def picking(
    parts: Parts, credential: Credential, *, by_status: bool
) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection that finds the ids of a list, which is then read with `reading`.

    By status they are found among all rows, the tenant being named in the statement: to
    compare statuses counts as leaky, so that under row level security no index is used for
    it and everything that a tenant ever had is sorted.
    """
    if by_status:
        return overseeing(parts, credential.tenant_id)
    return reading(parts, credential)


def seeing(
    parts: Parts, credential: Credential, *, everybody: bool
) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection that sees the rows of `everybody`, as an administrator, or its own."""
    return overseeing(parts) if everybody else reading(parts, credential)


def id_of(request: Request, thing: str) -> int:
    """Return the id in the path; what cannot be an id is as unknown as what is none."""
    text: str = request.path_params["id"]
    if not ID.fullmatch(text) or int(text) > views.LARGEST_ID:
        raise not_found(thing, text)
    return int(text)


def name_of(request: Request) -> str:
    """Return the name in the path of a request, for what is called by its name."""
    return check_text(request.path_params["id"], "name")


def not_found(thing: str, name: object) -> NotFound:
    """Say that there is no such thing, or that it is another tenant's: the caller cannot tell."""
    return NotFound(f"There is no {thing} {str(name)[:60]}.")


async def read_task(conn: Connection, tenant_id: int, task_id: int) -> TaskView:
    """Return a task; raises NotFound when the tenant has no such task."""
    view = await views.read(conn, tenant_id, task_id)
    if view is None:
        raise not_found("task", task_id)
    return view


async def explained(
    parts: Parts, credential: Credential, task_id: int, *, always: bool = False
) -> tuple[TaskView, Reason | None]:
    """Return a task and the one reason why it is where it is.

    Unless it is asked for in any case, none is worked out for a task that runs or has ended.
    """
    tenant_id, ahead, awaited = credential.tenant_id, 0, []
    async with reading(parts, credential) as conn:
        view = await read_task(conn, tenant_id, task_id)
        waits = view.status is Status.WAITING
        if waits:
            ahead = await views.count_ahead(conn, tenant_id, task_id, limit=MOST_AHEAD)
        if view.status is Status.BLOCKED:
            awaited = await edges.read_awaited(conn, tenant_id, task_id, limit=MOST_AWAITED)
        pause = await wishes.read_pause(conn, tenant_id, task_id) if view.is_paused else None
    is_asked = view.is_paused or view.cancel_requested_at is not None
    if not (always or is_asked or view.status in NOT_STARTED):
        return view, view.reason
    facts = Facts(
        task=task_id,
        status=view.status,
        attempt=view.attempt,
        ready_at=view.ready_at,
        needs=view.needs,
        requires=view.requires,
        concurrency=view.concurrency,
        stored=view.reason,
        node=view.node,
        leased_at=view.started_at,
        cancel_requested_at=view.cancel_requested_at,
        is_paused=view.is_paused,
        pause=pause,
        ahead=ahead,
        blocked_by=view.blocked_by,
        awaited=awaited,
    )
    if waits:
        facts = _with_queue(view, facts, parts.settings.scheduling)
        async with overseeing(parts) as conn:
            facts = await _with_room(conn, tenant_id, facts)
    return view, explain(facts)


def _with_queue(view: TaskView, facts: Facts, scheduling: SchedulingSettings) -> Facts:
    """Return the facts of a waiting task, with where it waits and what that means for it."""
    slack = timedelta(0) if view.slack is None else view.slack
    return msgspec.structs.replace(
        facts,
        queue=queue_of(view.queue, slack, scheduling.urgent_slack),
        urgent_at=view.start_by - scheduling.urgent_slack,
        peak_percent=scheduling.peak_percent,
    )


async def _with_room(conn: Connection, tenant_id: int, facts: Facts) -> Facts:
    """Return the facts of a waiting task, with what the nodes have and its tenant may have."""
    granted = await quotas.read_limits(conn, [tenant_id])
    held = await stock.read_stock(conn, tenants=[tenant_id])
    shapes = await leases.read_shapes(conn, sorted(held.shapes))
    uses, keys = in_use(held, [tenant_id], shapes)
    key = "" if facts.concurrency is None else facts.concurrency.key
    return msgspec.structs.replace(
        facts,
        offers=held.free(shapes),
        limits=granted.limits.get(tenant_id, UNLIMITED),
        use=uses[tenant_id],
        under_key=keys.get((tenant_id, key), NO_KEY_USE),
    )
