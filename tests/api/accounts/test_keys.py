import asyncio
import hashlib
from datetime import timedelta

import httpx
import pytest

from duly.api.app import create_app
from duly.config import Settings
from duly.server import components as server_components
from duly.server.accounts import authenticator
from duly.store.database import Database
from tests.api.conftest import Api
from tests.api.people import audited_actions, create, remove, with_new_key


@pytest.fixture
async def acme(api):
    return await create(api, "/v1/tenants", name="acme", plan="standard")


@pytest.fixture
async def manager(api, acme):
    """Whoever manages the tenant acme."""
    return await with_new_key(api, "submit", "read", "manage", user="kim")


async def test_a_key_is_shown_once_and_found_by_its_prefix(api, acme):
    made_key = await create(
        api, "/v1/keys", tenant="acme", user="kim", scopes=["submit", "read"], name="laptop"
    )
    secret = made_key.pop("key")
    assert secret.startswith(made_key["prefix"])
    assert (made_key["user"], made_key["service"], made_key["name"]) == ("kim", None, "laptop")
    assert (made_key["scopes"], made_key["status"]) == (["read", "submit"], "active")
    assert (made_key["created_by"], made_key["expires_at"]) == ("default/admin", None)
    for path in (f"/v1/keys/{made_key['id']}", f"/v1/keys/{made_key['prefix']}"):
        assert await api.get(f"{path}?tenant=acme") == made_key
    for path in ("/v1/keys?tenant=acme", f"/v1/keys?tenant=acme&prefix={made_key['prefix']}"):
        answer = await api.call("GET", path)
        assert answer.json()["items"] == [made_key]
        assert secret not in answer.text
    assert secret not in (await api.call("GET", "/v1/audit")).text
    task = await api.with_key(secret).submit()
    assert (task["tenant"], task["user"]) == ("acme", "kim")


async def test_only_the_hash_of_a_key_is_stored(api, acme, components):
    secret = (await create(api, "/v1/keys", tenant="acme", scopes=["read"]))["key"]
    async with components.database.connection() as conn:
        row = await conn.fetchrow("select k.*, k::text as line from keys k order by id desc")
    assert row["hash"] == hashlib.sha256(secret.encode()).digest()
    assert secret[12:] not in row["line"]


async def test_a_key_belongs_to_a_user_or_to_a_service(manager):
    service = await create(manager, "/v1/keys", service="billing", scopes=["submit", "read"])
    assert (service["user"], service["service"]) == (None, "billing")
    assert (await manager.with_key(service["key"]).submit())["user"] is None
    found = await manager.get("/v1/keys?service=billing")
    assert [one["id"] for one in found["items"]] == [service["id"]]
    assert [one["user"] for one in (await manager.get("/v1/keys?user=kim"))["items"]] == ["kim"]
    body = {"service": "billing", "user": "kim", "scopes": ["read"]}
    assert (await manager.refused("POST", "/v1/keys", json=body))[0] == 422


async def test_a_user_that_is_new_is_made_with_its_first_key(manager):
    await create(manager, "/v1/keys", user="sam", scopes=["read"])
    sam = await manager.get("/v1/users/sam")
    assert (sam["has_password"], sam["keys"]) == (False, 1)
    assert "user.create sam" in await audited_actions(manager)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["rule"]}, "scopes"),
        ({"scopes": "read"}, "scopes"),
        ({"scopes": ["read"], "expires_in": 0}, "expires_in"),
        ({"scopes": ["read"], "expires_in": "20y"}, "expires_in"),
        ({"scopes": ["read"], "expires_in": "9999999d"}, "expires_in"),
        ({"scopes": ["read"], "service": "a:b"}, "service"),
        ({"scopes": ["read"], "user": "service:x"}, "user"),
        ({"scopes": ["read"], "user": "a/b"}, "user"),
        ({"scopes": ["read"], "name": ""}, "name"),
        ({"scopes": ["read"], "name": "x" * 101}, "name"),
        ({"scopes": ["read"], "colour": "red"}, "colour"),
    ],
)
async def test_what_makes_no_key_is_refused(manager, body, field):
    status, error = await manager.refused("POST", "/v1/keys", json=body)
    assert (status, error["details"]["field"]) == (422, field)


