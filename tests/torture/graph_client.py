"""A client that submits, pauses, resumes and cancels graphs.

Before it ends it resumes every graph that it may have paused; otherwise a run would never end.
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

INTERVAL_SECONDS = 0.5
MAX_GRAPHS = 5
LIFETIME_SECONDS = (6, 20)
"""Seconds after which a graph is resumed, in case it is paused, and then left alone."""
GRAPH_SIZES = (3, 12)
UPSTREAM_SHARE = 0.7
"""The share of tasks with upstreams."""
MAX_TASK_SECONDS = 2.0
OPERATION_WEIGHTS = {"submit": 4, "pause": 5, "resume": 4, "cancel": 1}
FINAL_RESUME_TIMEOUT_SECONDS = 60.0
"""Time limit for resuming all graphs at the end."""


class FlowControl(Protocol):
    """Tells clients when to stop, and when not to submit."""

    stopped: threading.Event
    may_submit: threading.Event


class GraphClient(threading.Thread):
    """A client that operates on a few graphs."""

    def __init__(
        self, client: Client, recorder: Recorder, rng: Random, ledger: Ledger, flow: FlowControl
    ) -> None:
        super().__init__(name="graphs")
        self._client = client
        self._recorder = recorder
        self._rng = rng
        self._ledger = ledger
        self._flow = flow
        self._graphs: dict[str, float] = {}
        """The current graphs, and when to leave each alone."""
        self._count = 0

    def run(self) -> None:
        while not self._flow.stopped.wait(INTERVAL_SECONDS):
            self._operate()
        self._resume_all(time.monotonic() + FINAL_RESUME_TIMEOUT_SECONDS)
        self._client.close()
        self._recorder.close()

    def _operate(self) -> None:
        now = time.monotonic()
        expired = next((graph for graph, until in self._graphs.items() if until <= now), None)
        if expired is not None:
            if self._call("resume graph", expired):
                del self._graphs[expired]
            return
        operation = self._rng.choices(
            list(OPERATION_WEIGHTS), weights=list(OPERATION_WEIGHTS.values())
        )[0]
        if not self._graphs or (operation == "submit" and len(self._graphs) < MAX_GRAPHS):
            if self._flow.may_submit.is_set():
                self._submit()
            return
        graph = self._rng.choice(list(self._graphs))
        match operation:
            case "submit" | "pause":
                # The newest: on a fast machine, the others have mostly ended.
                self._call("pause graph", list(self._graphs)[-1])
            case "resume":
                self._call("resume graph", graph)
            case _:
                if self._call("cancel graph", graph):
                    del self._graphs[graph]

    def _resume_all(self, until: float) -> None:
        """Resume all graphs, with retries until `until`."""
        while self._graphs:
            self._graphs = {
                graph: 0.0 for graph in self._graphs if not self._call("resume graph", graph)
            }
            if self._graphs and time.monotonic() > until:
                raise TimeoutError(f"these graphs could not be resumed: {list(self._graphs)}")
            time.sleep(INTERVAL_SECONDS if self._graphs else 0.0)

    def _submit(self) -> None:
        self._count += 1
        key = f"graphs-{self._count}"
        tasks = self._tasks()

        def submit() -> dict[str, Any]:
            graph = self._client.submit_graph(tasks, name=key, idempotency_key=key)
            return {
                "graph": graph["id"],
                "ids": [graph["ids"][task["ref"] or ""] for task in tasks],
            }

        graph = self._recorder.call("submit graph", submit, args={"tasks": tasks}, key=key)
        if graph is not None:
            self._graphs[graph["graph"]] = time.monotonic() + self._rng.uniform(*LIFETIME_SECONDS)

    def _call(self, op: Op, graph: str) -> bool:
        """Call an operation on a graph; return True if it was acknowledged."""

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
        refs = [f"t{number}" for number in range(self._rng.randint(*GRAPH_SIZES))]
        tasks: list[TaskFields] = []
        for number, ref in enumerate(refs):
            task = task_mix.draw(self._rng, MAX_TASK_SECONDS)
            milli = round(task["resources"]["cpu"] * 1000)
            task["source"] = self._ledger.script(task["source"], cpu_milli=milli)
            task["ref"] = ref
            if upstreams := task_mix.upstreams(self._rng, refs[:number], share=UPSTREAM_SHARE):
                task["depends_on"] = upstreams
            tasks.append(task)
        return tasks
