"""Ends what a client waits for once the client has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from duly.errors import Malformed


async def while_connected(request: Request, waiting: Coroutine[Any, Any, None]) -> None:
    """Wait until `waiting` is done; raises what it does, or Malformed once the client has gone."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_error_of(waiting)),
            group.create_task(_error_of(_until_gone(request))),
        ]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
    for task in done:
        if (error := task.result()) is not None:
            raise error


async def _error_of(work: Coroutine[Any, Any, None]) -> Exception | None:
    """Return what `work` raises, which a task group would wrap."""
    try:
        await work
    except Exception as error:
        return error
    return None


async def _until_gone(request: Request) -> None:
    """Raise Malformed once the client has gone.

    A body is refused: to read one without end would fill the memory, and not to read it would
    leave unnoticed that the client has gone.
    """
    while True:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            raise Malformed("The client hung up.")
        if message.get("body"):
            raise Malformed("A request that waits has no body.")
