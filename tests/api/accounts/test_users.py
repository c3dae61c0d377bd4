import pytest

from tests.api.people import audited_actions, create, remove, update, with_new_key

SECRET = "correct horse"


@pytest.fixture
async def acme(api):
    return await create(api, "/v1/tenants", name="acme", plan="standard")


@pytest.fixture
async def manager(api, acme):
    """Whoever manages the tenant acme."""
    return await with_new_key(api, "submit", "read", "manage", user="kim")


async def stored(components, name):
    async with components.database.connection() as conn:
        return await conn.fetchrow("select * from users where name = $1", name)


async def test_a_user_is_created_listed_shown_changed_and_removed(manager):
    sam = await create(manager, "/v1/users", name="sam", password=SECRET, scopes=["read"])
    assert (sam["name"], sam["tenant"], sam["scopes"]) == ("sam", "acme", ["read"])
    assert (sam["has_password"], sam["keys"]) == (True, 0)
    assert await manager.get("/v1/users/sam") == await manager.get(f"/v1/users/{sam['id']}") == sam
    assert [one["name"] for one in (await manager.get("/v1/users"))["items"]] == ["sam", "kim"]
    wider = await update(manager, "/v1/users/sam", scopes=["submit", "read"])
    assert wider["scopes"] == ["read", "submit"]
    await remove(manager, "/v1/users/sam")
    assert (await manager.refused("GET", "/v1/users/sam"))[0] == 404
    assert [one["name"] for one in (await manager.get("/v1/users"))["items"]] == ["kim"]
    assert (await audited_actions(manager))[-3:] == [
        "user.create sam",
        "user.update sam",
        "user.remove sam",
    ]


async def test_a_password_is_stored_as_argon2_and_told_to_nobody(manager, components):
    await create(manager, "/v1/users", name="sam", password=SECRET)
    await update(manager, "/v1/users/sam", password=SECRET + "!")
    row = await stored(components, "sam")
    assert row["password_hash"].startswith("$argon2id$")
    for path in ("/v1/users", "/v1/users/sam", "/v1/audit"):
        text = (await manager.call("GET", path)).text
        assert SECRET not in text
        assert "argon2" not in text


@pytest.mark.parametrize("password", ["", "short", "x" * 1001, "with\0nul!!!"])
async def test_a_password_that_is_none_is_refused(manager, password):
    body = {"name": "sam", "password": password}
    status, error = await manager.refused("POST", "/v1/users", json=body)
    assert (status, error["details"]["field"]) == (422, "password")


async def test_a_name_is_one_users_and_may_be_given_again_after_that(manager, components):
    await create(manager, "/v1/users", name="sam", password=SECRET, scopes=["submit", "read"])
    assert (await manager.refused("POST", "/v1/users", json={"name": "sam"}))[0] == 409
    key = await create(manager, "/v1/keys", user="sam", scopes=["read"])
    first = await stored(components, "sam")
    await remove(manager, "/v1/users/sam")
    again = await create(manager, "/v1/users", name="sam", scopes=["read"])
    assert (again["has_password"], again["keys"], again["scopes"]) == (False, 0, ["read"])
    assert (await stored(components, "sam"))["id"] == first["id"]
    assert (await manager.with_key(key["key"]).refused("GET", "/v1/tasks"))[0] == 401


async def test_a_user_that_is_removed_is_out_at_once(manager):
    sam = await with_new_key(manager, "read", user="sam", tenant=None)
    await sam.get("/v1/tasks")
    await remove(manager, "/v1/users/sam")
    assert (await sam.refused("GET", "/v1/tasks"))[0] == 401


async def test_what_a_user_loses_its_keys_lose_too(manager):
    await create(manager, "/v1/users", name="sam")
    both = await with_new_key(manager, "submit", "read", user="sam", tenant=None)
    one = await with_new_key(manager, "submit", user="sam", tenant=None)
    await both.submit()
    await update(manager, "/v1/users/sam", scopes=["read"])
    assert (await both.refused("POST", "/v1/tasks", json={"command": ["true"]}))[0] == 403
    await both.get("/v1/tasks")
    assert (await one.refused("POST", "/v1/tasks", json={"command": ["true"]}))[0] == 401
    await update(manager, "/v1/users/sam", scopes=["submit", "read"])
    assert (await both.refused("POST", "/v1/tasks", json={"command": ["true"]}))[0] == 403


