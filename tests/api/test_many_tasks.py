"""A body with many tasks is read piece by piece, and says the same as if it were read at once."""

import asyncio
import json

import pytest

from duly.api.body import decode
from duly.api.many_tasks import AT_ONCE, BATCH, GRAPH, complete_all, decode_batch, decode_graph
from duly.errors import DulyError, Invalid
from duly.model.request import TaskRequest
from duly.model.tenant import Credential
from tests.model.test_request import PLAN

CLIENT = Credential(tenant_id=1, tenant="t", user_id=None, user=None, scopes=frozenset(), plan=PLAN)
GOOD = {"command": ["true"], "ref": "a", "depends_on": [{"task": "b", "on": "always"}, "c"]}


def body(*tasks, **fields):
    return json.dumps({"tasks": tasks, **fields}).encode()


def by_ref(fields=None, **tasks):
    return json.dumps({"tasks": tasks, **(fields or {})}).encode()


BAD = [
    body(GOOD, {"comand": ["true"]}),
    body(GOOD, {"command": [1]}),
    body(GOOD, {"command": "true"}),
    body(GOOD, {"resources": {"cpu": "much"}}),
    body(GOOD, {"resources": {"cpus": 1}}),
    body(GOOD, {"env": {"A": 1}}),
    body(GOOD, {"depends_on": [{"on": "always"}]}),
    body(GOOD, {"x" * 2000: 1}),
    body(GOOD, 7),
    body(GOOD, None, {"comand": 1}),
    body(GOOD, more=1),
    body(GOOD, name=1),
    b'{"tasks": 7}',
    b"{}",
    b"[]",
    b"",
    body(GOOD)[:-3],
    body(GOOD, {"comand": 1})[:-1],
    body(GOOD) + b"x",
    body(GOOD).replace(b"true", b"\xff"),
    body(GOOD).replace(b"true", b"\\ud800"),
    body(GOOD, {"x": 1}).replace(b"true", b"\\ud800"),
    b'{"tasks": [' + b"[" * 5000,
    b'{"tasks": [{"command": ' + b"[" * 5000 + b"]" * 5000 + b"}]}",
]
BAD_GRAPHS = [
    by_ref(a=GOOD, b={"comand": 1}),
    by_ref(a=GOOD, b=[]),
    body(GOOD, defaults={"comand": 1}),
]


def said(error):
    return type(error), error.code, str(error), error.details


@pytest.mark.parametrize(
    ("whole", "read", "text"),
    [
        *((BATCH, decode_batch, one) for one in BAD),
        *((GRAPH, decode_graph, one) for one in [*BAD, *BAD_GRAPHS]),
    ],
)
async def test_what_is_wrong_is_said_as_of_the_whole(whole, read, text):
    with pytest.raises(DulyError) as expected:
        decode(text, whole)
    with pytest.raises(DulyError) as error:
        await read(text)
    assert said(error.value) == said(expected.value)


@pytest.mark.parametrize(
    "text",
    [
        body(),
        body(GOOD, {}, GOOD),
        body(GOOD, name="n", defaults={"tier": "basic"}),
        by_ref(),
        by_ref(x=GOOD, y={}),
        by_ref({"name": "n", "defaults": {"tier": "basic"}}, x=GOOD, y={}),
    ],
)
async def test_what_is_right_is_read_as_the_whole(text):
    assert await decode_graph(text) == decode(text, GRAPH)


async def turns_during(work):
    """Return how many turns others have had when `work` is done."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        await work
        counting.cancel()
    return turns


async def test_others_have_their_turn_while_a_large_body_is_read():
    assert await turns_during(decode_batch(body(*[GOOD] * (10 * AT_ONCE)))) >= 10


async def test_others_have_their_turn_while_many_tasks_are_checked():
    tasks = [TaskRequest(command=["true"]) for _ in range(10 * AT_ONCE)]
    assert await turns_during(complete_all(tasks, CLIENT)) >= 10


async def test_tasks_are_checked_in_their_order_and_a_bad_one_is_named():
    names = [str(number) for number in range(AT_ONCE + 1)]
    specs = await complete_all([TaskRequest(command=["true"], name=name) for name in names], CLIENT)
    assert [spec.name for spec in specs] == names
    with pytest.raises(Invalid) as error:
        await complete_all([TaskRequest(command=["true"]), TaskRequest(command=[])], CLIENT)
    assert error.value.field == "tasks[1].command"
