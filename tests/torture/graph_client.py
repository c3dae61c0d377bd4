"""A client that submits, pauses, resumes and cancels graphs.

What it may have paused it resumes before it goes, or else a run would never be over.
"""

import threading
import time
from random import Random
from typing import Any, Protocol

from duly.client.shapes.task_shapes import TaskFields
from duly.client.sync import Client
from tests.torture import task_mix
from tests.torture.history import Op, Recorder
from tests.torture.ledger import Ledger

INTERVAL = 0.5
"""Seconds between two calls."""
MOST = 5
"""Graphs at a time."""
LASTS = (6, 20)
"""Seconds after which it forgets a graph, and resumes it, in case that it is paused."""
SIZE = (3, 12)
WAITING = 0.7
"""The share of tasks that wait for others."""
LONGEST = 2.0
MOVES = {"submit": 4, "pause": 5, "resume": 4, "cancel": 1}
PARTING = 60.0
"""Seconds for which it tries to resume what it leaves."""


class Traffic(Protocol):
    """Says when to stop, and when to submit no more."""

    enough: threading.Event
    room: threading.Event


class GraphClient(threading.Thread):
    """One client with a few graphs."""

    def __init__(
        self, client: Client, recorder: Recorder, dice: Random, ledger: Ledger, traffic: Traffic
    ) -> None:
        super().__init__(name="weaver")
        self._client = client
        self._recorder = recorder
        self._dice = dice
        self._ledger = ledger
        self._traffic = traffic
        self._made: dict[str, float] = {}
        """The graphs that it knows, and until when."""
        self._count = 0

    def run(self) -> None:
        while not self._traffic.enough.wait(INTERVAL):
            self._move()
        self._leave(time.monotonic() + PARTING)
        self._client.close()
        self._recorder.close()

    def _move(self) -> None:
        now = time.monotonic()
        over = next((graph for graph, until in self._made.items() if until <= now), None)
        if over is not None:
            if self._do("resume graph", over):
                del self._made[over]
            return
        move = self._dice.choices(list(MOVES), weights=list(MOVES.values()))[0]
        if not self._made or (move == "submit" and len(self._made) < MOST):
            if self._traffic.room.is_set():
                self._submit()
            return
        graph = self._dice.choice(list(self._made))
        match move:
            case "submit" | "pause":
                self._do("pause graph", graph)
            case "resume":
                self._do("resume graph", graph)
            case _:
                if self._do("cancel graph", graph):
                    del self._made[graph]

    def _leave(self, until: float) -> None:
        """Resume everything, and insist."""
        while self._made:
            self._made = {one: 0.0 for one in self._made if not self._do("resume graph", one)}
            if self._made and time.monotonic() > until:
                raise TimeoutError(f"these graphs could not be resumed: {list(self._made)}")
            time.sleep(INTERVAL if self._made else 0.0)

    def _submit(self) -> None:
        self._count += 1
        key = f"weaver-{self._count}"
        tasks = self._tasks()

        def submit() -> dict[str, Any]:
            made = self._client.submit_graph(tasks, name=key, idempotency_key=key)
            return {"graph": made["id"], "ids": [made["ids"][task["ref"] or ""] for task in tasks]}

        made = self._recorder.call("submit graph", submit, args={"tasks": tasks}, key=key)
        if made is not None:
            self._made[made["graph"]] = time.monotonic() + self._dice.uniform(*LASTS)

    def _do(self, op: Op, graph: str) -> bool:
        """Do something to a graph; say whether it was answered that it is done."""

        def act() -> dict[str, str]:
            match op:
                case "pause graph":
                    self._client.pause_graph(graph)
                case "resume graph":
                    self._client.resume_graph(graph)
                case _:
                    self._client.cancel_graph(graph)
            return {"graph": graph}

        return self._recorder.call(op, act, args={"graph": graph}) is not None

    def _tasks(self) -> list[TaskFields]:
        refs = [f"t{number}" for number in range(self._dice.randint(*SIZE))]
        tasks: list[TaskFields] = []
        for number, ref in enumerate(refs):
            task = task_mix.draw(self._dice, LONGEST)
            milli = round(task["resources"]["cpu"] * 1000)
            task["source"] = self._ledger.script(task["source"], cpu_milli=milli)
            task["ref"] = ref
            if upstreams := task_mix.upstreams(self._dice, refs[:number], share=WAITING):
                task["depends_on"] = upstreams
            tasks.append(task)
        return tasks