async def test_a_key_ends_when_it_was_said_to(manager, components):
    key = await create(manager, "/v1/keys", scopes=["read"], expires_in="90d")
    assert key["expires_at"] > key["created_at"]
    async with components.database.connection() as conn:
        await conn.execute("update keys set expires_at = duly.now() where id = $1", int(key["id"]))
    assert (await manager.with_key(key["key"]).refused("GET", "/v1/tasks"))[0] == 401
    assert (await manager.get(f"/v1/keys/{key['id']}"))["status"] == "expired"
    assert key["id"] not in [one["id"] for one in (await manager.get("/v1/keys"))["items"]]
    every = (await manager.get("/v1/keys?all=true"))["items"]
    assert key["id"] in [one["id"] for one in every]


async def test_a_revoked_key_is_refused_at_once_and_stays_revoked(manager):
    key = await create(manager, "/v1/keys", scopes=["read"])
    reader = manager.with_key(key["key"])
    await reader.get("/v1/tasks")
    await remove(manager, f"/v1/keys/{key['prefix']}")
    assert (await reader.refused("GET", "/v1/tasks"))[0] == 401
    shown = await manager.get(f"/v1/keys/{key['id']}")
    assert shown["status"] == "revoked"
    await remove(manager, f"/v1/keys/{key['id']}")
    assert await manager.get(f"/v1/keys/{key['id']}") == shown
    assert (await audited_actions(manager)).count(f"key.revoke {key['prefix']}") == 1


async def test_nobody_makes_a_key_that_may_do_more_than_himself(api, acme):
    narrow = await with_new_key(api, "read", "manage", user="kim")
    for scope in ("submit", "admin", "node"):
        body = {"user": "kim", "scopes": ["read", scope]}
        status, error = await narrow.refused("POST", "/v1/keys", json=body)
        assert (status, error["details"]) == (403, {"scope": scope})
    reader = await with_new_key(api, "submit", "read", user="kim")
    assert (await reader.refused("POST", "/v1/keys", json={"scopes": ["read"]}))[0] == 403
    nodes = await with_new_key(api, "manage", "node", user="kim")
    assert (await nodes.refused("POST", "/v1/keys", json={"scopes": ["node"]}))[0] == 403


async def test_nobody_acts_as_or_shuts_out_whoever_may_do_more(api):
    manager = await with_new_key(api, "submit", "read", "manage", tenant="default", user="kim")
    body = {"user": "admin", "scopes": ["read"]}
    assert (await manager.refused("POST", "/v1/keys", json=body))[0] == 403
    of_admin = (await api.get("/v1/keys?user=admin"))["items"][0]
    await create(api, "/v1/keys", scopes=["admin"])
    assert (await manager.refused("DELETE", f"/v1/keys/{of_admin['id']}"))[0] == 403
    await api.get("/v1/nodes")


async def test_only_an_administrator_names_a_tenant(api, manager):
    for tenant in ("default", "acme", "nobody"):
        body = {"tenant": tenant, "scopes": ["read"]}
        assert (await manager.refused("POST", "/v1/keys", json=body))[0] == 403
    body = {"tenant": "nobody", "scopes": ["read"]}
    assert (await api.refused("POST", "/v1/keys", json=body))[0] == 404
    body = {"tenant": "acme\0", "scopes": ["read"]}
    assert (await api.refused("POST", "/v1/keys", json=body))[0] == 422


async def test_a_foreign_key_is_an_unknown_one(api, manager):
    foreign = (await api.get("/v1/keys"))["items"][0]
    names = (foreign["id"], foreign["prefix"], "999999", "9999999999999999999", "duly_unknown")
    for method in ("GET", "DELETE"):
        told = [await manager.refused(method, f"/v1/keys/{name}") for name in names]
        assert [status for status, _ in told] == [404] * 5
    seen = (await manager.get("/v1/keys?all=true"))["items"]
    assert foreign["id"] not in [one["id"] for one in seen]
    await api.get("/v1/nodes")


async def test_a_whole_key_in_a_path_is_not_repeated_in_the_answer(manager):
    secret = (await create(manager, "/v1/keys", scopes=["read"]))["key"]
    for method in ("GET", "DELETE"):
        status, error = await manager.refused(method, f"/v1/keys/{secret}")
        assert status == 404
        assert secret not in error["message"]


