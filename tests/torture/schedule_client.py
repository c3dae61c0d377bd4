"""A client that creates, changes, pauses, resumes and removes schedules.

Each schedule has an end, so that a run ends even if one could not be removed.
"""

import threading
import time
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from duly.client.shapes.schedule_shapes import ScheduleFields
from duly.client.shapes.task_shapes import TaskFields
from duly.client.sync import Client
from tests.torture import task_mix
from tests.torture.history import Op, Recorder
from tests.torture.invariants.recurrence import NAME_PREFIX
from tests.torture.ledger import Ledger

INTERVAL_SECONDS = 0.7
MAX_SCHEDULES = 6
LIFETIME_SECONDS = (12, 25)
"""Seconds after which a schedule ends by itself."""
WORK = {":": 6, "sleep 1": 2, "sleep 4": 2}
"""The work of tasks; the longer ones make occurrences overlap."""
RESOURCES = {"cpu": 0.1, "memory_mb": 16, "disk_mb": 100}
GRAPH_SHARE = 0.4
"""The share of schedules that submit graphs."""
GRAPH_SIZES = (2, 5)
OPERATION_WEIGHTS = {"create": 5, "change": 3, "pause": 2, "resume": 3, "remove": 2}


class ScheduleClient(threading.Thread):
    """A client that operates on a few schedules."""

    def __init__(
        self, client: Client, recorder: Recorder, rng: Random, ledger: Ledger, stopped: Any
    ) -> None:
        super().__init__(name="schedules")
        self._client = client
        self._recorder = recorder
        self._rng = rng
        self._ledger = ledger
        self._stopped = stopped
        self._schedules: dict[str, float] = {}
        """The current schedules, and when each ends."""
        self._count = 0

    def run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            self._operate()
        for schedule in list(self._schedules):
            self._remove(schedule)
        self._client.close()
        self._recorder.close()

    def _operate(self) -> None:
        now = time.monotonic()
        self._schedules = {schedule: end for schedule, end in self._schedules.items() if end > now}
        operation = self._rng.choices(
            list(OPERATION_WEIGHTS), weights=list(OPERATION_WEIGHTS.values())
        )[0]
        if not self._schedules or (operation == "create" and len(self._schedules) < MAX_SCHEDULES):
            self._create()
            return
        schedule = self._rng.choice(list(self._schedules))
        match operation:
            case "create" | "change":
                fields = self._policies() if self._rng.random() < 0.5 else self._recurrence()
                self._call("change schedule", schedule, fields)
            case "pause":
                self._call("pause schedule", schedule)
            case "resume":
                self._call("resume schedule", schedule)
            case _:
                self._remove(schedule)

    def _create(self) -> None:
        self._count += 1
        lifetime = self._rng.uniform(*LIFETIME_SECONDS)
        fields: ScheduleFields = {
            **self._template(),
            **self._recurrence(),
            **self._policies(),
            "end_at": (datetime.now(UTC) + timedelta(seconds=lifetime)).isoformat(),
        }
        created = self._recorder.call(
            "create schedule",
            lambda: {"schedule": self._client.create_schedule(**fields)["id"]},
            args=fields,
        )
        if created is not None:
            self._schedules[created["schedule"]] = time.monotonic() + lifetime

    def _call(self, op: Op, schedule: str, fields: ScheduleFields | None = None) -> None:
        def act() -> dict[str, str]:
            match op:
                case "change schedule":
                    self._client.update_schedule(schedule, **(fields or {}))
                case "pause schedule":
                    self._client.pause_schedule(schedule)
                case "resume schedule":
                    self._client.resume_schedule(schedule)
                case _:
                    self._client.remove_schedule(schedule)
            return {"schedule": schedule}

        self._recorder.call(op, act, args={"schedule": schedule, **(fields or {})})

    def _remove(self, schedule: str) -> None:
        del self._schedules[schedule]
        self._call("remove schedule", schedule)

    def _template(self) -> ScheduleFields:
        """Draw a task or a graph."""
        name = f"{NAME_PREFIX}{self._count}"
        if self._rng.random() > GRAPH_SHARE:
            return {"task": self._task(name)}
        refs = [f"t{number}" for number in range(self._rng.randint(*GRAPH_SIZES))]
        tasks: list[TaskFields] = []
        for number, ref in enumerate(refs):
            task = self._task(f"{name}, {ref}")
            upstreams = task_mix.upstreams(self._rng, refs[:number], share=0.8)
            tasks.append({**task, "ref": ref, "depends_on": upstreams})
        self._rng.shuffle(tasks)
        return {"graph": {"name": name, "tasks": tasks}}

    def _task(self, name: str) -> TaskFields:
        return {
            "name": name,
            "source": self._ledger.script(self._work(), cpu_milli=100),
            "resources": RESOURCES,  # type: ignore[typeddict-item]
        }

    def _work(self) -> str:
        return self._rng.choices(list(WORK), weights=list(WORK.values()))[0]

    def _recurrence(self) -> ScheduleFields:
        """Draw a recurrence that `fire_times` supports."""
        soon = datetime.now(UTC) + timedelta(seconds=self._rng.uniform(1, 5))
        recurrences: list[ScheduleFields] = [
            {"every": f"{self._rng.randint(1, 3)}s"},
            {
                "cron": f"*/{self._rng.choice((1, 2, 3, 5))} * * * * *",
                "timezone": "Asia/Kathmandu",
            },
            {"run_at": soon.isoformat()},
        ]
        return self._rng.choices(recurrences, weights=[5, 4, 1])[0]

    def _policies(self) -> ScheduleFields:
        return {
            "misfire": self._rng.choice(("skip", "once", "all")),
            "overlap": self._rng.choice(("allow", "skip", "queue", "cancel_other")),
        }
