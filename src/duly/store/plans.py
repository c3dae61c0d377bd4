"""Plans, as they are stored."""

import asyncpg

from duly.model.tenant import Plan

FIELDS = tuple(field for field in Plan.__struct_fields__ if field != "name")


def plan_of(row: asyncpg.Record) -> Plan:
    """Return the plan in a row of `tenants_with_plans`."""
    values = {field: row[field] for field in FIELDS}
    for field in ("tiers", "queues"):
        if values[field] is not None:
            values[field] = tuple(values[field])
    return Plan(name=row["plan"], **values)
