"""Run times by tenant and task name: samples from ended attempts, and what was learned."""

from collections.abc import Collection, Mapping

from duly.model.run_time import RunTime
from duly.store.database import Connection, load_statements

SQL = load_statements("run_times.sql")

NameKey = tuple[int, str]
"""A tenant and the name of tasks."""


async def read_samples(conn: Connection, *, above: int, up_to: int) -> dict[NameKey, list[float]]:
    """Return the seconds that a range of attempts ran, by name and in order."""
    rows = await conn.fetch(SQL["read_samples"], above, up_to)
    return {(row["tenant_id"], row["name"]): row["seconds"] for row in rows}


async def read(conn: Connection, keys: Collection[NameKey]) -> dict[NameKey, RunTime]:
    """Return what is known about names."""
    rows = await conn.fetch(
        SQL["read"], [tenant_id for tenant_id, _ in keys], [name for _, name in keys]
    )
    return {
        (row["tenant_id"], row["name"]): RunTime(
            row["samples"], row["log_mean"], row["log_deviation"]
        )
        for row in rows
    }


async def store(conn: Connection, learned: Mapping[NameKey, RunTime]) -> None:
    """Store what was learned about names."""
    await conn.execute(
        SQL["store"],
        [tenant_id for tenant_id, _ in learned],
        [name for _, name in learned],
        [known.samples for known in learned.values()],
        [known.log_mean for known in learned.values()],
        [known.log_deviation for known in learned.values()],
    )


async def trim(conn: Connection, tenants: Collection[int], *, keep: int) -> None:
    """Drop all but the `keep` names of each tenant that were updated last."""
    await conn.execute(SQL["trim"], list(tenants), keep)
