from prometheus_client.parser import text_string_to_metric_families

from duly.model.task import Outcome


async def test_the_status_counts_what_there_is(api, agent, stranger):
    await stranger.submit(resources={"cpu": 64})
    await api.submit()
    assert await agent.finish(await agent.start())
    await api.submit(max_attempts=1)
    assert await agent.finish(await agent.start(), Outcome.FAILED, exit_code=1)
    await api.submit()
    await agent.start()
    cancelled = (await api.submit(resources={"cpu": 64}))["id"]
    await api.call("POST", f"/v1/tasks/{cancelled}/cancel")
    await api.submit(run_at="2100-01-01T00:00:00Z")
    await api.submit(resources={"cpu": 64})
    await api.submit(resources={"cpu": 64})

    status = await api.get("/v1/status")
    assert status["tasks"] == {
        "scheduled": 1, "waiting": 2, "running": 1, "done": 1, "failed": 1, "cancelled": 1,
    }  # fmt: skip
    assert status["nodes"] == {"ready": 1, "draining": 0, "drained": 0, "lost": 0}
    assert (status["capacity"]["cpu"], status["free"]["cpu"]) == (4, 3.5)
    assert (status["server"], status["leader"]) == ("server-0", "server-0")
    assert status["window_hours"] == 24
    assert status["database"]["version"]
    assert (await stranger.get("/v1/status"))["tasks"] == {
        "scheduled": 0, "waiting": 1, "running": 0, "done": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip


async def test_the_metrics_can_be_scraped(api, agent):
    await api.submit(name="secret-name")
    await agent.start()
    await api.submit(resources={"cpu": 64})
    await api.call("GET", "/v1/invented-by-a-stranger")
    text = (await api.call("GET", "/metrics")).text
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["duly_tasks_live", (("status", "running"),)] == 1
    assert samples["duly_tasks_live", (("status", "waiting"),)] == 1
    assert samples["duly_tasks_submitted_total", ()] >= 2
    submits = (("method", "POST"), ("route", "/v1/tasks"), ("status", "2xx"))
    assert samples["duly_http_requests_total", submits] >= 2
    unknown = (("method", "GET"), ("route", "unknown"), ("status", "4xx"))
    assert samples["duly_http_requests_total", unknown] >= 1
    assert "secret-name" not in text
    assert "invented" not in text
