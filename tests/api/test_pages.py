"""Every list has pages: `limit` and `cursor` mean the same everywhere."""

import re
from datetime import timedelta

import httpx
import msgspec
import pytest

from duly.api.app import create_app
from duly.api.auth import Access
from duly.config import LeaseSettings, SchedulingSettings, Settings
from tests.api.matrix.rows import ROWS
from tests.api.matrix.world import build


def fields_of(body):
    """Return the fields of a response; none if it is no object."""
    is_struct = isinstance(getattr(body, "__origin__", body), msgspec.StructMeta)
    return {field.name for field in msgspec.structs.fields(body)} if is_struct else set()


LISTS = {
    path: route.operation
    for path, route in create_app(None).routes
    if route.operation.method == "GET"
    and "items" in fields_of(route.operation.response_body)
    # An attempt reads all of its own.
    and route.operation.access is not Access.ATTEMPT
}
PASSING = {"oldest_wait", "in_per_minute", "out_per_minute", "waiting"}
EXAMPLE = "/v1/tasks"


@pytest.fixture
def settings():
    """Times that outlast the test: nothing changes but by what is sent."""
    return Settings(
        leases=LeaseSettings(ttl=timedelta(hours=1)),
        scheduling=SchedulingSettings(unplaceable_after=timedelta(hours=1)),
    )


@pytest.mark.parametrize("path", LISTS)
def test_a_list_declares_its_pages(path):
    assert {"limit", "cursor"} <= LISTS[path].parameter_names
    assert "next_cursor" in fields_of(LISTS[path].response_body)
    assert 422 in LISTS[path].errors


def lasting(item):
    """Return an item without the figures that change by themselves."""
    return {name: value for name, value in item.items() if name not in PASSING}


async def test_every_list_has_pages_and_refuses_the_same_limits(api, join, key_for):
    world = await build(api, join, key_for)
    for _ in range(2):
        await world.stranger.api.call("POST", f"/v1/schedules/{world.stranger['schedule']}/run")
    await world.execute(
        "insert into stages (task_id, name, tenant_id, attempt, result, recorded_at) "
        "select tasks.id, stage.name, tenant_id, 1, '1', duly.now() "
        "from tasks, unnest('{a,b}'::text[]) as stage (name)"
    )
    with_several = 0
    for path in LISTS:
        client, address = reach(world, path)
        for limit in ("0", "1001", "-1", "x", "", "1.5", "9" * 30):
            refused = await client.refused("GET", address, params={"limit": limit})
            assert refused == await client.refused("GET", EXAMPLE, params={"limit": limit}), path
        refused = await client.refused("GET", address, params={"cursor": "?"})
        assert refused == await client.refused("GET", EXAMPLE, params={"cursor": "?"}), path
        whole = await client.get(address)
        assert whole["next_cursor"] is None, path
        assert list(map(lasting, await walk(client, address))) == list(
            map(lasting, whole["items"])
        ), path
        with_several += len(whole["items"]) > 1
    assert with_several >= 10, "the world is too small for this"


def reach(world, path):
    """Return who may read a list, and its address."""
    row = ROWS["GET", path.replace("/v1/jobs", "/v1/tasks")]
    own = world.stranger
    client = world.api if row.access is Access.ADMIN else own.api
    if row.ids:
        path = re.sub(r"{\w+}", own["done" if "/attempts" in path else row.ids[0]], path)
    return client, f"{path}?by=tenant,user,tier,urgency" if path == "/v1/usage" else path


async def walk(client, address):
    """Return the items of all pages of one."""
    items, cursor = [], {}
    while cursor is not None:
        url = httpx.URL(address).copy_merge_params({"limit": 1, **cursor})
        page = await client.get(url)
        assert len(page["items"]) == 1, address
        items += page["items"]
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
    return items
