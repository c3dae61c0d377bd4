"""What is different for administrators: one of them stays, and they may name a tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duly.errors import Conflict, Forbidden, NotFound
from duly.model.tenant import Credential, Scope
from duly.policy.grants import beyond
from duly.store import tenants
from duly.store.database import Connection, Database
from duly.store.lanes import Lane

LAST = (
    "After this nobody could administer Duly any more: it takes away the last key with the scope "
    "'admin' that lasts. Create another one first, with `duly key create --scopes admin`."
)


@asynccontextmanager
async def keeping_one(
    database: Database, tenant_id: int | None = None
) -> AsyncIterator[Connection]:
    """Lend a transaction in which anything may be changed, as long as an administrator is left.

    With a tenant, only the rows of that are reached. Who comes at the same time waits: two could
    otherwise each rely on the other's key.
    """
    async with database.transaction(Lane.GUEST) as conn:
        await tenants.lock_administrators(conn)
        had_one = await tenants.has_lasting_admin_key(conn)
        if tenant_id is not None:
            await database.confine(conn, tenant_id)
        yield conn
        # Whether there is one left, the keys of every tenant tell.
        await database.unconfine(conn)
        if had_one and not await tenants.has_lasting_admin_key(conn):
            raise Conflict(LAST)


def check_grant(credential: Credential, scopes: frozenset[Scope]) -> None:
    """Refuse to give what the caller may not give; raises Forbidden."""
    if wider := beyond(credential.scopes, scopes):
        raise Forbidden(
            f"Your key may not give the scope {wider[0].value!r}: nobody gives more than he has.",
            scope=wider[0].value,
        )


def check_reach(credential: Credential, scopes: frozenset[Scope], thing: str) -> None:
    """Refuse to change what may do more than the caller; raises Forbidden."""
    if wider := beyond(credential.scopes, scopes):
        raise Forbidden(
            f"This {thing} has the scope {wider[0].value!r}, which your key may not give or take.",
            scope=wider[0].value,
        )


def unknown(credential: Credential, thing: str, name: object) -> NotFound:
    """Say that the caller's tenant has no such thing: the same whether another tenant has it.

    An administrator, who may mean another tenant's, is told how to say so.
    """
    told = f"There is no {thing} {str(name)[:60]}"
    if Scope.ADMIN not in credential.scopes:
        return NotFound(f"{told}.")
    return NotFound(
        f"{told} in the tenant {credential.tenant!r}. If it is another tenant's, name that: "
        "`--tenant NAME`, or `?tenant=NAME` in the address."
    )
