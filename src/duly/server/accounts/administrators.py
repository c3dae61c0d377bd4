"""Rules for administrators: one admin key always remains, and no key grants more than it holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duly.errors import Conflict, Forbidden, NotFound
from duly.model.tenant import Credential, Scope
from duly.policy.grants import not_grantable
from duly.store.accounts import tenants
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database

LAST_ADMIN_KEY = (
    "This would leave Duly without an administrator: the key is the last one with the scope "
    "'admin' that does not expire. Create another one first: duly key create --scopes admin"
)


@asynccontextmanager
async def keeping_an_administrator(
    database: Database, tenant_id: int | None = None
) -> AsyncIterator[Connection]:
    """Open a transaction that is rolled back if it leaves no lasting admin key.

    With a tenant, only that tenant's rows are accessible. Such transactions are serialised by a
    lock: two could otherwise each rely on the other's key.
    """
    async with database.transaction(ConnectionClass.CLIENT) as conn:
        await tenants.lock_administrators(conn)
        had_one = await tenants.has_lasting_admin_key(conn)
        if tenant_id is not None:
            await database.confine(conn, tenant_id)
        yield conn
        # The remaining admin key may belong to any tenant.
        await database.unconfine(conn)
        if had_one and not await tenants.has_lasting_admin_key(conn):
            raise Conflict(LAST_ADMIN_KEY)


def check_grant(credential: Credential, scopes: frozenset[Scope]) -> None:
    """Refuse to grant scopes that the caller does not hold; raises Forbidden."""
    if wider := not_grantable(credential.scopes, scopes):
        raise Forbidden(
            f"Your key lacks the scope {wider[0].value!r}, so it cannot grant it. Use a key that "
            "has it.",
            scope=wider[0].value,
        )


def check_reach(credential: Credential, scopes: frozenset[Scope], thing: str) -> None:
    """Refuse to change a key or user with more scopes than the caller; raises Forbidden."""
    if wider := not_grantable(credential.scopes, scopes):
        raise Forbidden(
            f"This {thing} has the scope {wider[0].value!r}, which your key lacks, so your key "
            "cannot change it. Use a key that has it.",
            scope=wider[0].value,
        )


def unknown_in_tenant(credential: Credential, thing: str, name: object) -> NotFound:
    """Return the error for an object that the caller's tenant lacks, whether or not others have it.

    For an administrator, who may mean another tenant's, it says how to name the tenant.
    """
    message = f"There is no {thing} {str(name)[:60]!r}"
    if Scope.ADMIN not in credential.scopes:
        return NotFound(f"{message}.", kind=thing)
    return NotFound(
        f"{message} in the tenant {credential.tenant!r}. If it belongs to another tenant, give "
        "--tenant NAME, or ?tenant=NAME in the URL.",
        kind=thing,
    )