async def test_nobody_makes_a_user_who_may_do_more_than_himself(api, acme):
    narrow = await with_new_key(api, "read", "manage", user="kim")
    for scope in ("submit", "admin", "node"):
        body = {"name": "sam", "scopes": ["read", scope]}
        status, error = await narrow.refused("POST", "/v1/users", json=body)
        assert (status, error["details"]) == (403, {"scope": scope})
    # What is not asked for is not given either.
    assert (await create(narrow, "/v1/users", name="sam"))["scopes"] == ["manage", "read"]
    body = {"scopes": ["admin"]}
    assert (await narrow.refused("PATCH", "/v1/users/sam", json=body))[0] == 403
    assert (await narrow.refused("POST", "/v1/users", json={"name": "x", "scopes": ["rule"]}))[
        0
    ] == 422


async def test_nobody_touches_a_user_who_may_do_more_than_himself(api):
    manager = await with_new_key(api, "submit", "read", "manage", tenant="default", user="kim")
    for method, body in (
        ("PATCH", {"password": "my own choice"}),
        ("PATCH", {"scopes": ["read"]}),
        ("DELETE", None),
    ):
        status, error = await manager.refused(method, "/v1/users/admin", json=body)
        assert (status, error["details"]) == (403, {"scope": "admin"})
    await api.get("/v1/tasks")


async def test_the_last_administrator_is_not_removed(api):
    for method, body in (("DELETE", None), ("PATCH", {"scopes": ["read"]})):
        status, error = await api.refused(method, "/v1/users/admin", json=body)
        assert status == 409
        assert "Create another one first" in error["message"]
    await api.get("/v1/nodes")
    other = await with_new_key(api, "admin", tenant="default", user="root")
    await remove(other, "/v1/users/admin")
    assert (await api.refused("GET", "/v1/nodes"))[0] == 401


async def test_only_an_administrator_names_a_tenant(api, acme, manager):
    for body in ({"name": "sam", "tenant": "default"}, {"name": "sam", "tenant": "acme"}):
        assert (await manager.refused("POST", "/v1/users", json=body))[0] == 403
    assert (await manager.refused("GET", "/v1/users?tenant=default"))[0] == 403
    sam = await create(api, "/v1/users", name="sam", tenant="acme")
    assert sam["tenant"] == "acme"
    assert (await api.get("/v1/users?tenant=acme"))["items"][0]["name"] == "sam"
    body = {"name": "lee", "tenant": "nobody"}
    assert (await api.refused("POST", "/v1/users", json=body))[0] == 404
    body = {"name": "lee", "tenant": "default"}
    assert (await api.refused("POST", "/v1/users?tenant=acme", json=body))[0] == 422
    # Who did it is the administrator, whom it concerns is acme.
    entry = (await api.get("/v1/audit?tenant=acme&limit=1"))["items"][0]
    assert (entry["actor"], entry["tenant"], entry["target"]) == ("default/admin", "acme", "sam")


async def test_a_foreign_user_is_an_unknown_one(api, manager):
    foreign = (await api.get("/v1/users/admin"))["id"]
    for method, body in (("GET", None), ("PATCH", {"scopes": ["read"]}), ("DELETE", None)):
        told = [
            await manager.refused(method, f"/v1/users/{name}", json=body)
            for name in (foreign, "999999", "9999999999999999999", "admin", "nobody")
        ]
        assert [status for status, _ in told] == [404] * 5
        assert {error["message"].rsplit(" ", 1)[0] for _, error in told} == {"There is no user"}


async def test_nobody_takes_a_key_that_may_do_more_by_its_user(api):
    await create(api, "/v1/tenants", name="acme", plan="standard")
    await create(api, "/v1/users", name="kim", tenant="acme")
    chief = await with_new_key(api, "admin", user="kim")
    manager = await with_new_key(api, "submit", "read", "manage", user="sam")
    for method, options in (("DELETE", {}), ("PATCH", {"json": {"scopes": ["read"]}})):
        status, error = await manager.refused(method, "/v1/users/kim", **options)
        assert (status, error["details"]) == (403, {"scope": "admin"})
    await chief.get("/v1/nodes")
    (of_kim,) = (await api.get("/v1/keys?tenant=acme&user=kim"))["items"]
    await remove(api, f"/v1/keys/{of_kim['id']}?tenant=acme")
    await remove(manager, "/v1/users/kim")
