"""Folders that attempts have left as they got them, for the next ones of the same tenant.

To make a folder and remove it again costs more than all else that a start does: a file
system passes over what was removed a short while ago, one by one, before it makes anything
new, and waits while its journal is written. Most tasks leave nothing in their folder.

Only of the same tenant: whoever has opened a folder, or watches it, may go on to see the
names of what is in it, whoever owns it by then.
"""

# The spawner imports no more than it must, so pathlib stays out.

import os
import stat
from collections import OrderedDict, deque

MOST_SPARES = 128
OURS_ALONE = 0o700
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def reclaim(path: str) -> bool:
    """Take a folder back, and say whether it is as it was when it was made: empty and closed.

    It is ours before we look, so nothing comes into it after that. One in which something is
    goes back to whose it was: by that, what an attempt has left running can be found.
    """
    try:
        fd = os.open(path, FOLDER)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        os.fchown(fd, os.geteuid(), os.getegid())
        if os.listdir(fd):  # noqa: PTH208
            os.fchown(fd, found.st_uid, found.st_gid)
            return False
        # An access list is an attribute, too. Those of a security module are not the task's.
        attributes = os.listxattr(fd)
        return stat.S_IMODE(os.fstat(fd).st_mode) == OURS_ALONE and all(
            name.startswith("security.") for name in attributes
        )
    except OSError:
        return False
    finally:
        os.close(fd)


class Spares:
    """Folders that were reclaimed, by tenant; none is given twice."""

    def __init__(self, most: int = MOST_SPARES) -> None:
        self._most = most
        self._by_tenant: dict[int, deque[str]] = {}
        self._tenants: OrderedDict[str, int] = OrderedDict()
        """Of each folder, those that came first at the beginning."""

    def take(self, tenant: int | None) -> str | None:
        """Return a folder for an attempt of `tenant`, the one that came last; None if none is."""
        kept = self._by_tenant.get(tenant) if tenant is not None else None
        if not kept:
            return None
        path = kept.pop()
        self._drop(path, kept)
        return path

    def keep(self, path: str, tenant: int) -> str | None:
        """Keep a folder; return one that is to be removed because there are too many now."""
        self._by_tenant.setdefault(tenant, deque()).append(path)
        self._tenants[path] = tenant
        if len(self._tenants) <= self._most:
            return None
        oldest = next(iter(self._tenants))
        kept = self._by_tenant[self._tenants[oldest]]
        kept.popleft()
        self._drop(oldest, kept)
        return oldest

    def _drop(self, path: str, kept: deque[str]) -> None:
        tenant = self._tenants.pop(path)
        if not kept:
            del self._by_tenant[tenant]
