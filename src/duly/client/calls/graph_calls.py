"""The calls of the API about graphs, and their methods for both clients."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from duly.client.call import Call, encode, parse_json
from duly.client.calls import BATCH_TIMEOUT, _get, _header, _segment, _task
from duly.client.graph_shapes import Graph, GraphIds, PausedGraph, ResumedGraph, TaskGraph
from duly.client.shapes import Cancelled, TaskFields

T = TypeVar("T")
Tasks = Iterable[TaskFields] | Mapping[str, TaskFields]
"""The tasks of a graph: each with its `ref`, or by their refs."""


def submit_graph(
    tasks: Tasks, name: str | None, defaults: TaskFields | None, key: str | None
) -> Call[GraphIds]:
    """Store a graph or nothing; without an idempotency key it gets one, to be sent again."""
    many = dict(tasks) if isinstance(tasks, Mapping) else list(tasks)
    body: dict[str, Any] = {"name": name, "defaults": defaults, "tasks": many}
    return Call(
        "POST",
        "/v1/graphs",
        parse_json,
        body=encode({field: value for field, value in body.items() if value is not None}),
        headers={"Idempotency-Key": _header(key or uuid.uuid4().hex)},
        repeatable=True,
        timeout=BATCH_TIMEOUT,
    )


def get_graph(graph: str) -> Call[Graph]:
    """Ask for a graph."""
    return _get(f"/v1/graphs/{_segment(graph)}")


def cancel_graph(graph: str) -> Call[Cancelled]:
    """End what has not ended; the answer is how many. Sent twice, it would miscount."""
    return Call("POST", f"/v1/graphs/{_segment(graph)}/cancel", parse_json)


def pause_graph(graph: str) -> Call[PausedGraph]:
    """Let nothing of a graph start."""
    return Call("POST", f"/v1/graphs/{_segment(graph)}/pause", parse_json)


def resume_graph(graph: str) -> Call[ResumedGraph]:
    """Let a graph go on."""
    return Call("POST", f"/v1/graphs/{_segment(graph)}/resume", parse_json)


def get_task_graph(task: str) -> Call[TaskGraph]:
    """Ask what a task depends on, and what depends on it."""
    return _get(_task(task, "graph"))


class GraphMethods:
    """What a client can do about graphs."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def submit_graph(
        self,
        tasks: Tasks,
        *,
        name: str | None = None,
        defaults: TaskFields | None = None,
        idempotency_key: str | None = None,
    ) -> GraphIds:
        """Submit tasks that name each other by `ref` in `depends_on`, all of them or none.

        `tasks` are a mapping by their refs, or a list of tasks that say them; `defaults` hold
        for every task that does not say otherwise.
        """
        return self._send(submit_graph(tasks, name, defaults, idempotency_key))

    def get_graph(self, graph: str) -> Graph:
        """Return where the tasks of a graph are, and the first thousand of them."""
        return self._send(get_graph(graph))

    def cancel_graph(self, graph: str) -> int:
        """End every task of a graph that has not ended, and return how many they were."""
        count = 0
        while True:
            done = self._send(cancel_graph(graph))
            count += done["cancelled"]
            if not done.get("more"):
                return count

    def pause_graph(self, graph: str) -> PausedGraph:
        """Let no task of a graph start until it is resumed; return how many, and how many run."""
        paused = PausedGraph(paused=0, running=0, more=False)
        while True:
            done = self._send(pause_graph(graph))
            paused["paused"] += done["paused"]
            paused["running"] += done["running"]
            if not done["more"]:
                return paused

    def resume_graph(self, graph: str) -> int:
        """Let the tasks of a graph go on that are paused, and return how many they were."""
        count = 0
        while True:
            done = self._send(resume_graph(graph))
            count += done["resumed"]
            if not done["more"]:
                return count

    def get_task_graph(self, task: str) -> TaskGraph:
        """Return what a task depends on and what depends on it, directly or by others."""
        return self._send(get_task_graph(task))


class AsyncGraphMethods:
    """The same with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def submit_graph(
        self,
        tasks: Tasks,
        *,
        name: str | None = None,
        defaults: TaskFields | None = None,
        idempotency_key: str | None = None,
    ) -> GraphIds:
        """Submit tasks that name each other by `ref` in `depends_on`, all of them or none.

        `tasks` are a mapping by their refs, or a list of tasks that say them; `defaults` hold
        for every task that does not say otherwise.
        """
        return await self._send(submit_graph(tasks, name, defaults, idempotency_key))

    async def get_graph(self, graph: str) -> Graph:
        """Return where the tasks of a graph are, and the first thousand of them."""
        return await self._send(get_graph(graph))

    async def cancel_graph(self, graph: str) -> int:
        """End every task of a graph that has not ended, and return how many they were."""
        count = 0
        while True:
            done = await self._send(cancel_graph(graph))
            count += done["cancelled"]
            if not done.get("more"):
                return count

    async def pause_graph(self, graph: str) -> PausedGraph:
        """Let no task of a graph start until it is resumed; return how many, and how many run."""
        paused = PausedGraph(paused=0, running=0, more=False)
        while True:
            done = await self._send(pause_graph(graph))
            paused["paused"] += done["paused"]
            paused["running"] += done["running"]
            if not done["more"]:
                return paused

    async def resume_graph(self, graph: str) -> int:
        """Let the tasks of a graph go on that are paused, and return how many they were."""
        count = 0
        while True:
            done = await self._send(resume_graph(graph))
            count += done["resumed"]
            if not done["more"]:
                return count

    async def get_task_graph(self, task: str) -> TaskGraph:
        """Return what a task depends on and what depends on it, directly or by others."""
        return await self._send(get_task_graph(task))
