"""Makes, changes and removes the users of a tenant, and writes down who did."""

from duly.errors import Conflict
from duly.model.names import check_user
from duly.model.tenant import Credential, Scope
from duly.policy.grants import OF_A_TENANT, grantable
from duly.server.administrators import check_grant, check_reach, keeping_one
from duly.server.herald import Herald
from duly.server.news import News
from duly.server.passwords import Passwords
from duly.store import audit_log, tenants, users
from duly.store.database import Connection, Database
from duly.store.users import User


class Users:
    """What whoever manages a tenant does to its users."""

    def __init__(self, database: Database, herald: Herald, passwords: Passwords) -> None:
        self._database = database
        self._herald = herald
        self._passwords = passwords

    async def create(
        self,
        credential: Credential,
        name: str,
        *,
        scopes: frozenset[Scope] | None,
        password: str | None,
    ) -> int:
        """Make a user of the caller's tenant, and return its id."""
        check_user(name)
        if scopes is None:
            scopes = OF_A_TENANT & grantable(credential.scopes)
        check_grant(credential, scopes)
        hashed = None if password is None else await self._passwords.hash(password)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await tenants.hold(conn, credential.tenant_id)
            made = await users.add(conn, credential.tenant_id, name, scopes, hashed)
            if made is None:
                raise Conflict(f"There is a user {name!r} already.")
            details = {"scopes": sorted(scopes), "password": password is not None}
            await _record(conn, credential, "create", name, **details)
        return made

    async def update(
        self,
        credential: Credential,
        user_id: int,
        *,
        scopes: frozenset[Scope] | None,
        password: str | None,
    ) -> None:
        """Change what a user may do, or its password; it ends what began with the old one."""
        if scopes is not None:
            check_grant(credential, scopes)
        hashed = None if password is None else await self._passwords.hash(password)
        async with keeping_one(self._database, credential.tenant_id) as conn:
            old = await _lock(conn, credential, user_id)
            details: dict[str, object] = {}
            if scopes is not None and scopes != old.scopes:
                narrowed = await users.change_scopes(conn, old, scopes)
                details["scopes"] = [sorted(old.scopes), sorted(scopes)]
                details["keys_narrowed"] = narrowed
            if hashed is not None:
                await users.change_password(conn, old.id, hashed)
                details["password"] = True
            if details:
                await _record(conn, credential, "update", old.name, **details)
        self._herald.announce(News(credentials=True))

    async def remove(self, credential: Credential, user_id: int) -> None:
        """Remove a user, and revoke its keys."""
        async with keeping_one(self._database, credential.tenant_id) as conn:
            old = await _lock(conn, credential, user_id)
            count = await users.remove(conn, old.id)
            await _record(conn, credential, "remove", old.name, keys=count)
        self._herald.announce(News(credentials=True))


async def _lock(conn: Connection, credential: Credential, user_id: int) -> User:
    await tenants.hold(conn, credential.tenant_id)
    found = await users.lock(conn, credential.tenant_id, user_id=user_id)
    if found is None:
        raise users.gone()
    # A key of the user goes, or is narrowed, with it.
    check_reach(credential, found.reach, "user")
    return found


async def _record(
    conn: Connection, credential: Credential, verb: str, name: str, **details: object
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"user.{verb}",
        target=name,
        tenant_id=credential.tenant_id,
        details=details,
    )
