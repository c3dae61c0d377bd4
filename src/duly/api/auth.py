"""Authenticates the caller of a request and checks the access that its route declares.

The tenant comes from the key alone. Only an administrator may act for another tenant: the one that
it names with `?tenant=`, or else the one that the task in the path belongs to.
"""

import re
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
from duly.server.components import Components
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.tasks import all_tenants, views
from duly.store.tasks.views import OtherTenant

ON_IDENTIFIED = "duly.on_identified"
"""In the scope of a request whose tenant the load shedder does not know: a callback with the
tenant's id, or None on a route that needs no key. It raises Unavailable if that tenant already
uses its share."""
TASK_TEMPLATES = ("/v1/tasks/{id}", "/v1/jobs/{id}")
"""The start of the paths that name a single task."""
TASK_ID = re.compile(r"[0-9]{1,19}")


class Access(StrEnum):
    """What a route requires of its caller."""

    PUBLIC = "public"
    """Nothing; the path must match exactly."""
    LOGIN = "login"
    """No key, but a password in the body; the path must match exactly."""
    OWN = "own"
    """Any valid key, whatever its scopes: the route is about that key itself."""
    JOIN = "join"
    """A join token or a node's key, which the cluster manager checks."""
    NODE = "node"
    """The key of a node."""
    ATTEMPT = "attempt"
    """The key of a running attempt."""
    SUBMIT = "submit"
    READ = "read"
    MANAGE = "manage"
    ADMIN = "admin"
    METRICS = "metrics"


REQUIRED_SCOPES = {
    Access.SUBMIT: Scope.SUBMIT,
    Access.READ: Scope.READ,
    Access.MANAGE: Scope.MANAGE,
    Access.ADMIN: Scope.ADMIN,
    Access.METRICS: Scope.METRICS,
}
"""The scope that a key needs for each kind of access; `admin` includes all of them."""


async def guard(request: Request) -> None:
    """Authorize the caller for the route, and store its identity in `request.scope["auth"]`.

    It runs before every handler. Long requests call it again while they run, so that a key
    revoked in the meantime stops working.
    """
    access: Access = request.scope["route"].operation.access
    if access in (Access.PUBLIC, Access.LOGIN):
        _check_exact(request)
        _identify(request, None)
        return
    components: Components = request.app.components
    bearer = bearer_of(request)
    if access is Access.ATTEMPT or bearer.startswith(attempt_key.PREFIX):
        request.scope["auth"] = await _authenticate_attempt(components, bearer, access)
    elif access is Access.JOIN:
        request.scope["auth"] = bearer
    elif access is Access.NODE:
        node_id = components.authenticator.get_cached_node(bearer)
        if node_id is None:
            async with components.timeouts.reading():
                node_id = await components.authenticator.authenticate_node(bearer)
        request.scope["auth"] = node_id
    else:
        credential = components.authenticator.get_cached(bearer)
        if credential is None:
            async with components.timeouts.reading():
                credential = await components.authenticator.authenticate(bearer)
        _identify(request, credential.tenant_id)
        if access is not Access.OWN:
            check_scope(credential, REQUIRED_SCOPES[access])
            check_suspended(credential, str(request.scope.get("method")))
        query = request.scope["query_string"]
        # The plain spelling, or possibly a percent-encoded one.
        acting = None
        if b"tenant" in query or b"%" in query:
            acting = await _act_for_tenant(components, credential, query)
        if acting is None and Scope.ADMIN in credential.scopes and _names_task(request):
            acting = await _act_for_owner(components, credential, request.path_params["id"])
        request.scope["auth"] = acting or credential


def _identify(request: Request, tenant_id: int | None) -> None:
    """Report the tenant of an unidentified caller to the load shedder, once."""
    on_identified: Any = request.scope.pop(ON_IDENTIFIED, None)
    if on_identified is not None:
        on_identified(tenant_id)


