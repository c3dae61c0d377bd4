"""The append-only audit log: who changed what.

An entry is written in the transaction of its change, so that there is neither a change without an
entry nor an entry without a change. A trigger refuses updates and deletes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.model.tenant import Credential
from duly.store.database import Connection, load_statements

SQL = load_statements("audit_log.sql")
MAX_ID = 2**63 - 1


class Entry(msgspec.Struct, frozen=True):
    """One change; `tenant` is None if it concerns all tenants."""

    id: int
    at: datetime
    tenant: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]


async def record(
    conn: Connection,
    *,
    credential: Credential,
    action: str,
    target: str,
    tenant_id: int | None,
    details: Mapping[str, Any],
) -> None:
    """Record an action of `credential` in this transaction; `details` must contain no secret."""
    await note(
        conn,
        actor=credential.actor,
        action=action,
        target=target,
        tenant_id=tenant_id,
        details=details,
    )


async def note(
    conn: Connection,
    *,
    actor: str,
    action: str,
    target: str,
    tenant_id: int | None,
    details: Mapping[str, Any],
) -> None:
    """Record an action of an actor without a tenant's key: a node, or the machine's operator."""
    await conn.execute(SQL["record"], tenant_id, actor, action, target, dict(details))


async def read(
    conn: Connection,
    *,
    tenant_id: int | None = None,
    actor: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    before: int = MAX_ID,
    limit: int = 100,
) -> list[Entry]:
    """Return entries, newest first; of all tenants if `tenant_id` is None."""
    which = (before, limit, actor, action, since)
    if tenant_id is None:
        rows = await conn.fetch(SQL["read"], *which)
    else:
        rows = await conn.fetch(SQL["read_of_tenant"], *which, tenant_id)
    return [msgspec.convert(dict(row), Entry) for row in rows]
