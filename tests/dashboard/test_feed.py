"""What the pages show to an administrator and to a tenant, from a real Duly."""

from datetime import timedelta

import duly
from duly.dashboard.feed import Feed
from duly.dashboard.visitor import ADMINISTRATOR, Visitor

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
