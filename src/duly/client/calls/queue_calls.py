"""The calls about queues, and their methods for both clients."""

from typing import TypeVar, Unpack

from duly.client.call import Call, encode, parse_json
from duly.client.calls.task_calls import _get, _page_query, _path_segment, _tenant_query
from duly.client.shapes.queue_shapes import NewQueueFields, Queue, QueueFields
from duly.client.shapes.task_shapes import TenantPage

T = TypeVar("T")


def list_queues(
    tenant: str | None, limit: int | None, cursor: str | None
) -> Call[TenantPage[Queue]]:
    """List a page of queues."""
    return _get("/v1/queues", [*_tenant_query(tenant), *_page_query(limit, cursor)])


def get_queue(name: str, tenant: str | None) -> Call[Queue]:
    """Get a queue."""
    return _get(_queue_path(name), _tenant_query(tenant))


def create_queue(name: str, level: int, fields: NewQueueFields) -> Call[Queue]:
    """Create a queue. Not repeatable: a second request would conflict."""
    body = encode({"name": name, "level": level, **fields})
    return Call("POST", "/v1/queues", parse_json, body=body)


def update_queue(name: str, fields: QueueFields) -> Call[Queue]:
    """Update a queue."""
    return Call("PATCH", _queue_path(name), parse_json, body=encode(fields), repeatable=True)


def pause_queue(name: str) -> Call[Queue]:
    """Pause a queue."""
    return Call("POST", f"{_queue_path(name)}/pause", parse_json, repeatable=True)


def resume_queue(name: str) -> Call[Queue]:
    """Resume a paused queue."""
    return Call("POST", f"{_queue_path(name)}/resume", parse_json, repeatable=True)


def remove_queue(name: str) -> Call[None]:
    """Remove a queue that is not in use."""
    return Call("DELETE", _queue_path(name), lambda body: None)


def _queue_path(name: str) -> str:
    return f"/v1/queues/{_path_segment(name)}"


class QueueMethods:
    """Methods for queues."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_queues(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> TenantPage[Queue]:
        """Return a page of queues, in the order in which they are served."""
        return self._send(list_queues(tenant, limit, cursor))

    def get_queue(self, name: str, *, tenant: str | None = None) -> Queue:
        """Return a queue."""
        return self._send(get_queue(name, tenant))

    def create_queue(self, name: str, level: int, **fields: Unpack[NewQueueFields]) -> Queue:
        """Create a queue; of two queues the one with the lower level is served first."""
        return self._send(create_queue(name, level, fields))

    def update_queue(self, name: str, **fields: Unpack[QueueFields]) -> Queue:
        """Update a queue; None removes a bound."""
        return self._send(update_queue(name, fields))

    def pause_queue(self, name: str) -> Queue:
        """Pause a queue: none of its tasks start until it is resumed."""
        return self._send(pause_queue(name))

    def resume_queue(self, name: str) -> Queue:
        """Resume a paused queue."""
        return self._send(resume_queue(name))

    def remove_queue(self, name: str) -> None:
        """Remove a queue; raises Conflict while it has live tasks or a plan includes it."""
        self._send(remove_queue(name))


class AsyncQueueMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_queues(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> TenantPage[Queue]:
        """Return a page of queues, in the order in which they are served."""
        return await self._send(list_queues(tenant, limit, cursor))

    async def get_queue(self, name: str, *, tenant: str | None = None) -> Queue:
        """Return a queue."""
        return await self._send(get_queue(name, tenant))

    async def create_queue(self, name: str, level: int, **fields: Unpack[NewQueueFields]) -> Queue:
        """Create a queue; of two queues the one with the lower level is served first."""
        return await self._send(create_queue(name, level, fields))

    async def update_queue(self, name: str, **fields: Unpack[QueueFields]) -> Queue:
        """Update a queue; None removes a bound."""
        return await self._send(update_queue(name, fields))

    async def pause_queue(self, name: str) -> Queue:
        """Pause a queue: none of its tasks start until it is resumed."""
        return await self._send(pause_queue(name))

    async def resume_queue(self, name: str) -> Queue:
        """Resume a paused queue."""
        return await self._send(resume_queue(name))

    async def remove_queue(self, name: str) -> None:
        """Remove a queue; raises Conflict while it has live tasks or a plan includes it."""
        await self._send(remove_queue(name))
