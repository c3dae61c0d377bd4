"""Requests that wait for their commit, in the order in which they came.

Who could not be served because its tenant's bucket was held by somebody else goes
back into the line, and its tenant is passed over for a moment: the others do not wait
for it.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice

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

    def rejoin(self, requests: Iterable[Waiting]) -> None:
        """Put requests back whose tenant could not be served, and let that tenant rest."""
        until = asyncio.get_running_loop().time() + REST
        for request in requests:
            # Who has given up meanwhile is not waited for.
            if not request.answer.done():
                self._waiting[request.task.id] = request
                self._resting[request.task.tenant_id] = until

    def take(self, most: int) -> list[Waiting]:
        """Take the next requests out of the line, without those of tenants that rest."""
        self._wake()
        ready = self._waiting if not self._resting else self._ready()
        return [self._waiting.pop(first) for first in list(islice(ready, most))]

    @property
    def is_ready(self) -> bool:
        """Say whether somebody can be served now."""
        return bool(self._waiting) and next(iter(self._ready()), None) is not None

    @property
    def rest(self) -> float | None:
        """Return the seconds until a tenant that rests can be served; None if none does."""
        if not self._resting:
            return None
        return max(0.0, min(self._resting.values()) - asyncio.get_running_loop().time())

    def _ready(self) -> Iterable[int]:
        return (
            task_id
            for task_id, request in self._waiting.items()
            if request.task.tenant_id not in self._resting
        )

    def _wake(self) -> None:
        if self._resting:
            now = asyncio.get_running_loop().time()
            self._resting = {one: until for one, until in self._resting.items() if until > now}
