"""Attempts whose tasks were marked, and which occupy their node until its agent has ended them.

A mark settles the task at once, and moves its running attempt from `live` to `stopping_attempts`
in the same transaction. Whatever counts the room on a node reads both tables in one snapshot, so
an attempt is counted exactly once until its agent reports that none of its processes is left, or
its incarnation has ended.
"""

from collections.abc import Sequence

from duly.store.database import Connection, load_statements

SQL = load_statements("stopping_attempts.sql")


async def remove(conn: Connection, node_id: int, refs: Sequence[tuple[int, int, int]]) -> set[int]:
    """Remove the attempts (task, attempt, token) that a node reports as ended.

    Returns the tokens of those that were there.
    """
    rows = await conn.fetch(
        SQL["remove"],
        node_id,
        [task for task, _, _ in refs],
        [attempt for _, attempt, _ in refs],
        [token for _, _, token in refs],
    )
    return {row["token"] for row in rows}


async def remove_orphans(conn: Connection) -> None:
    """Remove the attempts of incarnations that have ended."""
    await conn.execute(SQL["remove_orphans"])
