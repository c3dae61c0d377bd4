"""The schema that people read is the one that the migrations make."""

import re
import runpy
from pathlib import Path

from duly.store.migrate import migrations
from tests.store.plans import STATEMENTS

ROOT = Path(__file__).parents[2]


def test_the_written_schema_is_what_the_migrations_make(dsn):
    script = runpy.run_path(str(ROOT / "scripts" / "schema.py"))
    assert script["SCHEMA"].read_text() == script["dump"](dsn), "run scripts/schema.py"


async def test_ids_that_tenants_see_tell_when_and_not_how_many(conn):
    await conn.execute(
        """
        with tenant as (insert into tenants (name, plan) values ('x', 'free') returning id),
             person as (
                insert into users (tenant_id, name) select id, 'x' from tenant
                returning id, tenant_id
             ),
             entry as (
                insert into audit_log (tenant_id, actor, action, target)
                select tenant_id, 'x', 'x', 'x' from person
             )
        insert into keys (tenant_id, user_id, prefix, hash, scopes)
        select tenant_id, id, 'x', 'x', '{}' from person
        """
    )
    seconds = await conn.fetchval(
        "select extract(epoch from clock_timestamp() - timestamptz '2026-01-01 00:00:00+00')::int"
    )
    seen = {"keys": "id", "audit_log": "id", "users": "public_id", "tenants": "public_id"}
    for table, column in seen.items():
        newest = await conn.fetchval(f"select max({column}) from {table}")
        assert seconds - 60 < newest >> 31 <= seconds, table


def test_every_function_is_called():
    schema = "".join(step.text for step in migrations())
    defined = re.findall(r"^create (?:function|procedure) (\w+)", schema, re.MULTILINE)
    calls = re.sub(r"^(create|comment on) (function|procedure) [\w.]+", "", schema, flags=re.M)
    calls = re.sub(r"--.*", "", calls + "".join(STATEMENTS.values()))
    assert [name for name in defined if not re.search(rf"\b{name}\(", calls)] == []
