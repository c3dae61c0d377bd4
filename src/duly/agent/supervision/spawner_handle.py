"""The supervisor's handle of a spawner process: sends it starts, and recovers when it dies.

A start waits until the spawner has nearly caught up; then it is sent, and is under way until its
result arrives. Until then its cgroup is not touched, because the spawner may be in it.
"""

import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from duly.agent.limits.cgroup import Cgroup, Limits
from duly.agent.supervision.frames import Connection
from duly.agent.supervision.spawner import (
    MAX_STARTS_PER_BATCH,
    SPAWNER_CGROUP,
    START_UNDER_WAY,
    Spawner,
    SpawnerConfig,
)
from duly.clock import monotonic

START_SLOTS = 4096
MAX_STARTS_UNDER_WAY = 2 * MAX_STARTS_PER_BATCH
"""Starts that a spawner has at a time: one batch in progress and one queued behind it. Each has a
cgroup, and a spawner keeps the files open of every cgroup that it was ever in. Each process that it
starts inherits these files, and closes them again."""
STUCK_TIMEOUT_SECONDS = 10.0
"""Seconds without a result after which a spawner with starts under way counts as stuck."""
MAX_CONSECUTIVE_DEATHS = 5
"""Spawners that may die in a row without having begun a start."""


class PendingStart:
    """A start that waits or is under way."""

    __slots__ = ("attempt", "begin", "group", "limits", "output")

    def __init__(self, attempt: int, limits: Limits, begin: tuple[Any, ...], output: int) -> None:
        self.attempt = attempt
        self.limits = limits
        """The limits of its cgroup."""
        self.begin = begin
        self.output = output
        """The write end of its output pipe, kept open until the start has a result."""
        self.group: Cgroup | None = None
        """None until the start is sent, and where there are no cgroups."""


