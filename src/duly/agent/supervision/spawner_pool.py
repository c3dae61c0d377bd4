"""The supervisor's pool of spawners: one per tenant, replaced when dead, reassigned when unused.

A task's user can signal its spawner for a moment while the task starts (`spawner.py`), so a
spawner serves one tenant at a time: no tenant can disturb another. Where there are more tenants
than spawners, one with no starts and no running tasks is reset and serves the next tenant. The
limit on file size is set on the spawner itself, for life, so there is one spawner per tenant and
limit. `spawner_handle.py` is the connection to each.

Decision: docs/adr/0005-supervisor-and-spawners.md.
"""

# The supervisor imports no more than it must, so contextlib stays out.
# ruff: noqa: SIM105

import errno
import select
from collections.abc import Callable
from typing import Any

from duly.agent.limits.cgroup import Cgroup, Layout, Limits
from duly.agent.limits.cgroup_pool import CgroupPool
from duly.agent.supervision.spawner import MAX_STARTS_PER_BATCH
from duly.agent.supervision.spawner_handle import PendingStart, SpawnerHandle

MAX_SPAWNERS_PER_KEY = 2
"""Spawners per tenant and limit: one prepares a start while the other waits for an exec."""
MAX_SPAWNERS = 32
"""Beyond this, idle spawners are reassigned or retired. Each has 2 MB of private memory."""

OnDeath = Callable[[SpawnerHandle, list[Any]], None]
"""Called with a dead spawner's handle and its last results, to adopt its children."""


