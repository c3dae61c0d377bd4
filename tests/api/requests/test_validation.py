"""Every validation error names the field and what it must be."""

import asyncio

TASK = {"command": ["true"]}


BAD_FIELDS = [
    ({"comand": ["ls"]}, "comand", "comand: there is no such field. Did you mean 'command'?"),
    (
        {"depends_on": ["1 2"]},
        "depends_on[0]",
        "depends_on[0]: '1 2' is neither a task ID nor a ref.",
    ),
    (
        {"depends_on": ["nobody"]},
        "depends_on[0]",
        "depends_on[0]: no task of this request has the ref 'nobody'. Give one of its refs, or a "
        "task ID.",
    ),
    ({"depends_on": ["1"]}, "depends_on[0]", "depends_on[0]: there is no task '1'."),
    (
        {"ref": "17"},
        "ref",
        "ref: '17' is not a valid ref. Use at most 100 of the characters a-z, A-Z, 0-9, '.', '_' "
        "and '-', and not digits alone.",
    ),
    (
        {"resources": {"cpus": 1}},
        "resources.cpus",
        "resources.cpus: there is no such field. Did you mean 'cpu'?",
    ),
    ({"name": 3}, "name", "name: it must be text, not a whole number."),
    ({"name": ""}, "name", "name: it is empty. Give a value, or leave it out."),
    ({"name": "x" * 201}, "name", "name: it has 201 characters; at most 200 are allowed."),
    ({"name": "a\0b"}, "name", "name: it contains a NUL character. Remove it."),
    (
        {"command": []},
        "command",
        'command: it is empty. Write it like ["echo", "hi"].',
    ),
    ({"command": ["a", 3]}, "command[1]", "command[1]: it must be text, not a whole number."),
    (
        {"command": ["a", "\0"]},
        "command[1]",
        "command[1]: it contains a NUL character. Remove it.",
    ),
    ({"command": "ls"}, "command", "command: it must be a list, not text."),
    (
        {"command": None},
        "command",
        "command: there is nothing to run. Give exactly one of command, script_path, source and "
        "call.",
    ),
    (
        {"source": "#!/bin/sh"},
        "source",
        "source: command and source are given. Give exactly one of command, script_path, "
        "source and call.",
    ),
    (
        {"execution_cap": "soon"},
        "execution_cap",
        "execution_cap: 'soon' is not a duration. Try 90, 5m or 1h30m.",
    ),
    ({"execution_cap": 0}, "execution_cap", "execution_cap: it must be more than 0."),
    (
        {"delay_tolerance": -1},
        "delay_tolerance",
        "delay_tolerance: -1 is not a duration from 0 to 100 years.",
    ),
    (
        {"delay_tolerance": True},
        "delay_tolerance",
        "delay_tolerance: it must be a number or text, not true or false.",
    ),
    ({"max_attempts": 0}, "max_attempts", "max_attempts: 0 is not a whole number from 1 to 1000."),
    (
        {"max_attempts": 1.5},
        "max_attempts",
        "max_attempts: it must be a whole number, not a number with a fraction.",
    ),
    (
        {"priority": 10**30},
        "priority",
        f"priority: {10**30} is not a whole number from -1000000 to 1000000.",
    ),
    ({"on_lost": "weep"}, "on_lost", "on_lost: 'weep' is unknown. Use retry or fail."),
    (
        {"run_at": "tomorrow"},
        "run_at",
        "run_at: 'tomorrow' is not a time. Write it like 2027-01-31T06:30:00Z.",
    ),
    ({"tier": "gold"}, "tier", "tier: there is no tier 'gold'. Use basic, regular or premium."),
    (
        {"resources": {"cpu": 0}},
        "resources.cpu",
        "resources.cpu: 0 is not a number of CPUs from 0.001 to 100000. Try 0.5 or 2.",
    ),
    (
        {"resources": {"cpu": 1e9}},
        "resources.cpu",
        "resources.cpu: 1000000000 is not a number of CPUs from 0.001 to 100000. Try 0.5 or 2.",
    ),
    (
        {"resources": {"memory_mb": -1}},
        "resources.memory_mb",
        "resources.memory_mb: -1 is not a whole number from 0 to 1000000000.",
    ),
    (
        {"resources": {"extra": {"gpu": "two"}}},
        "resources.extra",
        "resources.extra: it must be a whole number, not text.",
    ),
    ({"env": {"A": 1}}, "env", "env: it must be text, not a whole number."),
    (
        {"env": {"A=B": "x"}},
        "env",
        "env: 'A=B' is not the name of a variable. Use letters, digits and '_', and begin with no "
        "digit.",
    ),
    (
        {"env": {"DULY_KEY": "x"}},
        "env",
        "env: 'DULY_KEY' is reserved, as all names that begin with DULY_. Rename it.",
    ),
    ({"labels": {"a": "\0"}}, "labels.a", "labels.a: it contains a NUL character. Remove it."),
]


async def test_a_bad_field_is_named_and_explained(api):
    for fields, field, message in BAD_FIELDS:
        status, error = await api.refused("POST", "/v1/tasks", json={**TASK, **fields})
        told = (status, error["code"], error["details"]["field"], error["message"])
        assert told == (422, "invalid", field, message)


