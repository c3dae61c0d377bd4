"""The calls about graphs, and their methods for both clients."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from duly.client.call import Call, encode, parse_json
from duly.client.calls.task_calls import (
    BATCH_TIMEOUT_SECONDS,
    _get,
    _header_value,
    _path_segment,
    _task_path,
)
from duly.client.shapes.graph_shapes import Graph, GraphIds, PauseCounts, ResumeCount, TaskGraph
from duly.client.shapes.task_shapes import CancelCount, TaskFields

T = TypeVar("T")
Tasks = Iterable[TaskFields] | Mapping[str, TaskFields]
"""The tasks of a graph: a list of tasks with `ref`, or a mapping from ref to task."""


def submit_graph(
    tasks: Tasks, name: str | None, defaults: TaskFields | None, key: str | None
) -> Call[GraphIds]:
    """Submit a graph atomically; without an idempotency key it gets a random one."""
    graph_tasks = dict(tasks) if isinstance(tasks, Mapping) else list(tasks)
    body: dict[str, Any] = {"name": name, "defaults": defaults, "tasks": graph_tasks}
    return Call(
        "POST",
        "/v1/graphs",
        parse_json,
        body=encode({field: value for field, value in body.items() if value is not None}),
        headers={"Idempotency-Key": _header_value(key or uuid.uuid4().hex)},
        repeatable=True,
        timeout=BATCH_TIMEOUT_SECONDS,
    )


def _submit_graph_once(
    tasks: Tasks, name: str | None, defaults: TaskFields | None, key: str | None
) -> Call[tuple[GraphIds, bool]]:
    """Submit a graph; the result also has whether this call created it."""
    return submit_graph(tasks, name, defaults, key).telling_if_created()


def get_graph(graph: str) -> Call[Graph]:
    """Get a graph."""
    return _get(f"/v1/graphs/{_path_segment(graph)}")


def cancel_graph(graph: str) -> Call[CancelCount]:
    """Cancel the live tasks of a graph. Not repeatable: the count would be wrong."""
    return Call("POST", f"/v1/graphs/{_path_segment(graph)}/cancel", parse_json)


def pause_graph(graph: str) -> Call[PauseCounts]:
    """Pause a graph."""
    return Call("POST", f"/v1/graphs/{_path_segment(graph)}/pause", parse_json)


def resume_graph(graph: str) -> Call[ResumeCount]:
    """Resume a graph."""
    return Call("POST", f"/v1/graphs/{_path_segment(graph)}/resume", parse_json)


def get_task_graph(task: str) -> Call[TaskGraph]:
    """Get the upstream and downstream tasks of a task."""
    return _get(_task_path(task, "graph"))


class GraphMethods:
    """Methods for graphs."""

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
        """Submit tasks that name each other by `ref` in `depends_on`, all or none.

        `tasks` is a mapping from ref to task, or a list of tasks with `ref`; `defaults` apply to
        every field that a task leaves out.
        """
        return self._send(submit_graph(tasks, name, defaults, idempotency_key))

    def submit_graph_once(
        self,
        tasks: Tasks,
        *,
        name: str | None = None,
        defaults: TaskFields | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[GraphIds, bool]:
        """Submit a graph; return its ids, and False if its idempotency key was used before."""
        return self._send(_submit_graph_once(tasks, name, defaults, idempotency_key))

    def get_graph(self, graph: str) -> Graph:
        """Return a graph: the number of tasks per status, and the first thousand tasks."""
        return self._send(get_graph(graph))

    def cancel_graph(self, graph: str) -> int:
        """Cancel every live task of a graph, and return how many."""
        count = 0
        while True:
            counts = self._send(cancel_graph(graph))
            count += counts["cancelled"]
            if not counts.get("more"):
                return count

    def pause_graph(self, graph: str) -> PauseCounts:
        """Pause a graph; return how many tasks were paused and how many keep running."""
        paused = PauseCounts(paused=0, running=0, more=False)
        while True:
            counts = self._send(pause_graph(graph))
            paused["paused"] += counts["paused"]
            paused["running"] += counts["running"]
            if not counts["more"]:
                return paused

    def resume_graph(self, graph: str) -> int:
        """Resume the paused tasks of a graph, and return how many."""
        count = 0
        while True:
            counts = self._send(resume_graph(graph))
            count += counts["resumed"]
            if not counts["more"]:
                return count

    def get_task_graph(self, task: str) -> TaskGraph:
        """Return the upstream and downstream tasks of a task, direct and indirect."""
        return self._send(get_task_graph(task))


class AsyncGraphMethods:
    """The same methods with `await`."""

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
        """Submit tasks that name each other by `ref` in `depends_on`, all or none.

        `tasks` is a mapping from ref to task, or a list of tasks with `ref`; `defaults` apply to
        every field that a task leaves out.
        """
        return await self._send(submit_graph(tasks, name, defaults, idempotency_key))

    async def submit_graph_once(
        self,
        tasks: Tasks,
        *,
        name: str | None = None,
        defaults: TaskFields | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[GraphIds, bool]:
        """Submit a graph; return its ids, and False if its idempotency key was used before."""
        return await self._send(_submit_graph_once(tasks, name, defaults, idempotency_key))

    async def get_graph(self, graph: str) -> Graph:
        """Return a graph: the number of tasks per status, and the first thousand tasks."""
        return await self._send(get_graph(graph))

    async def cancel_graph(self, graph: str) -> int:
        """Cancel every live task of a graph, and return how many."""
        count = 0
        while True:
            counts = await self._send(cancel_graph(graph))
            count += counts["cancelled"]
            if not counts.get("more"):
                return count

    async def pause_graph(self, graph: str) -> PauseCounts:
        """Pause a graph; return how many tasks were paused and how many keep running."""
        paused = PauseCounts(paused=0, running=0, more=False)
        while True:
            counts = await self._send(pause_graph(graph))
            paused["paused"] += counts["paused"]
            paused["running"] += counts["running"]
            if not counts["more"]:
                return paused

    async def resume_graph(self, graph: str) -> int:
        """Resume the paused tasks of a graph, and return how many."""
        count = 0
        while True:
            counts = await self._send(resume_graph(graph))
            count += counts["resumed"]
            if not counts["more"]:
                return count

    async def get_task_graph(self, task: str) -> TaskGraph:
        """Return the upstream and downstream tasks of a task, direct and indirect."""
        return await self._send(get_task_graph(task))
