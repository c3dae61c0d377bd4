"""The handle of a submitted call: wait for it, get its result, cancel it, read its log."""

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from duly.client.functions import failures, waiting
from duly.client.functions.arguments import decode_result
from duly.client.functions.encoding.converter import Reference, ResultReference
from duly.client.functions.parameters import Parameters
from duly.client.shapes.task_shapes import FINAL_STATUSES, Task
from duly.errors import TaskFailed

if TYPE_CHECKING:
    from duly.client.functions.app import App

R = TypeVar("R")


class Handle(ResultReference, Generic[R]):
    """A task that calls a function; its `id` is enough to make another handle elsewhere."""

    def __init__(self, app: "App", task_id: str, parameters: Parameters) -> None:
        self.app = app
        self.id = task_id
        self._parameters = parameters

    def __repr__(self) -> str:
        return f"<handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the task has ended; raises TimeoutError after `timeout` seconds."""
        waiting.wait_for(self, timeout)

    async def wait_async(self, timeout: float | None = None) -> None:
        """Do the same in a coroutine."""
        await waiting.wait_for_async(self, timeout)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the task and return what the function returned.

        Raises TaskFailed if it failed or was cancelled, and TimeoutError after `timeout` seconds.
        """
        self.wait(timeout)
        client = self.app.client
        try:
            return self._decode(client.get_result(self.id))
        except TaskFailed as error:
            raise failures.describe(error, client, self.id) from None

    async def result_async(self, timeout: float | None = None) -> R:
        """Do the same in a coroutine."""
        await self.wait_async(timeout)
        client = self.app.async_client
        try:
            return self._decode(await client.get_result(self.id))
        except TaskFailed as error:
            raise await failures.describe_async(error, client, self.id) from None

    def status(self) -> str:
        """Return the status of the task, such as "waiting" or "done"."""
        return self.task()["status"]

    async def status_async(self) -> str:
        """Do the same in a coroutine."""
        return (await self.task_async())["status"]

    def is_done(self) -> bool:
        """Return True if the task has ended, however it did."""
        return self.status() in FINAL_STATUSES

    def task(self) -> Task:
        """Return all fields of the task."""
        return self.app.client.get_task(self.id)

    async def task_async(self) -> Task:
        """Do the same in a coroutine."""
        return await self.app.async_client.get_task(self.id)

    def cancel(self) -> None:
        """Cancel the task; a running function is interrupted."""
        self.app.client.cancel_task(self.id)

    async def cancel_async(self) -> None:
        """Do the same in a coroutine."""
        await self.app.async_client.cancel_task(self.id)

    def logs(self, attempt: int | None = None) -> str:
        """Return what the function has written, by default in the latest attempt."""
        return self.app.client.read_logs(self.id, attempt).decode(errors="replace")

    async def logs_async(self, attempt: int | None = None) -> str:
        """Do the same in a coroutine."""
        log = await self.app.async_client.read_logs(self.id, attempt)
        return log.decode(errors="replace")

    def as_argument(self) -> R:
        """Return the handle as an argument of another call, which then waits for this one.

        For type checkers it is the result; a plain handle works as well.
        """
        return cast(R, self)

    def reference(self) -> Reference:
        """Return the JSON that stands for the result among the arguments of another call."""
        return Reference(self.id)

    def _decode(self, value: object) -> R:
        result: R = decode_result(self._parameters.result, value)
        return result
