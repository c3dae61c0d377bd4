"""Logging in with a password, and out again."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import decode, read_body
from duly.api.people import NewKey, new_key_answer
from duly.api.query import query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.model.request import check_text

LARGEST = 16 * 1024
"""Bytes of a body that anybody may send."""


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/login."""

    tenant: str
    user: str
    password: str


LOGIN = msgspec.json.Decoder(LoginRequest)


@route(
    "POST",
    "/v1/login",
    "Log in with a password",
    access=Access.LOGIN,
    takes=LoginRequest,
    gives=NewKey,
    statuses=(201,),
    errors=(401, 413, 422, 429),
)
async def log_in(request: Request) -> Response:
    """Return a key with the user's scopes, good for 12 hours or until it logs out."""
    parts = parts_of(request)
    query_of(request)
    asked = decode(await read_body(request, LARGEST), LOGIN)
    for field in ("tenant", "user", "password"):
        check_text(getattr(asked, field), field)
    begun = await parts.timeouts.writing(
        parts.logins.log_in(asked.tenant, asked.user, asked.password)
    )
    return as_json(new_key_answer(begun.key, begun.credential.tenant, begun.secret), 201)


@route(
    "POST",
    "/v1/logout",
    "Log out",
    access=Access.OWN,
    statuses=(204,),
    errors=(409,),
)
async def log_out(request: Request) -> Response:
    """Revoke the key of this request, which must have been got by logging in."""
    query_of(request)
    parts = parts_of(request)
    await parts.timeouts.writing(parts.logins.log_out(credential_of(request)))
    return no_content()


HANDLERS = [log_in, log_out]
