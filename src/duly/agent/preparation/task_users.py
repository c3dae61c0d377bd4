"""Chooses the users that tasks run as: never root.

An agent that runs as root gives every live attempt a user id that nothing else on the machine uses,
so that no task can see or signal another, and all processes of a task can be found. Ids are reused
as late as possible, and every agent begins at a random offset: files that a task leaves in /tmp
stay closed to later tasks. Several agents on one machine share the range in blocks, each held by a
lock that dies with its agent.
"""

import errno
import fcntl
import logging
import os
import pwd
import secrets
from pathlib import Path
from typing import NamedTuple, Protocol

from duly.errors import ConfigError

log = logging.getLogger(__name__)

UID_RANGES = (1_900_000_000, 100_000), (52_000, 250)
"""First id and block size of each range: far from ids that administrators assign, or lower and
smaller where only few ids are mapped."""
MAX_BLOCKS = 40
DATABASE_USER = "duly"
"""The user of PostgreSQL when `duly up` runs as root (`duly.store.embedded.system_user`)."""
LOCK_FOLDER = Path("/var/lib/duly/uids")


class User(NamedTuple):
    """The user and the group that a task runs as."""

    uid: int
    gid: int


class Users(Protocol):
    """Allocates users; None stands for the agent's own user."""

    own_uids: bool
    """Whether every attempt has a user id of its own."""
    runs_as_others: bool
    """Whether tasks run as another user than the agent."""

    def take(self) -> User | None:
        """Allocate a user for an attempt; raises BlockingIOError if none is free."""

    def owns(self, uid: int) -> bool:
        """Return True if only attempts of this agent can have this user id."""

    def release(self, user: User | None) -> None:
        """Free the user of an attempt that has no processes or files left."""

    def close(self) -> None:
        """Release all user ids to other agents; no attempt has processes or files left."""


class SameUser:
    """Runs every task as one user: the agent's own, or the configured one."""

    own_uids = False

    def __init__(self, user: User | None) -> None:
        self.runs_as_others = user is not None
        self._user = user

    def take(self) -> User | None:
        """Return the shared user."""
        return self._user

    def owns(self, uid: int) -> bool:
        """Return False: people and other programs may have the same user id."""
        return False

    def release(self, user: User | None) -> None:
        """Do nothing: the user is shared."""

    def close(self) -> None:
        """Do nothing: nothing was allocated."""


class OwnUsers:
    """Gives every attempt its own user, with a group of the same number."""

    own_uids = True
    runs_as_others = True

    def __init__(self, base: int, block: int, locks: Path = LOCK_FOLDER) -> None:
        self._base = base
        self._block = block
        self._locks = locks
        self._held: dict[int, int] = {}
        self._firsts: list[int] = []
        """The first user id of each block that this agent holds."""
        self._in_use: set[int] = set()
        self._next = secrets.randbelow(block)
        self._take_block()

    def take(self) -> User | None:
        """Allocate the next free user in rotation, the one that has been free for longest."""
        if len(self._in_use) == len(self._held) * self._block and not self._take_block():
            raise BlockingIOError(errno.EAGAIN, "every user id is in use")
        while True:
            which, offset = divmod(self._next, self._block)
            uid = self._firsts[which] + offset
            self._next = (self._next + 1) % (len(self._firsts) * self._block)
            if uid not in self._in_use:
                self._in_use.add(uid)
                return User(uid, uid)

    def owns(self, uid: int) -> bool:
        """Return True if `uid` is in a block that this agent holds."""
        return (uid - self._base) // self._block in self._held

    def release(self, user: User | None) -> None:
        """Free the user, to be reused after all the others."""
        if user is not None:
            self._in_use.discard(user.uid)

    def close(self) -> None:
        """Release the blocks to other agents."""
        for lock in self._held.values():
            os.close(lock)
        self._held.clear()
        self._firsts.clear()
        self._in_use.clear()

    def _take_block(self) -> bool:
        self._locks.mkdir(parents=True, exist_ok=True)
        for number in range(MAX_BLOCKS):
            if number in self._held:
                continue
            lock = os.open(self._locks / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._held[number] = lock
            self._firsts.append(self._base + number * self._block)
            return True
        return False


def choose(tasks_as: str | None) -> Users:
    """Return the allocator that fits this machine and the agent's privileges."""
    if os.geteuid() != 0:
        if tasks_as and tasks_as != pwd.getpwuid(os.geteuid()).pw_name:
            raise ConfigError(f"Only root can run tasks as {tasks_as}; start the agent as root.")
        log.warning("not root: tasks run as the user of the agent, and can reach what it can")
        return SameUser(None)
    if tasks_as:
        return _named_user(tasks_as)
    mapped = mapped_range()
    if mapped is None:
        raise ConfigError("This container maps too few user ids for tasks; give --tasks-as USER.")
    return OwnUsers(*mapped)


def mapped_range() -> tuple[int, int] | None:
    """Return the base and block size of the first range that this machine maps, or None."""
    return next((uids for uids in UID_RANGES if _is_mapped(uids[0], uids[1] * MAX_BLOCKS)), None)


def _named_user(name: str) -> Users:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"There is no user {name!r} on this machine for --tasks-as.") from None
    if user.pw_uid == 0 or user.pw_gid == 0:
        raise ConfigError("Tasks never run as root; name another user with --tasks-as.")
    if name == DATABASE_USER:
        raise ConfigError(
            f"{name} owns the database of 'duly up', which tasks could then read and change; name "
            "another user with --tasks-as."
        )
    return SameUser(User(user.pw_uid, user.pw_gid))


def _is_mapped(first: int, count: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, length = map(int, line.split())
        if inside <= first and first + count <= inside + length:
            return True
    return False
