from tests.api.people import create, remove, update, with_new_key


async def test_the_name_of_a_removed_tenant_is_free_and_its_history_keeps_the_old_id(api):
    old = await create(api, "/v1/tenants", name="acme", plan="standard")
    kim = await with_new_key(api, "submit", "read")
    task = await create(kim, "/v1/tasks", command=["true"])
    await api.call("POST", f"/v1/tasks/{task['id']}/cancel?tenant=acme")
    await remove(api, "/v1/tenants/acme")
    new = await create(api, "/v1/tenants", name="acme")
    assert new["id"] != old["id"]
    assert await api.get("/v1/tenants/acme") == new
    assert (await kim.refused("GET", "/v1/tasks"))[0] == 401
    sam = await with_new_key(api, "submit", "read")
    assert (await sam.get("/v1/tasks"))["items"] == []
    assert (await sam.refused("GET", f"/v1/tasks/{task['id']}"))[0] == 404
    (removal,) = (await api.get("/v1/audit?action=tenant.remove"))["items"]
    assert (removal["target"], removal["details"]["id"]) == ("acme", old["id"])


async def test_a_tenant_can_take_the_name_of_one_that_was_removed(api):
    await create(api, "/v1/tenants", name="acme")
    await remove(api, "/v1/tenants/acme")
    other = await create(api, "/v1/tenants", name="other")
    renamed = await update(api, "/v1/tenants/other", name="acme")
    assert (renamed["id"], renamed["name"]) == (other["id"], "acme")
    assert (await api.refused("POST", "/v1/tenants", json={"name": "acme"}))[0] == 409
