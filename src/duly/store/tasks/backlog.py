"""How many tasks of a tenant wait, counted where they are."""

from duly.store.database import Connection, load_statements

SQL = load_statements("backlog.sql")


async def count_waiting(conn: Connection, tenant_id: int, *, most: int) -> int:
    """Return how many tasks have not ended and do not run; `most` of a kind, and not above."""
    waiting: int = await conn.fetchval(SQL["count_waiting"], tenant_id, most)
    return waiting
