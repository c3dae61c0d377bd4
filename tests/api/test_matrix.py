"""Every route refuses every caller without access, for every id in its request.

The routes are those that the server has; `matrix/rows.py` says of each what a good
request is, and `matrix/actors.py` who comes. What one is refused must leave no trace,
and what belongs to somebody else must be told like what does not exist: with the same
bytes, and after the same statements.
"""

import asyncio
import logging
import re
from datetime import timedelta

import httpx
import pytest

from duly.api.auth import REQUIRED_SCOPES, Access
from duly.config import LeaseSettings, SchedulingSettings, Settings
from duly.model.tenant import Scope
from tests.api.matrix.actors import NAMES, make
from tests.api.matrix.holdings import unknown
from tests.api.matrix.rows import COMMON, ROWS, Place
from tests.api.matrix.world import WATCHED, build

PATHS = sorted(ROWS, key=lambda row: ROWS[row].access in (Access.JOIN, Access.NODE))


ONE = {"limit": 1}
LOOKS = ("GET", "HEAD")
NOTED = (Access.ADMIN, Access.MANAGE, Access.JOIN)
"""Whoever changes something by these is found in the audit log."""
PREVIEW = ("POST", "/v1/schedules/preview")
WAITS = [("POST", "/v1/tasks/wait"), ("POST", "/v1/jobs/wait")]
"""What asks with a body and changes nothing."""


@pytest.fixture
def settings():
    """Times that outlast the test: nothing changes but by what is sent."""
    return Settings(
        leases=LeaseSettings(ttl=timedelta(hours=1)),
        scheduling=SchedulingSettings(unplaceable_after=timedelta(hours=1)),
    )


@pytest.fixture
async def world(api, join, key_for):
    built = await build(api, join, key_for)
    built.watch_statements()
    return built


def served(api):
    """Return the access of every route by method and path, however many names it has."""
    app = api.client._transport.app
    return {(route.operation.method, path): route.operation.access for path, route in app.routes}


def other_names(path):
    """Return the path and what else it is called."""
    return {path, path.replace("/v1/tasks", "/v1/jobs")}


async def send(api, method, path, thing="", **options):
    return await api.call(method, re.sub(r"{\w+}", lambda _: thing, path), **options)


def told(answer):
    """Return the status and the code of an error."""
    if answer.status_code < 400 or answer.request.method == "HEAD":
        return answer.status_code, ""
    return answer.status_code, answer.json()["error"]["code"]


async def test_every_route_has_a_row_with_the_access_that_it_declares(api):
    rows = {
        (method, name): row.access for (method, path), row in ROWS.items()
        for name in other_names(path)
    }  # fmt: skip
    assert served(api) == rows


async def test_what_changes_something_is_not_for_readers(api):
    assert [route for route, access in served(api).items()
            if route[0] not in LOOKS and access is Access.READ] == [*WAITS, PREVIEW]  # fmt: skip


async def test_each_row_is_a_good_request_for_whom_it_is_meant_and_acts_of_managers_are_noted(
    world,
):
    wrong, unnoted = [], []
    for index, (method, path) in enumerate(PATHS):
        row = ROWS[method, path]
        own = world.victim
        if row.access in (Access.SUBMIT, Access.READ, Access.MANAGE):
            own = await world.settle(f"canary{index}")
        if row.access is Access.ATTEMPT:
            own.api = world.api.with_key(await world.attempt_key(own.attempt))
        caller = {
            Access.NODE: world.runner.agent.api,
            Access.JOIN: world.api.with_key(await world.join_token()),
            Access.ADMIN: world.api,
            Access.METRICS: world.api,
        }.get(row.access, own.api)
        thing = own[row.ids[0]] if row.ids else ""
        before = await world.noted()
        answer = await send(caller, method, path, thing, **row.options(world, own))
        if answer.status_code != row.ok:
            wrong.append((method, path, answer.status_code, answer.text))
        if row.access in NOTED and method not in LOOKS and await world.noted() == before:
            unnoted.append((method, path))
    assert (wrong, unnoted) == ([], [])


async def test_who_may_not_pass_is_refused_everywhere_and_leaves_no_trace(world):
    actors = {name: await make(name, world) for name in NAMES}
    before = {name: await world.fingerprint(name) for name in world.tenants}
    wrong = [
        cell
        for name, actor in actors.items()
        for method, path in PATHS
        async for cell in knock(world, name, actor, method, path)
    ]
    assert wrong == []
    assert {name: await world.fingerprint(name) for name in world.tenants} == before


async def knock(world, name, actor, method, path):
    """Yield what is not as it should be when `actor` calls a route for what it means."""
    row = ROWS[method, path]
    refusal = actor.refusal(method, row.access)
    if refusal is None and method not in LOOKS:
        return
    expected = refusal or (row.ok, "")
    if method == "HEAD":
        expected = expected[0], ""
    options = row.options(world, actor.own)
    for spelling in other_names(path):
        for kind in row.ids[: None if refusal else 1] or ("text",):
            answer = await send(actor.api, method, spelling, actor.own[kind], **options)
            if told(answer) != expected or (refusal and "canary" in answer.text):
                yield name, method, spelling, kind, expected, answer.text


