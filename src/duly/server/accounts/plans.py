"""Changes plans and tiers, and writes down who did.

What a plan grants is read with the caller's key, which every server remembers for a moment.
They are told of a change; whoever does not hear of it knows it when that moment is over.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec

from duly.config import RetentionSettings
from duly.errors import Conflict, Invalid, NotFound
from duly.model.amounts import ResourcesRequest, told_amounts, told_resources
from duly.model.numerals import plain
from duly.model.plan_request import change_plan, check_retention
from duly.model.resources import TIERS, Resources
from duly.model.tenant import Credential, Plan
from duly.model.tier_request import MOST_TIERS, tier_from
from duly.server.herald import Herald
from duly.server.news import News
from duly.store import audit_log, plans, tiers
from duly.store.database import Connection, Database
from duly.store.lanes import Lane

ALWAYS = "unlimited"
"""The plan of the tenant that `duly up` begins with."""
MOST_SHOWN = 5
"""Names of tenants in a refusal."""
NOBODY = 0
"""The id of no tenant."""


class Said(msgspec.Struct, frozen=True):
    """What is said of tiers by whom a change is for, and what names stand for in all."""

    here: Mapping[str, Resources]
    known: Mapping[str, Resources]


class PlanKeeper:
    """Makes, changes and removes plans and tiers."""

    def __init__(self, database: Database, herald: Herald, settings: RetentionSettings) -> None:
        self._database = database
        self._herald = herald
        self._settings = settings

    async def create_plan(self, credential: Credential, plan: Plan) -> None:
        """Store a new plan."""
        check_retention(plan.retention, self._settings.history)
        async with self._database.transaction(Lane.GUEST) as conn:
            await _check_tiers(conn, plan)
            if not await plans.add(conn, plan):
                raise Conflict(f"There is a plan {plan.name!r} already; update it instead.")
            grants = {"grants": _granted(plan)}
            await _record(conn, credential, "plan.create", plan.name, grants)

    async def update_plan(
        self, credential: Credential, name: str, changes: Mapping[str, Any]
    ) -> None:
        """Change what a plan grants, for every tenant that has it."""
        async with self._database.transaction(Lane.GUEST) as conn:
            old = await self._lock(conn, name)
            plan = change_plan(old, changes)
            if "retention" in changes:
                check_retention(plan.retention, self._settings.history)
            if "tiers" in changes:
                await _check_tiers(conn, plan)
            await plans.change(conn, plan)
            await _record(conn, credential, "plan.update", name, _changed(old, plan))
        # What waited for a limit may run now.
        self._herald.announce(News(work=True, pairs=None, credentials=True))

    async def remove_plan(self, credential: Credential, name: str) -> None:
        """Remove a plan that no tenant has."""
        if name == ALWAYS:
            raise Conflict(f"The plan {ALWAYS!r} cannot be removed; it can be changed.")
        async with self._database.transaction(Lane.GUEST) as conn:
            plan = await self._lock(conn, name)
            _check_unused(name, *await plans.tenants_of(conn, name))
            await plans.remove(conn, name)
            await _record(conn, credential, "plan.remove", name, {"grants": _granted(plan)})

    async def _lock(self, conn: Connection, name: str) -> Plan:
        plan = await plans.lock(conn, name)
        if plan is None:
            raise NotFound(f"There is no plan {name[:60]!r}.")
        return plan

    async def create_tier(
        self, credential: Credential, name: str, asked: ResourcesRequest, *, everyone: bool
    ) -> None:
        """Say what a name stands for, of which that was not said here yet."""

        def decide(tiers: Said) -> Resources:
            if name in tiers.here:
                raise Conflict(f"There is a tier {name!r} already; update it instead.")
            return tier_from(name, asked, plan=None if everyone else credential.plan)

        await self._put(credential, name, decide, "tier.create", everyone=everyone)

    async def update_tier(
        self, credential: Credential, name: str, asked: ResourcesRequest, *, everyone: bool
    ) -> None:
        """Change what a name stands for, kind by kind, from whatever it stands for now."""

        def decide(tiers: Said) -> Resources:
            if name not in tiers.known:
                raise _no_tier(name)
            base = tiers.known[name]
            return tier_from(name, asked, base, plan=None if everyone else credential.plan)

        await self._put(credential, name, decide, "tier.update", everyone=everyone)

    async def _put(
        self,
        credential: Credential,
        name: str,
        decide: Callable[[Said], Resources],
        action: str,
        *,
        everyone: bool,
    ) -> None:
        tenant_id = None if everyone else credential.tenant_id
        async with self._writing(tenant_id) as conn:
            said = await _lock_tiers(conn, tenant_id)
            resources = decide(said)
            if name not in said.here and len(said.here) >= MOST_TIERS:
                raise Conflict(f"There may be at most {MOST_TIERS} tiers; remove one first.")
            await tiers.put(conn, tenant_id, name, resources)
            details = {"everyone": everyone, "resources": told_resources(resources)}
            await _record(conn, credential, action, name, details, tenant_id)
        self._herald.announce(News(credentials=True))

    def _writing(self, tenant_id: int | None) -> AbstractAsyncContextManager[Connection]:
        """Lend a transaction that reaches the rows of one tenant, if it is one tenant's change."""
        if tenant_id is None:
            return self._database.transaction(Lane.GUEST)
        return self._database.writing_for(tenant_id)

    async def remove_tier(self, credential: Credential, name: str, *, everyone: bool) -> None:
        """Take back what was said of a name, so that it means what it meant before."""
        tenant_id = None if everyone else credential.tenant_id
        async with self._writing(tenant_id) as conn:
            said = await _lock_tiers(conn, tenant_id)
            if not await tiers.remove(conn, tenant_id, name):
                raise _nothing_to_remove(name, said)
            named = [] if not everyone or name in TIERS else await tiers.plans_with(conn, name)
            if named:
                raise Conflict(
                    f"The tier {name!r} is named by the plans {', '.join(named)}; "
                    "take it out of their tiers first.",
                    plans=named,
                )
            await _record(conn, credential, "tier.remove", name, {"everyone": everyone}, tenant_id)
        self._herald.announce(News(credentials=True))


