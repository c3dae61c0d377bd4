"""Database connections and lookups for handlers, with a timeout and tenant isolation.

An object of another tenant is reported as not found, exactly like one that does not exist.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.requests import Request

from duly.api.requests.competition import add_competition
from duly.api.requests.task_facts import explain_waiting, facts_of, read_supplies
from duly.errors import NotFound
from duly.model.requests.texts import check_text
from duly.model.task import NOT_RUNNING, Reason, Status
from duly.model.tenant import Credential
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts
from duly.server.components import Components
from duly.server.offload import offload
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection
from duly.store.tasks import edges, graph_operations, views
from duly.store.tasks.views import TaskView

ID_PATTERN = re.compile(r"[0-9]{1,19}")
MAX_AHEAD_COUNTED = 1000
MAX_UPSTREAMS_LISTED = 5


@asynccontextmanager
async def tenant_connection(
    components: Components, credential: Credential
) -> AsyncIterator[Connection]:
    """Lend a connection that sees only the rows of the caller's tenant, within the read timeout.

    An administrator who acts for another tenant has that tenant's credential, and sees its rows.
    """
    tenant_id = credential.tenant_id
    async with components.timeouts.reading(), components.database.reading_for(tenant_id) as conn:
        yield conn


@asynccontextmanager
async def cross_tenant_connection(
    components: Components, tenant_id: int | None = None
) -> AsyncIterator[Connection]:
    """Lend a connection that sees the rows of every tenant, within the read timeout.

    It is for what no tenant owns (nodes, servers, free capacity) and for administrators' lists.
    Every user of it is listed in tests/api/test_confinement.py. `tenant_id` is the tenant whose
    share of the connections it takes.
    """
    connection = components.database.connection(ConnectionClass.CLIENT, tenant_id)
    async with components.timeouts.reading(), connection as conn:
        yield conn


def listing_connection(
    components: Components, credential: Credential, *, by_status: bool
) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection to select the ids of a list, whose rows `tenant_connection` then reads.

    A filter by status runs without row-level security, with the tenant in the statement:
    comparing statuses is not leakproof, so under row-level security PostgreSQL would not use an
    index for it and would sort all tasks that the tenant ever had.
    """
    if by_status:
        return cross_tenant_connection(components, credential.tenant_id)
    return tenant_connection(components, credential)


def scoped_connection(
    components: Components, credential: Credential, *, all_tenants: bool
) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection that sees all tenants' rows, for administrators, or only the caller's."""
    return (
        cross_tenant_connection(components)
        if all_tenants
        else tenant_connection(components, credential)
    )


def id_of(request: Request, kind: str) -> int:
    """Return the id in the path of a `kind` of object; raises NotFound for an impossible id."""
    text: str = request.path_params["id"]
    if not ID_PATTERN.fullmatch(text) or int(text) > views.MAX_ID:
        raise not_found(kind, text)
    return int(text)


def name_of(request: Request) -> str:
    """Return the name in the path, for objects that are identified by name."""
    return check_text(request.path_params["id"], "name")


def not_found(kind: str, name: object) -> NotFound:
    """Return the error for an object that does not exist or belongs to another tenant."""
    return NotFound(f"There is no {kind} {str(name)[:60]!r}.", kind=kind)


async def read_task(conn: Connection, tenant_id: int, task_id: int) -> TaskView:
    """Return a task; raises NotFound if the tenant has no such task."""
    view = await views.read(conn, tenant_id, task_id)
    if view is None:
        raise not_found("task", task_id)
    return view


async def read_task_with_reason(
    components: Components, credential: Credential, task_id: int, *, always_explain: bool = False
) -> tuple[TaskView, Reason | None]:
    """Return a task and the reason for its status.

    For a running or finished task it is the stored reason, unless `always_explain` is set.
    """
    tenant_id, ahead, awaited = credential.tenant_id, None, None
    async with tenant_connection(components, credential) as conn:
        view = await read_task(conn, tenant_id, task_id)
        is_waiting = view.status is Status.WAITING
        if is_waiting:
            ahead = await views.count_ahead(conn, tenant_id, task_id, limit=MAX_AHEAD_COUNTED)
        if view.status is Status.BLOCKED:
            awaited = await edges.read_awaited(conn, tenant_id, task_id, limit=MAX_UPSTREAMS_LISTED)
        pause = (
            await graph_operations.read_pause(conn, tenant_id, task_id) if view.is_paused else None
        )
    is_being_changed = view.is_paused or view.cancel_requested_at is not None
    if not (always_explain or is_being_changed or view.status in NOT_RUNNING):
        return view, view.reason
    scheduling = components.settings.scheduling
    facts = facts_of(view, scheduling, ahead=ahead, awaited=awaited, pause=pause)
    if is_waiting:
        async with cross_tenant_connection(components) as conn:
            supplies = await read_supplies(conn, {tenant_id: [facts]}, scheduling)
            facts = supplies[tenant_id].add_to(facts)
            facts = await add_competition(conn, facts, tenant_id, view.sharing_user_id)
    return view, explain(facts)


async def explain_listed(components: Components, tasks: Sequence[TaskView]) -> dict[int, Reason]:
    """Return the reasons of those tasks in a list that have not started, by task.

    Unlike the reason of a single task they have no position and name no upstream tasks.
    """
    scheduling = components.settings.scheduling
    reasons: dict[int, Reason] = {}
    waiting_by_tenant: dict[int, list[Facts]] = {}
    for task in tasks:
        if task.status is Status.WAITING:
            facts = facts_of(task, scheduling)
            waiting_by_tenant.setdefault(task.tenant_id, []).append(facts)
        elif task.status in NOT_RUNNING:
            reasons[task.id] = explain(facts_of(task, scheduling))
    if not waiting_by_tenant:
        return reasons
    async with cross_tenant_connection(components) as conn:
        supplies = await read_supplies(conn, waiting_by_tenant, scheduling)
    offers = next(iter(supplies.values())).offers
    work = sum(len(waiting) for waiting in waiting_by_tenant.values()) * len(offers)
    return reasons | await offload(work, explain_waiting, waiting_by_tenant, supplies)
