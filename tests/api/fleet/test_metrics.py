"""Gauges of the cluster, and the keys that may only scrape."""

from prometheus_client.parser import text_string_to_metric_families

from tests.api.people import create, with_new_key


async def gauges(api, *names):
    """Return the samples of the named gauges by their only label."""
    answer = await api.call("GET", "/metrics")
    assert answer.status_code == 200
    return {
        family.name: {next(iter(one.labels.values())): one.value for one in family.samples}
        for family in text_string_to_metric_families(answer.text)
        if family.name in names
    }


async def test_a_key_with_the_scope_metrics_may_scrape_and_nothing_else(api):
    scraper = await with_new_key(api, "metrics", tenant=None, service="prometheus")
    assert (await scraper.call("GET", "/metrics")).status_code == 200
    for method, path in (
        ("GET", "/v1/status"), ("GET", "/v1/tasks"), ("GET", "/v1/nodes"), ("GET", "/v1/servers"),
        ("POST", "/v1/tasks"), ("POST", "/v1/keys"), ("GET", "/v1/keys"),
    ):  # fmt: skip
        status, error = await scraper.refused(method, path)
        assert (status, error["code"]) == (403, "forbidden")


async def test_only_administrators_grant_the_scope_metrics(api):
    await create(api, "/v1/tenants", name="acme", plan="standard")
    manager = await with_new_key(api, "submit", "read", "manage")
    body = {"service": "prometheus", "scopes": ["metrics"]}
    assert (await manager.refused("POST", "/v1/keys", json=body))[0] == 403
    assert (await manager.refused("GET", "/metrics"))[0] == 403


async def test_gauges_tell_nodes_capacity_and_utilisation(api, agent):
    await api.submit(resources={"cpu": 1, "memory_mb": 256})
    await agent.start()
    found = await gauges(
        api, "duly_nodes", "duly_capacity", "duly_allocated", "duly_utilisation_ratio"
    )
    assert found["duly_nodes"] == {"ready": 1, "draining": 0, "drained": 0, "stopped": 0, "lost": 0}
    assert found["duly_capacity"]["cpu"] == 4
    assert found["duly_allocated"]["cpu"] == 1
    assert found["duly_utilisation_ratio"]["cpu"] == 0.25
    memory = found["duly_capacity"]["memory_mb"]
    assert found["duly_allocated"]["memory_mb"] == 256
    assert found["duly_utilisation_ratio"]["memory_mb"] == 256 / memory


async def test_gauges_tell_what_waits_in_each_queue_and_for_how_long(api, stranger):
    queues = ("urgent", "periodic", "delayable", "off_peak")
    found = await gauges(api, "duly_tasks_waiting", "duly_oldest_wait_seconds")
    assert found == {
        "duly_tasks_waiting": dict.fromkeys(queues, 0),
        "duly_oldest_wait_seconds": dict.fromkeys(queues, 0),
    }
    big = {"resources": {"cpu": 64}}
    old = await api.submit(delay_tolerance="1h", **big)
    await stranger.submit(delay_tolerance="1h", **big)
    await api.submit(delay_tolerance=0, **big)
    await api.submit(queue="off_peak", delay_tolerance="10h", **big)
    async with api.components.database.connection() as conn:
        await conn.execute(
            "update live set ready_at = ready_at - interval '90 s' where id = $1", int(old["id"])
        )
    found = await gauges(api, "duly_tasks_waiting", "duly_oldest_wait_seconds")
    assert found["duly_tasks_waiting"] == {
        "urgent": 1, "periodic": 0, "delayable": 2, "off_peak": 1,
    }  # fmt: skip
    oldest = found["duly_oldest_wait_seconds"]
    assert 90 <= oldest["delayable"] < 150
    assert oldest["periodic"] == 0
    assert 0 < oldest["urgent"] < 60
