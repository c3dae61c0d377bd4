"""Logs users in with a password, and issues a short-lived key with their scopes.

A refusal does not reveal whether the tenant, the user or the password was wrong, neither by its
text nor by its timing. A try is taken from the throttle before the password is checked, so that
concurrent guesses on any number of servers gain nothing; a correct password returns it.
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
from duly.server.accounts.passwords import Passwords
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, keys, login_throttle, tenants, users
from duly.store.accounts.keys import Key, KeyFilter, NewKey
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database

log = logging.getLogger(__name__)
LOGIN_TTL = timedelta(hours=12)
MAX_TRIES = 10
"""Wrong passwords in a row that are allowed for one user."""
TRY_REFILL_INTERVAL = timedelta(seconds=30)
"""How long it takes until one more try is allowed."""
MAX_REFUSED_NAMES = 10_000
"""Throttled users that are cached; beyond this the oldest are evicted."""
MAX_LOGGED_NAME_LENGTH = 63
WRONG_CREDENTIALS = "The tenant, the user or the password is wrong."


class Login(msgspec.Struct, frozen=True):
    """A login: its credential, and the new key with its secret, which is not stored."""

    credential: Credential
    key: Key
    secret: str


class Logins:
    """Checks passwords, with a throttle for each user."""

    def __init__(self, database: Database, server_bus: ServerBus, passwords: Passwords) -> None:
        self._database = database
        self._server_bus = server_bus
        self._passwords = passwords
        self._refused: dict[bytes, float] = {}
        """Hashed names of throttled users, and when each may try again; checked before a query."""

    async def log_in(self, tenant: str, user: str, password: str) -> Login:
        """Return a new login key; raises Unauthenticated, or LimitExceeded after many tries."""
        name = hashlib.sha256(f"{tenant}/{user}".encode()).digest()
        self._check_refused(name)
        self._passwords.check_capacity()
        async with self._database.connection(ConnectionClass.AUTHENTICATION) as conn:
            wait = await login_throttle.acquire(
                conn, name, tries=MAX_TRIES, every=TRY_REFILL_INTERVAL
            )
            if wait is not None:
                self._refuse(name, wait)
            row = await users.read_password_hash(conn, tenant, user)
        user_id, hashed = row or (0, None)
        if not await self._passwords.matches(password, hashed):
            log.warning(
                "A login as %r of %r was refused",
                user[:MAX_LOGGED_NAME_LENGTH],
                tenant[:MAX_LOGGED_NAME_LENGTH],
            )
            async with self._database.connection(ConnectionClass.AUTHENTICATION) as conn:
                await login_throttle.prune(conn)
            raise Unauthenticated(WRONG_CREDENTIALS)
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            login = await _begin(conn, user_id, hashed)
            await login_throttle.refund(conn, name, every=TRY_REFILL_INTERVAL)
        return login

    async def log_out(self, credential: Credential) -> None:
        """End a login; raises Conflict if the key does not belong to one."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            if not await keys.end_login(conn, credential.key_id or 0):
                raise Conflict(
                    "This key does not belong to a login. To end it, revoke it with 'duly key "
                    "revoke'."
                )
            await _record(conn, credential, "logout")
        self._server_bus.broadcast(Hint(credentials=True))

    def _check_refused(self, name: bytes) -> None:
        """Refuse a user that is known to be throttled, without a query."""
        left = self._refused.get(name, 0.0) - clock.monotonic()
        if left > 0:
            raise _too_many(left)
        self._refused.pop(name, None)

    def _refuse(self, name: bytes, wait: timedelta) -> NoReturn:
        while len(self._refused) >= MAX_REFUSED_NAMES:
            self._refused.pop(next(iter(self._refused)))
        self._refused[name] = clock.monotonic() + wait.total_seconds()
        raise _too_many(wait.total_seconds())


def _too_many(wait: float) -> LimitExceeded:
    return LimitExceeded(
        f"Limit exceeded: too many wrong passwords for this user; try again in {ceil(wait)} s.",
        timedelta(seconds=wait),
    )


async def _begin(conn: Connection, user_id: int, hashed: str | None) -> Login:
    """Create the key, unless the user or its password has changed since it was read."""
    user = await users.lock_login(conn, user_id)
    if user is None or user.password_hash != hashed:
        raise Unauthenticated(WRONG_CREDENTIALS)
    await keys.prune_logins(conn, user.id)
    new = NewKey(
        tenant_id=user.tenant_id,
        user_id=user.id,
        scopes=user.scopes,
        lasts=LOGIN_TTL,
        created_by=f"{user.tenant}/{user.name}",
        is_login=True,
    )
    key_id, secret = await keys.add(conn, new)
    credential = await tenants.by_key(conn, secret)
    (key,) = await keys.read(conn, user.tenant_id, KeyFilter(key_id=key_id))
    if credential is None:
        raise Unauthenticated(WRONG_CREDENTIALS)
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
