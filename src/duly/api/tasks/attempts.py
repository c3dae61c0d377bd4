"""Routes for attempts: those of one task, and those of all tasks."""

import base64
import binascii
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.lookups import (
    cross_tenant_connection,
    id_of,
    read_task,
    scoped_connection,
    tenant_connection,
)
from duly.api.requests.query import (
    Query,
    encode_cursor,
    parse_outcomes,
    parse_since,
    query_of,
)
from duly.api.requests.tenant_selection import TenantPage, covers_all_tenants
from duly.api.responses import as_json
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import PAGE_PARAMETERS, TASK_PATHS
from duly.errors import Invalid
from duly.model.tenant import Credential
from duly.server.components import Components
from duly.store.attempts import attempt_list
from duly.store.attempts.attempt_list import (
    FIRST_LEASE,
    LAST_LEASE,
    AttemptFilter,
    AttemptPage,
    ListPosition,
)
from duly.store.tasks import views

MICROSECOND = timedelta(microseconds=1)


@route(
    "GET",
    [f"{path}/attempts" for path in TASK_PATHS],
    "List the attempts of a task",
    access=Access.READ,
    response_body=task_shapes.Page[task_shapes.Attempt],
    query=PAGE_PARAMETERS,
    errors=(404, 422),
)
async def list_attempts(request: Request) -> Response:
    """List the attempts of a task in order, the running one last."""
    components, credential = components_of(request), credential_of(request)
    task_id, query = id_of(request, "task"), query_of(request)
    limit, after = query.limit(), query.after_number()
    async with tenant_connection(components, credential) as conn:
        found = await views.read_attempts(
            conn, credential.tenant_id, task_id, after=after, limit=limit + 1
        )
        if not found:
            await read_task(conn, credential.tenant_id, task_id)
    page = found[:limit]
    cursor = encode_cursor(page[-1].attempt) if len(found) > limit else None
    return as_json(task_shapes.Page([task_shapes.attempt(view) for view in page], cursor))


@route(
    "GET",
    "/v1/attempts",
    "List attempts of all tasks, newest first",
    access=Access.READ,
    response_body=TenantPage[task_shapes.ListedAttempt],
    query=(
        Parameter("user", "The user who submitted the task."),
        Parameter("name", "The name or the ref of the task."),
        Parameter(
            "outcome",
            "Outcomes, comma-separated or repeated; without any, running attempts are listed too.",
            repeatable=True,
        ),
        Parameter("since", "Leased since: a time, or a duration before now such as 1h."),
        *PAGE_PARAMETERS,
    ),
    errors=(422,),
)
async def list_all_attempts(request: Request) -> Response:
    """List attempts of all tasks, newest lease first.

    Those of all tenants for administrators, unless they name one. With a filter that few attempts
    match, a page may be short, or even empty, and still have a `next_cursor`.
    """
    components, credential = components_of(request), credential_of(request)
    query = query_of(request)
    all_of_them = covers_all_tenants(credential, query)
    page = await _pick(components, credential, query, all_tenants=all_of_them)
    tenant_id = None if all_of_them else credential.tenant_id
    async with scoped_connection(components, credential, all_tenants=all_of_them) as conn:
        found = await attempt_list.read(conn, tenant_id, page.picked)
    return as_json(
        TenantPage(
            [task_shapes.listed_attempt(view) for view in found],
            None if page.end is None else _encode_position(page.end),
            None if all_of_them else credential.tenant,
        )
    )


async def _pick(
    components: Components, credential: Credential, query: Query, *, all_tenants: bool
) -> AttemptPage:
    """Select the attempts of a page without row-level security, which would not use their index.

    The statements name the tenants.
    """
    limit, after = query.limit(), _decode_position(query.get("cursor"))
    async with cross_tenant_connection(components, credential.tenant_id) as conn:
        which = AttemptFilter(
            outcomes=parse_outcomes(query.get_all("outcome")),
            name=query.get("name"),
            user=query.get("user"),
            since=await parse_since(conn, query.get("since")),
        )
        tenant_ids = [credential.tenant_id]
        if all_tenants:
            tenant_ids = await attempt_list.read_tenants(conn, which)
        return await attempt_list.pick(conn, tenant_ids, which, after=after, limit=limit)


def _encode_position(position: ListPosition) -> str:
    """Return a cursor: the time of the lease in microseconds, and the task."""
    at = (position.leased_at - FIRST_LEASE) // MICROSECOND
    return base64.urlsafe_b64encode(at.to_bytes(8) + position.task.to_bytes(8)).decode().rstrip("=")


def _decode_position(text: str | None) -> ListPosition:
    if text is None:
        return ListPosition()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    at, task = int.from_bytes(raw[:8]), int.from_bytes(raw[8:])
    if len(raw) != 16 or at > (LAST_LEASE - FIRST_LEASE) // MICROSECOND or task > views.MAX_ID:
        raise Invalid("cursor", "it is not the next_cursor of an earlier response.")
    return ListPosition(FIRST_LEASE + at * MICROSECOND, task)


HANDLERS = [list_attempts, list_all_attempts]
