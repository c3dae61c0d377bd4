import msgspec

from duly.store.accounts import tenants


async def test_a_tenant_has_its_own_weight_or_that_of_its_plan(conn):
    with_own = await tenants.add(conn, "acme", "standard", 7, fair_users=False)
    without = await tenants.add(conn, "other", "standard", None, fair_users=True)
    found = {row.id: (row.weight, row.weight_override) for row in await tenants.read(conn, limit=9)}
    assert (found[with_own], found[without]) == ((7, 7), (2, None))


async def test_a_locked_tenant_is_changed_as_a_whole(conn):
    tenant_id = await tenants.add(conn, "acme", "standard", 7, fair_users=False)
    locked = await tenants.lock(conn, tenant_id)
    assert (locked.name, locked.plan, locked.weight_override) == ("acme", "standard", 7)
    changed = msgspec.structs.replace(locked, name="other", plan="business", weight_override=None)
    await tenants.change(conn, changed)
    (found,) = await tenants.read(conn, tenant_id=tenant_id)
    assert (found.name, found.plan, found.weight) == ("other", "business", 4)
