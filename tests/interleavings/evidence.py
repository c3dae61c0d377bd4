"""The journal, the final tables and the responses of a run, for the invariants to check."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.interleavings.acknowledgements import Acknowledgements, Answer


@dataclass
class Evidence:
    """The records of a finished run."""

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
    unresolved: set[int]
    """Ended tasks whose downstream tasks were not yet updated."""
    stopping: list[asyncpg.Record]
    needs: dict[int, int]
    """The CPU of each shape; other kinds of resources are not checked."""
    keys: dict[int, str]
    """The concurrency key of a shape, if it has one; its limit is 1."""
    acknowledged: Acknowledgements

    def leases(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (position in the journal, row) for every lease."""
        for row in self.journal:
            if is_lease(row):
                yield row["seq"], row["new"]

    def answers_to(self, op: str) -> Iterator[Answer]:
        """Yield the responses to one kind of operation."""
        return (answer for answer in self.acknowledged.answers if answer.op == op)

    def running_at(self, position: int) -> Iterator[dict[str, Any]]:
        """Yield the tasks that ran at a position of the journal."""
        running = {}
        for row in self.journal:
            if row["seq"] <= position and row["what"] == "live":
                if row["new"] and row["new"]["status"] == "running":
                    running[row["new"]["id"]] = row["new"]
                else:
                    running.pop((row["new"] or row["old"])["id"], None)
        yield from running.values()

    def ended_tasks(self) -> dict[int, int]:
        """Return the position in the journal at which each task ended."""
        return {
            row["new"]["task_id"]: row["seq"]
            for row in self.journal
            if row["what"] == "ends" and row["op"] == "insert"
        }

    def ended_incarnations(self) -> dict[int, int]:
        """Return the position in the journal at which each incarnation ended."""
        return {
            row["new"]["id"]: row["seq"]
            for row in self.journal
            if row["what"] == "incarnations" and row["op"] == "update"
        }


def is_marked(row: asyncpg.Record) -> bool:
    """Return True if a task or an attempt ended by a mark."""
    return bool(row["reason"] and row["reason"]["code"] == "marked")


def is_lease(row: asyncpg.Record) -> bool:
    """Return True if a row of the journal leased a task to a node."""
    return (
        row["what"] == "live"
        and row["op"] == "update"
        and row["old"]["status"] != "running"
        and row["new"]["status"] == "running"
    )


async def gather(conn: asyncpg.Connection, acknowledged: Acknowledgements) -> Evidence:
    """Read the records of a finished run."""
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
        unresolved={row[0] for row in await conn.fetch("select task_id from ended_upstreams")},
        stopping=await conn.fetch("select * from stopping_attempts"),
        acknowledged=acknowledged,
    )
