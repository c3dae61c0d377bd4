"""Counts a tenant's backlog from its live rows."""

from duly.store.database import Connection, load_statements

SQL = load_statements("backlog.sql")


async def count_waiting(conn: Connection, tenant_id: int, *, most: int) -> int:
    """Count live tasks that do not run; waiting and other ones up to `most` each."""
    waiting: int = await conn.fetchval(SQL["count_waiting"], tenant_id, most)
    return waiting
