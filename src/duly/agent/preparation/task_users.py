"""As whom tasks run: never as root.

An agent that is root gives every live attempt a user id that nothing else on the
machine uses, so that no task can see or signal another, and all that a task has
started can be found. Ids are used again as late as possible, and an agent begins
somewhere else each time: what a task leaves in /tmp stays closed to the next ones.
Several agents on one machine share the range in blocks, each held by a lock that
dies with its agent.
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

RANGES = (1_900_000_000, 100_000), (52_000, 250)
"""Where the range begins and how large a block is: far from what anybody assigns, or lower and
smaller where only few ids are mapped."""
BLOCKS = 40
DATABASE_USER = "duly"
"""Whom `duly up` runs PostgreSQL as when it is root (`duly.store.system_user`)."""
LOCKS = Path("/var/lib/duly/uids")


class User(NamedTuple):
    """The user and the group that a task runs as."""

    uid: int
    gid: int


class Users(Protocol):
    """Hands out users; None stands for the one that the agent itself is."""

    own_uids: bool
    """Whether every attempt has a user id that nothing else has."""
    runs_as_others: bool
    """Whether tasks run as somebody else than the agent."""

    def take(self) -> User | None:
        """Return the user for an attempt; raises BlockingIOError when none is free."""

    def owns(self, uid: int) -> bool:
        """Tell whether nobody but this agent's attempts can have this user id."""

    def give_back(self, user: User | None) -> None:
        """Take back the user of an attempt of which nothing is left."""

    def close(self) -> None:
        """Leave what was taken to others; nothing of any attempt is left."""


class SameUser:
    """Everything runs as one user: the agent's own, or the one it was told to use."""

    own_uids = False

    def __init__(self, user: User | None) -> None:
        self.runs_as_others = user is not None
        self._user = user

    def take(self) -> User | None:
        """Return the one user."""
        return self._user

    def owns(self, uid: int) -> bool:
        """Say no: people and other programs may have it, too."""
        return False

    def give_back(self, user: User | None) -> None:
        """Do nothing: there is always the same one."""

    def close(self) -> None:
        """Do nothing: nothing was taken."""


class OwnUsers:
    """A user for every attempt, with a group of the same number."""

    own_uids = True
    runs_as_others = True

    def __init__(self, base: int, block: int, locks: Path = LOCKS) -> None:
        self._base = base
        self._block = block
        self._locks = locks
        self._held: dict[int, int] = {}
        self._firsts: list[int] = []
        """The first user id of each block that we hold."""
        self._in_use: set[int] = set()
        self._next = secrets.randbelow(block)
        self._take_block()

    def take(self) -> User | None:
        """Return the one that has been free for longest."""
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
        """Tell whether it is in a block that we hold."""
        return (uid - self._base) // self._block in self._held

    def give_back(self, user: User | None) -> None:
        """Let it be used again, after all the others."""
        if user is not None:
            self._in_use.discard(user.uid)

    def close(self) -> None:
        """Leave the blocks to others."""
        for lock in self._held.values():
            os.close(lock)
        self._held.clear()
        self._firsts.clear()
        self._in_use.clear()

    def _take_block(self) -> bool:
        self._locks.mkdir(parents=True, exist_ok=True)
        for number in range(BLOCKS):
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
    """Return the users for this machine and these privileges."""
    if os.geteuid() != 0:
        if tasks_as and tasks_as != pwd.getpwuid(os.geteuid()).pw_name:
            raise ConfigError(f"Only root can run tasks as {tasks_as}; start the agent as root.")
        log.warning("not root: tasks run as the user of the agent, and can reach what it can")
        return SameUser(None)
    if tasks_as:
        return _named(tasks_as)
    mapped = mapped_range()
    if mapped is None:
        raise ConfigError("This container maps too few user ids for tasks; give --tasks-as USER.")
    return OwnUsers(*mapped)


def mapped_range() -> tuple[int, int] | None:
    """Return the base and block of the first range that this machine maps."""
    return next((one for one in RANGES if _is_mapped(one[0], one[1] * BLOCKS)), None)


def _named(name: str) -> Users:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"There is no user {name!r} on this machine for --tasks-as.") from None
    if user.pw_uid == 0 or user.pw_gid == 0:
        raise ConfigError("Tasks never run as root; name another user with --tasks-as.")
    if name == DATABASE_USER:
        raise ConfigError(
            f"{name} owns the database of `duly up`, which tasks could then read and change; "
            "name another user with --tasks-as."
        )
    return SameUser(User(user.pw_uid, user.pw_gid))


def _is_mapped(first: int, count: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, length = map(int, line.split())
        if inside <= first and first + count <= inside + length:
            return True
    return False
