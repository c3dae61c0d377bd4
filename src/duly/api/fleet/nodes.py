"""Routes for nodes: join, list, drain, change, remove, and create join tokens."""

from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import wire
from duly.api.auth import Access, check_scope, check_suspended
from duly.api.fleet import fleet_shapes
from duly.api.requests.body import decode, decode_body, read_json_body
from duly.api.requests.lookups import ID_PATTERN, cross_tenant_connection, not_found
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.duration import parse_duration
from duly.errors import Invalid
from duly.model.node import UNLIMITED_USES
from duly.model.requests.amounts import ResourcesRequest, requested_kinds
from duly.model.requests.texts import check_text
from duly.model.tenant import Scope
from duly.store import database
from duly.store.database import Connection
from duly.store.fleet import overview
from duly.store.fleet.overview import NodeView
from duly.store.tasks.views import MAX_ID

NODE_PATH = "/v1/nodes/{id}"
DEFAULT_TOKEN_LIFETIME = timedelta(hours=1)
MAX_TOKEN_LIFETIME = timedelta(days=365)
MAX_TOKEN_USES = 1_000_000


class NodeChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PUT /v1/nodes/{id}; absent fields stay unchanged.

    `capacity` overrides what the agent reports, kind by kind; null removes all overrides.
    """

    drain: bool | msgspec.UnsetType = msgspec.UNSET
    capacity: ResourcesRequest | msgspec.UnsetType | None = msgspec.UNSET


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/node-tokens.

    By default a token expires after an hour and admits one node; `uses` is another number of
    nodes, or "unlimited".
    """

    expires_in: float | str | None = None
    uses: int | str | None = None


JOIN_DECODER = msgspec.json.Decoder(wire.JoinRequest)
CHANGE_DECODER = msgspec.json.Decoder(NodeChange)
TOKEN_DECODER = msgspec.json.Decoder(TokenRequest)


