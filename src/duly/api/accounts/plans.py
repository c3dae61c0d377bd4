"""Plans: what tenants may have. Administrators make them; a tenant reads its own."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import plan_shapes
from duly.api.auth import Access
from duly.api.body import decode, read_as, read_json
from duly.api.plan_shapes import PlanAnswer
from duly.api.query import query_of, write_cursor
from duly.api.reading import name_of, not_found, overseeing
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import Page
from duly.api.tasks import PAGE
from duly.errors import Invalid
from duly.model.plan_request import PlanRequest, plan_from
from duly.model.tenant import Scope
from duly.store import plans

ALL = "/v1/plans"
ONE = "/v1/plans/{id}"
LARGEST = 2**31 - 1


class PlanChange(PlanRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/plans/{id}: what is left out stays, null takes a limit away."""

    name: str = ""


PLAN = msgspec.json.Decoder(PlanRequest)
CHANGE = msgspec.json.Decoder(PlanChange)
FIELDS = msgspec.json.Decoder(dict[str, Any])


@route(
    "GET",
    ALL,
    "List the plans, newest first",
    access=Access.READ,
    gives=Page[PlanAnswer],
    query=PAGE,
    errors=(422,),
)
async def list_plans(request: Request) -> Response:
    """Return a page of the plans; whoever is no administrator sees the own one alone."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), min(query.before(), LARGEST)
    is_admin = Scope.ADMIN in credential.scopes
    own = None if is_admin else credential.plan.name
    async with overseeing(parts_of(request)) as conn:
        found = await plans.read(
            conn, name=own, before=before, limit=limit + 1, with_tenants=is_admin
        )
    cursor = write_cursor(found[limit - 1].id) if len(found) > limit else None
    page = [plan_shapes.plan(view) for view in found[:limit]]
    return as_json(Page(page, cursor))


@route("GET", ONE, "Look at a plan", access=Access.READ, gives=PlanAnswer, errors=(404, 422))
async def get_plan(request: Request) -> Response:
    """Return a plan; another than the own one is for administrators alone."""
    query_of(request)
    return await _answer(request, name_of(request))


@route(
    "POST",
    ALL,
    "Create a plan",
    access=Access.ADMIN,
    takes=PlanRequest,
    gives=PlanAnswer,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_plan(request: Request) -> Response:
    """Store a new plan, which can then be given to tenants."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    plan = plan_from(await read_as(request, PLAN))
    await parts.timeouts.writing(parts.plan_keeper.create_plan(credential, plan))
    return await _answer(request, plan.name, 201)


@route(
    "PATCH",
    ONE,
    "Change a plan",
    access=Access.ADMIN,
    takes=PlanChange,
    gives=PlanAnswer,
    errors=(404, 409, 413, 422),
)
async def update_plan(request: Request) -> Response:
    """Replace the given fields, for every tenant with this plan; null takes a limit away."""
    parts, credential = parts_of(request), credential_of(request)
    name = name_of(request)
    query_of(request)
    body = await read_json(request)
    decode(body, CHANGE)
    # Decoded once more, because null and left out are not the same in a change.
    changes = decode(body, FIELDS)
    if not changes:
        raise Invalid("max_running", "Say what to change, such as max_running.")
    await parts.timeouts.writing(parts.plan_keeper.update_plan(credential, name, changes))
    return await _answer(request, name)


@route("DELETE", ONE, "Remove a plan", access=Access.ADMIN, statuses=(204,), errors=(404, 409, 422))
async def remove_plan(request: Request) -> Response:
    """Remove a plan that no tenant has."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    await parts.timeouts.writing(parts.plan_keeper.remove_plan(credential, name_of(request)))
    return no_content()


async def _answer(request: Request, name: str, status: int = 200) -> Response:
    credential = credential_of(request)
    is_admin = Scope.ADMIN in credential.scopes
    async with overseeing(parts_of(request)) as conn:
        found = await plans.read(conn, name=name, with_tenants=is_admin)
    # Looked up in any case: how long it takes must not tell whether there is one.
    if not found or (not is_admin and name != credential.plan.name):
        raise not_found("plan", name)
    return as_json(plan_shapes.plan(found[0]), status)


HANDLERS = [list_plans, get_plan, create_plan, update_plan, remove_plan]
