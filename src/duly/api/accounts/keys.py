"""Routes for API keys: create, list, get, update and revoke."""

from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts.accounts import (
    Key,
    NewKey,
    act_for_tenant,
    id_or_name,
    key_response,
    new_key_response,
    parse_scopes,
)
from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import not_found, tenant_connection
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.duration import parse_duration
from duly.errors import Conflict, Invalid
from duly.model.requests.texts import check_text
from duly.model.wording import count_of
from duly.server.accounts.administrators import unknown_in_tenant
from duly.server.accounts.keys import KeyChange, KeyRequest
from duly.store.accounts import keys
from duly.store.accounts.keys import KeyFilter
from duly.store.accounts.tenants import KEY_PREFIX_LENGTH

KEY_PATH = "/v1/keys/{id}"
MAX_LIFETIME = timedelta(days=3653)
MAX_NAME_CHARACTERS = 100
LIST_PARAMETERS = (
    *PAGE_PARAMETERS,
    Parameter("user", "Keys of this user."),
    Parameter("service", "Keys of this service."),
    Parameter("prefix", "The key with this prefix of 12 characters."),
    Parameter("all", "Include revoked and expired keys.", bool),
)


class KeyBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/keys; a user that does not exist is created without a password."""

    scopes: list[str]
    tenant: str | None = None
    user: str | None = None
    service: str | None = None
    name: str | None = None
    expires_in: float | str | None = None


class KeyChangeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/keys/{id}; absent fields stay unchanged, null is no name or no end."""

    scopes: list[str] | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    expires_in: float | str | UnsetType | None = UNSET


KEY_DECODER = msgspec.json.Decoder(KeyBody)
CHANGE_DECODER = msgspec.json.Decoder(KeyChangeBody)


@route(
    "POST",
    "/v1/keys",
    "Create a key",
    access=Access.MANAGE,
    request_body=KeyBody,
    response_body=NewKey,
    statuses=(201,),
    errors=(404, 409, 413, 422),
)
async def create_key(request: Request) -> Response:
    """Create a key, with no scopes that the caller lacks. Only this response shows its secret."""
    components = components_of(request)
    query_of(request)
    body = await decode_body(request, KEY_DECODER)
    credential = await act_for_tenant(request, credential_of(request), body.tenant)
    key_id, secret = await components.timeouts.writing(
        components.keys.create(credential, _key_request(body))
    )
    async with tenant_connection(components, credential) as conn:
        rows = await keys.read(conn, credential.tenant_id, KeyFilter(key_id=key_id))
    if not rows:
        raise not_found("key", key_id)
    return as_json(new_key_response(rows[0], credential.tenant, secret), 201)


@route(
    "GET",
    "/v1/keys",
    "List the keys of a tenant, newest first",
    access=Access.MANAGE,
    response_body=Page[Key],
    query=LIST_PARAMETERS,
    errors=(422,),
)
async def list_keys(request: Request) -> Response:
    """List the keys of a tenant, newest first, without their secrets."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    key_filter = KeyFilter(
        prefix=query.get("prefix"),
        user=query.get("user"),
        service=query.get("service"),
        with_ended=query.flag("all"),
    )
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await keys.read(
            conn, credential.tenant_id, key_filter, before=before, limit=limit + 1
        )
    cursor = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return as_json(Page([key_response(row, credential.tenant) for row in rows[:limit]], cursor))


@route("GET", KEY_PATH, "Get a key", access=Access.MANAGE, response_body=Key, errors=(404, 409))
async def get_key(request: Request) -> Response:
    """Get a key by its id or its prefix."""
    query_of(request)
    credential = credential_of(request)
    key_id, prefix = id_or_name(request)
    async with tenant_connection(components_of(request), credential) as conn:
        key_filter = KeyFilter(key_id=key_id, prefix=prefix)
        rows = await keys.read(conn, credential.tenant_id, key_filter, limit=2)
    if not rows:
        raise unknown_in_tenant(credential, "key", _redacted_id(request))
    if len(rows) > 1:
        raise Conflict("Several keys begin with this prefix. Give the ID of the key.")
    return as_json(key_response(rows[0], credential.tenant))


@route(
    "PATCH",
    KEY_PATH,
    "Update a key's scopes, name or expiry",
    access=Access.MANAGE,
    request_body=KeyChangeBody,
    response_body=Key,
    errors=(404, 409, 413, 422),
)
async def update_key(request: Request) -> Response:
    """Update an active key. It gets no scopes that the caller lacks, and its owner stays."""
    query_of(request)
    components, credential = components_of(request), credential_of(request)
    key_id, prefix = id_or_name(request)
    change = _key_change(await decode_body(request, CHANGE_DECODER))
    updated_id = await components.timeouts.writing(
        components.keys.update(credential, change, key_id=key_id, prefix=prefix)
    )
    async with tenant_connection(components, credential) as conn:
        rows = await keys.read(conn, credential.tenant_id, KeyFilter(key_id=updated_id))
    if not rows:
        raise not_found("key", updated_id)
    return as_json(key_response(rows[0], credential.tenant))


@route("DELETE", KEY_PATH, "Revoke a key", access=Access.MANAGE, statuses=(204,), errors=(404, 409))
async def revoke_key(request: Request) -> Response:
    """Revoke a key. All servers refuse it within moments."""
    query_of(request)
    components = components_of(request)
    key_id, prefix = id_or_name(request)
    await components.timeouts.writing(
        components.keys.revoke(credential_of(request), key_id=key_id, prefix=prefix)
    )
    return no_content()


def _key_request(body: KeyBody) -> KeyRequest:
    return KeyRequest(
        scopes=parse_scopes(body.scopes),
        user=body.user,
        service=body.service,
        name=_check_name(body.name),
        lasts=_parse_lifetime(body.expires_in),
    )


def _key_change(body: KeyChangeBody) -> KeyChange:
    if body.name is UNSET and body.scopes is UNSET and body.expires_in is UNSET:
        raise Invalid("name", "there is nothing to change. Give name, scopes or expires_in.")
    return KeyChange(
        scopes=UNSET if body.scopes is UNSET else parse_scopes(body.scopes),
        name=UNSET if body.name is UNSET else _check_name(body.name),
        lasts=UNSET if body.expires_in is UNSET else _parse_lifetime(body.expires_in),
    )


def _check_name(name: str | None) -> str | None:
    if name is not None and not 0 < len(check_text(name, "name")) <= MAX_NAME_CHARACTERS:
        problem = f"it has {count_of(len(name), 'character')}. Use 1 to {MAX_NAME_CHARACTERS}."
        raise Invalid("name", problem)
    return name


def _parse_lifetime(expires_in: float | str | None) -> timedelta | None:
    lifetime = None if expires_in is None else parse_duration(expires_in, "expires_in")
    if lifetime is not None and not timedelta(0) < lifetime <= MAX_LIFETIME:
        raise Invalid("expires_in", "it must be more than 0 and at most 10 years.")
    return lifetime


def _redacted_id(request: Request) -> str:
    """Return the id or prefix in the path, truncated if it may be a whole key: a secret."""
    text: str = request.path_params["id"]
    return (
        text
        if len(text) <= KEY_PREFIX_LENGTH or text.isdecimal()
        else f"{text[:KEY_PREFIX_LENGTH]}…"
    )


HANDLERS = [create_key, list_keys, get_key, update_key, revoke_key]
