"""Graphs and dependencies over REST."""

import pytest

from duly.api.tasks.graphs import MAX_TASKS_LISTED
from duly.model import graph as model

TRUE = {"command": ["true"]}


def task(ref, *upstreams, **fields):
    return {**TRUE, "ref": ref, "depends_on": list(upstreams), **fields}


async def submit(api, *tasks, **body):
    answer = await api.call("POST", "/v1/graphs", json={"tasks": list(tasks), **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


DIAMOND = (task("end", "left", "right"), task("left", "a"), task("right", "a"), task("a"))


async def test_a_task_tells_what_it_depends_on_and_for_whom_it_waits(api):
    first, other = await api.submit(), await api.submit()
    depends_on = [first["id"], {"task": other["id"], "on": "always"}]
    second = await api.submit(depends_on=depends_on)
    assert (second["status"], second["depends_on"]) == ("blocked", depends_on)
    why = await api.get(f"/v1/tasks/{second['id']}/why")
    assert why == {
        "code": "upstream_running",
        "message": f"Waiting for tasks {first['id']} and {other['id']} to end.",
        "details": {"left": 2, "upstreams": [first["id"], other["id"]]},
    }
    assert [one["id"] for one in (await api.get("/v1/tasks?status=blocked"))["items"]] == [
        second["id"]
    ]


async def test_a_request_with_too_many_dependencies_is_refused_whole(api, monkeypatch):
    monkeypatch.setattr(model, "MAX_DEPENDENCIES", 3)
    for path in ("/v1/graphs", "/v1/tasks/batch"):
        status, error = await api.refused("POST", path, json={"tasks": list(DIAMOND)})
        assert (status, error["code"], error["details"]["limit"]) == (413, "too_large", 3)
    assert (await api.get("/v1/tasks"))["items"] == []


async def test_a_cancelled_task_takes_along_who_needs_it(api):
    first = await api.submit()
    second = await api.submit(depends_on=[first["id"]])
    await api.call("POST", f"/v1/tasks/{first['id']}/cancel")
    ended = await api.get(f"/v1/tasks/{second['id']}?wait=10")
    assert (ended["status"], ended["reason"]["code"]) == ("cancelled", "upstream_failed")
    assert first["id"] in ended["reason"]["message"]


async def test_a_graph_is_stored_whole_and_told_in_order(api):
    made = await submit(api, *DIAMOND, name="photo", defaults={"tier": "regular"})
    graph = await api.get(f"/v1/graphs/{made['id']}")
    assert [part["ref"] for part in graph["tasks"]] == ["a", "left", "right", "end"]
    assert [part["status"] for part in graph["tasks"]] == ["waiting", *["blocked"] * 3]
    ids = made["ids"]
    assert graph["tasks"][3]["depends_on"] == sorted([ids["left"], ids["right"]], key=int)
    assert (graph["name"], graph["status"], graph["more"]) == ("photo", "running", False)
    assert graph["counts"] == {"waiting": 1, "blocked": 3}
    one = await api.get(f"/v1/tasks/{ids['left']}")
    assert (one["graph"], one["ref"], one["tier"]) == (made["id"], "left", "regular")


async def test_what_is_around_a_task_is_told_from_both_ends(api):
    ids = (await submit(api, *DIAMOND, task("alone")))["ids"]
    around = await api.get(f"/v1/tasks/{ids['left']}/graph")
    assert around["dependencies"] == [ids["a"]]
    assert around["dependents"] == [ids["end"]]
    assert {part["ref"] for part in around["tasks"]} == {"a", "left", "end"}
    first = await api.get(f"/v1/tasks/{ids['a']}/graph")
    assert {part["ref"] for part in first["tasks"]} == {"a", "left", "right", "end"}
    assert set(first["dependents"]) == {ids["left"], ids["right"]}


async def test_what_is_around_a_task_has_a_bound(api):
    width = MAX_TASKS_LISTED + 50
    answer = await api.call(
        "POST",
        "/v1/graphs",
        json={"tasks": [task("a"), *(task(f"w{n}", "a") for n in range(width))]},
    )
    around = await api.get(f"/v1/tasks/{answer.json()['ids']['a']}/graph")
    assert (len(around["tasks"]), around["more"]) == (MAX_TASKS_LISTED + 1, True)
    graph = await api.get(f"/v1/graphs/{answer.json()['id']}")
    assert (len(graph["tasks"]), graph["more"]) == (MAX_TASKS_LISTED, True)
    assert graph["counts"] == {"waiting": 1, "blocked": width}


async def test_a_graph_may_be_an_object_by_refs(api):
    made = await api.call(
        "POST", "/v1/graphs", json={"tasks": {"b": {**TRUE, "depends_on": ["a"]}, "a": TRUE}}
    )
    assert made.json()["ids"].keys() == {"a", "b"}


async def test_a_graph_with_a_key_is_stored_once(api):
    headers = {"idempotency-key": "k"}
    body = {"name": "g", "tasks": list(DIAMOND)}
    first = await api.call("POST", "/v1/graphs", json=body, headers=headers)
    again = await api.call("POST", "/v1/graphs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert len((await api.get("/v1/tasks"))["items"]) == 4


async def test_the_rest_of_a_graph_is_cancelled(api):
    made = await submit(api, *DIAMOND)
    answer = await api.call("POST", f"/v1/graphs/{made['id']}/cancel")
    assert answer.json() == {"cancelled": 4, "more": False}
    graph = await api.get(f"/v1/graphs/{made['id']}")
    assert (graph["status"], graph["counts"]) == ("cancelled", {"cancelled": 4})
    again = await api.call("POST", f"/v1/graphs/{made['id']}/cancel")
    assert again.json() == {"cancelled": 0, "more": False}


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"tasks": []}, "tasks", "empty"),
        ({"tasks": [TRUE]}, "tasks[0].ref", "it is missing."),
        ({"tasks": [task("a", "b"), task("b", "a")]}, "tasks[0].depends_on", "a → b → a"),
        ({"tasks": [task("a"), task("b", "b")]}, "tasks[1].depends_on", "b → b"),
        ({"tasks": [task("a", "a")]}, "tasks[0].depends_on", "a → a"),
        ({"tasks": [task("a", "b")]}, "tasks[0].depends_on[0]", "'b'"),
        ({"tasks": [task("b"), task("a", "b", "c")]}, "tasks[1].depends_on[1]", "'c'"),
        ({"tasks": [task("b"), task("a", "b", "1")]}, "tasks[1].depends_on[1]", "no task '1'"),
        ({"tasks": [task("a")], "defaults": {"ref": "x"}}, "defaults.ref", "each task"),
        ({"tasks": {"a": {**TRUE, "ref": "b"}}}, "tasks.a.ref", "'b' differs from the key 'a'"),
        ({"tasks": [task("a")], "name": ""}, "name", "characters"),
        ({"tasks": [task("a", execution_cap=0)]}, "tasks[0].execution_cap", "more than 0"),
    ],
)
async def test_what_is_no_graph_is_refused_by_field(api, body, field, says):
    status, error = await api.refused("POST", "/v1/graphs", json=body)
    assert (status, error["details"]["field"]) == (422, field)
    assert says in error["message"]


@pytest.mark.parametrize("path", ["/v1/graphs/1", "/v1/graphs/x", "/v1/tasks/1/graph"])
async def test_what_is_not_there_is_not_found(api, path):
    assert (await api.refused("GET", path))[0] == 404
