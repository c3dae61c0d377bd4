"""Wakes those on this server who wait for something to happen to a task.

A bell is only a hint: whoever waits looks again by itself after a while, because
what happened may have happened on another server.
"""

import asyncio
from collections.abc import Iterable


class Bell:
    """Rings for tasks by their id."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}

    def ring(self, tasks: Iterable[int]) -> None:
        """Wake everyone who waits for one of `tasks`."""
        for task in tasks:
            for event in self._waiting.get(task, ()):
                event.set()

    def listen(self, task: int) -> "Listener":
        """Begin to listen for a task; rings are kept from now on, so look after this, not before.

        Use it in a `with`, so that nobody listens for ever.
        """
        return Listener(self._waiting, task)


class Listener:
    """Somebody who waits for news of one task."""

    def __init__(self, waiting: dict[int, set[asyncio.Event]], task: int) -> None:
        self._waiting = waiting
        self._task = task
        self._event = asyncio.Event()

    def __enter__(self) -> "Listener":
        self._waiting.setdefault(self._task, set()).add(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        events = self._waiting[self._task]
        events.discard(self._event)
        if not events:
            del self._waiting[self._task]

    async def wait(self, seconds: float) -> None:
        """Return at the next ring, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
