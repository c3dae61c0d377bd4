"""Routes for queues. Administrators manage them; everyone sees them with their own tasks."""

from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.body import decode, decode_body, read_json_body
from duly.api.requests.lookups import cross_tenant_connection, name_of, not_found
from duly.api.requests.query import query_of
from duly.api.requests.tenant_selection import TenantPage, covers_all_tenants
from duly.api.requests.whole_lists import page_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Invalid
from duly.model.queues.queue import QueueDefinition
from duly.model.requests.queue_request import QueueChange, QueueRequest, queue_from
from duly.store.fleet import queues
from duly.store.fleet.queues import NO_FIGURES, QueueFigures

QUEUES_PATH = "/v1/queues"
QUEUE_PATH = "/v1/queues/{id}"
QUEUE_DECODER = msgspec.json.Decoder(QueueRequest)
CHANGE_DECODER = msgspec.json.Decoder(QueueChange)
FIELDS_DECODER = msgspec.json.Decoder(dict[str, Any])


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue, and the tasks in it: of all tenants for administrators, else of the caller's."""

    name: str
    level: int
    """Queues with a lower level are served first."""
    built_in: bool
    """Whether it cannot be removed and keeps its level."""
    off_peak: bool
    max_share: float | None
    """The part of the fleet that its running tasks may hold, from 0 to 1."""
    hours: str | None
    """When its tasks may start, such as 22:00-06:00; null: always."""
    timezone: str | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    waiting: int
    """Tasks that wait in it, also those whose slack has run out; counted up to 100,000."""
    oldest_wait: float | None
    """How long the oldest of them has waited, in seconds."""
    in_per_minute: float
    """Tasks submitted to it in the last minute; of a busy fleet, the rate of the last seconds."""
    out_per_minute: float
    """Attempts that have started from it, likewise."""


@route(
    "GET",
    QUEUES_PATH,
    "List the queues in the order in which they are served",
    access=Access.READ,
    response_body=TenantPage[QueueInfo],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_queues(request: Request) -> Response:
    """List the queues in the order in which they are served, with what waits in each."""
    query = query_of(request)
    found = await _read(request)
    items, cursor = page_of(found, query, lambda queue: queue.name)
    credential = credential_of(request)
    tenant = None if covers_all_tenants(credential, query) else credential.tenant
    return as_json(TenantPage(list(items), cursor, tenant))


@route(
    "GET",
    QUEUE_PATH,
    "Get a queue",
    access=Access.READ,
    response_body=QueueInfo,
    errors=(404, 422),
)
async def get_queue(request: Request) -> Response:
    """Get a queue, with what waits in it."""
    query_of(request)
    return await _respond(request, name_of(request))


@route(
    "POST",
    QUEUES_PATH,
    "Create a queue",
    access=Access.ADMIN,
    request_body=QueueRequest,
    response_body=QueueInfo,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_queue(request: Request) -> Response:
    """Create a queue, which tasks can then ask for."""
    components = components_of(request)
    query_of(request)
    queue = queue_from(await decode_body(request, QUEUE_DECODER))
    creation = components.queues.create(credential_of(request), queue)
    await components.timeouts.writing(creation)
    return await _respond(request, queue.name, 201)


@route(
    "PATCH",
    QUEUE_PATH,
    "Update a queue",
    access=Access.ADMIN,
    request_body=QueueChange,
    response_body=QueueInfo,
    errors=(404, 413, 422),
)
async def update_queue(request: Request) -> Response:
    """Update a queue. Given fields are replaced; null removes a bound."""
    components, name = components_of(request), name_of(request)
    query_of(request)
    body = await read_json_body(request)
    decode(body, CHANGE_DECODER)
    # Decoded again, because an update must tell null from an absent field.
    changes = decode(body, FIELDS_DECODER)
    if not changes:
        raise Invalid("max_share", "there is nothing to change. Give a field such as max_share.")
    update = components.queues.update(credential_of(request), name, changes)
    await components.timeouts.writing(update)
    return await _respond(request, name)


@route(
    "POST",
    f"{QUEUE_PATH}/pause",
    "Pause a queue",
    access=Access.ADMIN,
    response_body=QueueInfo,
    errors=(404, 422),
)
async def pause_queue(request: Request) -> Response:
    """Pause a queue: none of its tasks start until it is resumed. Running attempts go on."""
    components, name = components_of(request), name_of(request)
    query_of(request)
    await components.timeouts.writing(components.queues.pause(credential_of(request), name))
    return await _respond(request, name)


@route(
    "POST",
    f"{QUEUE_PATH}/resume",
    "Resume a paused queue",
    access=Access.ADMIN,
    response_body=QueueInfo,
    errors=(404, 422),
)
async def resume_queue(request: Request) -> Response:
    """Resume a paused queue: its tasks may start again."""
    components, name = components_of(request), name_of(request)
    query_of(request)
    await components.timeouts.writing(components.queues.resume(credential_of(request), name))
    return await _respond(request, name)


@route(
    "DELETE",
    QUEUE_PATH,
    "Remove a queue",
    access=Access.ADMIN,
    statuses=(204,),
    errors=(404, 409, 422),
)
async def remove_queue(request: Request) -> Response:
    """Remove a queue. One that is built in, has live tasks or is in a plan is kept (409)."""
    components = components_of(request)
    query_of(request)
    removal = components.queues.remove(credential_of(request), name_of(request))
    await components.timeouts.writing(removal)
    return no_content()


async def _read(request: Request) -> list[QueueInfo]:
    """Return all queues in the order in which they are served."""
    credential = credential_of(request)
    is_for_all = covers_all_tenants(credential, query_of(request))
    tenant_id = None if is_for_all else credential.tenant_id
    async with cross_tenant_connection(components_of(request), tenant_id) as conn:
        definitions = await queues.read(conn)
        figures = await queues.read_figures(conn, tenant_id)
    ordered = sorted(definitions.by_name.values(), key=lambda queue: (queue.level, queue.name))
    return [_info(queue, figures.get(queue.name, NO_FIGURES)) for queue in ordered]


async def _respond(request: Request, name: str, status: int = 200) -> Response:
    for queue in await _read(request):
        if queue.name == name:
            return as_json(queue, status)
    raise not_found("queue", name)


def _info(queue: QueueDefinition, figures: QueueFigures) -> QueueInfo:
    return QueueInfo(
        name=queue.name,
        level=queue.level,
        built_in=queue.is_built_in,
        off_peak=queue.off_peak,
        max_share=queue.max_share,
        hours=None if queue.hours is None else str(queue.hours),
        timezone=None if queue.hours is None else queue.hours.timezone,
        paused=queue.is_paused,
        paused_by=queue.paused_by,
        paused_at=queue.paused_at,
        waiting=figures.waiting,
        oldest_wait=figures.oldest_wait,
        in_per_minute=round(figures.in_per_minute, 1),
        out_per_minute=round(figures.out_per_minute, 1),
    )


HANDLERS = [
    list_queues,
    get_queue,
    create_queue,
    update_queue,
    pause_queue,
    resume_queue,
    remove_queue,
]
