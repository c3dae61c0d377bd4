"""Hashes passwords, slowly on purpose, and never more than a few at once.

Argon2 takes memory and tens of milliseconds of a core for each guess, which is what makes
guessing dear. So it runs in threads of its own, beside the event loop, two at a time; when
too many wait, the next one is sent away.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from duly.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")
SHORTEST = 8
LONGEST = 1000
"""Characters: longer ones would cost more to hash than they are worth."""
AT_ONCE = 2
"""Each takes 32 MiB while it lasts."""
MOST_WAITING = 16
RETRY_AFTER = timedelta(seconds=2)


class Passwords:
    """Turns passwords into what is stored, and compares them with it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return what is stored of a password; raises Invalid when it is none."""
        check_password(password)
        return await self._run(lambda: _hasher().hash(password))

    async def matches(self, password: str, hashed: str | None) -> bool:
        """Say whether a password is the one; without one to compare with, it takes as long."""
        given = password if len(password) <= LONGEST else ""
        right = await self._run(lambda: _verify(hashed or _nobodys(), given))
        return right and hashed is not None and given == password

    def check_room(self) -> None:
        """Send away who would have to wait for too many others; raises Unavailable."""
        if self._waiting >= AT_ONCE + MOST_WAITING:
            raise Unavailable("Too many passwords are being checked; try again.", RETRY_AFTER)

    async def _run(self, work: Callable[[], T]) -> T:
        self.check_room()
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def check_password(password: str) -> None:
    """Refuse what is too easy to guess, or too long to be hashed; raises Invalid."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise Invalid("password", f"password has {SHORTEST} to {LONGEST} characters.")


@cache
def _hasher() -> "PasswordHasher":
    # Here, because most servers never see a password.
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)


@cache
def _nobodys() -> str:
    """Return a hash that nobody's password has, to be compared with all the same."""
    return _hasher().hash("")


def _verify(hashed: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
