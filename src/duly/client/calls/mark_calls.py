"""The call that marks a task as done or failed, and its methods for both clients."""

from typing import Any, Literal, TypeVar

from duly.client.call import Call, encode, parse_json
from duly.client.calls.task_calls import _task_path
from duly.client.shapes.task_shapes import Task

T = TypeVar("T")
MarkStatus = Literal["done", "failed"]


def mark_task(task: str, status: str, reason: str, result: Any) -> Call[Task]:
    """Mark a task. Repeatable: the same mark changes nothing the second time."""
    body = {"status": status, "reason": reason}
    if result is not None:
        body["result"] = result
    return Call("POST", _task_path(task, "mark"), parse_json, body=encode(body), repeatable=True)


class MarkMethods:
    """Methods that settle tasks from outside."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def mark_task(self, task: str, status: MarkStatus, *, reason: str, result: Any = None) -> Task:
        """End a task that has not ended as done, perhaps with a result, or as failed.

        A running attempt is stopped; dependants are freed or cancelled. `reason` is kept with the
        task and in the audit log.
        """
        return self._send(mark_task(task, status, reason, result))


class AsyncMarkMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def mark_task(
        self, task: str, status: MarkStatus, *, reason: str, result: Any = None
    ) -> Task:
        """End a task that has not ended as done, perhaps with a result, or as failed.

        A running attempt is stopped; dependants are freed or cancelled. `reason` is kept with the
        task and in the audit log.
        """
        return await self._send(mark_task(task, status, reason, result))
