"""Synthetic runs with one schedule, for the tests of the invariants of schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tests.torture.database_dump import EdgeRow, GraphRow, OccurrenceRow, ScheduleRow
from tests.torture.evidence import Evidence
from tests.torture.invariants import judge
from tests.torture.invariants.recurrence import MARK
from tests.torture.synthetic_run import SyntheticRun

ID = 70
ZERO = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
EVERY = {"every": "10s", "end_at": (ZERO + timedelta(seconds=55)).isoformat()}
"""Fires at 10, 20, 30, 40 and 50 seconds past twelve."""


CHAIN: dict[str, Any] = {
    "tasks": [
        {"ref": "a"},
        {"ref": "b", "depends_on": [{"task": "a", "on": "success"}]},
        {"ref": "c", "depends_on": [{"task": "b", "on": "success"}]},
    ]
}
"""What a schedule of graphs submits."""


class SyntheticSchedule(SyntheticRun):
    """A story of one schedule, in seconds past twelve."""

    def __init__(self, written: dict[str, str] = EVERY, **policies: Any) -> None:
        super().__init__()
        self.row: dict[str, Any] = {
            "id": ID,
            "recurrence": written,
            "anchor": ZERO.isoformat(),
            "next_run_at": None,
            "paused_at": None,
            "misfire": "once",
            "overlap": "allow",
            **policies,
        }
        self.occurrences: list[OccurrenceRow] = []
        self.left: list[ScheduleRow] = []
        self.step("insert", 0)
        self.call("create schedule", result={"schedule": str(ID)})

    def step(self, op: str, second: float, **fields: Any) -> None:
        self.row = {**self.row, **fields, "updated_at": at(second).isoformat()}
        self.note(what="schedule", op=op, schedule=ID, row=self.row)

    def claim(self, second: float, *, recorded: float | None = None, **fields: Any) -> None:
        row = OccurrenceRow(schedule_id=ID, fire_at=at(second), **fields)
        self.occurrences.append(row)
        recorded_at = at(second if recorded is None else recorded)
        told = {"fire_at": row.fire_at.isoformat(), "recorded_at": recorded_at.isoformat()}
        # What is stored with it came just before it, in the same transaction.
        self.note(what="occurrence", op="insert", schedule=ID, row=told, xid=self.steps[-1].xid)

    def fire(self, second: float, *, task: int | None = None, **fields: Any) -> int:
        """Let a fire time become a task, and return its id."""
        task = task or 100 + int(second)
        self.store(task, name=f"{MARK}1", run_at=at(second))
        self.claim(second, task_id=task, **fields)
        return task

    def fire_graph(self, second: float, *, graph: int | None = None) -> int:
        """Let a fire time become the graph of the schedule, and return its id."""
        graph = graph or 1000 + int(second)
        ids = {task["ref"]: 10 * graph + place for place, task in enumerate(CHAIN["tasks"])}
        for ref, task in ids.items():
            name = f"{MARK}1, {ref}"
            self.store(task, name=name, run_at=at(second), graph_id=graph, ref=ref, xid=graph)
        for task in CHAIN["tasks"]:
            for one in task.get("depends_on", ()):
                self.edges.append(
                    EdgeRow(dependant_id=ids[task["ref"]], upstream_id=ids[one["task"]])
                )
        self.graphs.append(GraphRow(id=graph, name=f"{MARK}1", task_ids=list(ids.values())))
        self.claim(second, graph_id=graph)
        return graph

    def done_all(self, graph: int) -> None:
        for row in self.graphs:
            if row.id == graph:
                for task in row.task_ids:
                    self.done(task)

    def done(self, task: int) -> None:
        self.lease(task)
        self.run(task)
        self.finish(task)

    def miss(self, second: float, reason: str, last: float | None = None, times: int = 1) -> None:
        last_at = None if last is None else at(last)
        self.claim(second, reason=reason, last_at=last_at, times=times)

    def remove(self, second: float, next_run: float | None) -> None:
        next_run_at = None if next_run is None else at(next_run).isoformat()
        self.step("delete", second, next_run_at=next_run_at)
        self.call("remove schedule", result={"schedule": str(ID)})

    def stay(self, next_run: float | None = None, **fields: Any) -> None:
        next_run_at = None if next_run is None else at(next_run)
        self.left.append(ScheduleRow(id=ID, next_run_at=next_run_at, **fields))

    def evidence(self, **other: Any) -> Evidence:
        told = super().evidence(**other)
        books = msgspec.structs.replace(
            told.books,
            occurrences=self.occurrences,
            schedules=self.left,
        )
        return Evidence(
            books=books,
            calls=told.calls,
            entries=told.entries,
            troubles=told.troubles,
            rules=told.rules,
            phase=told.phase,
        )

    def wrong(self, **other: Any) -> list[str]:
        """Return what is found wrong with it."""
        return [
            str(one).removeprefix(f"[9] schedule {ID}: ") for one in judge(self.evidence(**other))
        ]


def at(second: float) -> datetime:
    return ZERO + timedelta(seconds=second)


def fired(*seconds: float, **policies: str) -> SyntheticSchedule:
    """Return the story of a schedule that fired at these, and whose tasks are done."""
    plan = SyntheticSchedule(**policies)
    for second in seconds:
        plan.done(plan.fire(second))
    return plan


def fired_graphs(*seconds: float, **policies: Any) -> SyntheticSchedule:
    """Return the story of a schedule of graphs that fired at these, and whose tasks are done."""
    plan = SyntheticSchedule(graph=CHAIN, **policies)
    for second in seconds:
        plan.done_all(plan.fire_graph(second))
    return plan


def told(second: float) -> str:
    return f"{at(second)}"
