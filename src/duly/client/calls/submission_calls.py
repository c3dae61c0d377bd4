"""The call that submits a task and tells a new one from one that was submitted before."""

from typing import TypeVar, Unpack

from duly.client.call import Call, parse_json
from duly.client.calls.task_calls import submit
from duly.client.shapes.task_shapes import Task, TaskFields

T = TypeVar("T")

CREATED = 201


def _submit_once(task: TaskFields) -> Call[tuple[Task, bool]]:
    """Submit a task; the result also has whether this call created it."""
    call = submit(task)
    return Call(
        call.method,
        call.path,
        lambda body: (parse_json(body), True),
        body=call.body,
        repeatable=call.repeatable,
        read_status=lambda status, body: (parse_json(body), status == CREATED),
    )


class SubmissionMethods:
    """Methods that submit tasks."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return self._send(_submit_once(task))


class AsyncSubmissionMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return await self._send(_submit_once(task))
