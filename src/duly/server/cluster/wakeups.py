"""Wakes those on this server who wait for something to happen: to a task, or for a node.

A bell is only a hint: whoever waits looks again by itself after a while, because
what happened may have happened on another server, and word of it may be lost.
"""

import asyncio
from collections.abc import Iterable

from duly import alarm

LOOKS = 400
"""How often in a second all who wait may look by themselves, together."""


class Bell:
    """Rings by id."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[Listener]] = {}
        self.listeners = 0

    def ring(self, ids: Iterable[int]) -> set[int]:
        """Wake everyone who waits for one of `ids`; return those for which nobody waits here."""
        unheard = set()
        for one in ids:
            if one not in self._waiting:
                unheard.add(one)
            for listener in self._waiting.get(one, ()):
                listener.ring()
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

    def __init__(self, bell: Bell, waiting: "dict[int, set[Listener]]", one: int) -> None:
        self._bell = bell
        self._waiting = waiting
        self._one = one
        self._event = asyncio.Event()
        self._rang = False

    def __enter__(self) -> "Listener":
        self._bell.listeners += 1
        self._waiting.setdefault(self._one, set()).add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._bell.listeners -= 1
        listeners = self._waiting[self._one]
        listeners.discard(self)
        if not listeners:
            del self._waiting[self._one]

    def ring(self) -> None:
        """Wake this one."""
        self._rang = True
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Return at the next ring, or after `seconds`; say whether it rang."""
        await alarm.wait(self._event, seconds)
        rang, self._rang = self._rang, False
        self._event.clear()
        return rang
