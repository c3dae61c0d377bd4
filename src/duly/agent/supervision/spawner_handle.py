"""The supervisor's end of the line to a spawner, and what is done when that one dies.

A start waits until the spawner has nearly caught up. Then it is handed over, and is under way until
its result is here. Until then nothing is done to its cgroup, because the spawner may be in it.
"""

import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from duly.agent.cgroup import Group, Limits
from duly.agent.frames import Frames
from duly.agent.spawner import AT_ONCE, HOME, UNDER_WAY, Setting, Spawner
from duly.clock import monotonic

SLOTS = 4096
MOST_UNDER_WAY = 2 * AT_ONCE
"""Starts that a spawner has at a time: those that it begins, and as many for when it has told of
them. Each has a group, and a spawner keeps the files open of every group that it was ever in. Each
process that it starts inherits them, and closes them again."""
PATIENCE = 10.0
"""Seconds without any result after which a spawner with something to do counts as stuck."""
MOST_FAILURES = 5
"""How many spawners may die one after the other without having touched a start."""


class Start:
    """A start that waits or is under way."""

    __slots__ = ("attempt", "begin", "group", "limits", "output")

    def __init__(self, attempt: int, limits: Limits, begin: tuple[Any, ...], output: int) -> None:
        self.attempt = attempt
        self.limits = limits
        """What its group is to allow."""
        self.begin = begin
        self.output = output
        """The writing end of its output, ours until the start has a result."""
        self.group: Group | None = None
        """None before it is handed over, and where there are no groups."""


