"""Tiers: what their names stand for, for everybody and for the caller's tenant."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import plan_shapes
from duly.api.auth import Access
from duly.api.body import read_as
from duly.api.plan_shapes import TierAnswer
from duly.api.query import query_of
from duly.api.reading import name_of, not_found, reading
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.shapes import Page
from duly.errors import Forbidden
from duly.model.tenant import Credential, Scope
from duly.model.tier_request import TierChange, TierRequest
from duly.store import tiers

ALL = "/v1/tiers"
ONE = "/v1/tiers/{id}"
TIER = msgspec.json.Decoder(TierRequest)
CHANGE = msgspec.json.Decoder(TierChange)


@route(
    "GET",
    ALL,
    "List the tiers that the caller's tenant knows",
    access=Access.READ,
    gives=Page[TierAnswer],
)
async def list_tiers(request: Request) -> Response:
    """Return all of them, there are never many: Duly's own, everybody's, the tenant's."""
    query_of(request)
    return as_json(Page(await _known(request), None))


@route("GET", ONE, "Look at a tier", access=Access.READ, gives=TierAnswer, errors=(404, 422))
async def get_tier(request: Request) -> Response:
    """Return what the name of a tier stands for, for the caller's tenant."""
    query_of(request)
    return await _answer(request, name_of(request))


@route(
    "POST",
    ALL,
    "Create a tier",
    access=Access.MANAGE,
    takes=TierRequest,
    gives=TierAnswer,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_tier(request: Request) -> Response:
    """Say what a name stands for, within the tenant's plan, or for everyone."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    asked = await read_as(request, TIER)
    _check_everyone(credential, everyone=asked.everyone)
    making = parts.plan_keeper.create_tier(
        credential, asked.name, asked.resources, everyone=asked.everyone
    )
    await parts.timeouts.writing(making)
    return await _answer(request, asked.name, 201)


@route(
    "PATCH",
    ONE,
    "Change a tier",
    access=Access.MANAGE,
    takes=TierChange,
    gives=TierAnswer,
    errors=(404, 409, 413, 422),
)
async def update_tier(request: Request) -> Response:
    """Change what a name stands for, kind by kind, for the tenant or for everyone."""
    parts, credential = parts_of(request), credential_of(request)
    name = name_of(request)
    query_of(request)
    asked = await read_as(request, CHANGE)
    _check_everyone(credential, everyone=asked.everyone)
    changing = parts.plan_keeper.update_tier(
        credential, name, asked.resources, everyone=asked.everyone
    )
    await parts.timeouts.writing(changing)
    return await _answer(request, name)


@route(
    "DELETE",
    ONE,
    "Remove a tier",
    access=Access.MANAGE,
    statuses=(204,),
    query=(Parameter("everyone", "Whether that of everyone is meant, not the own one.", bool),),
    errors=(404, 409, 422),
)
async def remove_tier(request: Request) -> Response:
    """Take back what was said of a name; it then means what it meant before, if anything."""
    parts, credential = parts_of(request), credential_of(request)
    everyone = query_of(request).flag("everyone")
    _check_everyone(credential, everyone=everyone)
    removing = parts.plan_keeper.remove_tier(credential, name_of(request), everyone=everyone)
    await parts.timeouts.writing(removing)
    return no_content()


def _check_everyone(credential: Credential, *, everyone: bool) -> None:
    if everyone and Scope.ADMIN not in credential.scopes:
        raise Forbidden("What concerns everyone needs a key with the scope 'admin'.", scope="admin")


async def _known(request: Request) -> list[TierAnswer]:
    credential = credential_of(request)
    async with reading(parts_of(request), credential) as conn:
        said = await tiers.read(conn, credential.tenant_id)
    return plan_shapes.tiers(said, credential.plan)


async def _answer(request: Request, name: str, status: int = 200) -> Response:
    for tier in await _known(request):
        if tier.name == name:
            return as_json(tier, status)
    raise not_found("tier", name)


HANDLERS = [list_tiers, get_tier, create_tier, update_tier, remove_tier]
