"""Reads and writes of plans."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from duly.model.resources import TIERS, Resources
from duly.model.tenant import Plan
from duly.store.database import Connection, load_statements

SQL = load_statements("plans.sql")
FIELDS = tuple(
    field
    for field in Plan.__struct_fields__
    if field not in ("name", "known_tiers", "known_queues")
)


class PlanView(msgspec.Struct, frozen=True):
    """A plan as an administrator sees it."""

    id: int
    plan: Plan
    created_at: datetime
    tenants: int | None
    """The number of tenants on the plan; None if it was not requested."""


def plan_of(row: asyncpg.Record) -> Plan:
    """Return the plan in a row of `tenants_with_plans`, with the tenant's tiers and queues."""
    return msgspec.structs.replace(
        _plan(row), known_tiers=known_tiers(row["known_tiers"]), known_queues=row["known_queues"]
    )


def known_tiers(defined: Mapping[str, Any]) -> Mapping[str, Resources]:
    """Return the resources of tiers by name, Duly's own first."""
    if not defined:
        return TIERS
    return {**TIERS, **msgspec.convert(defined, dict[str, Resources])}


async def read(
    conn: Connection,
    *,
    name: str | None = None,
    before: int = 2**31 - 1,
    limit: int = 1,
    with_tenants: bool = False,
) -> list[PlanView]:
    """Return the plans with ids below `before`, newest first, or the plan with that name."""
    rows = await conn.fetch(SQL["read_plans"], before, limit, name, with_tenants)
    return [PlanView(row["id"], _plan(row), row["created_at"], row["tenants"]) for row in rows]


async def lock(conn: Connection, name: str) -> Plan | None:
    """Lock a plan against other changes and against new tenants; None if it is unknown."""
    row = await conn.fetchrow(SQL["lock_plan"], name)
    return None if row is None else _plan(row)


async def add(conn: Connection, plan: Plan) -> bool:
    """Store a new plan; False if the name is taken."""
    return bool(await conn.fetchval(SQL["add_plan"], _values(plan)))


async def change(conn: Connection, plan: Plan) -> None:
    """Store the new values of a locked plan."""
    await conn.execute(SQL["change_plan"], _values(plan))


async def remove(conn: Connection, name: str) -> None:
    """Remove a locked plan that no tenant has."""
    await conn.execute(SQL["remove_plan"], name)


async def tenants_of(conn: Connection, name: str) -> tuple[list[str], list[str]]:
    """Return the names of the tenants on a plan, and of those that were removed while on it."""
    rows = await conn.fetch(SQL["tenants_of_plan"], name)
    gone = [row["name"] for row in rows if row["is_removed"]]
    return [row["name"] for row in rows if not row["is_removed"]], gone


def _plan(row: asyncpg.Record) -> Plan:
    values = {field: row[field] for field in FIELDS}
    for field in ("tiers", "queues"):
        if values[field] is not None:
            values[field] = tuple(values[field])
    return Plan(name=row["plan"], **values)


def _values(plan: Plan) -> dict[str, Any]:
    """Return a plan as the JSON from which PostgreSQL populates a row."""
    fields = {field: getattr(plan, field) for field in FIELDS}
    values: dict[str, Any] = msgspec.to_builtins({"name": plan.name, **fields})
    return values
