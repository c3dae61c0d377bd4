"""Hands out cgroups, and uses them again where that is safe.

Making and removing the folders of a group costs about as much as starting a small
program.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH106, SIM105

import os

from duly.agent.cgroup import Group, Layout
from duly.agent.spawner import HOME

MOST_IDLE = 64


class Groups:
    """Empty groups by the memory that they allow."""

    def __init__(self, layout: Layout, processes: int) -> None:
        self._layout = layout
        self._processes = processes
        self._idle: dict[int, list[Group]] = {}
        self._count = 0
        self._made = 0

    def take(self, memory: int) -> Group:
        """Return an empty group that allows `memory` bytes; 0 means no limit."""
        idle = self._idle.get(memory)
        if idle:
            self._count -= 1
            return idle.pop()
        self._made += 1
        return Group(self._layout, str(self._made), memory, self._processes)

    def give_back(self, group: Group) -> None:
        """Take back a group that is empty again."""
        if self._count < MOST_IDLE and group.renew():
            self._idle.setdefault(group.memory, []).append(group)
            self._count += 1
        else:
            group.remove()

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