def _granted(plan: Plan) -> dict[str, Any]:
    """Return what a plan says, for the audit log: a plan that is gone can be made again."""
    said = {name: getattr(plan, name) for name in plans.FIELDS}
    return {name: _told(name, value) for name, value in said.items() if value not in (None, {})}


def _told(name: str, value: Any) -> Any:
    """Return a field of a plan as a request says it."""
    if name == "max_resources":
        return told_amounts(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return plain(value)
    return msgspec.to_builtins(value)


def _changed(old: Plan, new: Plan) -> dict[str, Any]:
    """Return what is different, each as it was and as it is."""
    before, after = _granted(old), _granted(new)
    return {
        name: [before.get(name), after.get(name)]
        for name in plans.FIELDS
        if before.get(name) != after.get(name)
    }


async def _check_tiers(conn: Connection, plan: Plan) -> None:
    """Refuse a plan with a tier that does not exist: nothing could ever run in it."""
    if plan.tiers is None:
        return
    there = [*TIERS, *(tier.name for tier in await tiers.read(conn, NOBODY))]
    for name in plan.tiers:
        if name not in there:
            raise Invalid(
                "tiers",
                f"There is no tier {name!r} for everyone; there are "
                f"{', '.join(dict.fromkeys(there))}.",
            )


def _check_unused(name: str, tenants: Sequence[str], gone: Sequence[str]) -> None:
    if tenants:
        shown = ", ".join(tenants[:MOST_SHOWN]) + (", …" if len(tenants) > MOST_SHOWN else "")
        raise Conflict(
            f"The plan {name!r} is that of {len(tenants)} "
            f"{'tenant' if len(tenants) == 1 else 'tenants'} ({shown}); give them another one "
            "first: duly tenant update NAME --plan PLAN.",
            tenants=len(tenants),
        )
    if gone:
        raise Conflict(
            f"The plan {name!r} was that of a tenant that was removed ({gone[0]}), whose history "
            "is counted by it; it stays.",
            tenants=0,
        )


async def _lock_tiers(conn: Connection, tenant_id: int | None) -> Said:
    """Return what is said of tiers, which nobody else can change here until the commit."""
    await tiers.lock(conn, tenant_id)
    found = await tiers.read(conn, NOBODY if tenant_id is None else tenant_id)
    everyones = {tier.name: tier.resources for tier in found if not tier.is_own}
    own = {tier.name: tier.resources for tier in found if tier.is_own}
    return Said(everyones if tenant_id is None else own, {**TIERS, **everyones, **own})


def _nothing_to_remove(name: str, said: Said) -> Conflict | NotFound:
    if name not in said.known:
        return _no_tier(name)
    whose = "Duly's own" if said.known[name] == TIERS.get(name) else "everybody's"
    return Conflict(f"The tier {name!r} is {whose}, as it is; there is nothing to take back.")


def _no_tier(name: str) -> NotFound:
    return NotFound(f"There is no tier {name[:60]!r}.")


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
