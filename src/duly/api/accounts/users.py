"""The users of a tenant."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import read_as
from duly.api.people import User, for_tenant, id_or_name, scopes_of, user_answer
from duly.api.query import query_of, write_cursor
from duly.api.reading import reading
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import Page
from duly.api.tasks import PAGE
from duly.errors import Invalid
from duly.model.request import check_text
from duly.model.tenant import Credential
from duly.server.administrators import unknown
from duly.store import users

ONE = "/v1/users/{id}"


class UserRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/users; without a password it cannot log in, only hold keys.

    `scopes` are submit, read and manage unless told, as far as the caller may give them.
    """

    name: str
    tenant: str | None = None
    password: str | None = None
    scopes: list[str] | None = None


class UserChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/users/{id}; what is left out stays."""

    password: str | None = None
    scopes: list[str] | None = None


USER = msgspec.json.Decoder(UserRequest)
CHANGE = msgspec.json.Decoder(UserChange)


@route(
    "POST",
    "/v1/users",
    "Create a user",
    access=Access.MANAGE,
    takes=UserRequest,
    gives=User,
    statuses=(201,),
    errors=(404, 409, 413, 422),
)
async def create_user(request: Request) -> Response:
    """Make a user, who may do no more than the caller."""
    parts = parts_of(request)
    query_of(request)
    asked = await read_as(request, USER)
    credential = await for_tenant(request, credential_of(request), asked.tenant)
    made = await parts.timeouts.writing(
        parts.users.create(
            credential,
            asked.name,
            scopes=None if asked.scopes is None else scopes_of(asked.scopes),
            password=_password(asked.password),
        )
    )
    return await _answer(request, credential, made, 201)


@route(
    "GET",
    "/v1/users",
    "List the users of a tenant, newest first",
    access=Access.READ,
    gives=Page[User],
    query=PAGE,
    errors=(422,),
)
async def list_users(request: Request) -> Response:
    """Return a page of the users."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    async with reading(parts_of(request), credential) as conn:
        found = await users.read(conn, credential.tenant_id, before=before, limit=limit + 1)
    cursor = write_cursor(found[limit - 1].public_id) if len(found) > limit else None
    return as_json(Page([user_answer(one, credential.tenant) for one in found[:limit]], cursor))


@route("GET", ONE, "Look at a user", access=Access.READ, gives=User, errors=(404,))
async def get_user(request: Request) -> Response:
    """Return a user by its id or its name."""
    found = await _look_up(request)
    return as_json(user_answer(found, credential_of(request).tenant))


@route(
    "PATCH",
    ONE,
    "Change a user's password or scopes",
    access=Access.MANAGE,
    takes=UserChange,
    gives=User,
    errors=(404, 409, 413, 422),
)
async def update_user(request: Request) -> Response:
    """Change a user: a new password ends its logins, and scopes it loses its keys lose too."""
    parts, credential = parts_of(request), credential_of(request)
    asked = await read_as(request, CHANGE)
    if asked.password is None and asked.scopes is None:
        raise Invalid("password", "Say what to change: password, scopes, or both.")
    found = await _look_up(request)
    await parts.timeouts.writing(
        parts.users.update(
            credential,
            found.id,
            scopes=None if asked.scopes is None else scopes_of(asked.scopes),
            password=_password(asked.password),
        )
    )
    return await _answer(request, credential, found.id)


@route("DELETE", ONE, "Remove a user", access=Access.MANAGE, statuses=(204,), errors=(404, 409))
async def remove_user(request: Request) -> Response:
    """Remove a user and revoke its keys; its tasks stay."""
    parts, found = parts_of(request), await _look_up(request)
    await parts.timeouts.writing(parts.users.remove(credential_of(request), found.id))
    return no_content()


def _password(text: str | None) -> str | None:
    return None if text is None else check_text(text, "password")


async def _look_up(request: Request) -> users.User:
    query_of(request)
    public_id, name = id_or_name(request)
    credential = credential_of(request)
    async with reading(parts_of(request), credential) as conn:
        found = await users.read(conn, credential.tenant_id, public_id=public_id, name=name)
    if not found:
        raise unknown(credential, "user", request.path_params["id"])
    return found[0]


async def _answer(
    request: Request, credential: Credential, user_id: int, status: int = 200
) -> Response:
    async with reading(parts_of(request), credential) as conn:
        found = await users.read(conn, credential.tenant_id, user_id=user_id)
    if not found:
        raise users.gone()
    return as_json(user_answer(found[0], credential.tenant), status)


HANDLERS = [create_user, list_users, get_user, update_user, remove_user]
