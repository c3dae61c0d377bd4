import asyncio
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duly import wire
from duly.model.drift import AuditScope, DriftCount, DriftKind
from duly.model.task import Outcome
from duly.store.maintenance import audit


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
    later = (await api.submit(run_at="2100-01-01T00:00:00Z"))["id"]
    await api.submit(depends_on=[later])
    paused = (await api.submit(resources={"cpu": 64}))["id"]
    await api.call("POST", f"/v1/tasks/{paused}/pause")
    await api.submit(resources={"cpu": 64})
    await api.submit(resources={"cpu": 64})

    status = await api.get("/v1/status?tenant=default")
    assert status["tasks"] == {
        "scheduled": 1, "blocked": 1, "waiting": 2, "running": 1, "paused": 1,
        "done": 1, "failed": 1, "cancelled": 1,
    }  # fmt: skip
    assert status["nodes"] == {"ready": 1, "draining": 0, "drained": 0, "stopped": 0, "lost": 0}
    assert (status["capacity"]["cpu"], status["free"]["cpu"]) == (4, 3.5)
    assert (status["server"], status["leader"]) == ("server-0", "server-0")
    assert status["window_hours"] == 24
    assert status["database"]["version"]
    assert (await stranger.get("/v1/status"))["tasks"] == {
        "scheduled": 0, "blocked": 0, "waiting": 1, "running": 0, "paused": 0,
        "done": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip


async def test_a_node_that_takes_no_tasks_has_capacity_and_nothing_free(api, agent):
    await api.call("PUT", "/v1/nodes/node-a", json={"drain": True})
    status = await api.get("/v1/status")
    assert (status["capacity"]["cpu"], status["free"]["cpu"]) == (4, 0)
    await api.call("PUT", "/v1/nodes/node-a", json={"drain": False})
    assert (await api.get("/v1/status"))["free"]["cpu"] == 4
    short = wire.Heartbeat(incarnation=agent.joined.incarnation, held=[], shortage="open files")
    assert (await agent.send("heartbeat", short)).status_code == 200
    assert (await api.get("/v1/status"))["free"]["cpu"] == 0


@pytest.fixture
async def another_leads(components):
    """The parts of a server that does not lead, and so does not audit."""
    async with components.database.transaction() as conn:
        await conn.execute("update terms set term = 2, server = 99, expires_at = 'infinity'")
        await conn.execute("delete from audits")
    return components


async def find_drift(components):
    """Let a round of each scope have found something."""
    seen = {
        AuditScope.LIVE: {DriftKind.ORPHANED: DriftCount(7, [11, 12])},
        AuditScope.HISTORY: {DriftKind.LOST_TASK: DriftCount(1, [13])},
    }
    async with components.database.connection() as conn:
        for scope, drift in seen.items():
            await audit.publish(
                conn, scope, took=timedelta(0), looked_at=9, drift=drift, repaired=2
            )


async def test_before_the_first_round_nothing_is_known(api, another_leads):
    assert (await api.get("/v1/status"))["audit"] == {
        "completed_at": None, "history_completed_at": None, "drift": [], "repaired": 0,
        "repaired_at": None,
    }  # fmt: skip


async def test_the_status_tells_what_the_audit_found_only_to_administrators(
    api, stranger, another_leads
):
    await find_drift(another_leads)
    found = (await api.get("/v1/status"))["audit"]
    assert found["completed_at"]
    assert found["history_completed_at"]
    assert (found["repaired"], bool(found["repaired_at"])) == (4, True)
    assert [(one["kind"], one["count"], one["examples"]) for one in found["drift"]] == [
        ("lost_task", 1, ["13"]),
        ("orphaned", 7, ["11", "12"]),
    ]
    assert found["drift"][1]["message"] == "It runs on an agent that has ended."
    assert (await stranger.get("/v1/status"))["audit"] is None


async def test_the_metrics_tell_what_the_audit_found(api, another_leads):
    assert "duly_drift{" not in (await api.call("GET", "/metrics")).text
    await find_drift(another_leads)
    text = (await api.call("GET", "/metrics")).text
    assert 'duly_drift{kind="orphaned"} 7.0' in text
    assert 'duly_drift{kind="lost_task"} 1.0' in text
    assert 'duly_drift{kind="stuck_subqueue"} 0.0' in text
    assert 'duly_audit_completed_timestamp_seconds{scope="live"} 1.' in text
    assert "duly_repairs_total" in text


@pytest.mark.timeout(30)
async def test_a_server_audits_by_itself(api):
    await api.submit()
    while (await api.get("/v1/status"))["audit"]["history_completed_at"] is None:
        await asyncio.sleep(0.05)
    found = (await api.get("/v1/status"))["audit"]
    assert (found["drift"], found["repaired"]) == ([], 0)


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


async def test_a_server_is_not_ready_while_its_object_store_is_gone(api, components):
    assert (await api.call("GET", "/readyz")).status_code == 200
    components.store_guard.problem = "The object store is gone."
    assert await api.refused("GET", "/readyz") == (
        503,
        {
            "code": "unavailable",
            "message": "The object store is gone.",
            "details": {"retry_after": 1.0},
        },
    )
