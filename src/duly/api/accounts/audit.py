"""The route that reads the audit log."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts.accounts import AuditEntry, audit_entry_response
from duly.api.auth import Access
from duly.api.requests.lookups import scoped_connection
from duly.api.requests.query import encode_cursor, parse_since, query_of
from duly.api.responses import as_json
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.model.tenant import Scope
from duly.store.accounts import audit_log

LIST_PARAMETERS = (
    *PAGE_PARAMETERS,
    Parameter("actor", "The actor, as `tenant/user`."),
    Parameter("action", "The action, such as `key.revoke`."),
    Parameter("since", "Entries since a time, or a duration before now such as `1h`."),
)


@route(
    "GET",
    "/v1/audit",
    "Read the audit log, newest first",
    access=Access.MANAGE,
    response_body=Page[AuditEntry],
    query=LIST_PARAMETERS,
    errors=(422,),
)
async def read_audit(request: Request) -> Response:
    """Read the audit log of the tenant; administrators who name no tenant read all of it."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    sees_all = Scope.ADMIN in credential.scopes and query.get("tenant") is None
    async with scoped_connection(components_of(request), credential, all_tenants=sees_all) as conn:
        entries = await audit_log.read(
            conn,
            tenant_id=None if sees_all else credential.tenant_id,
            actor=query.get("actor"),
            action=query.get("action"),
            since=await parse_since(conn, query.get("since")),
            before=before,
            limit=limit + 1,
        )
    cursor = encode_cursor(entries[limit - 1].id) if len(entries) > limit else None
    return as_json(Page([audit_entry_response(entry) for entry in entries[:limit]], cursor))


HANDLERS = [read_audit]