async def test_the_last_administrators_key_is_not_revoked(api):
    (only,) = (await api.get("/v1/keys"))["items"]
    await create(api, "/v1/keys", scopes=["admin"], expires_in="1h")
    status, error = await api.refused("DELETE", f"/v1/keys/{only['id']}")
    assert status == 409
    assert "duly key create --scopes admin" in error["message"]
    await api.get("/v1/nodes")
    other = await with_new_key(api, "admin", tenant="default")
    await remove(other, f"/v1/keys/{only['id']}")
    assert (await api.refused("GET", "/v1/nodes"))[0] == 401


async def test_of_two_administrators_who_revoke_each_other_one_is_left(api):
    (mine,) = (await api.get("/v1/keys"))["items"]
    theirs = await create(api, "/v1/keys", scopes=["admin"])
    other = api.with_key(theirs["key"])
    await other.get("/v1/nodes")
    answers = await asyncio.gather(
        api.call("DELETE", f"/v1/keys/{theirs['id']}"),
        other.call("DELETE", f"/v1/keys/{mine['id']}"),
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses in ([204, 401], [204, 409])
    left = [await one.call("GET", "/v1/nodes") for one in (api, other)]
    assert sorted(answer.status_code for answer in left) == [200, 401]


async def is_known(server_bus):
    """Return once a server listens, and knows that there is another one."""
    async with asyncio.timeout(20):
        while not server_bus._has_peers:
            server_bus.nudge()
            await asyncio.sleep(0.01)


@pytest.fixture
async def second(dsn, tmp_path, api, monkeypatch):
    """The same API on another server of the same database, with its loops running.

    Both remember keys for so long that only word from the other explains a change.
    """
    monkeypatch.setattr(authenticator, "CACHE_TTL", timedelta(minutes=1))
    database = await Database.connect(dsn)
    built = server_components.build(database, Settings(), str(tmp_path / "store"))
    await built.cluster_manager.tick()
    transport = httpx.ASGITransport(create_app(built), raise_app_exceptions=False)
    headers = dict(api.client.headers)
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(service.run()) for service in built.services]
        await is_known(api.components.server_bus)
        await is_known(built.server_bus)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://second.test", headers=headers
        ) as client:
            yield Api(client, built)
        for loop in loops:
            loop.cancel()
    await database.close()


async def test_every_server_hears_that_a_key_is_revoked(api, second, acme):
    key = await create(api, "/v1/keys", tenant="acme", scopes=["read"])
    reader = second.with_key(key["key"])
    await reader.get("/v1/tasks")
    await remove(api, f"/v1/keys/{key['id']}?tenant=acme")
    async with asyncio.timeout(5):
        while (await reader.call("GET", "/v1/tasks")).status_code != 401:
            await asyncio.sleep(0.05)


async def test_every_server_hears_that_a_tenant_is_suspended_and_resumed(api, second, acme):
    key = await create(api, "/v1/keys", tenant="acme", scopes=["submit", "read"])
    kim = second.with_key(key["key"])
    await kim.submit()
    for verb, status in (("suspend", 403), ("resume", 201)):
        await api.call("POST", f"/v1/tenants/acme/{verb}")
        async with asyncio.timeout(5):
            while True:
                answer = await kim.call("POST", "/v1/tasks", json={"command": ["true"]})
                if answer.status_code == status:
                    break
                await asyncio.sleep(0.05)


async def test_an_administrator_is_told_how_to_name_the_tenant_of_a_key_or_user(api, manager):
    key = await create(api, "/v1/keys", tenant="acme", user="kim", scopes=["read"])
    prefix = key["prefix"]
    for method, path in (
        ("GET", "/v1/keys/"),
        ("DELETE", "/v1/keys/"),
        ("GET", "/v1/users/"),
        ("DELETE", "/v1/users/"),
    ):
        # Another tenant's and nobody's are told alike, and no more of a key than its beginning.
        names = (key["id"], prefix, "999999", "duly_nobodys") if "keys" in path else ("kim", "joe")
        for name in (*names, key["key"]):
            status, error = await api.refused(method, f"{path}{name}")
            assert status == 404
            assert "in the tenant 'default'. If it belongs to another tenant" in error["message"]
            assert "--tenant NAME" in error["message"]
            assert name[:12] in error["message"]
            if "keys" in path:
                assert key["key"] not in error["message"]
        status, error = await manager.refused(method, f"{path}nobodys")
        assert (status, error["message"].count("tenant")) == (404, 0)
    await remove(api, f"/v1/keys/{prefix}?tenant=acme")
