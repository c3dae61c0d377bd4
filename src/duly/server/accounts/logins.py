"""Lets users in with a password: they get a key that does what they may, and ends soon.

Whether the tenant, the user or the password was wrong is not told, and takes as long. A
try is taken before the password is looked at, so that many at once, at whichever servers,
are no more than a few one by one; a right password gives it back.
"""

import hashlib
import logging
from datetime import timedelta
from math import ceil
from typing import NoReturn

import msgspec

from duly import clock
from duly.errors import Conflict, LimitExceeded, Unauthenticated
from duly.model.tenant import Credential
from duly.server.herald import Herald
from duly.server.news import News
from duly.server.passwords import Passwords
from duly.store import audit_log, guesses, keys, tenants, users
from duly.store.database import Connection, Database
from duly.store.keys import Key, KeyFilter, NewKey
from duly.store.lanes import Lane

log = logging.getLogger(__name__)
LASTS = timedelta(hours=12)
TRIES = 10
"""How many passwords may go wrong in a row for a name."""
EVERY = timedelta(seconds=30)
"""After how long one more may."""
MOST = 10_000
"""How many names are remembered that have no try left; beyond that the oldest are forgotten."""
LONGEST = 63
WRONG = "The tenant, the user or the password is wrong."


class Login(msgspec.Struct, frozen=True):
    """Whoever has logged in, and the key that it got: the only time it is known."""

    credential: Credential
    key: Key
    secret: str


class Logins:
    """Checks passwords, with few tries for each name."""

    def __init__(self, database: Database, herald: Herald, passwords: Passwords) -> None:
        self._database = database
        self._herald = herald
        self._passwords = passwords
        self._refused: dict[bytes, float] = {}
        """Names without a try, and when they have one again: asked about by nobody until then."""

    async def log_in(self, tenant: str, user: str, password: str) -> Login:
        """Return a new key of a user; raises Unauthenticated, LimitExceeded after many tries."""
        name = hashlib.sha256(f"{tenant}/{user}".encode()).digest()
        self._check_refused(name)
        self._passwords.check_room()
        async with self._database.connection(Lane.CALLER) as conn:
            wait = await guesses.take(conn, name, tries=TRIES, every=EVERY)
            if wait is not None:
                self._refuse(name, wait)
            found = await users.to_log_in(conn, tenant, user)
        user_id, hashed = found or (0, None)
        if not await self._passwords.matches(password, hashed):
            log.warning("A login as %r of %r was refused", user[:LONGEST], tenant[:LONGEST])
            async with self._database.connection(Lane.CALLER) as conn:
                await guesses.forget(conn)
            raise Unauthenticated(WRONG)
        async with self._database.transaction(Lane.GUEST) as conn:
            begun = await _begin(conn, user_id, hashed)
            await guesses.give_back(conn, name, every=EVERY)
        return begun

    async def log_out(self, credential: Credential) -> None:
        """End a login; raises Conflict for a key that was not got by logging in."""
        async with self._database.transaction(Lane.GUEST) as conn:
            if not await keys.end_login(conn, credential.key_id or 0):
                raise Conflict(
                    "This key was not got by logging in; to end it, revoke it: `duly key revoke`."
                )
            await _record(conn, credential, "logout")
        self._herald.announce(News(credentials=True))

    def _check_refused(self, name: bytes) -> None:
        """Refuse a name that is known to have no try yet, without asking the database."""
        left = self._refused.get(name, 0.0) - clock.monotonic()
        if left > 0:
            raise _too_many(left)
        self._refused.pop(name, None)

    def _refuse(self, name: bytes, wait: timedelta) -> NoReturn:
        while len(self._refused) >= MOST:
            self._refused.pop(next(iter(self._refused)))
        self._refused[name] = clock.monotonic() + wait.total_seconds()
        raise _too_many(wait.total_seconds())


def _too_many(wait: float) -> LimitExceeded:
    return LimitExceeded(
        "Limit exceeded: too many passwords were tried for this user; "
        f"try again in {ceil(wait)} s.",
        timedelta(seconds=wait),
    )


async def _begin(conn: Connection, user_id: int, hashed: str | None) -> Login:
    """Make the key, unless the user or its password has changed since it was looked at."""
    user = await users.lock_login(conn, user_id)
    if user is None or user.password_hash != hashed:
        raise Unauthenticated(WRONG)
    await keys.tidy_logins(conn, user.id)
    new = NewKey(
        tenant_id=user.tenant_id,
        user_id=user.id,
        scopes=user.scopes,
        lasts=LASTS,
        created_by=f"{user.tenant}/{user.name}",
        is_login=True,
    )
    made, secret = await keys.add(conn, new)
    credential = await tenants.by_key(conn, secret)
    (key,) = await keys.read(conn, user.tenant_id, KeyFilter(key_id=made))
    if credential is None:
        raise Unauthenticated(WRONG)
    await _record(conn, credential, "login")
    return Login(credential, key, secret)


async def _record(conn: Connection, credential: Credential, verb: str) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"user.{verb}",
        target=credential.user or "",
        tenant_id=credential.tenant_id,
        details={},
    )
