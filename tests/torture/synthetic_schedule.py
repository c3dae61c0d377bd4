"""Synthetic runs with one schedule, for the tests of the invariants of schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tests.torture.database_dump import EdgeRow, GraphRow, OccurrenceRow, ScheduleRow
from tests.torture.evidence import Evidence
from tests.torture.invariants import judge
from tests.torture.invariants.recurrence import NAME_PREFIX
from tests.torture.synthetic_run import SyntheticRun

ID = 70
NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
EVERY = {"every": "10s", "end_at": (NOON + timedelta(seconds=55)).isoformat()}
"""Fires at 10, 20, 30, 40 and 50 seconds past noon."""


CHAIN: dict[str, Any] = {
    "tasks": [
        {"ref": "a"},
        {"ref": "b", "depends_on": [{"task": "a", "on": "success"}]},
        {"ref": "c", "depends_on": [{"task": "b", "on": "success"}]},
    ]
}
"""The template of a schedule of graphs."""


class SyntheticSchedule(SyntheticRun):
    """A synthetic run with one schedule; times are in seconds past noon."""

    def __init__(self, recurrence: dict[str, str] = EVERY, **policies: Any) -> None:
        super().__init__()
        self.row: dict[str, Any] = {
            "id": ID,
            "recurrence": recurrence,
            "anchor": NOON.isoformat(),
            "next_run_at": None,
            "paused_at": None,
            "misfire": "once",
            "overlap": "allow",
            **policies,
        }
        self.occurrences: list[OccurrenceRow] = []
        self.final_rows: list[ScheduleRow] = []
        self.step("insert", 0)
        self.call("create schedule", result={"schedule": str(ID)})

    def step(self, op: str, second: float, **fields: Any) -> None:
        self.row = {**self.row, **fields, "updated_at": at(second).isoformat()}
        self.note(what="schedule", op=op, schedule=ID, row=self.row)

    def claim(self, second: float, *, recorded: float | None = None, **fields: Any) -> None:
        row = OccurrenceRow(schedule_id=ID, fire_at=at(second), **fields)
        self.occurrences.append(row)
        recorded_at = at(second if recorded is None else recorded)
        fields = {"fire_at": row.fire_at.isoformat(), "recorded_at": recorded_at.isoformat()}
        # Its tasks were stored just before it, in the same transaction.
        self.note(what="occurrence", op="insert", schedule=ID, row=fields, xid=self.steps[-1].xid)

    def fire(self, second: float, *, task: int | None = None, **fields: Any) -> int:
        """Record a fire time with a task; return the task id."""
        task = task or 100 + int(second)
        self.store(task, name=f"{NAME_PREFIX}1", run_at=at(second))
        self.claim(second, task_id=task, **fields)
        return task

    def fire_graph(self, second: float, *, graph: int | None = None) -> int:
        """Record a fire time with a graph; return the graph id."""
        graph = graph or 1000 + int(second)
        ids = {task["ref"]: 10 * graph + index for index, task in enumerate(CHAIN["tasks"])}
        for ref, task in ids.items():
            name = f"{NAME_PREFIX}1, {ref}"
            self.store(task, name=name, run_at=at(second), graph_id=graph, ref=ref, xid=graph)
        for task in CHAIN["tasks"]:
            for upstream in task.get("depends_on", ()):
                self.edges.append(
                    EdgeRow(dependant_id=ids[task["ref"]], upstream_id=ids[upstream["task"]])
                )
        self.graphs.append(GraphRow(id=graph, name=f"{NAME_PREFIX}1", task_ids=list(ids.values())))
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

    def keep(self, next_run: float | None = None, **fields: Any) -> None:
        next_run_at = None if next_run is None else at(next_run)
        self.final_rows.append(ScheduleRow(id=ID, next_run_at=next_run_at, **fields))

    def evidence(self, **other: Any) -> Evidence:
        base = super().evidence(**other)
        dump = msgspec.structs.replace(
            base.dump,
            occurrences=self.occurrences,
            schedules=self.final_rows,
        )
        return Evidence(
            dump=dump,
            calls=base.calls,
            entries=base.entries,
            faults=base.faults,
            settings=base.settings,
            phase=base.phase,
        )

    def violations(self, **other: Any) -> list[str]:
        """Return the messages of all violations."""
        return [
            str(violation).removeprefix(f"[9] schedule {ID}: ")
            for violation in judge(self.evidence(**other))
        ]


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def fired(*seconds: float, **policies: str) -> SyntheticSchedule:
    """Return a schedule that fired at these seconds, and whose tasks are done."""
    schedule = SyntheticSchedule(**policies)
    for second in seconds:
        schedule.done(schedule.fire(second))
    return schedule


def fired_graphs(*seconds: float, **policies: Any) -> SyntheticSchedule:
    """Return a schedule of graphs that fired at these seconds, and whose tasks are done."""
    schedule = SyntheticSchedule(graph=CHAIN, **policies)
    for second in seconds:
        schedule.done_all(schedule.fire_graph(second))
    return schedule


def time_text(second: float) -> str:
    return f"{at(second)}"
