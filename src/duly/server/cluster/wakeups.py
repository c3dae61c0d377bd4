"""Wakes the requests on this server that wait for a task or for a node's next orders.

A wake-up is only a hint: a waiting request also rechecks the database from time to time, because
the change may have been made on another server, and the hint about it may be lost.
"""

import asyncio
from collections.abc import Iterable

from duly import timers

MAX_RECHECKS_PER_SECOND = 400
"""Rechecks without a wake-up, of all waiting requests together."""


class Wakeups:
    """Listeners by the id that they wait for."""

    def __init__(self) -> None:
        self._listeners: dict[int, set[Listener]] = {}
        self.listener_count = 0
        self.is_closed = False
        """Whether the server stops: nothing is worth waiting for here any more."""

    def wake(self, ids: Iterable[int]) -> set[int]:
        """Wake the listeners of `ids`; return the ids that have no listener here."""
        without_listener = set()
        for key in ids:
            if key not in self._listeners:
                without_listener.add(key)
            for listener in self._listeners.get(key, ()):
                listener.wake()
        return without_listener

    def wake_all(self) -> None:
        """Wake every listener."""
        self.wake(list(self._listeners))

    def close(self) -> None:
        """Wake every listener for good: no `wait` lasts any longer."""
        self.is_closed = True
        self.wake_all()

    def listen(self, key: int) -> "Listener":
        """Return a listener for `key`, to be used in a `with` block.

        Read the database inside the block: from its start on no wake-up is missed.
        """
        return Listener(self, self._listeners, (key,))

    def listen_to_any(self, keys: Iterable[int], weight: int) -> "Listener":
        """Return a listener for all of `keys`; it counts as `weight` listeners."""
        return Listener(self, self._listeners, keys, weight)

    def recheck_interval(self, minimum: float) -> float:
        """Return the seconds between rechecks without a wake-up; it grows with the listeners."""
        return max(minimum, self.listener_count / MAX_RECHECKS_PER_SECOND)


class Listener:
    """One request that waits for wake-ups of one id, or of any of many."""

    def __init__(
        self,
        wakeups: Wakeups,
        listeners: "dict[int, set[Listener]]",
        keys: Iterable[int],
        weight: int = 1,
    ) -> None:
        self._wakeups = wakeups
        self._listeners = listeners
        self._keys = frozenset(keys)
        self._weight = weight
        self._event = asyncio.Event()
        self._was_woken = False

    def __enter__(self) -> "Listener":
        self._wakeups.listener_count += self._weight
        for key in self._keys:
            self._listeners.setdefault(key, set()).add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._wakeups.listener_count -= self._weight
        for key in self._keys:
            listeners = self._listeners[key]
            listeners.discard(self)
            if not listeners:
                del self._listeners[key]

    def wake(self) -> None:
        """Wake this listener, or its next `wait` if it is not waiting."""
        self._was_woken = True
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most `seconds`; return True if there was one.

        Callers check `is_closed` before they wait again.
        """
        if not self._wakeups.is_closed:
            await timers.wait_or_set(self._event, seconds)
        was_woken, self._was_woken = self._was_woken, False
        self._event.clear()
        return was_woken
