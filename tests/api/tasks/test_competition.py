"""`why` speaks of shares exactly when the scheduler decides by them."""


async def test_a_task_beyond_the_fair_share_is_told_who_goes_first(api, stranger, agent):
    running = []
    for _ in range(4):
        await api.submit(resources={"cpu": 1})
        running.append((await agent.poll(running)).start[0].ref)
    own = [(await api.submit(resources={"cpu": 1}, delay_tolerance=60))["id"] for _ in range(2)]
    theirs = (await stranger.submit(resources={"cpu": 1}, delay_tolerance=3600))["id"]

    reason = await api.get(f"/v1/tasks/{own[1]}/why")
    assert reason["code"] == "not_its_turn"
    assert reason["message"] == (
        "Its tenant uses 100 % of the fleet; its fair share is 50 %. 1 tenant below its share goes"
        " first; 1 task is ahead in its own queue."
    )
    assert reason["details"] == {"share": 1.0, "fair_share": 0.5, "tenants_first": 1, "ahead": 1}
    assert (await stranger.get(f"/v1/tasks/{theirs}/why"))["code"] == "no_capacity"

    assert await agent.finish(running.pop())
    (started,) = (await agent.poll(running)).start
    assert str(started.ref.task) == theirs


async def test_a_tenant_at_its_limits_goes_before_nobody(api, stranger, agent):
    for _ in range(4):
        await api.submit(resources={"cpu": 1})
    await agent.start()
    own = (await api.submit(resources={"cpu": 1}))["id"]
    await stranger.submit(resources={"cpu": 1})
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set suspended_at = now() where name = 'acme'")
    assert (await api.get(f"/v1/tasks/{own}/why"))["code"] == "no_capacity"
