"""Routes to log in with a password and to log out."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts.accounts import NewKey, new_key_response
from duly.api.auth import Access
from duly.api.requests.body import decode, read_body
from duly.api.requests.query import query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.model.requests.texts import check_text

MAX_BODY_BYTES = 16 * 1024
"""Small, because the caller is not authenticated."""


class LoginRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/login."""

    tenant: str
    user: str
    password: str


LOGIN_DECODER = msgspec.json.Decoder(LoginRequest)


@route(
    "POST",
    "/v1/login",
    "Log in with a password",
    access=Access.LOGIN,
    request_body=LoginRequest,
    response_body=NewKey,
    statuses=(201,),
    errors=(401, 413, 422, 429),
)
async def log_in(request: Request) -> Response:
    """Log in. The response has a key with the user's scopes, valid for 12 hours or until logout."""
    components = components_of(request)
    query_of(request)
    body = decode(await read_body(request, MAX_BODY_BYTES), LOGIN_DECODER)
    for field in ("tenant", "user", "password"):
        check_text(getattr(body, field), field)
    session = await components.timeouts.writing(
        components.logins.log_in(body.tenant, body.user, body.password)
    )
    return as_json(new_key_response(session.key, session.credential.tenant, session.secret), 201)


@route(
    "POST",
    "/v1/logout",
    "Log out",
    access=Access.OWN,
    statuses=(204,),
    errors=(409,),
)
async def log_out(request: Request) -> Response:
    """Log out: revoke the key of this request, which must come from a login."""
    query_of(request)
    components = components_of(request)
    await components.timeouts.writing(components.logins.log_out(credential_of(request)))
    return no_content()


HANDLERS = [log_in, log_out]