class SpawnerHandle:
    """A spawner, which is replaced when it dies, and its pending starts."""

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
        self._waiting: dict[int, PendingStart] = {}
        self._starts: dict[int, PendingStart] = {}
        """Starts under way, in the order in which they are to begin."""
        self._slots: dict[int, int] = {}
        self._next_slot = 0
        self._running = 0
        """Attempts that the spawner has started and that have not ended."""
        self._failures = 0
        self._last_result_at = 0.0
        self.standby_group: Cgroup | None = None
        """The empty cgroup in which the spawner waits, for the next attempt that it starts."""
        for folder in folders:
            os.makedirs(f"{folder}/{SPAWNER_CGROUP}", exist_ok=True)  # noqa: PTH103
        self._make()

    def _make(self) -> None:
        ours, theirs = socket.socketpair()
        self._start_states = memoryview(mmap.mmap(-1, START_SLOTS * 8)).cast("q")
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_spawner(theirs, supervisor)
        theirs.close()
        self.connection = Connection(ours)
        self.is_reaped = False

    def _become_spawner(self, link: socket.socket, supervisor: int) -> None:
        code = 1
        try:
            # The lock shows the next agent whether attempts can still be started.
            keep_only(self._lock, link.fileno())
            limits = self._open_files, self.disk
            Spawner(
                SpawnerConfig(
                    Connection(link), self._start_states, self._folders, *limits, supervisor
                )
            ).run()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    @property
    def deadline(self) -> float:
        """Return when the spawner counts as stuck unless a result arrives before."""
        return self._last_result_at + STUCK_TIMEOUT_SECONDS if self._starts else float("inf")

    def load(self) -> int:
        """Return the number of starts that wait or are under way."""
        return len(self._waiting) + len(self._starts)

    def is_unused(self) -> bool:
        """Return True if the spawner has no pending starts and no running attempts."""
        return not self._running and not self.load()

    def serve(self, tenant: int | None) -> None:
        """Reset what its tenant may have changed in an unused spawner, and serve another tenant."""
        self.tenant = tenant
        self.connection.send([("reset",)])

    def add(self, start: PendingStart) -> None:
        """Queue a start."""
        self._waiting[start.attempt] = start

    def withdraw(self, attempt: int) -> bool:
        """Drop a waiting start; False if it is not waiting: the spawner may have begun it."""
        start = self._waiting.pop(attempt, None)
        if start is not None:
            self.drop(start)
        return start is not None

    def pop_next(self) -> list[PendingStart]:
        """Remove and return the waiting starts that are to be sent now."""
        first = list(islice(self._waiting, MAX_STARTS_UNDER_WAY - len(self._starts)))
        return [self._waiting.pop(attempt) for attempt in first]

    @property
    def has_waiting(self) -> bool:
        """Return True if there are more starts to send once the spawner has caught up."""
        return bool(self._waiting)

    def send_starts(self, starts: Sequence[PendingStart]) -> None:
        """Send starts to the spawner, and the cgroup in which to wait after them."""
        if not self._starts:
            self._last_result_at = monotonic()
        orders: list[tuple[Any, ...]] = []
        for start in starts:
            self._starts[start.attempt] = start
            slot = self._slots[start.attempt] = self._next_slot
            self._next_slot = (slot + 1) % START_SLOTS
            self._start_states[slot] = 0
            group = start.group and start.group.name
            orders.append(("start", slot, start.attempt, group, start.begin))
        if self.standby_group is not None:
            orders.append(("standby", self.standby_group.name))
        self.connection.send(orders, [start.output for start in starts])

    def terminate(self, attempt: int) -> None:
        """Have SIGTERM sent to an attempt that has begun and is not known to have ended."""
        self.connection.send([("terminate", attempt)])

    def receive(self) -> list[Any] | None:
        """Return the spawner's new results; None means that it is gone."""
        results = self.connection.receive()
        if results:
            self._last_result_at = monotonic()
            self._record(results)
        return results

    def _record(self, results: list[Any]) -> None:
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

    def drop(self, start: PendingStart) -> None:
        """Drop a start that cannot be sent."""
        os.close(start.output)

    def drop_waiting(self) -> list[int]:
        """Drop every waiting start, and return the attempts."""
        attempts = list(self._waiting)
        for attempt in attempts:
            self.withdraw(attempt)
        return attempts

    def retire(self) -> None:
        """Let the spawner exit by itself, after it has reported every exit that it knows of."""
        self.connection.socket.shutdown(socket.SHUT_WR)

    def is_dead(self) -> bool:
        """Return True if the spawner has exited and is to be cleaned up."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kill the spawner, whatever it is doing."""
        if not self.is_reaped:
            os.kill(self.pid, signal.SIGKILL)

    def clean_up(self) -> list[Any]:
        """Reap a spawner that is gone; its processes are children of the supervisor by now.

        Returns the unread results, and those that the spawner could no longer send. Starts that it
        had not begun wait for the next spawner. For one that it was in the middle of, the result is
        `unknown`: it may or may not run.
        """
        if not self.is_reaped:
            os.waitpid(self.pid, 0)
            self.is_reaped = True
        results = self.connection.drain()
        self._record(results)
        self._running = 0
        self.connection.socket.close()
        for attempt, slot in list(self._slots.items()):
            found = self._start_states[slot]
            if found == START_UNDER_WAY:
                results.append(("unknown", attempt))
            elif found:
                results.append(("begun", attempt, found, monotonic()))
            else:
                del self._slots[attempt]
                continue
            self._forget(attempt)
        if results:
            # It had begun a task, which may have killed it: not counted as the spawner's failure.
            self._failures = 0
        self._waiting = self._starts | self._waiting
        self._starts = {}
        return results

    def replace(self) -> None:
        """Start a new spawner in place of one that was cleaned up."""
        self._failures += 1
        if self._failures > MAX_CONSECUTIVE_DEATHS:
            raise RuntimeError("no spawner lives long enough to start anything")
        self._last_result_at = monotonic()
        self._make()


def keep_only(*descriptors: int) -> None:
    """Close all descriptors but the standard streams and `descriptors`."""
    start = 3
    for fd in sorted(descriptors):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