def places():
    """Return every place of every route where a tenant may write what is not its own."""
    for (method, path), row in ROWS.items():
        if row.access in (Access.READ, Access.SUBMIT, Access.MANAGE):
            for kind in set(row.ids) - COMMON:
                yield method, path, Place("path", kind, row.unknown, lambda _: {})
            for place in row.places:
                yield method, path, place


async def attack(world, method, path, place, value):
    """Return what is told about `value`, without the value, and the statements that it took."""
    row = ROWS[method, path]
    options = row.options(world, world.stranger) | place.options(value)
    WATCHED.set(seen := [])
    answer = await send(world.stranger.api, method, path, value, **options)
    await asyncio.sleep(0)  # the driver tells of the last statement in the next round of the loop
    WATCHED.set(None)
    text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", "?", answer.text)
    headers = sorted(item for item in answer.headers.items() if item[0] != "content-length")
    return (answer.status_code, headers, text), seen


async def test_what_is_anothers_is_told_like_what_does_not_exist(world):
    before = await world.fingerprint("canary")
    wrong, watched = [], 0
    # Whatever makes something comes last: a user of the same name is then one's own.
    for method, path, place in sorted(places(), key=lambda one: one[2].creates):
        foreign = world.victim[place.kind]
        theirs, seen = await attack(world, method, path, place, foreign)
        none, needed = await attack(world, method, path, place, unknown(place.kind, world.victim))
        where = (method, path, place.name, place.kind)
        watched += len(seen)
        if (theirs[0], none[0]) != (place.status, place.status):
            wrong.append((*where, "status", theirs, none))
        elif not place.creates and theirs != none:
            wrong.append((*where, "answer", theirs, none))
        elif not place.creates and seen != needed:
            wrong.append((*where, "statements", seen, needed))
        if "canary" in str(theirs) or any(one in str(theirs) for one in world.victim.ids):
            wrong.append((*where, "canary", theirs))
    assert wrong == []
    assert watched > 50, "no statement was noted"
    assert await world.fingerprint("canary") == before


async def test_no_list_log_or_metric_tells_anything_of_another_tenant(world, caplog):
    caplog.set_level(logging.DEBUG)
    for method, path in ROWS:
        row = ROWS[method, path]
        if method == "GET" and row.access not in (Access.ADMIN, Access.METRICS, Access.ATTEMPT):
            kind = row.ids[0] if row.ids else "text"
            answer = await send(world.stranger.api, method, path, world.stranger[kind])
            assert answer.status_code == 200, path
            assert "canary" not in answer.text + str(answer.headers), path
            assert not [one for one in world.victim.ids if one in answer.text], path
    metrics = await world.api.call("GET", "/metrics")
    assert not [line for line in metrics.text.splitlines() if "canary" in line or "acme" in line]
    assert not [one.getMessage() for one in caplog.records if world.victim.key in one.getMessage()]


async def test_pages_of_one_show_every_own_thing_and_no_gap_where_anothers_is(world):
    lists = [path for (_, path), row in ROWS.items() if "cursor" in [p.kind for p in row.places]]
    filters = [f"/v1/tasks?status={status}" for status in ("scheduled", "running", "done")]
    for path in [*lists, *filters, "/v1/tasks?status=failed", "/v1/tasks?name=same"]:
        whole = (await world.stranger.api.get(path))["items"]
        walked, cursor = [], {}
        while cursor is not None:
            page = await world.stranger.api.get(httpx.URL(path).copy_merge_params(cursor | ONE))
            walked += page["items"]
            assert len(page["items"]) == 1, path
            cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
        assert walked == whole != [], path


async def test_only_an_administrator_names_a_tenant(world):
    wrong = []
    everything = await world.key_for("acme", "acme-all", *set(Scope) - {Scope.ADMIN})
    attacker = world.api.with_key(everything)
    before = await world.fingerprint("canary")
    for method, path in PATHS:
        row = ROWS[method, path]
        # Whoever logs in says where to; what that gives is a key of that tenant.
        if row.access not in (*REQUIRED_SCOPES, Access.OWN):
            continue
        options = row.options(world, world.stranger)
        for kind in row.ids or ("text",):
            for tenant in ("canary", "nobody", "acme"):
                thing, named = world.victim[kind], {"tenant": tenant}
                answer = await send(attacker, method, path, thing, params=named, **options)
                if told(answer) != (403, "" if method == "HEAD" else "forbidden"):
                    wrong.append((method, path, kind, tenant, answer.text))
                said = options.get("json", {}) | named
                answer = await send(attacker, method, path, thing, json=said)
                if method != "GET" and "json" in options and answer.status_code not in (403, 422):
                    wrong.append((method, path, kind, said, answer.text))
    assert wrong == []
    assert await world.fingerprint("canary") == before