def bearer_of(request: Request) -> str:
    """Return the caller's bearer key; raises Unauthenticated if there is none."""
    bearer = bearer_in(request.scope["headers"])
    if bearer is None:
        raise Unauthenticated(
            "The request has no key. Send one in the header 'Authorization: Bearer KEY'."
        )
    return bearer


def bearer_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the bearer key in the headers, if there is exactly one Authorization header."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) == 1:
        scheme, _, key = values[0].decode("latin-1").partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return key.strip()
    return None


def may_submit(credential: Credential) -> bool:
    """Return True if the guard would allow this caller to submit for its own tenant."""
    scopes = credential.scopes
    return not credential.is_suspended and (Scope.SUBMIT in scopes or Scope.ADMIN in scopes)


async def _authenticate_attempt(components: Components, bearer: str, access: Access) -> AttemptKey:
    """Return the attempt of an attempt key; raises Forbidden on routes of other kinds."""
    async with components.timeouts.reading():
        key = await components.attempt_keys.authenticate(bearer)
    if access is not Access.ATTEMPT:
        raise Forbidden("The key of an attempt may only report on that attempt.")
    return key


def check_scope(credential: Credential, needed: Scope) -> None:
    """Raise Forbidden unless the caller has a scope, or administers everything."""
    if needed not in credential.scopes and Scope.ADMIN not in credential.scopes:
        raise Forbidden(
            f"Your key lacks the scope {needed.value!r}. Use a key that has it.", scope=needed.value
        )


def check_suspended(credential: Credential, method: str) -> None:
    """Refuse everything but reads to a suspended tenant."""
    if credential.is_suspended and method not in ("GET", "HEAD"):
        raise TenantSuspended(
            f"The tenant {credential.tenant!r} is suspended and may only read. "
            "An administrator can resume it."
        )


def _check_exact(request: Request) -> None:
    """Refuse other spellings of a public path, which a proxy in front may not normalise."""
    raw = request.scope.get("raw_path") or b""
    if raw and raw.partition(b"?")[0] != request.scope["path_template"].encode():
        raise NotFound("There is nothing at this path.")


async def _act_for_tenant(
    components: Components, credential: Credential, query: bytes
) -> Credential | None:
    """Return the credential for the tenant that the query names; None if it names none."""
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("tenant", [])
    if not names:
        return None
    if Scope.ADMIN not in credential.scopes:
        raise Forbidden(
            "Only a key with the scope 'admin' may act for another tenant.", scope="admin"
        )
    if len(names) != 1 or "\0" in names[0]:
        raise Invalid("tenant", "give the name of one tenant.")
    if names[0] == credential.tenant:
        return credential
    async with (
        components.timeouts.reading(),
        components.database.connection(ConnectionClass.CLIENT) as conn,
    ):
        tenant = await views.tenant_by_name(conn, names[0])
    if tenant is None:
        raise NotFound(f"There is no tenant {names[0][:60]!r}.", kind="tenant")
    return acting_for(credential, tenant)


def _names_task(request: Request) -> bool:
    template: str = request.scope["path_template"]
    return template.startswith(TASK_TEMPLATES)


async def _act_for_owner(
    components: Components, credential: Credential, task_id: str
) -> Credential:
    """Return the credential for the tenant of a task, so that administrators find it by its id."""
    if not TASK_ID.fullmatch(task_id) or int(task_id) > views.MAX_ID:
        return credential
    async with (
        components.timeouts.reading(),
        components.database.connection(ConnectionClass.CLIENT) as conn,
    ):
        owner = await all_tenants.find_owner(conn, int(task_id))
    if owner is None or owner.id == credential.tenant_id:
        return credential
    return acting_for(credential, owner)


def acting_for(credential: Credential, tenant: OtherTenant) -> Credential:
    """Return an administrator's credential for acting in another tenant.

    It has that tenant's plan and no user there; the audit log still names the administrator.
    """
    return msgspec.structs.replace(
        credential,
        tenant_id=tenant.id,
        tenant=tenant.name,
        plan=tenant.plan,
        user_id=None,
        user=None,
    )
