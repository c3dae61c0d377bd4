"""Creates, changes, suspends and removes tenants, with an entry in the audit log."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from duly.errors import Conflict, Invalid
from duly.model.requests.names import check_tenant
from duly.model.requests.plan_request import check_weight
from duly.model.task import FINAL_STATUSES, Status
from duly.model.tenant import Credential
from duly.model.wording import count_of, either
from duly.server.accounts.administrators import keeping_an_administrator
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, tenants
from duly.store.accounts.tenants import Tenant
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database, Taken

DEFAULT_TENANT = "default"
"""The installation's own tenant, for which `duly up` and `duly db init` create keys."""
DEFAULT_PLAN = "free"
"""The plan of a new tenant if none is given: a limit is easily lifted later."""
MAX_COUNTED_TASKS = 1000
"""Live tasks are counted up to this number."""
LIVE_STATUSES = ",".join(status for status in Status if status not in FINAL_STATUSES)


class Tenants:
    """The operations of administrators on tenants."""

    def __init__(self, database: Database, server_bus: ServerBus) -> None:
        self._database = database
        self._server_bus = server_bus

    async def create(
        self,
        credential: Credential,
        name: str,
        plan: str | None,
        weight: int | None,
        *,
        fair_users: bool = False,
    ) -> int:
        """Create a tenant, and return its id."""
        check_tenant(name)
        check_weight(weight)
        plan = DEFAULT_PLAN if plan is None else plan
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await _check_plan(conn, plan)
            tenant_id = await tenants.add(conn, name, plan, weight, fair_users=fair_users)
            if tenant_id is None:
                raise _name_taken(name)
            details: dict[str, object] = {"plan": plan}
            details |= {} if weight is None else {"weight": weight}
            details |= {"fair_users": True} if fair_users else {}
            await _record(conn, credential, "create", tenant_id, name, details)
        return tenant_id

    async def update(
        self,
        credential: Credential,
        tenant_id: int,
        *,
        name: str | None = None,
        plan: str | None = None,
        weight: int | UnsetType | None = UNSET,
        fair_users: bool | None = None,
    ) -> None:
        """Change fields of a tenant; no weight is that of its plan."""
        if name is not None:
            check_tenant(name)
        if weight is not UNSET:
            check_weight(weight)
        try:
            async with self._database.transaction(ConnectionClass.CLIENT) as conn:
                old = await _lock(conn, tenant_id)
                new = msgspec.structs.replace(
                    old,
                    name=old.name if name is None else name,
                    plan=old.plan if plan is None else plan,
                    weight_override=old.weight_override if weight is UNSET else weight,
                    fair_users=old.fair_users if fair_users is None else fair_users,
                )
                if not (changed := _changed(old, new)):
                    return
                if "name" in changed:
                    _refuse_default_tenant(old, "renamed")
                if "plan" in changed:
                    await _check_plan(conn, new.plan)
                await tenants.change(conn, new)
                await _record(conn, credential, "update", old.id, old.name, changed)
        except Taken:
            raise _name_taken(name or "") from None
        self._server_bus.broadcast(Hint(work=True, credentials=True))

    async def suspend(self, credential: Credential, tenant_id: int) -> None:
        """Suspend a tenant: it can only read, and none of its tasks start."""
        async with keeping_an_administrator(self._database) as conn:
            old = await _lock(conn, tenant_id)
            _refuse_default_tenant(old, "suspended")
            if old.suspended_at is None:
                await tenants.suspend(conn, tenant_id)
                await _record(conn, credential, "suspend", old.id, old.name, {})
        self._server_bus.broadcast(Hint(work=True, credentials=True))

    async def resume(self, credential: Credential, tenant_id: int) -> None:
        """Resume a suspended tenant where it stopped."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            old = await _lock(conn, tenant_id)
            if old.suspended_at is not None:
                await tenants.resume(conn, tenant_id)
                await _record(conn, credential, "resume", old.id, old.name, {})
        self._server_bus.broadcast(Hint(work=True, subqueues=None, credentials=True))

    async def remove(self, credential: Credential, tenant_id: int) -> None:
        """Remove a tenant without live tasks, with its users and keys, for good."""
        async with keeping_an_administrator(self._database) as conn:
            old = _existing(await tenants.lock_for_removal(conn, tenant_id))
            _refuse_default_tenant(old, "removed")
            if count := await tenants.count_live(conn, tenant_id, up_to=MAX_COUNTED_TASKS):
                raise _has_live_tasks(old, count)
            removed = await tenants.remove(conn, tenant_id)
            # The name may be given again, so the entry has the id as well.
            details = {"id": str(old.public_id), **msgspec.to_builtins(removed)}
            await _record(conn, credential, "remove", old.id, old.name, details)
        self._server_bus.broadcast(Hint(work=bool(removed.reservations), credentials=True))


async def _lock(conn: Connection, tenant_id: int) -> Tenant:
    return _existing(await tenants.lock(conn, tenant_id))


def _existing(tenant: Tenant | None) -> Tenant:
    if tenant is None:
        raise tenants.not_found()
    return tenant


def _changed(old: Tenant, new: Tenant) -> dict[str, list[object]]:
    """Return the fields that differ, before and after; a weight of None is the plan's."""
    fields: dict[str, tuple[object, object]] = {
        "name": (old.name, new.name),
        "plan": (old.plan, new.plan),
        "weight": (old.weight_override, new.weight_override),
        "fair_users": (old.fair_users, new.fair_users),
    }
    return {field: [before, after] for field, (before, after) in fields.items() if before != after}


async def _check_plan(conn: Connection, plan: str) -> None:
    names = await tenants.plans(conn)
    if plan not in names:
        raise Invalid("plan", f"there is no plan {plan[:60]!r}. Use {either(names)}.")


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


def _refuse_default_tenant(tenant: Tenant, action: str) -> None:
    if tenant.name == DEFAULT_TENANT:
        raise Conflict(
            f"The tenant {DEFAULT_TENANT!r} is the installation's own and cannot be {action}."
        )


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a tenant {name!r} already. Choose another name.")


def _has_live_tasks(tenant: Tenant, count: int) -> Conflict:
    many = f"{count} or more tasks" if count == MAX_COUNTED_TASKS else count_of(count, "task")
    have = "has" if count == 1 else "have"
    return Conflict(
        f"The tenant {tenant.name!r} has {many} that {have} not ended. Stop new ones with 'duly "
        f"tenant suspend {tenant.name}', cancel these with 'duly cancel --tenant {tenant.name} "
        f"--status {LIVE_STATUSES}' or let them end, then remove the tenant.",
        live=count,
    )
