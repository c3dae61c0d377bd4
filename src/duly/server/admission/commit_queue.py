"""Requests that wait for their commit, in the order in which they came.

Who could not be served because its tenant's bucket was held by somebody else goes
back into the line, and its tenant is passed over for a moment: the others do not wait
for it.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from duly.store.tasks import NewTask, Stored

REST = 0.005
"""Seconds for which a tenant is passed over; a commit holds a bucket for about as long."""


class Admitted(msgspec.Struct, frozen=True):
    """A task that is stored; `created` is False when it was there before."""

    id: int
    created: bool
    stored: Stored | None = None


class Waiting(msgspec.Struct):
    """A request that waits for its commit."""

    task: NewTask
    answer: "asyncio.Future[Admitted]"

    def resolve(self, admitted: Admitted) -> None:
        """Answer; the client may have gone away meanwhile, and the task is stored all the same."""
        if not self.answer.done():
            self.answer.set_result(admitted)

    def refuse(self, error: Exception) -> None:
        """Answer with an error, unless there was an answer before."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Line:
    """The requests that wait, by the id of their task."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}
        self._resting: dict[int, float] = {}

    def join(self, task: NewTask) -> Waiting:
        """Put a task into the line."""
        request = Waiting(task, asyncio.get_running_loop().create_future())
        self._waiting[task.id] = request
        return request

    def __contains__(self, request: Waiting) -> bool:
        return request.task.id in self._waiting

    def leave(self, task_id: int) -> bool:
        """Take a task out of the line; False when it is not there any more."""
        return self._waiting.pop(task_id, None) is not None

    def rejoin(self, requests: Iterable[Waiting], *, rest: float = REST) -> None:
        """Put requests back that could not be served, and let their tenants rest."""
        until = asyncio.get_running_loop().time() + rest
        for request in requests:
            # Who has given up meanwhile is not waited for.
            if not request.answer.done():
                self._waiting[request.task.id] = request
                if rest:
                    self._resting[request.task.tenant_id] = until

    def take(self, most: int) -> list[Waiting]:
        """Take the next requests out of the line, without those of tenants that rest.

        Of those who ask for the same unique key one is taken: the next one is to find it held.
        """
        self._wake()
        taken: list[int] = []
        keys: set[tuple[int, str]] = set()
        for task_id, request in self._waiting.items():
            task = request.task
            if task.tenant_id in self._resting:
                continue
            if task.spec.unique is not None:
                key = task.tenant_id, task.spec.unique.key
                if key in keys:
                    continue
                keys.add(key)
            taken.append(task_id)
            if len(taken) == most:
                break
        return [self._waiting.pop(task_id) for task_id in taken]

    @property
    def is_ready(self) -> bool:
        """Say whether somebody can be served now."""
        return any(
            request.task.tenant_id not in self._resting for request in self._waiting.values()
        )

    @property
    def rest(self) -> float | None:
        """Return the seconds until a tenant that rests can be served; None if none does."""
        if not self._resting:
            return None
        return max(0.0, min(self._resting.values()) - asyncio.get_running_loop().time())

    def _wake(self) -> None:
        if self._resting:
            now = asyncio.get_running_loop().time()
            self._resting = {one: until for one, until in self._resting.items() if until > now}
