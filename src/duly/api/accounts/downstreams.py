"""Routes for downstreams: the limits of what tasks call, of one tenant or for everyone."""

from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import name_of, scoped_connection
from duly.api.requests.query import query_of
from duly.api.requests.whole_lists import page_of
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Forbidden
from duly.model.queues.downstream import format_rate
from duly.model.requests.downstream_request import DownstreamRequest
from duly.model.tenant import Credential, Scope
from duly.store.accounts import downstreams
from duly.store.accounts.downstreams import DownstreamView

DOWNSTREAMS_PATH = "/v1/downstreams"
DOWNSTREAM_PATH = "/v1/downstreams/{id}"
DECODER = msgspec.json.Decoder(DownstreamRequest)


class DownstreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a key, what throttling has left of them, and the tasks under them."""

    key: str
    defined_by: str
    """`tenant`, or `everyone` for limits that an administrator has set and tenants share."""
    rate: str | None
    concurrency: int | None
    adaptive: bool
    current_rate: str | None
    current_concurrency: int | None
    running: int
    """Tasks of the tenant; administrators see those of all tenants, if the limits are shared."""
    waiting: int
    throttled_at: datetime | None
    retry_at: datetime | None
    """Nothing that uses the key starts before."""


@route(
    "GET",
    DOWNSTREAMS_PATH,
    "List the limits of what tasks call",
    access=Access.READ,
    response_body=Page[DownstreamInfo],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_downstreams(request: Request) -> Response:
    """List the downstreams with limits: the tenant's own, and those for everyone."""
    query = query_of(request)
    shown = [_info(view) for view in await _read(request)]
    items, cursor = page_of(shown, query, lambda item: f"{item.key}\n{item.defined_by}")
    return as_json(Page(list(items), cursor))


@route(
    "PUT",
    DOWNSTREAM_PATH,
    "Set the limits of a downstream",
    access=Access.MANAGE,
    request_body=DownstreamRequest,
    response_body=DownstreamInfo,
    errors=(409, 413, 422),
)
async def put_downstream(request: Request) -> Response:
    """Set the limits of a key, and forget what throttling had left of earlier ones."""
    components, credential = components_of(request), credential_of(request)
    key = name_of(request)
    query_of(request)
    body = await decode_body(request, DECODER)
    _check_may_change(credential, everyone=body.everyone)
    await components.timeouts.writing(components.downstreams.put(credential, key, body))
    owner = "everyone" if body.everyone else "tenant"
    shown = [_info(view) for view in await _read(request)]
    return as_json(next(info for info in shown if (info.key, info.defined_by) == (key, owner)))


@route(
    "DELETE",
    DOWNSTREAM_PATH,
    "Remove the limits of a downstream",
    access=Access.MANAGE,
    statuses=(204,),
    query=(Parameter("everyone", "Remove the limits for everyone, not the tenant's own.", bool),),
    errors=(404, 422),
)
async def remove_downstream(request: Request) -> Response:
    """Remove the limits of a key. Tasks that use it are then limited by nothing else of it."""
    components, credential = components_of(request), credential_of(request)
    everyone = query_of(request).flag("everyone")
    _check_may_change(credential, everyone=everyone)
    removal = components.downstreams.remove(credential, name_of(request), everyone=everyone)
    await components.timeouts.writing(removal)
    return no_content()


def _check_may_change(credential: Credential, *, everyone: bool) -> None:
    if everyone and Scope.ADMIN not in credential.scopes:
        raise Forbidden(
            "Only a key with the scope 'admin' may change downstreams for everyone.",
            scope="admin",
        )


async def _read(request: Request) -> list[DownstreamView]:
    components, credential = components_of(request), credential_of(request)
    is_admin = Scope.ADMIN in credential.scopes
    async with scoped_connection(components, credential, all_tenants=is_admin) as conn:
        return await downstreams.read_list(conn, credential.tenant_id, all_tenants=is_admin)


def _info(view: DownstreamView) -> DownstreamInfo:
    limit = view.downstream
    return DownstreamInfo(
        key=limit.key,
        defined_by="everyone" if limit.tenant_id is None else "tenant",
        rate=None if limit.rate is None else format_rate(limit.rate),
        concurrency=limit.concurrency,
        adaptive=limit.adaptive,
        current_rate=None if (rate := limit.current_rate) is None else format_rate(rate),
        current_concurrency=limit.current_concurrency,
        running=view.running,
        waiting=view.waiting,
        throttled_at=limit.throttled_at,
        retry_at=limit.retry_at,
    )


HANDLERS = [list_downstreams, put_downstream, remove_downstream]