@route(
    "POST",
    "/v1/nodes",
    "Join as a node",
    access=Access.JOIN,
    request_body=wire.JoinRequest,
    response_body=wire.JoinResponse,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def join(request: Request) -> Response:
    """Join as a node: a join token creates one, a node's key starts a new incarnation.

    An API key with the scope `node` creates a worker of its tenant.
    """
    components = components_of(request)
    query_of(request)
    body = await decode_body(request, JOIN_DECODER)
    check_text(body.name, "name")
    for name, value in body.labels.items():
        check_text(name, "labels")
        check_text(value, f"labels.{name}")
    bearer: str = request.scope["auth"]
    owner = await components.authenticator.find(bearer)
    if owner is not None:
        check_scope(owner, Scope.NODE)
        check_suspended(owner, request.method)
    return as_json(await components.cluster_manager.join(bearer, body, owner), 201)


@route(
    "GET",
    "/v1/nodes",
    "List nodes, newest first",
    access=Access.READ,
    response_body=task_shapes.Page[fleet_shapes.Node],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_nodes(request: Request) -> Response:
    """List nodes, newest first: all of them for administrators, else the tenant's workers."""
    query = query_of(request)
    limit, before = query.limit(), query.before_id()
    async with cross_tenant_connection(components_of(request)) as conn:
        rows = await overview.read_nodes(
            conn, before=before, limit=limit + 1, tenant_id=_only_tenant(request)
        )
    page = rows[:limit]
    cursor = encode_cursor(page[-1].id) if len(rows) > limit else None
    return as_json(task_shapes.Page([fleet_shapes.node(view) for view in page], cursor))


@route(
    "GET",
    NODE_PATH,
    "Get a node",
    access=Access.READ,
    response_body=fleet_shapes.Node,
    errors=(404,),
)
async def get_node(request: Request) -> Response:
    """Get a node by its id or its name; without the scope `admin`, a worker of one's tenant."""
    query_of(request)
    async with cross_tenant_connection(components_of(request)) as conn:
        node = await find_node(conn, request.path_params["id"], tenant_id=_only_tenant(request))
    return as_json(fleet_shapes.node(node))


def _only_tenant(request: Request) -> int | None:
    """Return the tenant to whose workers the caller is confined; None for administrators."""
    credential = credential_of(request)
    return None if Scope.ADMIN in credential.scopes else credential.tenant_id


@route(
    "PUT",
    NODE_PATH,
    "Drain or undrain a node, or override its capacity",
    access=Access.ADMIN,
    request_body=NodeChange,
    response_body=fleet_shapes.Node,
    errors=(404, 413, 422),
)
async def change_node(request: Request) -> Response:
    """Drain or undrain a node, or override its capacity. Running tasks are not affected."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    change = await decode_body(request, CHANGE_DECODER)
    if change.drain is msgspec.UNSET and change.capacity is msgspec.UNSET:
        raise Invalid("drain", "there is nothing to change. Give drain, capacity or both.")
    async with cross_tenant_connection(components) as conn:
        node = await find_node(conn, request.path_params["id"])
    if change.capacity is not msgspec.UNSET:
        kinds = {} if change.capacity is None else requested_kinds(change.capacity, "capacity")
        override = components.cluster_manager.override_capacity(node.id, kinds, credential)
        await components.timeouts.writing(override)
    if change.drain is not msgspec.UNSET:
        draining = components.cluster_manager.drain(node.id, draining=change.drain, by=credential)
        await components.timeouts.writing(draining)
    async with cross_tenant_connection(components) as conn:
        return as_json(fleet_shapes.node(await find_node(conn, str(node.id))))


@route("DELETE", NODE_PATH, "Remove a node", access=Access.ADMIN, statuses=(204,), errors=(404,))
async def remove_node(request: Request) -> Response:
    """Remove a node for good. Its tasks run elsewhere, and its key is refused."""
    components = components_of(request)
    query_of(request)
    async with cross_tenant_connection(components) as conn:
        node = await find_node(conn, request.path_params["id"])
    await components.timeouts.writing(
        components.cluster_manager.remove(node.id, credential_of(request))
    )
    return no_content()


async def find_node(conn: Connection, text: str, *, tenant_id: int | None = None) -> NodeView:
    """Return a node by its id or its name, or only a worker of a tenant; raises NotFound.

    Workers of several tenants may have one name; an agent of that name goes before them.
    """
    if ID_PATTERN.fullmatch(text):
        number = min(int(text), MAX_ID)
        rows = await overview.read_nodes(conn, node_id=number, tenant_id=tenant_id)
    else:
        name = check_text(text, "id")
        rows = await overview.read_nodes(conn, name=name, tenant_id=tenant_id)
    if not rows:
        raise not_found("node", text)
    return min(rows, key=lambda node: node.tenant is not None)


@route(
    "POST",
    "/v1/node-tokens",
    "Create a join token",
    access=Access.ADMIN,
    request_body=TokenRequest,
    response_body=fleet_shapes.NodeToken,
    statuses=(201,),
    errors=(413, 422),
)
async def create_token(request: Request) -> Response:
    """Create a token with which new nodes may join until it expires or is used up."""
    components = components_of(request)
    query_of(request)
    body = decode(await read_json_body(request) or b"{}", TOKEN_DECODER)
    lifetime = DEFAULT_TOKEN_LIFETIME
    if body.expires_in is not None:
        lifetime = parse_duration(body.expires_in, "expires_in")
    if not timedelta(0) < lifetime <= MAX_TOKEN_LIFETIME:
        raise Invalid("expires_in", "it must be more than 0 and at most 365 days.")
    uses = _parse_uses(body.uses)
    async with cross_tenant_connection(components) as conn:
        now = await database.now(conn)
    creation = components.cluster_manager.create_token(lifetime, credential_of(request), uses=uses)
    token = await components.timeouts.writing(creation)
    shown_uses = UNLIMITED_USES if uses is None else uses
    return as_json(fleet_shapes.NodeToken(token, now + lifetime, shown_uses), 201)


def _parse_uses(requested: int | str | None) -> int | None:
    """Return the number of nodes that a token admits; None means any number."""
    if requested == UNLIMITED_USES:
        return None
    uses = 1 if requested is None else requested
    if isinstance(uses, str) or not 1 <= uses <= MAX_TOKEN_USES:
        raise Invalid(
            "uses", f"give a whole number from 1 to {MAX_TOKEN_USES}, or {UNLIMITED_USES!r}."
        )
    return uses


HANDLERS = [join, list_nodes, get_node, change_node, remove_node, create_token]
