"""A client that creates, changes, pauses, resumes and removes schedules.

Each has an end, so that a run ends although one of them could not be removed.
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
from tests.torture.invariants.recurrence import MARK
from tests.torture.ledger import Ledger

INTERVAL = 0.7
"""Seconds between two calls."""
MOST = 6
"""Schedules at a time."""
LASTS = (12, 25)
"""Seconds after which a schedule ends by itself."""
WORK = {":": 6, "sleep 1": 2, "sleep 4": 2}
"""What their tasks do, so that some fire times find an earlier one at work."""
RESOURCES = {"cpu": 0.1, "memory_mb": 16, "disk_mb": 100}
GRAPHS = 0.4
"""The share of schedules that submit graphs."""
SIZE = (2, 5)
"""Tasks of a graph."""
MOVES = {"create": 5, "change": 3, "pause": 2, "resume": 3, "remove": 2}


class ScheduleClient(threading.Thread):
    """One client with a few schedules."""

    def __init__(
        self, client: Client, recorder: Recorder, dice: Random, ledger: Ledger, enough: Any
    ) -> None:
        super().__init__(name="timetable")
        self._client = client
        self._recorder = recorder
        self._dice = dice
        self._ledger = ledger
        self._enough = enough
        self._made: dict[str, float] = {}
        """The schedules that are there, and when each is over."""
        self._count = 0

    def run(self) -> None:
        while not self._enough.wait(INTERVAL):
            self._move()
        for schedule in list(self._made):
            self._remove(schedule)
        self._client.close()
        self._recorder.close()

    def _move(self) -> None:
        now = time.monotonic()
        self._made = {one: over for one, over in self._made.items() if over > now}
        move = self._dice.choices(list(MOVES), weights=list(MOVES.values()))[0]
        if not self._made or (move == "create" and len(self._made) < MOST):
            self._create()
            return
        schedule = self._dice.choice(list(self._made))
        match move:
            case "create" | "change":
                fields = self._policies() if self._dice.random() < 0.5 else self._when()
                self._do("change schedule", schedule, fields)
            case "pause":
                self._do("pause schedule", schedule)
            case "resume":
                self._do("resume schedule", schedule)
            case _:
                self._remove(schedule)

    def _create(self) -> None:
        self._count += 1
        lasts = self._dice.uniform(*LASTS)
        fields: ScheduleFields = {
            **self._what(),
            **self._when(),
            **self._policies(),
            "end_at": (datetime.now(UTC) + timedelta(seconds=lasts)).isoformat(),
        }
        made = self._recorder.call(
            "create schedule",
            lambda: {"schedule": self._client.create_schedule(**fields)["id"]},
            args=fields,
        )
        if made is not None:
            self._made[made["schedule"]] = time.monotonic() + lasts

    def _do(self, op: Op, schedule: str, fields: ScheduleFields | None = None) -> None:
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
        del self._made[schedule]
        self._do("remove schedule", schedule)

    def _what(self) -> ScheduleFields:
        """Draw a task, or a graph of some."""
        name = f"{MARK}{self._count}"
        if self._dice.random() > GRAPHS:
            return {"task": self._task(name)}
        refs = [f"t{number}" for number in range(self._dice.randint(*SIZE))]
        tasks: list[TaskFields] = []
        for number, ref in enumerate(refs):
            task = self._task(f"{name}, {ref}")
            upstreams = task_mix.upstreams(self._dice, refs[:number], share=0.8)
            tasks.append({**task, "ref": ref, "depends_on": upstreams})
        self._dice.shuffle(tasks)
        return {"graph": {"name": name, "tasks": tasks}}

    def _task(self, name: str) -> TaskFields:
        return {
            "name": name,
            "source": self._ledger.script(self._work(), cpu_milli=100),
            "resources": RESOURCES,  # type: ignore[typeddict-item]
        }

    def _work(self) -> str:
        return self._dice.choices(list(WORK), weights=list(WORK.values()))[0]

    def _when(self) -> ScheduleFields:
        """Draw when it fires: the ways that `rules` knows."""
        soon = datetime.now(UTC) + timedelta(seconds=self._dice.uniform(1, 5))
        ways: list[ScheduleFields] = [
            {"every": f"{self._dice.randint(1, 3)}s"},
            {
                "cron": f"*/{self._dice.choice((1, 2, 3, 5))} * * * * *",
                "timezone": "Asia/Kathmandu",
            },
            {"run_at": soon.isoformat()},
        ]
        return self._dice.choices(ways, weights=[5, 4, 1])[0]

    def _policies(self) -> ScheduleFields:
        return {
            "misfire": self._dice.choice(("skip", "once", "all")),
            "overlap": self._dice.choice(("allow", "skip", "queue", "cancel_other")),
        }
