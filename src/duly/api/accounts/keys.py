"""The keys of a tenant: made, looked at without what opens anything, changed and revoked."""

from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import read_as
from duly.api.people import (
    Key,
    NewKey,
    for_tenant,
    id_or_name,
    key_answer,
    new_key_answer,
    scopes_of,
)
from duly.api.query import query_of, write_cursor
from duly.api.reading import not_found, reading
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.shapes import Page
from duly.api.tasks import PAGE
from duly.duration import parse_duration
from duly.errors import Conflict, Invalid
from duly.model.request import check_text
from duly.server.administrators import unknown
from duly.server.keys import KeyChange, KeyRequest
from duly.store import keys
from duly.store.keys import KeyFilter
from duly.store.tenants import PREFIX

ONE = "/v1/keys/{id}"
LONGEST = timedelta(days=3653)
LONGEST_NAME = 100
FILTER = (
    *PAGE,
    Parameter("user", "Those of this user."),
    Parameter("service", "Those of this service."),
    Parameter("prefix", "Those that begin like this, with 12 characters."),
    Parameter("all", "Also those that are revoked or have expired.", bool),
)


class KeyBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/keys; a user that does not exist yet is made, without a password."""

    scopes: list[str]
    tenant: str | None = None
    user: str | None = None
    service: str | None = None
    name: str | None = None
    expires_in: float | str | None = None


class KeyChangeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/keys/{id}: what is left out stays, null is no name, or no end."""

    scopes: list[str] | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    expires_in: float | str | UnsetType | None = UNSET


KEY = msgspec.json.Decoder(KeyBody)
CHANGE = msgspec.json.Decoder(KeyChangeBody)


@route(
    "POST",
    "/v1/keys",
    "Create a key",
    access=Access.MANAGE,
    takes=KeyBody,
    gives=NewKey,
    statuses=(201,),
    errors=(404, 409, 413, 422),
)
async def create_key(request: Request) -> Response:
    """Make a key that may do no more than the caller; this answer alone shows it."""
    parts = parts_of(request)
    query_of(request)
    asked = await read_as(request, KEY)
    credential = await for_tenant(request, credential_of(request), asked.tenant)
    made, secret = await parts.timeouts.writing(parts.keys.create(credential, _request(asked)))
    async with reading(parts, credential) as conn:
        found = await keys.read(conn, credential.tenant_id, KeyFilter(key_id=made))
    if not found:
        raise not_found("key", made)
    return as_json(new_key_answer(found[0], credential.tenant, secret), 201)


@route(
    "GET",
    "/v1/keys",
    "List the keys of a tenant, newest first",
    access=Access.MANAGE,
    gives=Page[Key],
    query=FILTER,
    errors=(422,),
)
async def list_keys(request: Request) -> Response:
    """Return a page of the keys, without what opens anything."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    which = KeyFilter(
        prefix=query.one("prefix"),
        user=query.one("user"),
        service=query.one("service"),
        with_ended=query.flag("all"),
    )
    async with reading(parts_of(request), credential) as conn:
        found = await keys.read(conn, credential.tenant_id, which, before=before, limit=limit + 1)
    cursor = write_cursor(found[limit - 1].id) if len(found) > limit else None
    return as_json(Page([key_answer(one, credential.tenant) for one in found[:limit]], cursor))


@route("GET", ONE, "Look at a key", access=Access.MANAGE, gives=Key, errors=(404, 409))
async def get_key(request: Request) -> Response:
    """Return a key by its id or its prefix."""
    query_of(request)
    credential = credential_of(request)
    key_id, prefix = id_or_name(request)
    async with reading(parts_of(request), credential) as conn:
        which = KeyFilter(key_id=key_id, prefix=prefix)
        found = await keys.read(conn, credential.tenant_id, which, limit=2)
    if not found:
        raise unknown(credential, "key", _safe(request))
    if len(found) > 1:
        raise Conflict("More than one key begins like this; name it by its id.")
    return as_json(key_answer(found[0], credential.tenant))


@route(
    "PATCH",
    ONE,
    "Change a key's scopes, name or end",
    access=Access.MANAGE,
    takes=KeyChangeBody,
    gives=Key,
    errors=(404, 409, 413, 422),
)
async def update_key(request: Request) -> Response:
    """Change a key that can be used; who holds it stays, and it may do no more than the caller."""
    query_of(request)
    parts, credential = parts_of(request), credential_of(request)
    key_id, prefix = id_or_name(request)
    change = _change(await read_as(request, CHANGE))
    changed = await parts.timeouts.writing(
        parts.keys.update(credential, change, key_id=key_id, prefix=prefix)
    )
    async with reading(parts, credential) as conn:
        found = await keys.read(conn, credential.tenant_id, KeyFilter(key_id=changed))
    if not found:
        raise not_found("key", changed)
    return as_json(key_answer(found[0], credential.tenant))


@route("DELETE", ONE, "Revoke a key", access=Access.MANAGE, statuses=(204,), errors=(404, 409))
async def revoke_key(request: Request) -> Response:
    """Let a key open nothing any more, on every server in a moment."""
    query_of(request)
    parts = parts_of(request)
    key_id, prefix = id_or_name(request)
    await parts.timeouts.writing(
        parts.keys.revoke(credential_of(request), key_id=key_id, prefix=prefix)
    )
    return no_content()


def _request(asked: KeyBody) -> KeyRequest:
    return KeyRequest(
        scopes=scopes_of(asked.scopes),
        user=asked.user,
        service=asked.service,
        name=_name(asked.name),
        lasts=_lasts(asked.expires_in),
    )


def _change(asked: KeyChangeBody) -> KeyChange:
    if asked.name is UNSET and asked.scopes is UNSET and asked.expires_in is UNSET:
        raise Invalid("name", "Say what to change: name, scopes, expires_in.")
    return KeyChange(
        scopes=UNSET if asked.scopes is UNSET else scopes_of(asked.scopes),
        name=UNSET if asked.name is UNSET else _name(asked.name),
        lasts=UNSET if asked.expires_in is UNSET else _lasts(asked.expires_in),
    )


def _name(name: str | None) -> str | None:
    if name is not None and not 0 < len(check_text(name, "name")) <= LONGEST_NAME:
        raise Invalid("name", f"name has 1 to {LONGEST_NAME} characters.")
    return name


def _lasts(expires_in: float | str | None) -> timedelta | None:
    lasts = None if expires_in is None else parse_duration(expires_in, "expires_in")
    if lasts is not None and not timedelta(0) < lasts <= LONGEST:
        raise Invalid("expires_in", "expires_in must be more than 0 and at most 10 years.")
    return lasts


def _safe(request: Request) -> str:
    """Return what the path says, unless it may be a whole key, which is not to be repeated."""
    text: str = request.path_params["id"]
    return text if len(text) <= PREFIX or text.isdecimal() else f"{text[:PREFIX]}…"


HANDLERS = [create_key, list_keys, get_key, update_key, revoke_key]
