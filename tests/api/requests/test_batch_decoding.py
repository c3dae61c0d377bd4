"""A batch decoded task by task gives the same errors as one decoded at once."""

import json

import pytest

from duly.api.requests.batch_decoding import (
    BATCH_DECODER,
    GRAPH_DECODER,
    complete_all,
    read_batch,
    read_graph,
)
from duly.api.requests.body import decode
from duly.config import RequestSettings
from duly.errors import DulyError, Invalid, TooLarge
from duly.model.requests.graph_request import tasks_with_defaults
from duly.model.requests.task_request import TaskRequest
from duly.model.tenant import Credential
from tests.model.requests.test_task_request import PLAN

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
        *((BATCH_DECODER, read_batch, one) for one in BAD),
        *((GRAPH_DECODER, read_graph, one) for one in [*BAD, *BAD_GRAPHS]),
    ],
)
async def test_what_is_wrong_is_said_as_of_the_whole(whole, read, text):
    with pytest.raises(DulyError) as expected:
        decode(text, whole)
    with pytest.raises(DulyError) as error:
        await read(text, CLIENT, RequestSettings())
    assert said(error.value) == said(expected.value)


@pytest.mark.parametrize(
    "text",
    [
        body(GOOD),
        body(GOOD, {**GOOD, "ref": "b"}, name="n", defaults={"tier": "basic"}),
        by_ref(x={"command": ["true"]}, y={"command": ["false"]}),
        by_ref({"name": "n", "defaults": {"command": ["true"]}}, x={}, y={}),
    ],
)
async def test_what_is_right_is_read_as_the_whole(text):
    whole = decode(text, GRAPH_DECODER)
    specs = complete_all(tasks_with_defaults(whole), CLIENT)
    assert await read_graph(text, CLIENT, RequestSettings()) == (whole.name, specs)


@pytest.mark.parametrize("read", [read_batch, read_graph])
@pytest.mark.parametrize("item", [{}, {"command": ["true"], "ref": "a"}, {"x": [{}, {}]}])
async def test_tasks_are_counted_before_anything_is_made_of_them(read, item):
    for text in (body(*[item] * 4), by_ref(**{str(n): item for n in range(4)})):
        if read is read_batch and b"[" not in text[:12]:
            continue
        with pytest.raises(TooLarge) as error:
            await read(text, CLIENT, RequestSettings(batch_tasks=3))
        assert str(error.value) == (
            "A request may have at most 3 tasks. Send them in several requests."
        )


async def test_a_task_of_many_is_no_larger_than_one_by_itself():
    text = body({"command": ["true"], "source": "#!" + "a" * 100_000})
    with pytest.raises(TooLarge):
        await read_batch(text, CLIENT, RequestSettings(body_limit=100_000))
    text = body({"command": ["a"] * 60_000})
    with pytest.raises(TooLarge):
        await read_batch(text, CLIENT, RequestSettings())


def test_tasks_are_checked_in_their_order_and_a_bad_one_is_named():
    names = [str(number) for number in range(101)]
    specs = complete_all([TaskRequest(command=["true"], name=name) for name in names], CLIENT)
    assert [spec.name for spec in specs] == names
    with pytest.raises(Invalid) as error:
        complete_all([TaskRequest(command=["true"]), TaskRequest(command=[])], CLIENT)
    assert error.value.field == "tasks[1].command"
