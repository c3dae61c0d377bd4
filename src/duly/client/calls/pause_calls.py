"""The calls that pause and resume tasks, and their methods for both clients."""

from typing import TypeVar, Unpack

from duly.client.call import Call, parse_json
from duly.client.calls.task_calls import _bulk_action, _task_path
from duly.client.shapes.graph_shapes import PauseCounts, ResumeCount
from duly.client.shapes.task_shapes import Task, TaskFilter

T = TypeVar("T")


def pause_task(task: str) -> Call[Task]:
    """Pause a task."""
    return Call("POST", _task_path(task, "pause"), parse_json, repeatable=True)


def resume_task(task: str) -> Call[Task]:
    """Resume a paused task."""
    return Call("POST", _task_path(task, "resume"), parse_json, repeatable=True)


def pause_tasks(filters: TaskFilter) -> Call[PauseCounts]:
    """Pause the tasks that match the filters. Not repeatable: the count would be wrong."""
    return _bulk_action("pause", filters)


def resume_tasks(filters: TaskFilter) -> Call[ResumeCount]:
    """Resume the paused tasks that match the filters."""
    return _bulk_action("resume", filters)


class PauseMethods:
    """Methods that pause and resume tasks."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def pause_task(self, task: str) -> Task:
        """Pause a task until it is resumed; a running attempt finishes first."""
        return self._send(pause_task(task))

    def resume_task(self, task: str) -> Task:
        """Resume a paused task."""
        return self._send(resume_task(task))

    def pause_tasks(self, **filters: Unpack[TaskFilter]) -> PauseCounts:
        """Pause every task that matches `filters`; return how many, and how many keep running."""
        paused = PauseCounts(paused=0, running=0, more=False)
        while True:
            counts = self._send(pause_tasks(filters))
            paused["paused"] += counts["paused"]
            paused["running"] += counts["running"]
            if not counts["more"]:
                return paused

    def resume_tasks(self, **filters: Unpack[TaskFilter]) -> int:
        """Resume every paused task that matches `filters`, and return how many."""
        count = 0
        while True:
            counts = self._send(resume_tasks(filters))
            count += counts["resumed"]
            if not counts["more"]:
                return count


class AsyncPauseMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def pause_task(self, task: str) -> Task:
        """Pause a task until it is resumed; a running attempt finishes first."""
        return await self._send(pause_task(task))

    async def resume_task(self, task: str) -> Task:
        """Resume a paused task."""
        return await self._send(resume_task(task))

    async def pause_tasks(self, **filters: Unpack[TaskFilter]) -> PauseCounts:
        """Pause every task that matches `filters`; return how many, and how many keep running."""
        paused = PauseCounts(paused=0, running=0, more=False)
        while True:
            counts = await self._send(pause_tasks(filters))
            paused["paused"] += counts["paused"]
            paused["running"] += counts["running"]
            if not counts["more"]:
                return paused

    async def resume_tasks(self, **filters: Unpack[TaskFilter]) -> int:
        """Resume every paused task that matches `filters`, and return how many."""
        count = 0
        while True:
            counts = await self._send(resume_tasks(filters))
            count += counts["resumed"]
            if not counts["more"]:
                return count
