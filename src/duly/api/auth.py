"""Who may call what: every route declares it.

The tenant comes from the key alone. An administrator may act for another tenant
with `?tenant=`, and only an administrator.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request

from duly.errors import Forbidden, Invalid, NotFound, TenantSuspended, Unauthenticated
from duly.model import attempt_key
from duly.model.attempt_key import AttemptKey
from duly.model.tenant import Credential, Scope
from duly.server.parts import Parts
from duly.store import views
from duly.store.lanes import Lane
from duly.store.views import OtherTenant

ON_IDENTIFIED = "duly.on_identified"
"""In the scope of a request whose caller the door does not know: takes the id of its tenant, or
None on a route that needs no key; raises Unavailable when that tenant has its share already."""


class Access(StrEnum):
    """What a route asks of its caller."""

    PUBLIC = "public"
    """Nothing; the path must match exactly."""
    LOGIN = "login"
    """No key, but a password in the body; the path must match exactly."""
    OWN = "own"
    """Any key that is valid, whatever its scopes: it is about that key itself."""
    JOIN = "join"
    """A join token or a node's key, which the cluster manager checks."""
    NODE = "node"
    """The key of a node."""
    ATTEMPT = "attempt"
    """The key of an attempt that runs."""
    SUBMIT = "submit"
    READ = "read"
    MANAGE = "manage"
    ADMIN = "admin"


SCOPES = {
    Access.SUBMIT: Scope.SUBMIT,
    Access.READ: Scope.READ,
    Access.MANAGE: Scope.MANAGE,
    Access.ADMIN: Scope.ADMIN,
}
"""What a key must be good for."""


async def guard(request: Request) -> None:
    """Let the caller pass if the route declares that it may, and note who it is.

    It runs before every handler. What takes long calls it again as it goes on: a key that was
    revoked meanwhile is good for nothing more.
    """
    access: Access = request.scope["route"].operation.access
    if access in (Access.PUBLIC, Access.LOGIN):
        _check_exact(request)
        _identify(request, None)
        return
    parts: Parts = request.app.parts
    bearer = bearer_of(request)
    if access is Access.ATTEMPT or bearer.startswith(attempt_key.PREFIX):
        request.scope["auth"] = await _attempt(parts, bearer, access)
    elif access is Access.JOIN:
        request.scope["auth"] = bearer
    elif access is Access.NODE:
        node_id = parts.authenticator.recall_node(bearer)
        if node_id is None:
            async with parts.timeouts.reading():
                node_id = await parts.authenticator.authenticate_node(bearer)
        request.scope["auth"] = node_id
    else:
        credential = parts.authenticator.recall(bearer)
        if credential is None:
            async with parts.timeouts.reading():
                credential = await parts.authenticator.authenticate(bearer)
        _identify(request, credential.tenant_id)
        if access is not Access.OWN:
            _check_scope(credential, SCOPES[access])
            _check_suspended(credential, str(request.scope.get("method")))
        query = request.scope["query_string"]
        # As it is written almost always, or in any other spelling that means the same.
        if b"tenant" in query or b"%" in query:
            credential = await _for_tenant(parts, credential, query)
        request.scope["auth"] = credential


def _identify(request: Request, tenant_id: int | None) -> None:
    """Tell the door, once, for which tenant a caller speaks that it did not know."""
    on_identified: Any = request.scope.pop(ON_IDENTIFIED, None)
    if on_identified is not None:
        on_identified(tenant_id)


def bearer_of(request: Request) -> str:
    """Return the key that the caller shows; raises Unauthenticated when there is none."""
    bearer = bearer_in(request.scope["headers"])
    if bearer is None:
        raise Unauthenticated("Send a key as `Authorization: Bearer KEY`.")
    return bearer


def bearer_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the key in the headers, if there is exactly one."""
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) == 1:
        kind, _, key = found[0].decode("latin-1").partition(" ")
        if kind.lower() == "bearer" and key.strip():
            return key.strip()
    return None


def may_submit(credential: Credential) -> bool:
    """Say whether the guard lets it submit for its own tenant."""
    scopes = credential.scopes
    return not credential.is_suspended and (Scope.SUBMIT in scopes or Scope.ADMIN in scopes)


async def _attempt(parts: Parts, bearer: str, access: Access) -> AttemptKey:
    """Return for which attempt the caller speaks, on the only kind of route that is for it."""
    async with parts.timeouts.reading():
        key = await parts.attempt_keys.authenticate(bearer)
    if access is not Access.ATTEMPT:
        raise Forbidden("The key of an attempt is for what that attempt says, and nothing else.")
    return key


def _check_scope(credential: Credential, needed: Scope) -> None:
    if needed not in credential.scopes and Scope.ADMIN not in credential.scopes:
        raise Forbidden(f"This needs a key with the scope {needed.value!r}.", scope=needed.value)


def _check_suspended(credential: Credential, method: str) -> None:
    """Refuse all but looking to a tenant that is suspended."""
    if credential.is_suspended and method not in ("GET", "HEAD"):
        raise TenantSuspended(
            f"The tenant {credential.tenant!r} is suspended: it may look, and do nothing else. "
            "An administrator can resume it."
        )


def _check_exact(request: Request) -> None:
    """Refuse other spellings of a public path, which a proxy in front may not see through."""
    raw = request.scope.get("raw_path") or b""
    if raw and raw.partition(b"?")[0] != request.scope["path_template"].encode():
        raise NotFound("There is nothing at this path.")


async def _for_tenant(parts: Parts, credential: Credential, query: bytes) -> Credential:
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("tenant", [])
    if not names:
        return credential
    if Scope.ADMIN not in credential.scopes:
        raise Forbidden("Only a key with the scope 'admin' may name a tenant.", scope="admin")
    if len(names) != 1 or "\0" in names[0]:
        raise Invalid("tenant", "tenant is the name of one tenant.")
    if names[0] == credential.tenant:
        return credential
    async with parts.timeouts.reading(), parts.database.connection(Lane.GUEST) as conn:
        tenant = await views.tenant_by_name(conn, names[0])
    if tenant is None:
        raise NotFound(f"There is no tenant {names[0][:60]!r}.")
    return acting_for(credential, tenant)


def acting_for(credential: Credential, tenant: OtherTenant) -> Credential:
    """Return an administrator as one who acts for a tenant: nobody's user, and still the actor."""
    return msgspec.structs.replace(
        credential,
        tenant_id=tenant.id,
        tenant=tenant.name,
        plan=tenant.plan,
        user_id=None,
        user=None,
    )
