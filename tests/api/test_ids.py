"""An id reveals when its object was created, but not how many objects other tenants have."""

from datetime import datetime

import pytest

from duly.server.sequencer import EPOCH, SECOND_SHIFT
from tests.api.people import create, with_new_key

BLUR = 2
"""Seconds between generating an id and recording when its object was created."""


@pytest.fixture
async def manager(api):
    """Whoever manages the tenant acme, of which there are others."""
    for name in ("other", "acme"):
        await create(api, "/v1/tenants", name=name, plan="standard")
    return await with_new_key(api, "submit", "read", "manage", user="kim")


def seconds_of(text):
    return (datetime.fromisoformat(text) - EPOCH).total_seconds()


async def things(api, path):
    return (await api.get(path))["items"]


@pytest.mark.parametrize(
    ("path", "made_at"),
    [
        ("/v1/keys", "created_at"),
        ("/v1/users", "created_at"),
        ("/v1/tenants", "created_at"),
        ("/v1/audit", "at"),
        ("/v1/tasks", "submitted_at"),
    ],
)
async def test_an_id_tells_when_a_thing_was_made_and_nothing_else(manager, path, made_at):
    await manager.submit()
    found = await things(manager, path)
    assert found
    for one in found:
        second = int(one["id"]) >> SECOND_SHIFT
        assert abs(second - seconds_of(one[made_at])) < BLUR


async def test_pages_go_on_where_they_ended_and_the_newest_is_first(api, manager):
    for number in range(5):
        await create(manager, "/v1/users", name=f"user-{number}")
        await create(api, "/v1/users", name=f"user-{number}", tenant="other")
        await create(manager, "/v1/keys", scopes=["read"], service=f"service-{number}")
    for path, many in (("/v1/keys", 6), ("/v1/users", 6), ("/v1/audit", 13)):
        whole = await things(manager, f"{path}?limit=100")
        assert len(whole) == many
        ids = [int(one["id"]) for one in whole]
        assert ids == sorted(set(ids), reverse=True)
        pages, cursor = [], ""
        while cursor is not None:
            page = await manager.get(f"{path}?limit=2{cursor and f'&cursor={cursor}'}")
            pages, cursor = [*pages, *page["items"]], page["next_cursor"]
        assert pages == whole


async def test_users_and_tenants_are_found_by_the_id_that_is_shown(api, manager):
    user = await create(manager, "/v1/users", name="sam")
    assert await manager.get(f"/v1/users/{user['id']}") == user
    (tenant,) = await things(manager, "/v1/tenants")
    assert tenant["name"] == "acme"
    for who in (api, manager):
        assert await who.get(f"/v1/tenants/{tenant['id']}") == tenant
