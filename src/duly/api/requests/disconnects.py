"""Cancels a long wait when its client disconnects, and disconnects a client."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from duly.errors import Malformed
from duly.http.connection_limits import ABORT_CONNECTION


async def while_connected(request: Request, waiting: Coroutine[Any, Any, None]) -> None:
    """Await `waiting`; raises its error, or Malformed if the client disconnects first."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_capture_error(waiting)),
            group.create_task(_capture_error(_until_disconnected(request))),
        ]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
    for task in done:
        if (error := task.result()) is not None:
            raise error


def break_off(request: Request) -> None:
    """Close the connection of a response that has begun, so that it is seen to be incomplete."""
    request.scope[ABORT_CONNECTION]()


async def _capture_error(work: Coroutine[Any, Any, None]) -> Exception | None:
    """Return the exception of `work` instead of raising it, as a task group would wrap it."""
    try:
        await work
    except Exception as error:
        return error
    return None


async def _until_disconnected(request: Request) -> None:
    """Raise Malformed when the client disconnects.

    A body is refused: an endless one would fill the memory if it were read, and hide the
    disconnect if it were not.
    """
    while True:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            raise Malformed("The client disconnected.")
        if message.get("body"):
            raise Malformed("A request that waits may not have a body.")
