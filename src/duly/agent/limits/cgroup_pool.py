"""Hands out cgroups, and uses them again where that is safe.

Making and removing the folders of a group costs about as much as starting a small
program.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH106, SIM105

import os
import resource
import select

from duly.agent.cgroup import Group, Layout, Limits
from duly.agent.spawner import HOME

MOST_IDLE = 256
"""How many are kept, of which each has up to five files open."""
FILES = 16
"""Of so many files that we may open, no more than one for each group that is kept."""


class Groups:
    """Empty groups by what they allow; `poll` learns when one in use runs out of memory."""

    def __init__(self, layout: Layout, processes: int, poll: select.epoll) -> None:
        self._layout = layout
        self._processes = processes
        self._poll = poll
        self._by_event: dict[int, Group] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, min(MOST_IDLE, files // FILES))
        self._idle: dict[Limits, list[Group]] = {}
        """By what they allow; what was asked for last is at the end."""
        self._count = 0

    def take(self, limits: Limits) -> Group:
        """Return an empty group that allows `limits`."""
        idle = self._idle.pop(limits, None)
        if idle is None:
            return self._make(limits)
        self._count -= 1
        group = idle.pop()
        if idle:
            self._idle[limits] = idle
        return group

    def _make(self, limits: Limits) -> Group:
        # A task can read the name, which therefore counts nothing.
        group = Group(self._layout, os.urandom(8).hex(), limits, self._processes)
        if group.oom_event is not None:
            self._by_event[group.oom_event] = group
            self._poll.register(group.oom_event, select.EPOLLIN)
        return group

    def out_of_memory(self, event: int) -> Group | None:
        """Return the group that tells by `event` that it has run out of memory, if it is one."""
        group = self._by_event.get(event)
        if group is not None:
            group.clear_oom_event()
        return group

    def give_back(self, group: Group) -> None:
        """Take back a group that is empty again."""
        if not group.renew():
            self._remove(group)
            return
        if self._count >= self._most:
            self._remove_one()
        self._idle.setdefault(group.limits, []).append(group)
        self._count += 1

    def _remove_one(self) -> None:
        """Make room, at the expense of a kind that was not asked for lately."""
        limits, idle = next(iter(self._idle.items()))
        self._remove(idle.pop(0))
        self._count -= 1
        if not idle:
            del self._idle[limits]

    def _remove(self, group: Group) -> None:
        if group.oom_event is not None:
            del self._by_event[group.oom_event]
        group.remove()

    def close(self) -> None:
        """Remove those that are idle, and with them the folders of the agent."""
        for idle in self._idle.values():
            for group in idle:
                self._remove(group)
        self._idle.clear()
        for folder in self._layout.folders:
            for path in (f"{folder}/{HOME}", folder):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # It is swept when the agent comes back.
