"""The calls of the API that pause tasks and let them go on, and their methods for both clients."""

from typing import TypeVar, Unpack

from duly.client.call import Call, parse_json
from duly.client.calls import _task, _to_all
from duly.client.graph_shapes import PausedGraph, ResumedGraph
from duly.client.shapes import Task, TaskFilter

T = TypeVar("T")


def pause_task(task: str) -> Call[Task]:
    """Let a task not start until it is resumed."""
    return Call("POST", _task(task, "pause"), parse_json, repeatable=True)


def resume_task(task: str) -> Call[Task]:
    """Let a task go on that is paused."""
    return Call("POST", _task(task, "resume"), parse_json, repeatable=True)


def pause_tasks(which: TaskFilter) -> Call[PausedGraph]:
    """Pause the tasks that are meant; the answer is how many. Sent twice, it would miscount."""
    return _to_all("pause", which)


def resume_tasks(which: TaskFilter) -> Call[ResumedGraph]:
    """Let the tasks go on that are meant and paused."""
    return _to_all("resume", which)


class PauseMethods:
    """What a client can do about pauses."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def pause_task(self, task: str) -> Task:
        """Let a task not start until it is resumed; one that runs goes on to its attempt's end."""
        return self._send(pause_task(task))

    def resume_task(self, task: str) -> Task:
        """Let a task go on that is paused."""
        return self._send(resume_task(task))

    def pause_tasks(self, **which: Unpack[TaskFilter]) -> PausedGraph:
        """Pause all the tasks that `which` means; return how many, and how many run on."""
        paused = PausedGraph(paused=0, running=0, more=False)
        while True:
            done = self._send(pause_tasks(which))
            paused["paused"] += done["paused"]
            paused["running"] += done["running"]
            if not done["more"]:
                return paused

    def resume_tasks(self, **which: Unpack[TaskFilter]) -> int:
        """Let all the tasks go on that `which` means and are paused; return how many."""
        count = 0
        while True:
            done = self._send(resume_tasks(which))
            count += done["resumed"]
            if not done["more"]:
                return count


class AsyncPauseMethods:
    """The same with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def pause_task(self, task: str) -> Task:
        """Let a task not start until it is resumed; one that runs goes on to its attempt's end."""
        return await self._send(pause_task(task))

    async def resume_task(self, task: str) -> Task:
        """Let a task go on that is paused."""
        return await self._send(resume_task(task))

    async def pause_tasks(self, **which: Unpack[TaskFilter]) -> PausedGraph:
        """Pause all the tasks that `which` means; return how many, and how many run on."""
        paused = PausedGraph(paused=0, running=0, more=False)
        while True:
            done = await self._send(pause_tasks(which))
            paused["paused"] += done["paused"]
            paused["running"] += done["running"]
            if not done["more"]:
                return paused

    async def resume_tasks(self, **which: Unpack[TaskFilter]) -> int:
        """Let all the tasks go on that `which` means and are paused; return how many."""
        count = 0
        while True:
            done = await self._send(resume_tasks(which))
            count += done["resumed"]
            if not done["more"]:
                return count
