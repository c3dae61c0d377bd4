import pytest

from tests.api.people import audited_actions, create, remove, update, with_new_key


@pytest.fixture
async def manager(api):
    """Whoever manages the tenant acme."""
    await create(api, "/v1/tenants", name="acme", plan="standard")
    return await with_new_key(api, "submit", "read", "manage", user="kim")


async def test_a_key_gets_another_name_other_scopes_and_another_end(manager):
    key = await create(manager, "/v1/keys", service="billing", scopes=["read"], name="old")
    path = f"/v1/keys/{key['id']}"
    named = await update(manager, path, name="new")
    assert named == {**{k: v for k, v in key.items() if k != "key"}, "name": "new"}
    holds = manager.with_key(key["key"])
    assert (await holds.refused("POST", "/v1/tasks", json={"command": ["true"]}))[0] == 403
    assert (await update(manager, path, scopes=["submit"]))["scopes"] == ["submit"]
    await holds.submit()
    assert (await holds.refused("GET", "/v1/tasks"))[0] == 403
    ends = await update(manager, f"/v1/keys/{key['prefix']}", expires_in="1h")
    assert (ends["expires_at"] > ends["created_at"], ends["name"]) == (True, "new")
    assert (await update(manager, path, name=None, expires_in=None)) == {
        **ends, "name": None, "expires_at": None,
    }  # fmt: skip
    assert await manager.get(path) == {**ends, "name": None, "expires_at": None}


async def test_the_audit_log_says_how_a_key_was_before(manager):
    key = await create(manager, "/v1/keys", scopes=["read"])
    path = f"/v1/keys/{key['id']}"
    ends = await update(manager, path, name="laptop", scopes=["read", "submit"], expires_in="1h")
    await update(manager, path, name="laptop", scopes=["submit", "read"])
    assert (await audited_actions(manager)).count(f"key.update {key['prefix']}") == 1
    (entry,) = (await manager.get("/v1/audit?action=key.update"))["items"]
    assert entry["details"] == {
        "name": [None, "laptop"],
        "scopes": [["read"], ["read", "submit"]],
        "expires_at": [None, ends["expires_at"]],
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["rule"]}, "scopes"),
        ({"scopes": None}, "scopes"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": "20y"}, "expires_in"),
        ({"user": "sam"}, "user"),
    ],
)
async def test_what_changes_nothing_or_cannot_be_is_refused(manager, body, field):
    key = await create(manager, "/v1/keys", scopes=["read"])
    status, error = await manager.refused("PATCH", f"/v1/keys/{key['id']}", json=body)
    assert (status, error["details"]["field"]) == (422, field)


async def test_nobody_widens_a_key_beyond_himself_or_changes_one_that_may_do_more(api, manager):
    narrow = await with_new_key(api, "read", "manage", user="kim")
    reads = await create(narrow, "/v1/keys", scopes=["read"])
    for scope in ("submit", "admin", "node"):
        status, error = await narrow.refused(
            "PATCH", f"/v1/keys/{reads['id']}", json={"scopes": ["read", scope]}
        )
        assert (status, error["details"]) == (403, {"scope": scope})
    wider = await create(manager, "/v1/keys", scopes=["read", "submit"])
    for body in ({"scopes": ["read"]}, {"expires_in": 1}, {"name": "mine"}):
        status, error = await narrow.refused("PATCH", f"/v1/keys/{wider['id']}", json=body)
        assert (status, error["details"]) == (403, {"scope": "submit"})


async def test_a_key_of_a_user_who_may_do_more_is_left_to_whoever_may_as_much(api):
    of_admin = await create(api, "/v1/keys", user="admin", scopes=["read"])
    kim = await with_new_key(api, "submit", "read", "manage", tenant="default", user="kim")
    body = {"scopes": ["read", "submit", "manage"]}
    status, error = await kim.refused("PATCH", f"/v1/keys/{of_admin['id']}", json=body)
    assert (status, error["details"]) == (403, {"scope": "admin"})


async def test_a_key_that_has_ended_stays_so(manager, components):
    expired, revoked = [await create(manager, "/v1/keys", scopes=["read"]) for _ in range(2)]
    await remove(manager, f"/v1/keys/{revoked['id']}")
    async with components.database.connection() as conn:
        await conn.execute(
            "update keys set expires_at = duly.now() where id = $1", int(expired["id"])
        )
    for key, how in ((expired, "expired"), (revoked, "revoked")):
        status, error = await manager.refused(
            "PATCH", f"/v1/keys/{key['id']}", json={"expires_in": "1h"}
        )
        assert (status, how in error["message"]) == (409, True)
        assert (await manager.with_key(key["key"]).refused("GET", "/v1/tasks"))[0] == 401


async def test_a_key_that_was_got_by_logging_in_ends_with_the_login(api, manager):
    await create(manager, "/v1/users", name="sam", password="correct horse", scopes=["read"])
    answer = await api.with_key(None).call(
        "POST", "/v1/login", json={"tenant": "acme", "user": "sam", "password": "correct horse"}
    )
    path = f"/v1/keys/{answer.json()['id']}"
    status, error = await manager.refused("PATCH", path, json={"expires_in": None})
    assert (status, "belongs to a login" in error["message"]) == (409, True)


async def test_the_last_administrators_key_is_neither_narrowed_nor_let_end(api):
    (only,) = (await api.get("/v1/keys"))["items"]
    for body in ({"scopes": ["read"]}, {"expires_in": "30m"}):
        status, error = await api.refused("PATCH", f"/v1/keys/{only['id']}", json=body)
        assert (status, "duly key create --scopes admin" in error["message"]) == (409, True)
    assert (await update(api, f"/v1/keys/{only['id']}", name="the first"))["scopes"] == [
        "admin", "manage", "read", "submit",
    ]  # fmt: skip


async def test_a_foreign_key_cannot_be_changed_and_is_an_unknown_one(api, manager):
    foreign = (await api.get("/v1/keys"))["items"][0]
    for name in (foreign["id"], foreign["prefix"], "999999", "9999999999999999999", "duly_unknown"):
        status, _ = await manager.refused("PATCH", f"/v1/keys/{name}", json={"name": "mine"})
        assert status == 404
    secret = (await create(manager, "/v1/keys", scopes=["read"]))["key"]
    status, error = await manager.refused("PATCH", f"/v1/keys/{secret}", json={"name": "mine"})
    assert (status, secret in error["message"]) == (404, False)