NOT_JSON = [
    (b"", "The body is not valid JSON: Input data was truncated."),
    (b"{", "The body is not valid JSON: Input data was truncated."),
    (b"[]", "The body must be a JSON object."),
    (b"null", "The body must be a JSON object."),
    (b"[" * 100_000, "The body is nested too deeply."),
    (b'{"labels": ' + b"[" * 100_000, "The body is nested too deeply."),
    (b'{"zzz": ' + b'{"a":' * 100_000, "The body is nested too deeply."),
    (b"[" * 100_000 + b"]" * 100_000, "The body is nested too deeply."),
    (b'{"name": "\xff"}', "The body is not valid UTF-8."),
    (
        b'{"execution_cap": NaN}',
        "The body is not valid JSON: invalid character (byte 18).",
    ),
    (
        b'{"command": ["true"]} trailing',
        "The body is not valid JSON: trailing characters (byte 23).",
    ),
]


async def test_what_is_not_json_is_malformed(api):
    for body, message in NOT_JSON:
        status, error = await api.refused("POST", "/v1/tasks", content=body)
        assert (status, error["code"], error["message"]) == (400, "malformed", message)


async def test_half_of_a_surrogate_pair_is_refused(api):
    for text in (rb"\ud800", rb"\udc00x", rb"\ud800\u0041"):
        body = b'{"command": ["true"], "name": "a' + text + b'"}'
        status, error = await api.refused("POST", "/v1/tasks", content=body)
        assert status in (400, 422)
        assert "surrogate" in error["message"]


async def test_numbers_beyond_every_bound_are_refused(api):
    for number in (b"1e400", b"-1e400", b"9" * 5000, b"1e308", b"-0.0"):
        for name in (b"execution_cap", b"priority", b"max_attempts"):
            body = b'{"command": ["true"], "%s": %s}' % (name, number)
            status, error = await api.refused("POST", "/v1/tasks", content=body)
            assert status in (400, 422), error


async def test_one_bad_task_refuses_the_batch_and_is_named(api):
    tasks = [TASK, TASK, {**TASK, "resources": {"cpu": -1}}]
    status, error = await api.refused("POST", "/v1/tasks/batch", json={"tasks": tasks})
    assert status == 422
    assert error["details"]["field"] == "tasks[2].resources.cpu"
    assert error["message"].startswith("tasks[2].resources.cpu: -1 is not a number of CPUs")
    assert (await api.get("/v1/tasks"))["items"] == []


async def test_a_field_of_the_wrong_type_in_a_batch_is_named_with_a_suggestion(api):
    tasks = [TASK, {"comand": []}]
    status, error = await api.refused("POST", "/v1/tasks/batch", json={"tasks": tasks})
    assert (status, error["details"]["field"]) == (422, "tasks[1].comand")
    assert error["message"] == "tasks[1].comand: there is no such field. Did you mean 'command'?"


async def test_of_a_dependency_nothing_is_suggested_that_a_task_has(api):
    mistaken = {**TASK, "depends_on": [{"ref": "a"}]}
    for tasks in ({"a": TASK, "b": mistaken}, [{**TASK, "ref": "a"}, {**mistaken, "ref": "b"}]):
        status, error = await api.refused("POST", "/v1/graphs", json={"tasks": tasks})
        assert status == 422
        assert error["message"].endswith("depends_on[0].ref: there is no such field.")
    tasks = {"a": TASK, "b": {**TASK, "depends_on": [{"tsk": "a"}]}}
    _, error = await api.refused("POST", "/v1/graphs", json={"tasks": tasks})
    assert error["message"].endswith("tsk: there is no such field. Did you mean 'task'?")


async def test_a_batch_without_tasks_is_refused(api):
    for body in ({}, {"tasks": []}, {"tasks": "all"}, {"task": []}):
        status, error = await api.refused("POST", "/v1/tasks/batch", json=body)
        assert (status, error["code"]) == (422, "invalid")


async def test_a_parameter_that_does_not_exist_is_refused(api):
    status, error = await api.refused("GET", "/v1/tasks?stauts=done")
    assert (status, error["details"]["field"]) == (422, "stauts")
    assert error["message"] == "stauts: there is no such parameter. Did you mean 'status'?"


async def test_a_bad_parameter_is_named(api):
    for query in (
        "limit=0",
        "limit=1001",
        "limit=ten",
        "limit=1&limit=2",
        "cursor=nonsense",
        "cursor=_____________",
        "status=gone",
        "label=novalue",
        "label=a=1&label=a=2",
        "since=yesterday",
        "since=2027-01-31",
        "name=a%00b",
    ):
        status, error = await api.refused("GET", f"/v1/tasks?{query}")
        assert (status, error["details"]["field"]) == (422, query.partition("=")[0])


async def test_a_parameter_in_another_encoding_finds_nothing(api):
    assert (await api.get("/v1/tasks?name=%ff&user=%c3%28"))["items"] == []


async def test_a_name_as_long_as_the_body_is_refused_at_once(api):
    """It once took the square of its length, with nobody else served meanwhile."""
    name = " - at `$" * 100_000 + "\n"
    async with asyncio.timeout(10):
        status, error = await api.refused("POST", "/v1/tasks", json={**TASK, name: 1})
    assert (status, error["details"]["field"]) == (422, (" - at `$" * 8)[:60])


async def test_a_time_as_long_as_the_body_is_refused_at_once(api):
    async with asyncio.timeout(10):
        status, error = await api.refused(
            "POST", "/v1/tasks/cancel", json={"since": "1." * 500_000 + "x"}
        )
    assert (status, error["details"]["field"]) == (422, "since")
