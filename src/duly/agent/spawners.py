"""The spawners of one supervisor: who begins what, where they wait, and who is done for.

What an attempt may write to disk is its spawner's limit, too, and that one's for life. So
there are several of them, made when they are needed. `duly.agent.starter` is the line to
each; here they are chosen, listened to and replaced.
"""

# The supervisor imports no more than it must, so contextlib stays out.
# ruff: noqa: SIM105

import errno
import os
import select
from collections.abc import Callable
from typing import Any

from duly.agent.cgroup import Group, Layout
from duly.agent.groups import Groups
from duly.agent.starter import Start, Starter

ALIKE = 2
"""Spawners with the same limit: while one waits for a program to begin, the other prepares."""
MOST_SPAWNERS = 8

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
        self._lines: dict[int, Starter] = {}

    def __contains__(self, fd: int) -> bool:
        """Say whether this is the line to one of them."""
        return fd in self._lines

    @property
    def pids(self) -> set[int]:
        """Return which processes they are."""
        return {starter.pid for starter in self._starters}

    @property
    def deadline(self) -> float:
        """Return when the next of them counts as stuck, if nothing is heard of it until then."""
        return min((starter.deadline for starter in self._starters), default=float("inf"))

    def choose(self, disk: int) -> Starter:
        """Return one whose limit is `disk`."""
        alike = [starter for starter in self._starters if starter.disk == disk]
        best = min(alike, key=Starter.load, default=None)
        if best is not None and (best.load() == 0 or len(alike) >= ALIKE):
            return best
        if len(self._starters) >= MOST_SPAWNERS:
            idle = next((one for one in self._starters if not one.load()), None)
            if idle is not None:
                idle.kill()
                self._bury(idle)
                self._starters.remove(idle)
        made = Starter(self._layout.folders, self._open_files, disk, self._lock)
        self._starters.append(made)
        self._listen(made)
        return made

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
                start.group = self._find_group(starter, start.memory)
            except OSError as error:
                starter.give_up(start)
                results.append(("failed", start.attempt, "fork", error.errno or errno.EIO))
                return False
        if start.group is not None:
            results.append(("enclosed", start.attempt, start.group))
        return True

    def _find_group(self, starter: Starter, memory: int) -> Group:
        stand = starter.stand
        if stand is not None and stand.memory == memory:
            starter.stand = None
            return stand
        return self._groups.take(memory)

    def _find_stand(self, starter: Starter, last: Start) -> None:
        """Let a spawner wait in a group like that of its last start.

        To go into a group takes the kernel milliseconds when nobody has done so just before.
        So it is done after a start, for the next one, and not when that is waited for.
        """
        if last.group is not None and starter.stand is None:
            try:
                starter.stand = self._groups.take(last.memory)
            except OSError:
                pass  # It waits in its own group, and the next start takes longer.

    def hear(self, fd: int) -> list[Any]:
        """Return what the one on this line tells; one that is gone is replaced."""
        starter = self._lines[fd]
        starter.frames.try_to_send()
        results = starter.hear()
        if results is None:
            self._bury(starter)
            starter.replace()
            self._listen(starter)
            return []
        return results

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

    def take_note(self, pid: int, status: int) -> bool:
        """Take in what was learnt of a child; False if it is none of the spawners."""
        starter = next((one for one in self._starters if one.pid == pid), None)
        if starter is None:
            return False
        if os.WIFSTOPPED(status):
            starter.kill()
        else:
            starter.is_reaped = True
        return True

    def close(self) -> None:
        """End all of them."""
        for starter in self._starters:
            starter.kill()
            self._bury(starter)
