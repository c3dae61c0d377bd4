"""The journal, tables and responses of a run, which the invariants are checked against."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.interleavings.acknowledgements import Answer, Told


@dataclass
class Evidence:
    """What a run leaves behind."""

    journal: list[asyncpg.Record]
    tasks: dict[int, asyncpg.Record]
    live: dict[int, asyncpg.Record]
    ends: dict[int, asyncpg.Record]
    attempts: dict[int, list[asyncpg.Record]]
    submissions: dict[str, asyncpg.Record]
    dead: set[int]
    reserved: dict[int, asyncpg.Record]
    edges: list[asyncpg.Record]
    occurrences: list[asyncpg.Record]
    events: list[asyncpg.Record]
    graphs: dict[int, set[int]]
    untold: set[int]
    """Tasks that have ended and whose dependants were not told."""
    stopping: list[asyncpg.Record]
    needs: dict[int, int]
    """CPU by shape, which stands for all that a task needs."""
    keys: dict[int, str]
    """The concurrency key of a shape, if it has one; its limit is 1."""
    told: Told

    def leases(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (place in the journal, row) for every lease that was made."""
        for row in self.journal:
            if is_lease(row):
                yield row["seq"], row["new"]

    def told_of(self, op: str) -> Iterator[Answer]:
        """Yield what was told of one kind."""
        return (answer for answer in self.told.answers if answer.op == op)

    def running_at(self, place: int) -> Iterator[dict[str, Any]]:
        """Yield what ran when the journal had got to `place`."""
        running = {}
        for row in self.journal:
            if row["seq"] <= place and row["what"] == "live":
                if row["new"] and row["new"]["status"] == "running":
                    running[row["new"]["id"]] = row["new"]
                else:
                    running.pop((row["new"] or row["old"])["id"], None)
        yield from running.values()

    def ended_tasks(self) -> dict[int, int]:
        """Return where in the journal each task ended."""
        return {
            row["new"]["task_id"]: row["seq"]
            for row in self.journal
            if row["what"] == "ends" and row["op"] == "insert"
        }

    def ended_incarnations(self) -> dict[int, int]:
        """Return where in the journal each incarnation was ended."""
        return {
            row["new"]["id"]: row["seq"]
            for row in self.journal
            if row["what"] == "incarnations" and row["op"] == "update"
        }


def is_marked(row: asyncpg.Record) -> bool:
    """Say whether a task or an attempt ended by a mark."""
    return bool(row["reason"] and row["reason"]["code"] == "marked")


def is_lease(row: asyncpg.Record) -> bool:
    """Say whether a row of the journal gave a task to a node."""
    return (
        row["what"] == "live"
        and row["op"] == "update"
        and row["old"]["status"] != "running"
        and row["new"]["status"] == "running"
    )


async def gather(conn: asyncpg.Connection, told: Told) -> Evidence:
    """Read what a run has left."""
    attempts = defaultdict(list)
    for row in await conn.fetch("select * from attempts order by task_id, attempt"):
        attempts[row["task_id"]].append(row)
    shapes = await conn.fetch("select * from shapes")
    return Evidence(
        journal=await conn.fetch("select * from journal order by seq"),
        tasks={row["id"]: row for row in await conn.fetch("select * from tasks")},
        live={row["id"]: row for row in await conn.fetch("select * from live")},
        ends={row["task_id"]: row for row in await conn.fetch("select * from ends")},
        attempts=attempts,
        submissions={row["key"]: row for row in await conn.fetch("select * from submissions")},
        dead={row["task_id"] for row in await conn.fetch("select task_id from dead_letters")},
        reserved={row["id"]: row for row in await conn.fetch("select * from reservations")},
        needs={row["id"]: row["needs"]["cpu_milli"] for row in shapes},
        keys={row["id"]: row["concurrency"]["key"] for row in shapes if row["concurrency"]},
        edges=await conn.fetch("select * from edges"),
        occurrences=await conn.fetch("select * from occurrences"),
        events=await conn.fetch("select * from events order by id"),
        graphs={
            row["id"]: set(row["task_ids"]) for row in await conn.fetch("select * from graphs")
        },
        untold={row[0] for row in await conn.fetch("select task_id from ended_upstreams")},
        stopping=await conn.fetch("select * from stopping_attempts"),
        told=told,
    )
