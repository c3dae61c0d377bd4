"""Judges a run from outside: what clients were told, the ledger, and the database."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import asyncpg

from tests.faults.ledger import Entry, Ledger


def violations(told: Iterable[str], ledger: Ledger, dsn: str) -> list[str]:
    """Return everything that must not have happened; `told` are the acknowledged tasks."""
    rows = asyncio.run(_read(dsn))
    return [
        *lost(told, rows["tasks"]),
        *without_one_end(rows),
        *gaps(rows["attempts"]),
        *invented(rows["succeeded"], ledger.entries()),
        *overlaps(ledger.entries()),
    ]


def lost(told: Iterable[str], stored: set[int]) -> list[str]:
    """No loss: each acknowledged task is in the database."""
    return [f"task {task} was acknowledged and is gone" for task in told if int(task) not in stored]


def without_one_end(rows: dict[str, Any]) -> list[str]:
    """One terminal state: each task is either live or ended, and never both."""
    both = rows["live"] & rows["ended"]
    neither = rows["tasks"] - rows["live"] - rows["ended"]
    return [f"task {task} is live and has ended" for task in both] + [
        f"task {task} is neither live nor ended" for task in neither
    ]


def gaps(attempts: dict[int, list[int]]) -> list[str]:
    """Attempts are 1..k without gaps."""
    return [
        f"task {task} has the attempts {numbers}"
        for task, numbers in attempts.items()
        if sorted(numbers) != list(range(1, len(numbers) + 1))
    ]


def invented(succeeded: Iterable[tuple[int, int]], entries: Iterable[Entry]) -> list[str]:
    """No invented success: each succeeded attempt has a start and an end in the ledger."""
    written = {(int(one.task), one.attempt, one.what) for one in entries}
    return [
        f"attempt {attempt} of task {task} succeeded without a trace"
        for task, attempt in succeeded
        if not {(task, attempt, "start"), (task, attempt, "end")} <= written
    ]


def overlaps(entries: Iterable[Entry]) -> list[str]:
    """No overlap: nothing of an attempt is written after a later one has started."""
    newest: dict[str, Entry] = {}
    found = []
    for one in entries:
        before = newest.get(one.task)
        if before is not None and one.token < before.token:
            found.append(f"task {one.task}: token {one.token} wrote after token {before.token}")
        else:
            newest[one.task] = one
    return found


async def _read(dsn: str) -> dict[str, Any]:
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        attempts: dict[int, list[int]] = defaultdict(list)
        for row in await conn.fetch("select task_id, attempt from attempts"):
            attempts[row[0]].append(row[1])
        succeeded = await conn.fetch(
            "select task_id, attempt from attempts join tasks on tasks.id = task_id"
            " where outcome = 'succeeded' and payload ->> 'source' is not null"
        )
        return {
            "tasks": {row[0] for row in await conn.fetch("select id from tasks")},
            "live": {row[0] for row in await conn.fetch("select id from live")},
            "ended": {row[0] for row in await conn.fetch("select task_id from ends")},
            "attempts": attempts,
            "succeeded": [(row[0], row[1]) for row in succeeded],
        }
    finally:
        await conn.close()
