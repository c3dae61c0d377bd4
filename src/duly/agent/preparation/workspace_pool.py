"""A pool of workspaces that attempts have left empty, for later attempts of the same tenant.

Creating and removing a folder costs more than the rest of a start: before it creates anything, a
file system skips recently removed entries one by one, and it waits while its journal is written.
Most tasks leave nothing in their folder. Folders are never shared between tenants: a process that
has opened or watches a folder may still see the names in it after its owner has changed.

Decision: docs/adr/0026-workspaces-and-isolation-cost.md.
"""

# The spawner imports no more than it must, so pathlib stays out.

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice, takewhile

from duly.clock import monotonic

MAX_POOLED_FOLDERS = 16_384
"""Nearly always more than there are tenants, so that each finds its own folder again."""
STALE_SECONDS = 10.0
"""Seconds after which an unused folder may be evicted in favour of a new one."""
MAX_IDLE_SECONDS = 300.0
"""Seconds after which an unused folder is evicted even if the pool is not full."""
MAX_EVICTIONS_PER_PASS = 500
"""Bounds the load of one eviction pass on the disk."""
PRIVATE_FOLDER_MODE = stat.S_IFDIR | 0o700
ROOT_UID = 0
"""Folders are pooled only by agents that run as root."""


def reclaim(path: str, user: tuple[int, int]) -> bool:
    """Take a folder back from `user`, and return whether it is as it was made: empty and private.

    The owner changes before the check, so nothing can be added afterwards. A folder that is not
    empty goes back to its user, by which processes that an attempt has left can be found. Only the
    agent can replace a workspace, so its path always means the same folder.
    """
    try:
        os.chown(path, ROOT_UID, ROOT_UID, follow_symlinks=False)
        if not _is_empty(path):
            os.chown(path, *user, follow_symlinks=False)
            return False
        # An ACL is an extended attribute. Attributes of a security module are not set by the task.
        return os.lstat(path).st_mode == PRIVATE_FOLDER_MODE and all(
            name.startswith("security.") for name in os.listxattr(path, follow_symlinks=False)
        )
    except OSError:
        return False


def is_pooled(path: "str | os.PathLike[str]") -> bool:
    """Return True if a folder was pooled, and so is empty."""
    try:
        found = os.lstat(path)
        return (found.st_uid, found.st_mode) == (ROOT_UID, PRIVATE_FOLDER_MODE) and _is_empty(path)
    except OSError:
        return False


def _is_empty(path: "str | os.PathLike[str]") -> bool:
    """Read at most one entry: a task may have left a million."""
    with os.scandir(path) as entries:
        return next(entries, None) is None


class WorkspacePool:
    """Reclaimed folders by tenant; each is handed out once."""

    def __init__(
        self, most: int = MAX_POOLED_FOLDERS, now: Callable[[], float] = monotonic
    ) -> None:
        self._most = most
        self._now = now
        self._by_tenant: dict[int, list[str]] = {}
        self._kept: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """The tenant of each folder and when it was added, oldest first."""

    def take(self, tenant: int | None) -> str | None:
        """Remove and return the newest folder of `tenant`; None if it has none."""
        kept = self._by_tenant.get(tenant) if tenant is not None else None
        if not kept:
            return None
        path = kept.pop()
        self._drop(path, kept)
        return path

    def has_room(self) -> bool:
        """Return True if the folder of an attempt that begins now should be pooled at its end.

        A full pool without stale folders has no room: where thousands of tenants take turns, the
        folder of each would be evicted long before its next attempt.
        """
        return len(self._kept) < self._most or self._has_stale()

    def _has_stale(self) -> bool:
        _, since = next(iter(self._kept.values()))
        return self._now() - since > STALE_SECONDS

    def keep(self, path: str, tenant: int) -> str | None:
        """Add a folder; return the oldest one for removal if the pool is over its limit."""
        self._by_tenant.setdefault(tenant, []).append(path)
        self._kept[path] = tenant, self._now()
        if len(self._kept) <= self._most:
            return None
        oldest = next(iter(self._kept))
        self._give_up(oldest)
        return oldest

    def forget(self) -> list[str]:
        """Evict folders that were not used for MAX_IDLE_SECONDS, and return them for removal."""
        until = self._now() - MAX_IDLE_SECONDS
        old = takewhile(lambda path: self._kept[path][1] < until, self._kept)
        forgotten = list(islice(old, MAX_EVICTIONS_PER_PASS))
        for path in forgotten:
            self._give_up(path)
        return forgotten

    def _give_up(self, path: str) -> None:
        kept = self._by_tenant[self._kept[path][0]]
        kept.remove(path)
        self._drop(path, kept)

    def _drop(self, path: str, kept: list[str]) -> None:
        tenant, _ = self._kept.pop(path)
        if not kept:
            del self._by_tenant[tenant]
