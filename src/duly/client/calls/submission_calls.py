"""Calls that submit tasks and tell new ones from those that were submitted before."""

from collections.abc import Iterable
from typing import TypeVar, Unpack

from duly.client.call import Call
from duly.client.calls.task_calls import submit, submit_many
from duly.client.shapes.task_shapes import Task, TaskFields

T = TypeVar("T")

CREATED = 201


def telling_if_created(call: Call[T]) -> Call[tuple[T, bool]]:
    """Return the call with a result that also has whether this call created something."""
    return Call(
        call.method,
        call.path,
        lambda body: (call.read(body), True),
        body=call.body,
        headers=call.headers,
        repeatable=call.repeatable,
        timeout=call.timeout,
        read_status=lambda status, body: (call.read(body), status == CREATED),
    )


class SubmissionMethods:
    """Methods that submit tasks."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return self._send(telling_if_created(submit(task)))

    def submit_many_once(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> tuple[list[str], bool]:
        """Submit `tasks` atomically; return their ids, and False if the key was used before."""
        return self._send(telling_if_created(submit_many(tasks, idempotency_key)))


class AsyncSubmissionMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def submit_once(self, **task: Unpack[TaskFields]) -> tuple[Task, bool]:
        """Submit a task; return it, and False if its idempotency or unique key was used before.

        It is also False if an earlier try of this call stored it and the response was lost.
        """
        return await self._send(telling_if_created(submit(task)))

    async def submit_many_once(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> tuple[list[str], bool]:
        """Submit `tasks` atomically; return their ids, and False if the key was used before."""
        return await self._send(telling_if_created(submit_many(tasks, idempotency_key)))
