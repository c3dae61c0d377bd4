"""The pool of a supervisor's spawners: one per tenant, replaced when dead, passed on when idle.

A task's user can signal its spawner for a moment while the task starts (`duly.agent.spawner`),
so a spawner serves one tenant at a time: what a tenant does to it reaches no other tenant. Where
there are more tenants than spawners, one that has nothing left to start or to wait for is reset,
and serves the next. The largest file that an attempt may write is its spawner's own limit, for
life, so there is one per tenant and limit. `duly.agent.starter` is the connection to each.
"""

# The supervisor imports no more than it must, so contextlib stays out.
# ruff: noqa: SIM105

import errno
import select
from collections.abc import Callable
from typing import Any

from duly.agent.cgroup import Group, Layout, Limits
from duly.agent.groups import Groups
from duly.agent.spawner import AT_ONCE
from duly.agent.starter import Start, Starter

MAX_ALIKE = 2
"""Spawners for the same tenant and limit: one prepares while the other waits for an exec."""
MAX_SPAWNERS = 32
"""Beyond this many, idle ones serve other tenants, or are retired. Each has 2 MB of its own."""

Mourn = Callable[[Starter, list[Any]], None]
"""Takes over what a dead spawner leaves, and the results that it could not tell any more."""


class Spawners:
    """All that are there; `poll` tells when one of them has something to say."""

    def __init__(
        self,
        layout: Layout,
        groups: Groups,
        open_files: tuple[int, int],
        lock: int,
        poll: select.epoll,
        mourn: Mourn,
    ) -> None:
        self._layout = layout
        self._groups = groups
        self._open_files = open_files
        self._lock = lock
        self._poll = poll
        self._mourn = mourn
        self._starters: list[Starter] = []
        """The one that was chosen last is at the end."""
        self._lines: dict[int, Starter] = {}

    def __contains__(self, fd: int) -> bool:
        """Say whether this is the line to one of them."""
        return fd in self._lines

    @property
    def pids(self) -> set[int]:
        """Return which processes they are."""
        return {starter.pid for starter in self._lines.values()}

    @property
    def deadline(self) -> float:
        """Return when the next of them counts as stuck, if nothing is heard of it until then."""
        return min((starter.deadline for starter in self._starters), default=float("inf"))

    def choose(self, tenant: int | None, disk: int) -> Starter:
        """Return a spawner of this tenant whose largest file is `disk` bytes."""
        alike = [one for one in self._starters if one.tenant == tenant and one.disk == disk]
        starter = min(alike, key=Starter.load, default=None)
        if starter is None or (starter.load() >= AT_ONCE and len(alike) < MAX_ALIKE):
            starter = self._pass_on(tenant, disk) or self._make(tenant, disk)
        self._starters.remove(starter)
        self._starters.append(starter)
        return starter

    def _pass_on(self, tenant: int | None, disk: int) -> Starter | None:
        """Let the spawner serve the tenant that has had nothing to do for longest, if we must."""
        if len(self._starters) < MAX_SPAWNERS:
            return None
        unused = (one for one in self._starters if one.disk == disk and one.is_unused())
        starter = next(unused, None)
        if starter is not None:
            starter.serve(tenant)
        return starter

    def _make(self, tenant: int | None, disk: int) -> Starter:
        self._retire_idle()
        starter = Starter(self._layout.folders, self._open_files, tenant, disk, self._lock)
        self._listen(starter)
        self._starters.append(starter)
        return starter

    def _retire_idle(self) -> None:
        """Make room for one more. Those that are busy stay, however many they are."""
        excess = len(self._starters) + 1 - MAX_SPAWNERS
        idle = [starter for starter in self._starters if not starter.load()]
        for starter in idle[: max(0, excess)]:
            self._starters.remove(starter)
            starter.retire()

    def flush(self, *, may_begin: bool) -> list[Any]:
        """Hand over what they are to begin now; return which groups attempts have got for that."""
        results: list[Any] = []
        for starter in self._starters:
            # Whatever is begun wakes us again. What cannot be does not, so the next are tried.
            while may_begin and (starts := starter.take_next()):
                begun = [start for start in starts if self._enclose(starter, start, results)]
                if begun:
                    if not starter.is_waited_for:
                        self._find_stand(starter, begun[-1])
                    starter.hand_over(begun)
            starter.frames.wait_for_room(self._poll)
        return results

    def _enclose(self, starter: Starter, start: Start, results: list[Any]) -> bool:
        """Give a start its group: the one in which its spawner waits, if that will do."""
        if start.group is None and self._layout.folders:
            try:
                start.group = self._find_group(starter, start.limits)
            except OSError as error:
                starter.give_up(start)
                results.append(("failed", start.attempt, "fork", error.errno or errno.EIO))
                return False
        if start.group is not None:
            results.append(("enclosed", start.attempt, start.group))
        return True

    def _find_group(self, starter: Starter, limits: Limits) -> Group:
        stand = starter.stand
        if stand is not None and stand.limits == limits:
            starter.stand = None
            return stand
        return self._groups.take(limits)

    def _find_stand(self, starter: Starter, last: Start) -> None:
        """Let a spawner wait in a group like that of its last start.

        To go into a group takes the kernel milliseconds when nobody has done so just before.
        So it is done after a start, for the next one, and not when that is waited for.
        """
        if last.group is not None and starter.stand is None:
            try:
                starter.stand = self._groups.take(last.limits)
            except OSError:
                pass  # It waits in its own group, and the next start takes longer.

    def hear(self, fd: int) -> list[Any]:
        """Return what the one on this line tells; one that is gone is replaced."""
        starter = self._lines[fd]
        starter.frames.try_to_send()
        results = starter.hear()
        return self._replace(starter) if results is None else results

    def _replace(self, starter: Starter) -> list[Any]:
        """Bury a spawner, and make another one for its starts unless it was retired."""
        self._bury(starter)
        if starter not in self._starters:
            return []
        try:
            starter.replace()
        except OSError as error:
            self._starters.remove(starter)
            return [("failed", attempt, "fork", error.errno) for attempt in starter.give_up_all()]
        self._listen(starter)
        return []

    def _listen(self, starter: Starter) -> None:
        self._lines[starter.frames.socket.fileno()] = starter
        self._poll.register(starter.frames.socket, select.EPOLLIN)

    def _bury(self, starter: Starter) -> None:
        del self._lines[starter.frames.socket.fileno()]
        self._poll.unregister(starter.frames.socket)
        results = starter.bury()
        if starter.stand is not None:
            self._groups.give_back(starter.stand)
            starter.stand = None
        self._mourn(starter, results)

    def kill_stuck(self, now: float) -> None:
        """End those of which nothing has been heard for too long."""
        for starter in self._starters:
            if now >= starter.deadline:
                starter.kill()

    def kill_stopped(self, pid: int) -> None:
        """End the spawner `pid`, which somebody has stopped; do nothing if it is none."""
        for starter in self._lines.values():
            if starter.pid == pid:
                starter.kill()

    def bury_dead(self) -> list[Any]:
        """Replace those that have died; return what became of starts that this left without one."""
        dead = [starter for starter in self._lines.values() if starter.is_dead()]
        return [result for starter in dead for result in self._replace(starter)]

    def close(self) -> None:
        """End all of them."""
        for starter in list(self._lines.values()):
            starter.kill()
            self._bury(starter)
