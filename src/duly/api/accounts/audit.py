"""The audit log: who did what, newest first."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.people import AuditEntry, audit_answer
from duly.api.query import query_of, since, write_cursor
from duly.api.reading import seeing
from duly.api.responses import as_json
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.shapes import Page
from duly.api.tasks import PAGE
from duly.model.tenant import Scope
from duly.store import audit_log

FILTER = (
    *PAGE,
    Parameter("actor", "Who did it, as `tenant/user`."),
    Parameter("action", "What was done, as `key.revoke`."),
    Parameter("since", "Not before: a time, or how long ago, as `1h`."),
)


@route(
    "GET",
    "/v1/audit",
    "Look at who changed what, newest first",
    access=Access.MANAGE,
    gives=Page[AuditEntry],
    query=FILTER,
    errors=(422,),
)
async def read_audit(request: Request) -> Response:
    """Return a page of the audit log: of one tenant, or to an administrator of everybody."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    sees_all = Scope.ADMIN in credential.scopes and query.one("tenant") is None
    async with seeing(parts_of(request), credential, everybody=sees_all) as conn:
        found = await audit_log.read(
            conn,
            tenant_id=None if sees_all else credential.tenant_id,
            actor=query.one("actor"),
            action=query.one("action"),
            since=await since(conn, query.one("since")),
            before=before,
            limit=limit + 1,
        )
    cursor = write_cursor(found[limit - 1].id) if len(found) > limit else None
    return as_json(Page([audit_answer(one) for one in found[:limit]], cursor))


HANDLERS = [read_audit]
