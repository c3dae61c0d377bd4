"""Sets and removes the limits of downstreams, with an entry in the audit log."""

from typing import Any

from duly.errors import Conflict, NotFound
from duly.model.queues.downstream import MAX_DOWNSTREAMS, check_key, format_rate
from duly.model.requests.downstream_request import DownstreamRequest, check_limits
from duly.model.tenant import Credential
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, downstreams
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database


class Downstreams:
    """The operations on the limits of downstreams."""

    def __init__(self, database: Database, server_bus: ServerBus) -> None:
        self._database = database
        self._server_bus = server_bus

    async def put(self, credential: Credential, key: str, request: DownstreamRequest) -> None:
        """Set the limits of a key, for the tenant or for everyone."""
        check_key(key, "key")
        rate, concurrency = check_limits(request)
        tenant_id = None if request.everyone else credential.tenant_id
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await downstreams.lock_revision(conn)
            is_new = await downstreams.put(
                conn, tenant_id, key, rate, concurrency, adaptive=request.adaptive
            )
            if is_new and await downstreams.count(conn, tenant_id) > MAX_DOWNSTREAMS:
                raise Conflict(
                    f"There are {MAX_DOWNSTREAMS} downstreams, which is the limit. Remove one "
                    "first."
                )
            details = {
                "everyone": request.everyone,
                "rate": None if rate is None else format_rate(rate),
                "concurrency": concurrency,
                "adaptive": request.adaptive,
            }
            await _record(conn, credential, "downstream.set", key, tenant_id, details)
        # Tasks that waited for a limit may run now.
        self._server_bus.broadcast(Hint(work=True))

    async def remove(self, credential: Credential, key: str, *, everyone: bool) -> None:
        """Remove the limits of a key that the tenant, or an administrator for everyone, has set."""
        tenant_id = None if everyone else credential.tenant_id
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await downstreams.lock_revision(conn)
            if not await downstreams.remove(conn, tenant_id, key):
                raise NotFound(f"There is no downstream {key[:60]!r}.", kind="downstream")
            await _record(
                conn, credential, "downstream.remove", key, tenant_id, {"everyone": everyone}
            )
        self._server_bus.broadcast(Hint(work=True))


async def _record(
    conn: Connection,
    credential: Credential,
    action: str,
    key: str,
    tenant_id: int | None,
    details: dict[str, Any],
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=action,
        target=key,
        tenant_id=tenant_id,
        details=details,
    )
