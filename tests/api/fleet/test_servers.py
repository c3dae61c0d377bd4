"""GET /v1/servers lists the servers and their duties."""

import os
import socket
from datetime import timedelta

from duly.store.database import Database


async def test_a_server_that_leads_says_so_with_its_term(api):
    (server,) = (await api.get("/v1/servers"))["items"]
    assert server.pop("started_at").endswith("Z")
    assert server.pop("last_heartbeat_at").endswith("Z")
    assert server.pop("version")
    assert (server.pop("host"), server.pop("pid")) == (socket.gethostname(), os.getpid())
    assert server == {
        "id": "0", "name": "server-0", "status": "ready", "address": None,
        "duties": [{"name": "scheduling", "term": 1}],
    }  # fmt: skip


async def test_one_that_is_silent_is_lost_and_one_that_left_is_gone(api, database: Database):
    async with database.connection() as conn:
        for number, silence in ((1, timedelta(minutes=1)), (2, timedelta(days=2))):
            await conn.execute(
                "insert into servers values"
                " ($1, 'duly', gen_random_uuid(), '0', now(), duly.now() - $2::interval, 0)",
                number,
                silence,
            )
        await conn.execute(
            "insert into servers values (3, 'duly', gen_random_uuid(), '0', now(), '-infinity', 0)"
        )
    items = (await api.get("/v1/servers"))["items"]
    assert [(one["name"], one["status"], len(one["duties"])) for one in items] == [
        ("server-0", "ready", 1),
        ("server-1", "lost", 0),
    ]
