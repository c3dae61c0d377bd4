"""Routes for the users of a tenant."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts.accounts import User, act_for_tenant, id_or_name, parse_scopes, user_response
from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import tenant_connection
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Invalid
from duly.model.requests.texts import check_text
from duly.model.tenant import Credential
from duly.server.accounts.administrators import unknown_in_tenant
from duly.store.accounts import users

USER_PATH = "/v1/users/{id}"


class UserRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/users; without a password the user cannot log in, only hold keys.

    `scopes` default to those of submit, read and manage that the caller holds.
    """

    name: str
    tenant: str | None = None
    password: str | None = None
    scopes: list[str] | None = None


class UserChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/users/{id}; absent fields stay unchanged."""

    password: str | None = None
    scopes: list[str] | None = None


USER_DECODER = msgspec.json.Decoder(UserRequest)
CHANGE_DECODER = msgspec.json.Decoder(UserChange)


@route(
    "POST",
    "/v1/users",
    "Create a user",
    access=Access.MANAGE,
    request_body=UserRequest,
    response_body=User,
    statuses=(201,),
    errors=(404, 409, 413, 422),
)
async def create_user(request: Request) -> Response:
    """Create a user, with no scopes that the caller lacks."""
    components = components_of(request)
    query_of(request)
    body = await decode_body(request, USER_DECODER)
    credential = await act_for_tenant(request, credential_of(request), body.tenant)
    user_id = await components.timeouts.writing(
        components.users.create(
            credential,
            body.name,
            scopes=None if body.scopes is None else parse_scopes(body.scopes),
            password=_check_password(body.password),
        )
    )
    return await _respond(request, credential, user_id, 201)


@route(
    "GET",
    "/v1/users",
    "List the users of a tenant, newest first",
    access=Access.READ,
    response_body=Page[User],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_users(request: Request) -> Response:
    """List the users of a tenant, newest first."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await users.read(conn, credential.tenant_id, before=before, limit=limit + 1)
    cursor = encode_cursor(rows[limit - 1].public_id) if len(rows) > limit else None
    return as_json(Page([user_response(row, credential.tenant) for row in rows[:limit]], cursor))


@route("GET", USER_PATH, "Get a user", access=Access.READ, response_body=User, errors=(404,))
async def get_user(request: Request) -> Response:
    """Get a user by its id or its name."""
    user = await _find_by_path(request)
    return as_json(user_response(user, credential_of(request).tenant))


@route(
    "PATCH",
    USER_PATH,
    "Update a user's password or scopes",
    access=Access.MANAGE,
    request_body=UserChange,
    response_body=User,
    errors=(404, 409, 413, 422),
)
async def update_user(request: Request) -> Response:
    """Update a user. A new password ends its logins; its keys lose the scopes that it loses."""
    components, credential = components_of(request), credential_of(request)
    body = await decode_body(request, CHANGE_DECODER)
    if body.password is None and body.scopes is None:
        raise Invalid("password", "there is nothing to change. Give password, scopes or both.")
    user = await _find_by_path(request)
    await components.timeouts.writing(
        components.users.update(
            credential,
            user.id,
            scopes=None if body.scopes is None else parse_scopes(body.scopes),
            password=_check_password(body.password),
        )
    )
    return await _respond(request, credential, user.id)


@route(
    "DELETE", USER_PATH, "Remove a user", access=Access.MANAGE, statuses=(204,), errors=(404, 409)
)
async def remove_user(request: Request) -> Response:
    """Remove a user and revoke its keys. Its tasks stay."""
    components, user = components_of(request), await _find_by_path(request)
    await components.timeouts.writing(components.users.remove(credential_of(request), user.id))
    return no_content()


def _check_password(text: str | None) -> str | None:
    return None if text is None else check_text(text, "password")


async def _find_by_path(request: Request) -> users.User:
    query_of(request)
    public_id, name = id_or_name(request)
    credential = credential_of(request)
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await users.read(conn, credential.tenant_id, public_id=public_id, name=name)
    if not rows:
        raise unknown_in_tenant(credential, "user", request.path_params["id"])
    return rows[0]


async def _respond(
    request: Request, credential: Credential, user_id: int, status: int = 200
) -> Response:
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await users.read(conn, credential.tenant_id, user_id=user_id)
    if not rows:
        raise users.not_found()
    return as_json(user_response(rows[0], credential.tenant), status)


HANDLERS = [create_user, list_users, get_user, update_user, remove_user]
