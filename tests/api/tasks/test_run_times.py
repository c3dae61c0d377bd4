"""Expected run times in responses."""


async def test_a_task_is_told_its_expected_run_time_once_its_name_is_known(api, stranger):
    components = api.components
    async with components.database.connection() as conn:
        await conn.execute(
            "insert into run_times values "
            "((select id from tenants where name = 'default'), 'encode', 30, ln(12.5), 0.1, now())"
        )
    unknown = await api.submit(name="encode")
    assert unknown["expected_run_time"] is None
    await components.run_times.tick()
    task = await api.submit(name="encode")
    assert task["expected_run_time"] == 12.5
    assert (await api.get(f"/v1/tasks/{task['id']}"))["expected_run_time"] == 12.5
    (listed, *_) = (await api.get("/v1/tasks?limit=1"))["items"]
    assert listed["expected_run_time"] == 12.5
    await api.call("POST", f"/v1/tasks/{task['id']}/cancel")
    assert (await api.get(f"/v1/tasks/{task['id']}"))["expected_run_time"] == 12.5
    assert (await stranger.submit(name="encode"))["expected_run_time"] is None
    assert (await api.submit())["expected_run_time"] is None
