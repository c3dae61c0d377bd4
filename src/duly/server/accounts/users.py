"""Creates, changes and removes the users of a tenant, with an entry in the audit log."""

from duly.errors import Conflict
from duly.model.requests.names import check_user
from duly.model.tenant import Credential, Scope
from duly.policy.grants import TENANT_SCOPES, grantable
from duly.server.accounts.administrators import check_grant, check_reach, keeping_an_administrator
from duly.server.accounts.passwords import Passwords
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, tenants, users
from duly.store.accounts.users import User
from duly.store.database import Connection, Database


class Users:
    """The operations of a tenant's manager on its users."""

    def __init__(self, database: Database, server_bus: ServerBus, passwords: Passwords) -> None:
        self._database = database
        self._server_bus = server_bus
        self._passwords = passwords

    async def create(
        self,
        credential: Credential,
        name: str,
        *,
        scopes: frozenset[Scope] | None,
        password: str | None,
    ) -> int:
        """Create a user of the caller's tenant, and return its id."""
        check_user(name)
        if scopes is None:
            scopes = TENANT_SCOPES & grantable(credential.scopes)
        check_grant(credential, scopes)
        hashed = None if password is None else await self._passwords.hash(password)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await tenants.hold(conn, credential.tenant_id)
            user_id = await users.add(conn, credential.tenant_id, name, scopes, hashed)
            if user_id is None:
                raise Conflict(f"There is a user {name!r} already. Choose another name.")
            details = {"scopes": sorted(scopes), "password": password is not None}
            await _record(conn, credential, "create", name, **details)
        return user_id

    async def update(
        self,
        credential: Credential,
        user_id: int,
        *,
        scopes: frozenset[Scope] | None,
        password: str | None,
    ) -> None:
        """Change the scopes or the password of a user; a new password ends its logins."""
        if scopes is not None:
            check_grant(credential, scopes)
        hashed = None if password is None else await self._passwords.hash(password)
        async with keeping_an_administrator(self._database, credential.tenant_id) as conn:
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
        self._server_bus.broadcast(Hint(credentials=True))

    async def remove(self, credential: Credential, user_id: int) -> None:
        """Remove a user, and revoke its keys."""
        async with keeping_an_administrator(self._database, credential.tenant_id) as conn:
            old = await _lock(conn, credential, user_id)
            count = await users.remove(conn, old.id)
            await _record(conn, credential, "remove", old.name, keys=count)
        self._server_bus.broadcast(Hint(credentials=True))


async def _lock(conn: Connection, credential: Credential, user_id: int) -> User:
    await tenants.hold(conn, credential.tenant_id)
    user = await users.lock(conn, credential.tenant_id, user_id=user_id)
    if user is None:
        raise users.not_found()
    # The user's keys are revoked or narrowed with it.
    check_reach(credential, user.reach, "user")
    return user


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
