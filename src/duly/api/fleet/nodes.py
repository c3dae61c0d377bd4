"""Nodes: how they join, and what operators see and say."""

from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import wire
from duly.api import cluster_shapes, shapes
from duly.api.auth import Access
from duly.api.body import decode, read_as, read_json
from duly.api.query import query_of, write_cursor
from duly.api.reading import ID, not_found, overseeing
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.tasks import PAGE
from duly.duration import parse_duration
from duly.errors import Invalid
from duly.model.amounts import ResourcesRequest, kinds_of
from duly.model.node import UNLIMITED
from duly.model.request import check_text
from duly.store import database, overview
from duly.store.database import Connection
from duly.store.overview import NodeView
from duly.store.views import LARGEST_ID

ONE = "/v1/nodes/{id}"
TOKEN_LASTS = timedelta(hours=1)
LONGEST_TOKEN = timedelta(days=365)
MAX_TOKEN_USES = 1_000_000


class NodeChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PUT /v1/nodes/{id}; what is left out stays as it is.

    `capacity` replaces what the agent says, kind by kind; null leaves all to the agent again.
    """

    drain: bool | msgspec.UnsetType = msgspec.UNSET
    capacity: ResourcesRequest | msgspec.UnsetType | None = msgspec.UNSET


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/node-tokens.

    A token lasts for an hour and admits one node by default; `uses` is another number of nodes,
    or "unlimited".
    """

    expires_in: float | str | None = None
    uses: int | str | None = None


JOIN = msgspec.json.Decoder(wire.Join)
CHANGE = msgspec.json.Decoder(NodeChange)
TOKEN = msgspec.json.Decoder(TokenRequest)


@route(
    "POST",
    "/v1/nodes",
    "Join as a node",
    access=Access.JOIN,
    takes=wire.Join,
    gives=wire.Joined,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def join(request: Request) -> Response:
    """Begin a new incarnation of a node's agent; a join token makes a new node."""
    parts = parts_of(request)
    query_of(request)
    asked = await read_as(request, JOIN)
    check_text(asked.name, "name")
    for name, value in asked.labels.items():
        check_text(name, "labels")
        check_text(value, f"labels.{name}")
    return as_json(await parts.cluster_manager.join(request.scope["auth"], asked), 201)


@route(
    "GET",
    "/v1/nodes",
    "List the nodes, newest first",
    access=Access.ADMIN,
    gives=shapes.Page[cluster_shapes.Node],
    query=PAGE,
    errors=(422,),
)
async def list_nodes(request: Request) -> Response:
    """Return a page of the nodes."""
    query = query_of(request)
    limit, before = query.limit(), query.before()
    async with overseeing(parts_of(request)) as conn:
        found = await overview.read_nodes(conn, before=before, limit=limit + 1)
    page = found[:limit]
    cursor = write_cursor(page[-1].id) if len(found) > limit else None
    return as_json(shapes.Page([cluster_shapes.node(view) for view in page], cursor))


@route("GET", ONE, "Look at a node", access=Access.ADMIN, gives=cluster_shapes.Node, errors=(404,))
async def get_node(request: Request) -> Response:
    """Return a node by its id or by its name."""
    query_of(request)
    async with overseeing(parts_of(request)) as conn:
        return as_json(cluster_shapes.node(await find_node(conn, request.path_params["id"])))


@route(
    "PUT",
    ONE,
    "Drain a node, let it take tasks again, or say what it has",
    access=Access.ADMIN,
    takes=NodeChange,
    gives=cluster_shapes.Node,
    errors=(404, 413, 422),
)
async def change_node(request: Request) -> Response:
    """Change what a node takes from now on; the tasks that run there go on to their end."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    change = await read_as(request, CHANGE)
    if change.drain is msgspec.UNSET and change.capacity is msgspec.UNSET:
        raise Invalid("drain", "Say what to change: drain, capacity, or both.")
    async with overseeing(parts) as conn:
        node = await find_node(conn, request.path_params["id"])
    if change.capacity is not msgspec.UNSET:
        kinds = {} if change.capacity is None else kinds_of(change.capacity, "capacity")
        saying = parts.cluster_manager.override_capacity(node.id, kinds, credential)
        await parts.timeouts.writing(saying)
    if change.drain is not msgspec.UNSET:
        draining = parts.cluster_manager.drain(node.id, draining=change.drain, by=credential)
        await parts.timeouts.writing(draining)
    async with overseeing(parts) as conn:
        return as_json(cluster_shapes.node(await find_node(conn, str(node.id))))


@route("DELETE", ONE, "Remove a node", access=Access.ADMIN, statuses=(204,), errors=(404,))
async def remove_node(request: Request) -> Response:
    """Take a node away for good: what runs there is handed over, and its key is refused."""
    parts = parts_of(request)
    query_of(request)
    async with overseeing(parts) as conn:
        node = await find_node(conn, request.path_params["id"])
    await parts.timeouts.writing(parts.cluster_manager.remove(node.id, credential_of(request)))
    return no_content()


async def find_node(conn: Connection, text: str) -> NodeView:
    """Return a node by its id or its name; raises NotFound when there is none."""
    if ID.fullmatch(text):
        found = await overview.read_nodes(conn, node_id=min(int(text), LARGEST_ID))
    else:
        found = await overview.read_nodes(conn, name=check_text(text, "id"))
    if not found:
        raise not_found("node", text)
    return found[0]


@route(
    "POST",
    "/v1/node-tokens",
    "Create a join token",
    access=Access.ADMIN,
    takes=TokenRequest,
    gives=cluster_shapes.NodeToken,
    statuses=(201,),
    errors=(413, 422),
)
async def create_token(request: Request) -> Response:
    """Return a token with which new nodes may join until it expires or is used up."""
    parts = parts_of(request)
    query_of(request)
    body = await read_json(request)
    asked = decode(body or b"{}", TOKEN)
    lasts = TOKEN_LASTS
    if asked.expires_in is not None:
        lasts = parse_duration(asked.expires_in, "expires_in")
    if not timedelta(0) < lasts <= LONGEST_TOKEN:
        raise Invalid("expires_in", "expires_in must be more than 0 and at most 365 days.")
    uses = _uses(asked.uses)
    async with overseeing(parts) as conn:
        now = await database.now(conn)
    making = parts.cluster_manager.create_token(lasts, credential_of(request), uses=uses)
    token = await parts.timeouts.writing(making)
    told = UNLIMITED if uses is None else uses
    return as_json(cluster_shapes.NodeToken(token, now + lasts, told), 201)


def _uses(asked: int | str | None) -> int | None:
    """Return how many nodes a token is to admit; None means any number."""
    if asked == UNLIMITED:
        return None
    uses = 1 if asked is None else asked
    if isinstance(uses, str) or not 1 <= uses <= MAX_TOKEN_USES:
        raise Invalid(
            "uses", f'uses must be a number from 1 to {MAX_TOKEN_USES}, or "{UNLIMITED}".'
        )
    return uses


HANDLERS = [join, list_nodes, get_node, change_node, remove_node, create_token]
