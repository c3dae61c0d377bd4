"""Nodes that stopped, went silent or were removed, and the tasks that wait for them."""

from datetime import timedelta

from duly import wire


async def leave(agent):
    request = wire.LeaveRequest(incarnation=agent.joined.incarnation)
    assert (await agent.send("leave", request)).status_code < 300


async def expire(api, agent):
    """Let a node be silent for as long as its lease lasts."""
    async with api.components.database.connection() as conn:
        await conn.execute(
            "update duly.incarnations set renewed_at = renewed_at - $2::interval,"
            " expires_at = expires_at - $2::interval where id = $1",
            agent.joined.incarnation,
            timedelta(minutes=1),
        )


async def why(api, **fields):
    task = (await api.submit(**fields))["id"]
    return task, await api.get(f"/v1/tasks/{task}/why")


async def test_a_node_that_left_is_stopped_and_one_that_is_silent_is_lost(api, join):
    stopped, silent = await join(), await join("node-b")
    await leave(stopped)
    await expire(api, silent)
    assert (await api.get("/v1/nodes/node-a"))["status"] == "stopped"
    assert (await api.get("/v1/nodes/node-b"))["status"] == "lost"
    status = await api.get("/v1/status")
    assert (status["nodes"]["stopped"], status["nodes"]["lost"]) == (1, 1)
    # Neither is counted as capacity that is in use.
    assert "duly_capacity{" not in (await api.call("GET", "/metrics")).text
    assert status["capacity"]["cpu"] == 0


async def test_why_names_the_node_that_is_down(api, join):
    await join("node-small", cpu=1)
    large = await join("node-c", cpu=8)
    await leave(large)
    _, reason = await why(api, resources={"cpu": 5}, requires={"zone": "a"})
    assert (reason["code"], reason["details"]["node"]) == ("node_down", "node-c")
    assert reason["message"].startswith(
        "Node node-c has the label zone=a but has been stopped since "
    )
    await expire(api, await join("node-d", cpu=9))
    _, reason = await why(api, resources={"cpu": 9})
    assert reason["message"].startswith("Node node-d is large enough but has been down since ")


async def test_after_the_removal_of_a_node_the_reasons_say_so(api, join):
    await join("node-small", cpu=1)
    large = await join("node-c", cpu=8)
    task = (await api.submit(resources={"cpu": 5}))["id"]
    ref = await large.start()
    assert str(ref.task) == task
    assert (await api.call("DELETE", "/v1/nodes/node-c")).status_code == 204
    await api.components.queue_manager.tick()
    (attempt,) = (await api.get(f"/v1/tasks/{task}/attempts"))["items"]
    assert (attempt["outcome"], attempt["reason"]["code"]) == ("lost", "node_removed")
    reason = await api.get(f"/v1/tasks/{task}/why")
    assert reason["code"] == "node_removed"
    assert reason["message"].startswith("Node node-c was large enough but was removed at ")
