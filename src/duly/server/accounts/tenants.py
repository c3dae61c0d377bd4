"""Makes, changes, suspends and removes tenants, and writes down who did."""

from collections.abc import Mapping

import msgspec

from duly.errors import Conflict, Invalid
from duly.model.names import check_tenant
from duly.model.tenant import Credential
from duly.server.administrators import keeping_one
from duly.server.herald import Herald
from duly.server.news import News
from duly.store import audit_log, tenants
from duly.store.database import Connection, Database, Taken
from duly.store.lanes import Lane
from duly.store.tenants import Tenant

HOME = "default"
"""The tenant of the installation itself, to which `duly up` and `duly db init` give keys."""
FIRST_PLAN = "free"
"""What a tenant gets if nobody says more: a limit that nobody asked for is easily lifted."""
MANY = 1000
"""How many live tasks are counted at most."""


class Tenants:
    """What an administrator does to tenants."""

    def __init__(self, database: Database, herald: Herald) -> None:
        self._database = database
        self._herald = herald

    async def create(self, credential: Credential, name: str, plan: str | None) -> int:
        """Make a tenant, and return its id."""
        check_tenant(name)
        plan = FIRST_PLAN if plan is None else plan
        async with self._database.transaction(Lane.GUEST) as conn:
            await _check_plan(conn, plan)
            made = await tenants.add(conn, name, plan)
            if made is None:
                raise _taken(name)
            await _record(conn, credential, "create", made, name, {"plan": plan})
        return made

    async def update(
        self, credential: Credential, tenant_id: int, *, name: str | None, plan: str | None
    ) -> None:
        """Give a tenant another name or plan."""
        if name is not None:
            check_tenant(name)
        try:
            async with self._database.transaction(Lane.GUEST) as conn:
                old = await _lock(conn, tenant_id)
                if name not in (None, old.name):
                    _refuse_home(old, "renamed")
                if plan not in (None, old.plan):
                    await _check_plan(conn, plan or "")
                new_name, new_plan = name or old.name, plan or old.plan
                if (new_name, new_plan) == (old.name, old.plan):
                    return
                await tenants.change(conn, tenant_id, name=new_name, plan=new_plan)
                changed = {
                    field: [before, after]
                    for field, before, after in (
                        ("name", old.name, new_name),
                        ("plan", old.plan, new_plan),
                    )
                    if before != after
                }
                await _record(conn, credential, "update", old.id, old.name, changed)
        except Taken:
            raise _taken(name or "") from None
        self._herald.announce(News(work=True, credentials=True))

    async def suspend(self, credential: Credential, tenant_id: int) -> None:
        """Let a tenant look and do nothing else; nothing of it starts from now on."""
        async with keeping_one(self._database) as conn:
            old = await _lock(conn, tenant_id)
            _refuse_home(old, "suspended")
            if old.suspended_at is None:
                await tenants.suspend(conn, tenant_id)
                await _record(conn, credential, "suspend", old.id, old.name, {})
        self._herald.announce(News(work=True, credentials=True))

    async def resume(self, credential: Credential, tenant_id: int) -> None:
        """Let a suspended tenant go on where it was."""
        async with self._database.transaction(Lane.GUEST) as conn:
            old = await _lock(conn, tenant_id)
            if old.suspended_at is not None:
                await tenants.resume(conn, tenant_id)
                await _record(conn, credential, "resume", old.id, old.name, {})
        self._herald.announce(News(work=True, pairs=None, credentials=True))

    async def remove(self, credential: Credential, tenant_id: int) -> None:
        """Remove a tenant that has nothing left to do, with its users and keys, for good."""
        async with keeping_one(self._database) as conn:
            old = _there(await tenants.lock_for_good(conn, tenant_id))
            _refuse_home(old, "removed")
            if count := await tenants.count_live(conn, tenant_id, up_to=MANY):
                raise _busy(old, count)
            gone = await tenants.remove(conn, tenant_id)
            told = msgspec.to_builtins(gone)
            await _record(conn, credential, "remove", old.id, old.name, told)
        self._herald.announce(News(work=bool(gone.reservations), credentials=True))


async def _lock(conn: Connection, tenant_id: int) -> Tenant:
    return _there(await tenants.lock(conn, tenant_id))


def _there(found: Tenant | None) -> Tenant:
    if found is None:
        raise tenants.gone()
    return found


async def _check_plan(conn: Connection, plan: str) -> None:
    known = await tenants.plans(conn)
    if plan not in known:
        raise Invalid("plan", f"There is no plan {plan[:60]!r}; there are {', '.join(known)}.")


async def _record(
    conn: Connection,
    credential: Credential,
    verb: str,
    tenant_id: int,
    name: str,
    details: Mapping[str, object],
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"tenant.{verb}",
        target=name,
        tenant_id=tenant_id,
        details=details,
    )


def _refuse_home(tenant: Tenant, what: str) -> None:
    if tenant.name == HOME:
        raise Conflict(f"The tenant {HOME!r} is the installation's own and cannot be {what}.")


def _taken(name: str) -> Conflict:
    return Conflict(
        f"There is, or was, a tenant {name!r}; the name of one that was removed is not given again."
    )


def _busy(tenant: Tenant, count: int) -> Conflict:
    many = f"{count} or more tasks" if count == MANY else f"{count} task{'s' * (count != 1)}"
    return Conflict(
        f"{tenant.name!r} has {many} that have not ended. Suspend it, so that nothing new comes "
        f"(`duly tenant suspend {tenant.name}`), cancel them (POST /v1/tasks/cancel?tenant="
        f"{tenant.name}) or let them end, then remove it.",
        live=count,
    )
