"""What the pages show to an administrator and to a tenant, from a real Duly."""

from datetime import timedelta

import duly
from duly import clock
from duly.dashboard.feed import Feed
from duly.dashboard.login.visitor import ADMINISTRATOR, Visitor

LATER = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
INTERVAL = timedelta(seconds=2)


async def test_an_administrator_sees_all_tenants_and_a_tenant_only_itself(place):
    async with duly.AsyncClient(place.url, place.key) as admin:
        await admin.create_tenant("acme", "standard")
        key = await admin.create_key(tenant="acme", scopes=["submit", "read"])
        async with duly.AsyncClient(place.url, key["key"]) as acme:
            mine, theirs = await admin.submit(**LATER), await acme.submit(**LATER)
            fleet = await Feed(admin, INTERVAL, ADMINISTRATOR).latest()
            visitor = Visitor(frozenset({"submit", "read"}), "acme")
            own = await Feed(acme, INTERVAL, visitor).latest()
            details, _ = await Feed(admin, INTERVAL, ADMINISTRATOR).details(theirs["id"])
    assert (fleet.problem, own.problem) == (None, None)
    assert {row["id"]: row["owner"].split(" / ")[0] for row in fleet.tasks} == {
        mine["id"]: "default",
        theirs["id"]: "acme",
    }
    assert [row["id"] for row in own.tasks] == [theirs["id"]]
    assert (fleet.counts["scheduled"], own.counts["scheduled"]) == (2, 1)
    assert (fleet.server, own.server) == (f"server-0 · version {duly.__version__}", "server-0")
    assert details["tenant"] == "acme"


async def test_an_administrator_filters_by_tenant_and_sees_the_whole_fleet(place):
    async with duly.AsyncClient(place.url, place.key) as admin:
        for name in ("acme", "zeta"):
            await admin.create_tenant(name, "standard")
        await admin.suspend_tenant("zeta")
        key = await admin.create_key(tenant="acme", scopes=["submit", "read"])
        async with duly.AsyncClient(place.url, key["key"]) as acme:
            await admin.submit(**LATER)
            theirs = await acme.submit(**LATER)
            own = await Feed(acme, INTERVAL, Visitor(frozenset({"read"}), "acme")).latest()
        feed = Feed(admin, INTERVAL, ADMINISTRATOR)
        fleet, acme_only, none = (
            await feed.latest(),
            await feed.latest("acme"),
            await feed.latest("zeta"),
        )
        unknown = await feed.latest("nobody")
    assert [(option.name, option.label) for option in fleet.tenants] == [
        ("acme", "acme"),
        ("default", "default"),
        ("zeta", "zeta (suspended)"),
    ]
    assert acme_only.tenants == none.tenants == unknown.tenants == fleet.tenants
    assert (len(fleet.tasks), fleet.counts["scheduled"]) == (2, 2)
    assert ([row["id"] for row in acme_only.tasks], acme_only.counts["scheduled"]) == (
        [theirs["id"]],
        1,
    )
    assert (none.tasks, none.counts["scheduled"]) == ((), 0)
    assert acme_only.nodes == fleet.nodes and len(fleet.nodes) == 1
    assert unknown.problem and "nobody" in unknown.problem
    assert own.tenants == ()


async def test_each_filter_is_read_once_an_interval_and_dropped_when_unused(place, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    async with duly.AsyncClient(place.url, place.key) as admin:
        feed = Feed(admin, INTERVAL, ADMINISTRATOR)
        first, other = await feed.latest(), await feed.latest("default")
        assert await feed.latest() is first and await feed.latest("default") is other
        now[0] += 2
        assert await feed.latest() is not first
        assert feed._latest.keys() == {None, "default"}
        now[0] += 40
        await feed.latest()
        assert feed._latest.keys() == {None}
