import asyncio

import pytest

from duly.errors import Unauthenticated
from duly.server.accounts import authenticator
from duly.server.cluster.hints import Hint
from duly.store.accounts.tenants import digest, generate_key
from tests.server.lab import seconds


async def refuses(lab, key):
    """Say whether nobody is known by `key`."""
    try:
        await lab.components.authenticator.authenticate(key)
    except Unauthenticated:
        return True
    return False


async def set_key(lab, key, change):
    await lab.conn.execute(f"update keys set {change} where hash = $1", digest(key))


async def test_a_key_tells_the_tenant_the_user_the_plan_and_what_it_may_do(lab):
    key = await lab.key("acme")
    credential = await lab.components.authenticator.authenticate(key)
    assert (credential.tenant, credential.user, credential.plan.name) == (
        "acme",
        "kim",
        "unlimited",
    )
    assert credential.tenant_id == lab.stranger.tenant_id != lab.client.tenant_id
    assert credential.scopes == {"submit"}


@pytest.mark.parametrize("key", ["", "duly_", "x" * 10_000, "schlüssel", "a\0b", "\udcff"])
async def test_a_key_that_nobody_holds_is_refused(lab, key):
    assert await refuses(lab, key)
    assert await refuses(lab, generate_key())


async def test_a_key_that_is_almost_right_is_refused(lab):
    key = await lab.key()
    assert not await refuses(lab, key)
    for wrong in (key[:-1], key + "x", key.upper(), key + " "):
        assert await refuses(lab, wrong)


async def test_an_expired_key_is_refused(lab):
    key = await lab.key()
    await set_key(lab, key, "expires_at = duly.now() + interval '10 s'")
    assert not await refuses(lab, key)
    await lab.clock.move(seconds(10))
    assert await refuses(lab, key)


async def test_a_key_is_not_cached_beyond_its_expiry(lab):
    key = await lab.key()
    await set_key(lab, key, "expires_at = duly.now() + interval '1 s'")
    assert not await refuses(lab, key)
    await lab.clock.move(seconds(1))
    assert lab.components.authenticator.get_cached(key) is None
    assert await refuses(lab, key)


async def test_a_revoked_key_is_refused_within_three_seconds(lab):
    key = await lab.key()
    assert not await refuses(lab, key)
    await set_key(lab, key, "revoked_at = duly.now()")
    await lab.clock.move(seconds(2.9))
    assert not await refuses(lab, key)
    await lab.clock.move(seconds(0.1))
    assert await refuses(lab, key)


async def test_a_slow_query_does_not_extend_the_ttl(lab):
    key = await lab.key()
    async with asyncio.TaskGroup() as group, lab.conn.transaction():
        await lab.conn.execute("lock table keys")
        asking = group.create_task(refuses(lab, key))
        await somebody_waits(lab)
        await lab.clock.move(seconds(2))
    assert not asking.result()
    await set_key(lab, key, "revoked_at = duly.now()")
    await lab.clock.move(seconds(1))
    assert await refuses(lab, key)


async def test_a_hint_about_changed_keys_invalidates_the_cache(lab):
    key = await lab.key()
    assert not await refuses(lab, key)
    await set_key(lab, key, "revoked_at = duly.now()")
    lab.components.authenticator.on_hint(Hint(work=True))
    assert not await refuses(lab, key)
    lab.components.authenticator.on_hint(Hint(credentials=True))
    assert await refuses(lab, key)


async def test_a_credential_read_before_an_invalidation_is_not_cached(lab):
    key = await lab.key()
    async with asyncio.TaskGroup() as group, lab.conn.transaction():
        await lab.conn.execute("lock table keys")
        asking = group.create_task(refuses(lab, key))
        await somebody_waits(lab)
        # The answer that is on its way may be from before the change.
        lab.components.authenticator.on_hint(Hint(credentials=True))
    assert not asking.result()
    assert lab.components.authenticator.get_cached(key) is None


async def somebody_waits(lab):
    """Return once somebody waits for a lock."""
    async with asyncio.timeout(10):
        while not await lab.conn.fetchval("select exists (select from pg_locks where not granted)"):
            await asyncio.sleep(0.005)


async def test_using_a_key_does_not_extend_its_ttl(lab):
    key = await lab.key()
    assert not await refuses(lab, key)
    await set_key(lab, key, "revoked_at = duly.now()")
    for _ in range(5):
        await lab.clock.move(seconds(0.5))
        assert not await refuses(lab, key)
    await lab.clock.move(seconds(0.5))
    assert await refuses(lab, key)


async def test_a_refused_key_is_accepted_as_soon_as_it_exists(lab):
    key = await lab.key()
    await set_key(lab, key, "revoked_at = duly.now()")
    assert await refuses(lab, key)
    await set_key(lab, key, "revoked_at = null")
    assert not await refuses(lab, key)


async def test_unknown_keys_are_not_cached(lab):
    for number in range(20):
        assert await refuses(lab, f"duly_{number}")
    assert len(lab.components.authenticator._credentials) == 2


async def test_the_number_of_cached_keys_is_bounded(lab, monkeypatch):
    monkeypatch.setattr(authenticator, "MAX_CACHED_KEYS", 3)
    keys = [await lab.key() for _ in range(5)]
    for key in keys:
        assert not await refuses(lab, key)
    assert list(lab.components.authenticator._credentials) == [digest(key) for key in keys[-3:]]


async def test_a_node_is_known_by_its_own_key_only(lab):
    node = await lab.node()
    knows = lab.components.authenticator.authenticate_node
    assert await knows(node.key) == node.id
    token = await lab.components.cluster_manager.create_token(seconds(60))
    for wrong in (token, await lab.key(), "dulynode_", node.key[:-1]):
        with pytest.raises(Unauthenticated):
            await knows(wrong)
    assert await refuses(lab, node.key)
    assert await refuses(lab, token)


async def test_a_removed_nodes_key_is_refused_within_three_seconds(lab):
    node = await lab.node()
    knows = lab.components.authenticator.authenticate_node
    await knows(node.key)
    await lab.conn.execute("update nodes set removed_at = duly.now() where id = $1", node.id)
    await lab.clock.move(seconds(3))
    with pytest.raises(Unauthenticated):
        await knows(node.key)
