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
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice, takewhile

from duly.clock import monotonic

MOST_SPARES = 16_384
"""More than there are tenants, nearly always: each finds its own when its turn comes again."""
STALE = 10.0
"""Seconds after which a folder that nobody has asked for makes room for one that is new."""
FORGOTTEN = 300.0
"""Seconds after which it goes, whether anybody needs the room or not."""
MOST_FORGOTTEN = 500
"""How many go at once: others need the disk, too."""
OURS_ALONE = stat.S_IFDIR | 0o700
ROOT = 0
"""Only who is root keeps folders for the next ones."""


def reclaim(path: str, user: tuple[int, int]) -> bool:
    """Take a folder back, and say whether it is as it was when it was made: empty and closed.

    It is ours before we look, so nothing comes into it after that. One in which something is
    goes back to whose it was: by that, what an attempt has left running can be found. Nobody but
    us can put anything else in the place of a workspace, so its path always means the same.
    """
    try:
        os.chown(path, ROOT, ROOT, follow_symlinks=False)
        if not _is_empty(path):
            os.chown(path, *user, follow_symlinks=False)
            return False
        # An access list is an attribute, too. Those of a security module are not the task's.
        return os.lstat(path).st_mode == OURS_ALONE and all(
            name.startswith("security.") for name in os.listxattr(path, follow_symlinks=False)
        )
    except OSError:
        return False


def is_spare(path: "str | os.PathLike[str]") -> bool:
    """Say whether a folder was kept for others, and so is empty."""
    try:
        found = os.lstat(path)
        return (found.st_uid, found.st_mode) == (ROOT, OURS_ALONE) and _is_empty(path)
    except OSError:
        return False


def _is_empty(path: "str | os.PathLike[str]") -> bool:
    """Look for one entry; a task may have left a million."""
    with os.scandir(path) as entries:
        return next(entries, None) is None


class Spares:
    """Folders that were reclaimed, by tenant; none is given twice."""

    def __init__(self, most: int = MOST_SPARES, now: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._now = now
        self._by_tenant: dict[int, list[str]] = {}
        self._kept: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """The tenant of each folder and since when it is here; the oldest at the beginning."""

    def take(self, tenant: int | None) -> str | None:
        """Return a folder for an attempt of `tenant`, the one that came last; None if none is."""
        kept = self._by_tenant.get(tenant) if tenant is not None else None
        if not kept:
            return None
        path = kept.pop()
        self._drop(path, kept)
        return path

    def has_room(self) -> bool:
        """Say whether the folder of an attempt that begins should be kept in the end.

        Not if there is no room but that of others who came lately: where thousands of tenants
        take turns, each comes back when its folder has long had to go.
        """
        return len(self._kept) < self._most or self._has_stale()

    def _has_stale(self) -> bool:
        _, since = next(iter(self._kept.values()))
        return self._now() - since > STALE

    def keep(self, path: str, tenant: int) -> str | None:
        """Keep a folder; return one that is to be removed because there are too many now."""
        self._by_tenant.setdefault(tenant, []).append(path)
        self._kept[path] = tenant, self._now()
        if len(self._kept) <= self._most:
            return None
        oldest = next(iter(self._kept))
        self._give_up(oldest)
        return oldest

    def forget(self) -> list[str]:
        """Return folders that nobody has asked for in a long time, to be removed."""
        until = self._now() - FORGOTTEN
        old = takewhile(lambda path: self._kept[path][1] < until, self._kept)
        forgotten = list(islice(old, MOST_FORGOTTEN))
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
