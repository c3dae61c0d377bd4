"""GET /v1/usage reports a tenant's usage, and all usage to an administrator."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from duly.model.task import Outcome
from duly.model.tenant import Scope

PLACE = {"day": None, "tenant": None, "user": None, "tier": None, "urgency": None}


@pytest.fixture(autouse=True)
async def prices(components):
    """A plan that costs something."""
    async with components.database.connection() as conn:
        await conn.execute(
            "update plans set price_per_task = 0.01, price_per_cpu_hour = 3.6, "
            "price_per_gib_hour = 0 where name = 'unlimited'"
        )


async def run(api, agent, outcome=Outcome.SUCCEEDED, **task):
    """Let a task run for half a second, or for as long as it is there."""
    made = await api.submit(**task)
    ref = await agent.start()
    assert str(ref.task) == made["id"]
    assert await agent.finish(ref, outcome)
    (attempt,) = (await api.get(f"/v1/tasks/{made['id']}/attempts"))["items"]
    began, ended = (datetime.fromisoformat(attempt[n]) for n in ("started_at", "finished_at"))
    return (ended - began).total_seconds()


def today():
    return datetime.now(UTC).date()


async def test_usage_is_told_at_once_and_stays_the_same_once_it_is_booked(api, agent):
    ran = await run(api, agent, tier="regular")
    expected = {
        "tasks": 1,
        "attempts": 1,
        "cpu_seconds": 0.25,
        "granted_cpu_seconds": pytest.approx(ran),
        "granted_memory_mb_seconds": pytest.approx(1024 * ran),
        "price": str((Decimal("0.01") + Decimal(str(ran)) / 1000).quantize(Decimal("0.000001"))),
    }
    at_once = await api.get("/v1/usage")
    await api.components.usage_recorder.tick()
    for told in (at_once, await api.get("/v1/usage")):
        assert told["items"] == [{**PLACE, "day": str(today()), **expected}]
        assert told["total"] == {**PLACE, **expected}
        assert (told["since"], told["until"]) == (str(today() - timedelta(29)), str(today()))
        assert told["next_cursor"] is None


async def test_what_is_told_apart_is_what_was_asked_for(api, agent):
    await run(api, agent, tier="basic", delay_tolerance=5)
    await run(api, agent, tier="basic", delay_tolerance="1d")
    await run(api, agent, tier="premium")
    told = await api.get("/v1/usage?by=tier,urgency&by=user")
    assert [(row["tier"], row["urgency"], row["tasks"], row["day"]) for row in told["items"]] == [
        ("basic", "off_peak", 1, None),
        ("basic", "urgent", 1, None),
        ("premium", "ordinary", 1, None),
    ]
    assert told["total"]["tasks"] == 3


async def test_a_tenant_sees_its_own_and_an_administrator_all(api, agent, stranger, key_for):
    await run(api, agent)
    await run(stranger, agent)
    await run(stranger, agent)

    def by_tenant(told):
        return {row["tenant"]: row["tasks"] for row in told["items"]}

    assert by_tenant(await stranger.get("/v1/usage?by=tenant")) == {"acme": 2}
    assert by_tenant(await api.get("/v1/usage?by=tenant")) == {"acme": 2, "default": 1}
    assert by_tenant(await api.get("/v1/usage?by=tenant&tenant=acme")) == {"acme": 2}
    assert by_tenant(await api.get("/v1/usage?by=tenant&tenant=default")) == {"default": 1}
    assert (await api.get("/v1/usage"))["total"]["tasks"] == 1
    assert (await api.get("/v1/usage?tenant=acme"))["total"]["tasks"] == 2
    status, error = await stranger.refused("GET", "/v1/usage?tenant=default")
    assert (status, error["code"]) == (403, "forbidden")
    manager = api.with_key(await key_for("acme", "boss", Scope.READ, Scope.MANAGE))
    assert by_tenant(await manager.get("/v1/usage?by=tenant")) == {"acme": 2}


async def test_days_are_given_as_dates_times_or_durations(api, agent):
    await run(api, agent)
    day = today()
    counts = {
        f"since={day}&until={day}": 1,
        f"since={day}T12:00:00Z": 1,
        "since=2d": 1,
        f"until={day - timedelta(1)}": 0,
        f"since={day + timedelta(1)}&until={day + timedelta(2)}": 0,
    }
    for query, tasks in counts.items():
        assert (await api.get(f"/v1/usage?{query}"))["total"]["tasks"] == tasks, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=colour", "by"),
        ("by=", "by"),
        ("since=2026-02-30", "since"),
        ("since=1999-01-01", "since"),
        ("since=yesterday", "since"),
        ("until=soon", "until"),
        ("since=2027-02-01&until=2027-01-01", "until"),
        ("since=2027-01-01&since=2027-01-02", "since"),
        ("days=3", "days"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(api, query, field):
    status, error = await api.refused("GET", f"/v1/usage?{query}")
    assert (status, error["details"]["field"]) == (422, field)


async def test_a_key_that_may_only_submit_is_refused(api, key_for):
    submitter = api.with_key(await key_for("acme", "kim", Scope.SUBMIT))
    assert (await submitter.refused("GET", "/v1/usage"))[0] == 403