class SpawnerPool:
    """All spawners; each connection is registered with `poll`."""

    def __init__(
        self,
        layout: Layout,
        groups: CgroupPool,
        open_files: tuple[int, int],
        lock: int,
        poll: select.epoll,
        on_death: OnDeath,
    ) -> None:
        self._layout = layout
        self._groups = groups
        self._open_files = open_files
        self._lock = lock
        self._poll = poll
        self._on_death = on_death
        self._spawners: list[SpawnerHandle] = []
        """Least recently used first."""
        self._by_fd: dict[int, SpawnerHandle] = {}

    def __contains__(self, fd: int) -> bool:
        """Return whether `fd` is the connection to a spawner."""
        return fd in self._by_fd

    @property
    def pids(self) -> set[int]:
        """The process ids of all spawners."""
        return {spawner.pid for spawner in self._by_fd.values()}

    @property
    def deadline(self) -> float:
        """The earliest time at which a spawner counts as stuck unless it sends a result."""
        return min((spawner.deadline for spawner in self._spawners), default=float("inf"))

    def choose(self, tenant: int | None, disk: int) -> SpawnerHandle:
        """Return a spawner of this tenant whose largest file is `disk` bytes."""
        alike = [s for s in self._spawners if s.tenant == tenant and s.disk == disk]
        spawner = min(alike, key=SpawnerHandle.load, default=None)
        if spawner is None or (
            spawner.load() >= MAX_STARTS_PER_BATCH and len(alike) < MAX_SPAWNERS_PER_KEY
        ):
            spawner = self._reassign_unused(tenant, disk) or self._make(tenant, disk)
        self._spawners.remove(spawner)
        self._spawners.append(spawner)
        return spawner

    def _reassign_unused(self, tenant: int | None, disk: int) -> SpawnerHandle | None:
        """Reassign the least recently used idle spawner, if there are as many as allowed."""
        if len(self._spawners) < MAX_SPAWNERS:
            return None
        unused = (s for s in self._spawners if s.disk == disk and s.is_unused())
        spawner = next(unused, None)
        if spawner is not None:
            spawner.serve(tenant)
        return spawner

    def _make(self, tenant: int | None, disk: int) -> SpawnerHandle:
        self._retire_idle()
        spawner = SpawnerHandle(self._layout.folders, self._open_files, tenant, disk, self._lock)
        self._listen(spawner)
        self._spawners.append(spawner)
        return spawner

    def _retire_idle(self) -> None:
        """Retire idle spawners to make room for one more. Busy ones stay, however many."""
        excess = len(self._spawners) + 1 - MAX_SPAWNERS
        idle = [spawner for spawner in self._spawners if not spawner.load()]
        for spawner in idle[: max(0, excess)]:
            self._spawners.remove(spawner)
            spawner.retire()

    def flush(self, *, may_begin: bool) -> list[Any]:
        """Send the next starts to the spawners; return the cgroups assigned, and failures."""
        results: list[Any] = []
        for spawner in self._spawners:
            # A start that was sent wakes us with its result. One that failed here does not, so
            # the next ones are tried at once.
            while may_begin and (starts := spawner.pop_next()):
                begun = [start for start in starts if self._assign_group(spawner, start, results)]
                if begun:
                    if not spawner.has_waiting:
                        self._assign_standby_group(spawner, begun[-1])
                    spawner.send_starts(begun)
            spawner.connection.poll_for_room(self._poll)
        return results

    def _assign_group(
        self, spawner: SpawnerHandle, start: PendingStart, results: list[Any]
    ) -> bool:
        """Assign a cgroup to a start: the spawner's standby cgroup, if its limits match."""
        if start.group is None and self._layout.folders:
            try:
                start.group = self._take_group(spawner, start.limits)
            except OSError as error:
                spawner.drop(start)
                results.append(("failed", start.attempt, "fork", error.errno or errno.EIO))
                return False
        if start.group is not None:
            results.append(("grouped", start.attempt, start.group))
        return True

    def _take_group(self, spawner: SpawnerHandle, limits: Limits) -> Cgroup:
        standby_group = spawner.standby_group
        if standby_group is not None and standby_group.limits == limits:
            spawner.standby_group = None
            return standby_group
        return self._groups.take(limits)

    def _assign_standby_group(self, spawner: SpawnerHandle, last: PendingStart) -> None:
        """Have the spawner wait in an empty cgroup with the limits of its last start.

        Moving into a cgroup takes the kernel milliseconds if no process has moved just before.
        So it is done ahead of the next start, and adds nothing to its latency.
        """
        if last.group is not None and spawner.standby_group is None:
            try:
                spawner.standby_group = self._groups.take(last.limits)
            except OSError:
                pass  # The spawner waits in its own cgroup, and the next start takes longer.

    def receive(self, fd: int) -> list[Any]:
        """Return the results from the spawner on `fd`; replace a spawner that is gone."""
        spawner = self._by_fd[fd]
        spawner.connection.send()
        results = spawner.receive()
        return self._replace(spawner) if results is None else results

    def _replace(self, spawner: SpawnerHandle) -> list[Any]:
        """Clean up after a dead spawner, and start a new one unless it was retired."""
        self._clean_up(spawner)
        if spawner not in self._spawners:
            return []
        try:
            spawner.replace()
        except OSError as error:
            self._spawners.remove(spawner)
            return [("failed", attempt, "fork", error.errno) for attempt in spawner.drop_waiting()]
        self._listen(spawner)
        return []

    def _listen(self, spawner: SpawnerHandle) -> None:
        self._by_fd[spawner.connection.socket.fileno()] = spawner
        self._poll.register(spawner.connection.socket, select.EPOLLIN)

    def _clean_up(self, spawner: SpawnerHandle) -> None:
        del self._by_fd[spawner.connection.socket.fileno()]
        self._poll.unregister(spawner.connection.socket)
        results = spawner.clean_up()
        if spawner.standby_group is not None:
            self._groups.release(spawner.standby_group)
            spawner.standby_group = None
        self._on_death(spawner, results)

    def kill_stuck(self, now: float) -> None:
        """Kill spawners that have sent no result for too long."""
        for spawner in self._spawners:
            if now >= spawner.deadline:
                spawner.kill()

    def kill_stopped(self, pid: int) -> None:
        """Kill the spawner `pid`, which was stopped by a signal; ignore other processes."""
        for spawner in self._by_fd.values():
            if spawner.pid == pid:
                spawner.kill()

    def replace_dead(self) -> list[Any]:
        """Replace dead spawners; return failures of starts that got no new spawner."""
        dead = [spawner for spawner in self._by_fd.values() if spawner.is_dead()]
        return [result for spawner in dead for result in self._replace(spawner)]

    def close(self) -> None:
        """Kill all spawners."""
        for spawner in list(self._by_fd.values()):
            spawner.kill()
            self._clean_up(spawner)
