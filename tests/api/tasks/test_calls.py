"""Calls of functions through the API: stored untouched, and secrets never told."""

import msgspec

SECRET = "hunter2-hunter2"
CALL = {
    "function": "shop.tasks:login",
    "args": ["kim", SECRET],
    "kwargs": {"token": SECRET, "height": 720},
    "secret": [1, "token"],
}
SHOWN = {**CALL, "args": ["kim", "***"], "kwargs": {"token": "***", "height": 720}}


async def payload_of(api, task):
    async with api.components.database.connection() as conn:
        select = "select payload::text from tasks where id = $1"
        return await conn.fetchval(select, int(task["id"]))


async def test_a_call_is_answered_without_its_secrets_wherever_it_is_shown(api):
    answers = [await api.call("POST", "/v1/tasks", json={"call": CALL, "labels": {"a": "b"}})]
    task = answers[0].json()
    assert (task["name"], task["call"], task["command"]) == (CALL["function"], SHOWN, None)
    assert task["resources"]["extra"] == {"slots": 1}
    path = f"/v1/tasks/{task['id']}"
    changed = await api.call("PATCH", path, json={"call": {**SHOWN, "args": ["jo", "***"]}})
    answers += [changed, await api.call("GET", path), await api.call("GET", "/v1/tasks")]
    answers += [await api.call("GET", f"{path}/why"), await api.call("GET", "/v1/audit")]
    answers.append(await api.call("POST", f"{path}/cancel"))
    answers.append(await api.call("POST", f"{path}/replay"))
    assert [answer.status_code for answer in answers] == [201, *[200] * 6, 201]
    assert changed.json()["call"]["args"] == ["jo", "***"]
    assert not any(SECRET in answer.text for answer in answers)


async def test_the_stored_arguments_are_those_that_were_sent(api):
    body = (
        b'{"call": {"function": "f", "args": [1.10, 12345678901234567890123,'
        b' "\\u0000", {"$result": "up"}], "kwargs": {"b": null}}}'
    )
    answer = await api.client.post(
        "/v1/tasks", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201, answer.text
    payload = await payload_of(api, answer.json())
    stored = msgspec.json.decode(payload)["call"]["arguments"]
    assert stored == (
        '{"args":[1.10,12345678901234567890123,"\\u0000",{"$result": "up"}],"kwargs":{"b":null}}'
    )


async def test_the_same_call_under_one_idempotency_key_is_one_task(api):
    first = await api.call("POST", "/v1/tasks", json={"call": CALL, "idempotency_key": "k"})
    spaced = msgspec.json.format(msgspec.json.encode({"call": CALL, "idempotency_key": "k"}))
    again = await api.client.post("/v1/tasks", content=spaced)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = {**CALL, "args": ["jo", SECRET]}
    refused = await api.call("POST", "/v1/tasks", json={"call": other, "idempotency_key": "k"})
    assert refused.status_code == 409


async def test_calls_and_commands_mix_in_a_batch_and_in_a_graph(api):
    tasks = [{"command": ["true"]}, {"call": CALL}, {"call": {"function": "g"}}]
    batch = await api.call("POST", "/v1/tasks/batch", json={"tasks": tasks})
    assert batch.status_code == 201, batch.text
    stored = [(await api.get(f"/v1/tasks/{id_}"))["call"] for id_ in batch.json()["ids"]]
    assert [call and call["function"] for call in stored] == [None, "shop.tasks:login", "g"]
    nodes = {
        "a": {"call": CALL},
        "b": {"call": {"function": "g", "args": [{"$result": "a"}]}, "depends_on": ["a"]},
    }
    graph = await api.call("POST", "/v1/graphs", json={"tasks": nodes})
    assert graph.status_code == 201, graph.text


async def test_what_no_worker_could_take_is_refused(api):
    for body, status in (
        ({"call": CALL, "resources": {"extra": {"slots": 2}}}, 422),
        ({"command": ["true"], "resources": {"extra": {"slots": 2}}}, 422),
        ({"call": {"function": "f", "self": 1}}, 422),
        ({"call": {"function": "f", "args": {}}}, 422),
    ):
        assert (await api.call("POST", "/v1/tasks", json=body)).status_code == status


async def test_a_schedule_keeps_its_call_with_every_digit_and_hides_its_secrets(api):
    body = (
        b'{"every": "1h", "task": {"call": {"function": "f", "args": [1.10, "\\u0000", "%s"],'
        b' "secret": [2]}}}' % SECRET.encode()
    )
    made = await api.client.post("/v1/schedules", content=body)
    assert made.status_code == 201, made.text
    assert b'"args":[1.10,"\\u0000","***"]' in made.content
    path = f"/v1/schedules/{made.json()['id']}"
    back = made.json()["task"]
    changed = await api.call("PATCH", path, json={"task": {**back, "priority": 3}})
    assert changed.status_code == 200, changed.text
    fired = await api.call("POST", f"{path}/run")
    assert fired.status_code == 201, fired.text
    task = fired.json()
    assert SECRET not in made.text + changed.text + fired.text
    payload = await payload_of(api, task)
    arguments = msgspec.json.decode(msgspec.json.decode(payload)["call"]["arguments"])
    assert arguments["args"] == [1.1, "\0", SECRET]
