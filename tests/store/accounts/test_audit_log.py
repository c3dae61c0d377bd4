from datetime import timedelta

import asyncpg
import pytest

from duly.model.tenant import Scope
from duly.store.accounts import audit_log, tenants
from duly.store.database import now


@pytest.fixture
async def caller(conn):
    """Whoever holds a key of the user kim of the tenant default."""
    return await tenants.by_key(conn, await tenants.create_key(conn, "default", "kim", []))


async def note(conn, caller, action="tenant.create", target="acme", **options):
    await audit_log.record(
        conn,
        credential=caller,
        action=action,
        target=target,
        tenant_id=options.get("tenant_id", caller.tenant_id),
        details=options.get("details", {}),
    )


async def test_says_who_did_what(conn, caller):
    await note(conn, caller, details={"plan": "free"})
    (entry,) = await audit_log.read(conn)
    assert (entry.actor, entry.action, entry.target) == ("default/kim", "tenant.create", "acme")
    assert (entry.tenant, entry.details) == ("default", {"plan": "free"})


async def test_is_read_by_tenant_actor_action_and_time_newest_first(conn, caller, set_ahead):
    await note(conn, caller, target="one", tenant_id=None)
    await note(conn, caller, target="two", action="key.revoke")
    await set_ahead("1 hour")
    later = await now(conn) - timedelta(minutes=1)
    await note(conn, caller, target="three")

    async def targets(**options):
        return [entry.target for entry in await audit_log.read(conn, **options)]

    assert await targets() == ["three", "two", "one"]
    assert await targets(tenant_id=caller.tenant_id) == ["three", "two"]
    assert await targets(action="key.revoke") == ["two"]
    assert await targets(actor="default/kim", limit=1) == ["three"]
    assert await targets(actor="default/sam") == []
    assert await targets(since=later) == ["three"]
    newest = (await audit_log.read(conn, limit=1))[0].id
    assert await targets(before=newest) == ["two", "one"]


@pytest.mark.parametrize(
    "statement",
    [
        "update duly.audit_log set actor = 'somebody'",
        "delete from duly.audit_log",
        "truncate duly.audit_log",
    ],
)
async def test_nothing_in_it_is_changed_or_removed(conn, caller, statement):
    await note(conn, caller)
    with pytest.raises(asyncpg.RaiseError, match="only added to"):
        await conn.execute(statement)
    assert len(await audit_log.read(conn)) == 1


async def test_a_change_that_fails_leaves_no_entry(conn, caller):
    with pytest.raises(asyncpg.UniqueViolationError):
        async with conn.transaction():
            await note(conn, caller)
            await conn.execute("insert into tenants (name, plan) values ('default', 'free')")
    assert await audit_log.read(conn) == []


async def test_an_actor_is_a_user_a_service_or_the_prefix_of_a_key(conn):
    user = await tenants.create_key(conn, "default", "kim", [Scope.READ])
    nobody = await tenants.create_key(conn, "default", "sam", [Scope.READ])
    service = await tenants.create_key(conn, "default", "lee", [Scope.READ])
    await conn.execute("update keys set user_id = null where prefix = $1", nobody[:12])
    await conn.execute(
        "update keys set user_id = null, service = 'billing' where prefix = $1", service[:12]
    )
    actors = [(await tenants.by_key(conn, key)).actor for key in (user, service, nobody)]
    assert actors == ["default/kim", "default/service:billing", f"key:{nobody[:12]}"]
