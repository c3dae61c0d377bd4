"""Hands out cgroups, and uses them again where that is safe.

Making and removing the folders of a group costs about as much as starting a small
program.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH106, SIM105

import os
import resource

from duly.agent.cgroup import Group, Layout
from duly.agent.spawner import HOME

MOST_IDLE = 256
"""How many are kept, of which each has up to five files open."""
FILES = 16
"""Of so many files that we may open, no more than one for each group that is kept."""


class Groups:
    """Empty groups by the memory that they allow."""

    def __init__(self, layout: Layout, processes: int) -> None:
        self._layout = layout
        self._processes = processes
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, min(MOST_IDLE, files // FILES))
        self._idle: dict[int, list[Group]] = {}
        """By the memory that they allow; what was asked for last is at the end."""
        self._count = 0

    def take(self, memory: int) -> Group:
        """Return an empty group that allows `memory` bytes; 0 means no limit."""
        idle = self._idle.pop(memory, None)
        if idle is None:
            # A task can read the name, which therefore counts nothing.
            return Group(self._layout, os.urandom(8).hex(), memory, self._processes)
        self._count -= 1
        group = idle.pop()
        if idle:
            self._idle[memory] = idle
        return group

    def give_back(self, group: Group) -> None:
        """Take back a group that is empty again."""
        if not group.renew():
            group.remove()
            return
        if self._count >= self._most:
            self._remove_one()
        self._idle.setdefault(group.memory, []).append(group)
        self._count += 1

    def _remove_one(self) -> None:
        """Make room, at the expense of a kind that was not asked for lately."""
        memory, idle = next(iter(self._idle.items()))
        idle.pop(0).remove()
        self._count -= 1
        if not idle:
            del self._idle[memory]

    def close(self) -> None:
        """Remove those that are idle, and with them the folders of the agent."""
        for idle in self._idle.values():
            for group in idle:
                group.remove()
        self._idle.clear()
        for folder in self._layout.folders:
            for path in (f"{folder}/{HOME}", folder):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # It is swept when the agent comes back.
