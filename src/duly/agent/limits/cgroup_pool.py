"""Hands out cgroups, and reuses them where that is safe.

Making and removing the folders of a cgroup costs about as much as starting a small program.

Decision: docs/adr/0026-workspaces-and-isolation-cost.md.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH106, SIM105

import os
import resource
import select

from duly.agent.limits.cgroup import Cgroup, Layout, Limits
from duly.agent.supervision.spawner import SPAWNER_CGROUP

MAX_IDLE_GROUPS = 256
"""Idle cgroups that are kept; each has up to five files open."""
FILES_PER_IDLE_GROUP = 16
"""At most one idle cgroup is kept per this many files of the open files limit."""


class CgroupPool:
    """Empty cgroups by limits; `poll` receives the OOM events of cgroups in use."""

    def __init__(self, layout: Layout, processes: int, poll: select.epoll) -> None:
        self._layout = layout
        self._processes = processes
        self._poll = poll
        self._by_event: dict[int, Cgroup] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(1, min(MAX_IDLE_GROUPS, files // FILES_PER_IDLE_GROUP))
        self._idle: dict[Limits, list[Cgroup]] = {}
        """By limits, most recently used last."""
        self._count = 0

    def take(self, limits: Limits) -> Cgroup:
        """Return an empty cgroup with these limits."""
        idle = self._idle.pop(limits, None)
        if idle is None:
            return self._make(limits)
        self._count -= 1
        group = idle.pop()
        if idle:
            self._idle[limits] = idle
        return group

    def _make(self, limits: Limits) -> Cgroup:
        # Tasks can read the name, so it must not be a counter.
        group = Cgroup(self._layout, os.urandom(8).hex(), limits, self._processes)
        if group.oom_event is not None:
            self._by_event[group.oom_event] = group
            self._poll.register(group.oom_event, select.EPOLLIN)
        return group

    def out_of_memory(self, event: int) -> Cgroup | None:
        """Consume an OOM event; returns its cgroup, or None if `event` is not an OOM event."""
        group = self._by_event.get(event)
        if group is not None:
            group.clear_oom_event()
        return group

    def release(self, group: Cgroup) -> None:
        """Return an empty cgroup to the pool, or remove it if it cannot be reused."""
        if not group.renew():
            self._remove(group)
            return
        if self._count >= self._most:
            self._remove_one()
        self._idle.setdefault(group.limits, []).append(group)
        self._count += 1

    def _remove_one(self) -> None:
        """Make room by removing a cgroup whose limits were not requested lately."""
        limits, idle = next(iter(self._idle.items()))
        self._remove(idle.pop(0))
        self._count -= 1
        if not idle:
            del self._idle[limits]

    def _remove(self, group: Cgroup) -> None:
        if group.oom_event is not None:
            del self._by_event[group.oom_event]
        group.remove()

    def close(self) -> None:
        """Remove the idle cgroups and the folders of the agent."""
        for idle in self._idle.values():
            for group in idle:
                self._remove(group)
        self._idle.clear()
        for folder in self._layout.folders:
            for path in (f"{folder}/{SPAWNER_CGROUP}", folder):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # Swept when the agent starts again.
