"""Wakes those on this server who wait for something to happen: to a task, or for a node.

A bell is only a hint: whoever waits looks again by itself after a while, because
what happened may have happened on another server, and word of it may be lost.
"""

import asyncio
from collections.abc import Iterable

LOOKS = 400
"""How often in a second all who wait may look by themselves, together."""


class Bell:
    """Rings by id."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self.listeners = 0

    def ring(self, ids: Iterable[int]) -> set[int]:
        """Wake everyone who waits for one of `ids`; return those for which nobody waits here."""
        unheard = set()
        for one in ids:
            if one not in self._waiting:
                unheard.add(one)
            for event in self._waiting.get(one, ()):
                event.set()
        return unheard

    def ring_all(self) -> None:
        """Wake everyone."""
        self.ring(list(self._waiting))

    def listen(self, one: int) -> "Listener":
        """Begin to listen; rings are kept from now on, so look after this, not before.

        Use it in a `with`, so that nobody listens for ever.
        """
        return Listener(self, self._waiting, one)

    def patience(self, least: float) -> float:
        """Return after how many seconds to look without a ring: the later, the more wait here."""
        return max(least, self.listeners / LOOKS)


class Listener:
    """Somebody who waits for news of one thing."""

    def __init__(self, bell: Bell, waiting: dict[int, set[asyncio.Event]], one: int) -> None:
        self._bell = bell
        self._waiting = waiting
        self._one = one
        self._event = asyncio.Event()

    def __enter__(self) -> "Listener":
        self._bell.listeners += 1
        self._waiting.setdefault(self._one, set()).add(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        self._bell.listeners -= 1
        events = self._waiting[self._one]
        events.discard(self._event)
        if not events:
            del self._waiting[self._one]

    async def wait(self, seconds: float) -> bool:
        """Return at the next ring, or after `seconds`; say whether it rang."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        rang = self._event.is_set()
        self._event.clear()
        return rang
