"""Every validation error names the field and what it must be."""

import asyncio

TASK = {"command": ["true"]}


BAD_FIELDS = [
    ({"comand": ["ls"]}, "comand", "There is no field 'comand' here. Did you mean 'command'?"),
    (
        {"depends_on": ["1 2"]},
        "depends_on[0]",
        "depends_on[0] is neither the id nor the ref of a task: '1 2'.",
    ),
    (
        {"depends_on": ["nobody"]},
        "depends_on[0]",
        "depends_on[0]: no task of this request has the ref 'nobody'.",
    ),
    ({"depends_on": ["1"]}, "depends_on[0]", "There is no task 1 to depend on."),
    (
        {"ref": "17"},
        "ref",
        "ref has at most 100 of a to z, A to Z, digits and ._- and is no number: '17'.",
    ),
    (
        {"resources": {"cpus": 1}},
        "resources.cpus",
        "There is no field 'cpus' here. Did you mean 'cpu'?",
    ),
    ({"name": 3}, "name", "name must be text or null, not a whole number."),
    ({"name": ""}, "name", "name must not be empty; leave it out instead."),
    ({"name": "x" * 201}, "name", "name may have at most 200 characters, not 201."),
    ({"name": "a\0b"}, "name", "name contains a NUL character; take it out."),
    (
        {"command": []},
        "command",
        'command is empty; write it like ["echo", "hi"].',
    ),
    ({"command": ["a", 3]}, "command[1]", "command[1] must be text, not a whole number."),
    (
        {"command": ["a", "\0"]},
        "command[1]",
        "command[1] contains a NUL character; take it out.",
    ),
    ({"command": "ls"}, "command", "command must be a list or null, not text."),
    (
        {"command": None},
        "command",
        "The task says nothing to run; give exactly one of command, script_path and source.",
    ),
    (
        {"source": "#!/bin/sh"},
        "source",
        "The task says command and source; give exactly one of command, script_path and source.",
    ),
    (
        {"execution_cap": "soon"},
        "execution_cap",
        "execution_cap: 'soon' is not a duration. Try 90, 5m or 1h30m.",
    ),
    ({"execution_cap": 0}, "execution_cap", "execution_cap must be more than 0."),
    (
        {"delay_tolerance": -1},
        "delay_tolerance",
        "delay_tolerance must be between 0 and 100 years, not -1.0.",
    ),
    (
        {"delay_tolerance": True},
        "delay_tolerance",
        "delay_tolerance must be a number or text or null, not true or false.",
    ),
    ({"max_attempts": 0}, "max_attempts", "max_attempts must be between 1 and 1000, not 0."),
    (
        {"max_attempts": 1.5},
        "max_attempts",
        "max_attempts must be a whole number or null, not a number.",
    ),
    (
        {"priority": 10**30},
        "priority",
        f"priority must be between -1000000 and 1000000, not {10**30}.",
    ),
    ({"on_lost": "weep"}, "on_lost", 'on_lost is "retry" or "fail", not \'weep\'.'),
    (
        {"run_at": "tomorrow"},
        "run_at",
        "run_at is not a time with an offset: 'tomorrow'. Write it like \"2027-01-31T06:30:00Z\".",
    ),
    ({"tier": "gold"}, "tier", "There is no tier 'gold'; there are basic, regular, premium."),
    (
        {"resources": {"cpu": 0}},
        "resources.cpu",
        "resources.cpu must be above 0 and at most 100000, in cores, not 0.0.",
    ),
    (
        {"resources": {"cpu": 1e9}},
        "resources.cpu",
        "resources.cpu must be above 0 and at most 100000, in cores, not 1000000000.0.",
    ),
    (
        {"resources": {"memory_mb": -1}},
        "resources.memory_mb",
        "resources.memory_mb must be between 0 and 1000000000, not -1.",
    ),
    (
        {"resources": {"extra": {"gpu": "two"}}},
        "resources.extra",
        "resources.extra must be a whole number, not text.",
    ),
    ({"env": {"A": 1}}, "env", "env must be text, not a whole number."),
    ({"env": {"A=B": "x"}}, "env", "env has a name that no shell takes: 'A=B'."),
    (
        {"env": {"DULY_KEY": "x"}},
        "env",
        "env may not set DULY_KEY: names in DULY_ are Duly's own.",
    ),
    ({"labels": {"a": "\0"}}, "labels.a", "labels.a contains a NUL character; take it out."),
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
    assert error["message"].startswith("tasks[2]: resources.cpu must be above 0")
    assert (await api.get("/v1/tasks"))["items"] == []


async def test_a_field_of_the_wrong_type_in_a_batch_is_named_with_a_suggestion(api):
    tasks = [TASK, {"comand": []}]
    status, error = await api.refused("POST", "/v1/tasks/batch", json={"tasks": tasks})
    assert (status, error["details"]["field"]) == (422, "tasks[1].comand")
    assert error["message"] == "There is no field 'comand' here. Did you mean 'command'?"


async def test_of_a_dependency_nothing_is_suggested_that_a_task_has(api):
    mistaken = {**TASK, "depends_on": [{"ref": "a"}]}
    for tasks in ({"a": TASK, "b": mistaken}, [{**TASK, "ref": "a"}, {**mistaken, "ref": "b"}]):
        status, error = await api.refused("POST", "/v1/graphs", json={"tasks": tasks})
        assert (status, error["message"]) == (422, "There is no field 'ref' here.")
    tasks = {"a": TASK, "b": {**TASK, "depends_on": [{"tsk": "a"}]}}
    _, error = await api.refused("POST", "/v1/graphs", json={"tasks": tasks})
    assert error["message"] == "There is no field 'tsk' here. Did you mean 'task'?"


async def test_a_batch_without_tasks_is_refused(api):
    for body in ({}, {"tasks": []}, {"tasks": "all"}, {"task": []}):
        status, error = await api.refused("POST", "/v1/tasks/batch", json=body)
        assert (status, error["code"]) == (422, "invalid")


async def test_a_parameter_that_does_not_exist_is_refused(api):
    status, error = await api.refused("GET", "/v1/tasks?stauts=done")
    assert (status, error["details"]["field"]) == (422, "stauts")
    assert error["message"] == "There is no parameter 'stauts' here. Did you mean 'status'?"


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