class Starter:
    """One spawner after the other, and what they are to start."""

    def __init__(
        self,
        folders: list[str],
        open_files: tuple[int, int],
        tenant: int | None,
        disk: int,
        lock: int,
    ) -> None:
        self.tenant = tenant
        self.disk = disk
        self._folders = folders
        self._open_files = open_files
        self._lock = lock
        self._waiting: dict[int, Start] = {}
        self._starts: dict[int, Start] = {}
        """Those under way, in the order in which they are to begin."""
        self._slots: dict[int, int] = {}
        self._next_slot = 0
        self._running = 0
        """How many of those that it has begun have not ended."""
        self._failures = 0
        self._heard_at = 0.0
        self.stand: Group | None = None
        """The empty group in which the spawner waits, for the next attempt that it begins."""
        for folder in folders:
            os.makedirs(f"{folder}/{HOME}", exist_ok=True)  # noqa: PTH103
        self._make()

    def _make(self) -> None:
        ours, theirs = socket.socketpair()
        self._board = memoryview(mmap.mmap(-1, SLOTS * 8)).cast("q")
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_spawner(theirs, supervisor)
        theirs.close()
        self.frames = Frames(ours)
        self.is_reaped = False

    def _become_spawner(self, link: socket.socket, supervisor: int) -> None:
        code = 1
        try:
            # The lock tells whoever comes after us whether anything can still be started.
            keep_only(self._lock, link.fileno())
            limits = self._open_files, self.disk
            Spawner(Setting(Frames(link), self._board, self._folders, *limits, supervisor)).run()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    @property
    def deadline(self) -> float:
        """Return when the spawner counts as stuck, if nothing is heard of it until then."""
        return self._heard_at + PATIENCE if self._starts else float("inf")

    def load(self) -> int:
        """Return how many starts wait or are under way."""
        return len(self._waiting) + len(self._starts)

    def is_unused(self) -> bool:
        """Tell whether it has nothing to start, and nothing that it has started still runs."""
        return not self._running and not self.load()

    def serve(self, tenant: int | None) -> None:
        """Let an unused spawner forget what the tenant may have set of it, and serve another."""
        self.tenant = tenant
        self.frames.try_to_send([("reset",)])

    def add(self, start: Start) -> None:
        """Have something started when its turn has come."""
        self._waiting[start.attempt] = start

    def withdraw(self, attempt: int) -> bool:
        """Drop a start that waits; False if it does not: then a spawner may have begun it."""
        start = self._waiting.pop(attempt, None)
        if start is not None:
            self.give_up(start)
        return start is not None

    def take_next(self) -> list[Start]:
        """Take those that are to be handed over now."""
        first = list(islice(self._waiting, MOST_UNDER_WAY - len(self._starts)))
        return [self._waiting.pop(attempt) for attempt in first]

    @property
    def is_waited_for(self) -> bool:
        """Tell whether there is more to hand over when the spawner has caught up."""
        return bool(self._waiting)

    def hand_over(self, starts: Sequence[Start]) -> None:
        """Tell the spawner what to begin, and where to wait after that."""
        if not self._starts:
            self._heard_at = monotonic()
        orders: list[tuple[Any, ...]] = []
        for start in starts:
            self._starts[start.attempt] = start
            slot = self._slots[start.attempt] = self._next_slot
            self._next_slot = (slot + 1) % SLOTS
            self._board[slot] = 0
            group = start.group and start.group.name
            orders.append(("start", slot, start.attempt, group, start.begin))
        if self.stand is not None:
            orders.append(("stand", self.stand.name))
        self.frames.try_to_send(orders, [start.output for start in starts])

    def terminate(self, attempt: int) -> None:
        """Have SIGTERM sent to an attempt that has begun and is not known to have ended."""
        self.frames.try_to_send([("terminate", attempt)])

    def hear(self) -> list[Any] | None:
        """Return what the spawner tells; None means that it is gone."""
        results = self.frames.receive()
        if results:
            self._heard_at = monotonic()
            self._note(results)
        return results

    def _note(self, results: list[Any]) -> None:
        for result in results:
            if result[0] == "ended":
                self._running -= 1
                continue
            self._running += result[0] == "begun"
            self._forget(result[1])
            self._failures = 0

    def _forget(self, attempt: int) -> None:
        start = self._starts.pop(attempt)
        del self._slots[attempt]
        os.close(start.output)

    def give_up(self, start: Start) -> None:
        """Drop a start that cannot be handed over."""
        os.close(start.output)

    def give_up_all(self) -> list[int]:
        """Drop every start that waits, and return the attempts."""
        attempts = list(self._waiting)
        for attempt in attempts:
            self.withdraw(attempt)
        return attempts

    def retire(self) -> None:
        """Let the spawner leave by itself, after it has told of every end that it knows."""
        self.frames.socket.shutdown(socket.SHUT_WR)

    def is_dead(self) -> bool:
        """Tell whether the spawner has ended and is to be buried."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """End the spawner, whatever it is doing."""
        if not self.is_reaped:
            os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> list[Any]:
        """Deal with a spawner that is gone: what it left is below us by now.

        Returns the results that were not read yet, and those that it could not tell any more. What
        it had not touched waits for the next one. Of what it was in the middle of starting nobody
        can tell whether it runs.
        """
        if not self.is_reaped:
            os.waitpid(self.pid, 0)
            self.is_reaped = True
        results = self.frames.drain()
        self._note(results)
        self._running = 0
        self.frames.socket.close()
        for attempt, slot in list(self._slots.items()):
            found = self._board[slot]
            if found == UNDER_WAY:
                results.append(("unknown", attempt))
            elif found:
                results.append(("begun", attempt, found, monotonic()))
            else:
                del self._slots[attempt]
                continue
            self._forget(attempt)
        if results:
            # It had come as far as a task, and that may have killed it: no fault of spawners.
            self._failures = 0
        self._waiting = self._starts | self._waiting
        self._starts = {}
        return results

    def replace(self) -> None:
        """Make a new spawner in place of one that was buried."""
        self._failures += 1
        if self._failures > MOST_FAILURES:
            raise RuntimeError("no spawner lives long enough to start anything")
        self._heard_at = monotonic()
        self._make()


def keep_only(*descriptors: int) -> None:
    """Close everything but the standard streams and `descriptors`."""
    start = 3
    for fd in sorted(descriptors):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
