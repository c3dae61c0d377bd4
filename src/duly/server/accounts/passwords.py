"""Hashes and verifies passwords with Argon2, a bounded number at a time.

Argon2 takes memory and tens of milliseconds of a core on purpose, to make guessing expensive. So
it runs in two threads beside the event loop; beyond a short queue, callers are refused.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from duly.errors import Invalid, Unavailable
from duly.model.wording import count_of

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")
MIN_PASSWORD_LENGTH = 8
MAX_PASSWORD_LENGTH = 1000
"""Characters: longer ones cost more to hash than they gain."""
MAX_CONCURRENT_HASHES = 2
"""Each takes 32 MiB while it runs."""
MAX_QUEUED_HASHES = 16
RETRY_AFTER = timedelta(seconds=2)


class Passwords:
    """Hashes passwords and verifies them against stored hashes."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_HASHES, thread_name_prefix="passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return the hash of a new password; raises Invalid when it is too short or too long."""
        check_password(password)
        return await self._run(lambda: _hasher().hash(password))

    async def matches(self, password: str, hashed: str | None) -> bool:
        """Return whether a password matches; takes as long when there is no hash to compare."""
        given = password if len(password) <= MAX_PASSWORD_LENGTH else ""
        is_match = await self._run(lambda: _verify(hashed or _dummy_hash(), given))
        return is_match and hashed is not None and given == password

    def check_capacity(self) -> None:
        """Refuse a caller when the queue is full; raises Unavailable."""
        if self._waiting >= MAX_CONCURRENT_HASHES + MAX_QUEUED_HASHES:
            raise Unavailable(
                "Too many passwords are being checked at once. Try again.", RETRY_AFTER
            )

    async def _run(self, work: Callable[[], T]) -> T:
        self.check_capacity()
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def check_password(password: str) -> None:
    """Refuse a password that is too easy to guess or too long to hash; raises Invalid."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise Invalid(
            "password",
            f"it has {count_of(len(password), 'character')}. Use {MIN_PASSWORD_LENGTH} to "
            f"{MAX_PASSWORD_LENGTH}.",
        )


@cache
def _hasher() -> "PasswordHasher":
    # Imported lazily, because most servers never check a password.
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)


@cache
def _dummy_hash() -> str:
    """Return a hash to verify against when the user is unknown, so that timing does not tell."""
    return _hasher().hash("")


def _verify(hashed: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
