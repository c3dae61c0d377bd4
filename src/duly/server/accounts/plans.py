"""Creates, changes and removes plans and tiers, with an entry in the audit log.

A plan is read together with the caller's key, which every server caches for a few seconds. A
change sends a hint that invalidates these caches; a server that misses it follows after the TTL.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec

from duly.config import RetentionSettings
from duly.errors import Conflict, Invalid, NotFound
from duly.model.numerals import format_number
from duly.model.queues.queue import REQUESTABLE
from duly.model.requests.amounts import ResourcesRequest, amounts_to_json, resources_to_json
from duly.model.requests.plan_request import change_plan, check_retention
from duly.model.requests.tier_request import MAX_TIERS, tier_from
from duly.model.resources import TIERS, Resources
from duly.model.tenant import Credential, Plan
from duly.model.wording import either
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, plans, tiers
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database
from duly.store.fleet import queues

PERMANENT_PLAN = "unlimited"
"""The plan of the tenant that `duly up` creates; it cannot be removed."""
MAX_TENANTS_SHOWN = 5
"""Tenants that an error message names."""
NO_TENANT = 0
"""The id of no tenant."""


class TierDefinitions(msgspec.Struct, frozen=True):
    """The tiers defined at the level of a change, and those in effect, by name.

    The level is one tenant or everyone; a tenant's own tiers override everyone's.
    """

    defined: Mapping[str, Resources]
    effective: Mapping[str, Resources]


class Plans:
    """The operations on plans and tiers."""

    def __init__(
        self, database: Database, server_bus: ServerBus, settings: RetentionSettings
    ) -> None:
        self._database = database
        self._server_bus = server_bus
        self._settings = settings

    async def create_plan(self, credential: Credential, plan: Plan) -> None:
        """Store a new plan."""
        check_retention(plan.retention, self._settings.history)
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await _check_tiers(conn, plan)
            await _check_queues(conn, plan)
            if not await plans.add(conn, plan):
                raise Conflict(
                    f"There is a plan {plan.name!r} already. Update it, or choose another name."
                )
            details = {"grants": _grants(plan)}
            await _record(conn, credential, "plan.create", plan.name, details)

    async def update_plan(
        self, credential: Credential, name: str, changes: Mapping[str, Any]
    ) -> None:
        """Change what a plan grants, for every tenant that has it."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            old = await self._lock(conn, name)
            plan = change_plan(old, changes)
            if "retention" in changes:
                check_retention(plan.retention, self._settings.history)
            if "tiers" in changes:
                await _check_tiers(conn, plan)
            if "queues" in changes:
                await _check_queues(conn, plan)
            await plans.change(conn, plan)
            await _record(conn, credential, "plan.update", name, _changed(old, plan))
        # Tasks that waited for a limit may run now.
        self._server_bus.broadcast(Hint(work=True, subqueues=None, credentials=True))

    async def remove_plan(self, credential: Credential, name: str) -> None:
        """Remove a plan that no tenant has."""
        if name == PERMANENT_PLAN:
            raise Conflict(f"The plan {PERMANENT_PLAN!r} cannot be removed; it can be changed.")
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            plan = await self._lock(conn, name)
            _check_unused(name, *await plans.tenants_of(conn, name))
            await plans.remove(conn, name)
            await _record(conn, credential, "plan.remove", name, {"grants": _grants(plan)})

    async def _lock(self, conn: Connection, name: str) -> Plan:
        plan = await plans.lock(conn, name)
        if plan is None:
            raise NotFound(f"There is no plan {name[:60]!r}.", kind="plan")
        return plan

    async def create_tier(
        self, credential: Credential, name: str, request: ResourcesRequest, *, everyone: bool
    ) -> None:
        """Define a tier that is not yet defined for the tenant, or for everyone."""

        def decide(tiers: TierDefinitions) -> Resources:
            if name in tiers.defined:
                raise Conflict(
                    f"There is a tier {name!r} already. Update it, or choose another name."
                )
            return tier_from(name, request, plan=None if everyone else credential.plan)

        await self._put(credential, name, decide, "tier.create", everyone=everyone)

    async def update_tier(
        self, credential: Credential, name: str, request: ResourcesRequest, *, everyone: bool
    ) -> None:
        """Change some resources of a tier; the others stay as they are in effect now."""

        def decide(tiers: TierDefinitions) -> Resources:
            if name not in tiers.effective:
                raise _no_tier(name)
            base = tiers.effective[name]
            return tier_from(name, request, base, plan=None if everyone else credential.plan)

        await self._put(credential, name, decide, "tier.update", everyone=everyone)

    async def _put(
        self,
        credential: Credential,
        name: str,
        decide: Callable[[TierDefinitions], Resources],
        action: str,
        *,
        everyone: bool,
    ) -> None:
        tenant_id = None if everyone else credential.tenant_id
        async with self._writing(tenant_id) as conn:
            definitions = await _lock_tiers(conn, tenant_id)
            resources = decide(definitions)
            if name not in definitions.defined and len(definitions.defined) >= MAX_TIERS:
                raise Conflict(
                    f"There are {MAX_TIERS} tiers, which is the limit. Remove one first."
                )
            await tiers.put(conn, tenant_id, name, resources)
            details = {"everyone": everyone, "resources": resources_to_json(resources)}
            await _record(conn, credential, action, name, details, tenant_id)
        self._server_bus.broadcast(Hint(credentials=True))

    def _writing(self, tenant_id: int | None) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction, confined to the rows of one tenant unless the change is global."""
        if tenant_id is None:
            return self._database.transaction(ConnectionClass.CLIENT)
        return self._database.writing_for(tenant_id)

    async def remove_tier(self, credential: Credential, name: str, *, everyone: bool) -> None:
        """Remove the definition of a tier, so that the next wider one is in effect again."""
        tenant_id = None if everyone else credential.tenant_id
        async with self._writing(tenant_id) as conn:
            definitions = await _lock_tiers(conn, tenant_id)
            if not await tiers.remove(conn, tenant_id, name):
                raise _nothing_to_remove(name, definitions)
            users = [] if not everyone or name in TIERS else await tiers.plans_with(conn, name)
            if users:
                raise Conflict(
                    f"The tier {name!r} is used by the plans {', '.join(users)}; "
                    "take it out of their tiers first.",
                    plans=users,
                )
            await _record(conn, credential, "tier.remove", name, {"everyone": everyone}, tenant_id)
        self._server_bus.broadcast(Hint(credentials=True))


def _grants(plan: Plan) -> dict[str, Any]:
    """Return all fields of a plan for the audit log, so that a removed plan can be recreated."""
    fields = {name: getattr(plan, name) for name in plans.FIELDS}
    return {
        name: _as_requested(name, value)
        for name, value in fields.items()
        if value not in (None, {})
    }


def _as_requested(name: str, value: Any) -> Any:
    """Return a field of a plan in the form that a request has."""
    if name == "max_resources":
        return amounts_to_json(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return format_number(value)
    return msgspec.to_builtins(value)


def _changed(old: Plan, new: Plan) -> dict[str, Any]:
    """Return the changed fields, each with its old and new value."""
    before, after = _grants(old), _grants(new)
    return {
        name: [before.get(name), after.get(name)]
        for name in plans.FIELDS
        if before.get(name) != after.get(name)
    }


async def _check_tiers(conn: Connection, plan: Plan) -> None:
    """Refuse a plan with a tier that does not exist: no task could ever run in it."""
    if plan.tiers is None:
        return
    existing = [*TIERS, *(tier.name for tier in await tiers.read(conn, NO_TENANT))]
    for name in plan.tiers:
        if name not in existing:
            raise Invalid(
                "tiers",
                f"there is no tier {name!r} for everyone. Use {either(dict.fromkeys(existing))}.",
            )


async def _check_queues(conn: Connection, plan: Plan) -> None:
    """Refuse a plan with a queue that tasks cannot ask for."""
    if not plan.queues:
        return
    defined = (await queues.read(conn)).by_name.values()
    existing = [*REQUESTABLE, *(queue.name for queue in defined if not queue.is_built_in)]
    for name in plan.queues:
        if name not in existing:
            raise Invalid(
                "queues",
                f"{name!r} is not a queue that tasks can ask for. Use {either(existing)}.",
            )


def _check_unused(name: str, tenants: Sequence[str], removed: Sequence[str]) -> None:
    if tenants:
        shown = ", ".join(tenants[:MAX_TENANTS_SHOWN]) + (
            ", …" if len(tenants) > MAX_TENANTS_SHOWN else ""
        )
        raise Conflict(
            f"The plan {name!r} is used by {len(tenants)} "
            f"{'tenant' if len(tenants) == 1 else 'tenants'} ({shown}); give them another plan "
            "first: duly tenant update NAME --plan PLAN.",
            tenants=len(tenants),
        )
    if removed:
        raise Conflict(
            f"The plan {name!r} cannot be removed: the usage history of a removed tenant "
            f"({removed[0]}) refers to it.",
            tenants=0,
        )


async def _lock_tiers(conn: Connection, tenant_id: int | None) -> TierDefinitions:
    """Lock the tier definitions of a tenant, or of everyone, until the commit; return them."""
    await tiers.lock(conn, tenant_id)
    rows = await tiers.read(conn, NO_TENANT if tenant_id is None else tenant_id)
    everyones = {tier.name: tier.resources for tier in rows if not tier.is_own}
    own = {tier.name: tier.resources for tier in rows if tier.is_own}
    return TierDefinitions(everyones if tenant_id is None else own, {**TIERS, **everyones, **own})


def _nothing_to_remove(name: str, definitions: TierDefinitions) -> Conflict | NotFound:
    if name not in definitions.effective:
        return _no_tier(name)
    whose = "Duly's own" if definitions.effective[name] == TIERS.get(name) else "everyone's"
    return Conflict(
        f"The tier {name!r} is {whose} and not redefined here. There is nothing to remove."
    )


def _no_tier(name: str) -> NotFound:
    return NotFound(f"There is no tier {name[:60]!r}.", kind="tier")


async def _record(
    conn: Connection,
    credential: Credential,
    action: str,
    target: str,
    details: Mapping[str, Any],
    tenant_id: int | None = None,
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=action,
        target=target,
        tenant_id=tenant_id,
        details=details,
    )
