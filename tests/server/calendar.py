"""Schedules of the lab, and what has become of their fire times."""

from datetime import datetime
from typing import Any

import msgspec

from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.schedule_request import ScheduleRequest
from duly.model.requests.task_request import TaskRequest
from duly.model.tenant import Credential
from duly.server.components import Components
from tests.server.lab import Lab, Node, seconds


class Calendar:
    """Makes schedules and lets them fire, by the lab's clock."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.start = lab.clock.now
        self.nodes: list[Node] = []

    async def node(self) -> Node:
        """Let a node join that stays alive."""
        self.nodes.append(await self.lab.node())
        return self.nodes[-1]

    async def create(
        self,
        *,
        by: Credential | None = None,
        task: dict[str, Any] | None = None,
        graph: dict[str, list[str]] | None = None,
        **fields: Any,
    ) -> int:
        """Make a schedule of `true`, every minute from the start on unless told.

        With `graph` it is of several, each with the refs that it depends on.
        """
        if not fields.keys() & {"run_at", "every", "cron", "daily"}:
            fields = {"every": "1m", "start_at": self.at(1).isoformat(), **fields}
        whole = {"command": ["true"], **(task or {})}
        request = ScheduleRequest(**fields)
        if graph is None:
            request.task = msgspec.convert(whole, TaskRequest)
        else:
            tasks = {ref: {"depends_on": upstreams} for ref, upstreams in graph.items()}
            asked = {"name": "g", "tasks": tasks, "defaults": whole}
            request.graph = msgspec.convert(asked, GraphRequest)
        return await self.lab.components.schedules.create(by or self.lab.client, request)

    def at(self, minutes: float) -> datetime:
        """Return a time so many minutes after the start."""
        return self.start + seconds(60 * minutes)

    async def go(self, minutes: float, components: Components | None = None) -> None:
        """Let it be so many minutes after the start, and the leader see to it."""
        await self.lab.clock.set(self.at(minutes))
        await self.lab.components.cluster_manager.tick()
        for node in self.nodes:
            await node.heartbeat()
        await (components or self.lab.components).timekeeper.tick()

    async def ran(self, schedule: int) -> list[float]:
        """Return the minutes of the fire times that have a task or a graph."""
        rows = await self.lab.conn.fetch(
            "select fire_at from occurrences where schedule_id = $1 "
            "and coalesce(task_id, graph_id) is not null order by 1",
            schedule,
        )
        return [(row["fire_at"] - self.start).total_seconds() / 60 for row in rows]

    async def missed(self, schedule: int) -> list[tuple[float, int, str]]:
        """Return the first minute, the number and the code of those that were missed."""
        rows = await self.lab.conn.fetch(
            "select fire_at, times, reason::json ->> 'code' as code from occurrences "
            "where schedule_id = $1 and coalesce(task_id, graph_id) is null order by 1",
            schedule,
        )
        return [
            ((row["fire_at"] - self.start).total_seconds() / 60, row["times"], row["code"])
            for row in rows
        ]

    async def tasks(self, schedule: int) -> list[int]:
        """Return the tasks of a schedule, the first fire time first; each must be stored."""
        rows = await self.lab.conn.fetch(
            "select t.id from occurrences o join tasks t on t.id = o.task_id "
            "where o.schedule_id = $1 order by o.fire_at",
            schedule,
        )
        return [row["id"] for row in rows]

    async def graphs(self, schedule: int) -> list[dict[str, int]]:
        """Return the tasks of the graphs of a schedule by ref, the first fire time first."""
        rows = await self.lab.conn.fetch(
            "select array(select t.id from tasks t where t.graph_id = g.id order by t.id) as ids,"
            "       array(select t.ref from tasks t where t.graph_id = g.id order by t.id) as refs,"
            "       g.task_ids "
            "from occurrences o join graphs g on g.id = o.graph_id "
            "where o.schedule_id = $1 order by o.fire_at",
            schedule,
        )
        assert all(sorted(row["task_ids"]) == row["ids"] for row in rows)
        return [dict(zip(row["refs"], row["ids"], strict=True)) for row in rows]

    async def next_run(self, schedule: int) -> float | None:
        """Return the minute at which it fires next."""
        found = await self.lab.conn.fetchval(
            "select next_run_at from schedules where id = $1", schedule
        )
        return None if found is None else (found - self.start).total_seconds() / 60
