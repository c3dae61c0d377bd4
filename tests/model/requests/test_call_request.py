"""Calls of functions: what a request may ask for, what is stored, and what answers show."""

import msgspec
import pytest

from duly.errors import Invalid, Malformed
from duly.model.requests.call_request import call_as_request
from duly.model.requests.task_request import Completer, TaskRequest, complete, replayed, revise
from duly.model.resources import ONE_SLOT
from duly.model.task import TaskSpec
from tests.model.requests.test_task_request import PLAN


def request(body: str, **fields: object) -> TaskRequest:
    asked = msgspec.json.decode(b'{"call": %s}' % body.encode(), type=TaskRequest)
    for name, value in fields.items():
        setattr(asked, name, value)
    return asked


def ask(body: str, **fields: object) -> TaskSpec:
    return complete(request(body, **fields), PLAN)


def shown(spec: TaskSpec) -> dict:
    assert spec.payload.call is not None
    return msgspec.json.decode(
        msgspec.json.encode(call_as_request(spec.payload.call, redacted=True))
    )


ENCODE = '{"function": "shop:encode", "args": ["a.mp4"], "kwargs": {"height": 720}}'


def test_a_call_takes_one_slot_and_is_named_like_its_function():
    spec = ask(ENCODE)
    assert (spec.name, spec.resources) == ("shop:encode", ONE_SLOT)
    assert spec.payload.call.memory_mb == 256
    assert ask(ENCODE, name="mine").name == "mine"


def test_arguments_are_passed_through_with_every_digit():
    spec = ask('{"function": "f", "args": [1.10, 123456789012345678901234567890, "\\u0000"]}')
    assert spec.payload.call.arguments == (
        '{"args":[1.10,123456789012345678901234567890,"\\u0000"],"kwargs":{}}'
    )


@pytest.mark.parametrize(
    ("body", "fields", "field"),
    [
        ('{"function": " "}', {}, "call.function"),
        ('{"function": "%s"}' % ("x" * 201), {}, "call.function"),
        ('{"function": "f", "args": [%s]}' % ("[" * 101 + "]" * 101), {}, "call.args[0]"),
        ('{"function": "f", "kwargs": {"a": %s}}' % ("[" * 101 + "]" * 101), {}, "call.kwargs.a"),
        ('{"function": "f", "args": [1%s]}' % (",1" * 10_000), {}, "call"),
        ('{"function": "f", "secret": [-1]}', {}, "call.secret"),
        ('{"function": "f", "secret": [""]}', {}, "call.secret"),
        ('{"function": "f"}', {"env": {"A": "b"}}, "env"),
        ('{"function": "f"}', {"stdin": "x"}, "stdin"),
        ('{"function": "f"}', {"command": ["ls"]}, "call"),
        ('{"function": "f", "args": []}', {"artifact": "0" * 64}, "call.args"),
        ('{"function": "f", "kwargs": {}}', {"artifact": "0" * 64}, "call.kwargs"),
        ('{"function": "f"}', {"artifact": "x"}, "artifact"),
    ],
)
def test_a_call_that_has_no_meaning_is_refused(body, fields, field):
    with pytest.raises(Invalid) as refused:
        ask(body, **fields)
    assert refused.value.details["field"] == field


def test_a_call_can_only_ask_for_memory():
    asked = msgspec.convert({"memory": "2GiB"}, TaskRequest.__annotations__["resources"])
    assert ask(ENCODE, resources=asked).payload.call.memory_mb == 2048
    asked = msgspec.convert({"cpu": 2}, TaskRequest.__annotations__["resources"])
    with pytest.raises(Invalid, match=r"resources\.cpu"):
        ask(ENCODE, resources=asked)


@pytest.mark.parametrize("argument", [b'"\xff"', b"1e400", b"9" * 5000])
def test_json_that_no_worker_could_read_is_refused(argument):
    body = b'{"call": {"function": "f", "args": [%s]}}' % argument
    with pytest.raises(Malformed, match=r"call\.args\[0\]"):
        complete(msgspec.json.decode(body, type=TaskRequest), PLAN)


def test_with_an_artifact_a_call_has_no_arguments_of_its_own():
    spec = ask('{"function": "f"}', artifact="0" * 64)
    assert spec.payload.call.arguments == ""
    assert shown(spec) == {"function": "f", "args": None, "kwargs": None, "secret": None}


def test_secret_arguments_are_stored_and_never_shown():
    spec = ask(
        '{"function": "f", "args": [1, "pin"], "kwargs": {"key": "k", "b": 2},'
        ' "secret": ["key", 1, "absent", 9]}'
    )
    assert '"pin"' in spec.payload.call.arguments
    assert shown(spec)["args"] == [1, "***"]
    assert shown(spec)["kwargs"] == {"key": "***", "b": 2}


def test_a_batch_does_not_share_the_needs_of_a_command_with_a_call():
    completer = Completer(PLAN)
    command = completer.complete(TaskRequest(command=["ls"]))
    call = completer.complete(request(ENCODE))
    again = completer.complete(TaskRequest(command=["ls"]))
    assert call.resources == ONE_SLOT
    assert command.resources == again.resources != ONE_SLOT


def test_an_update_of_something_else_keeps_a_call():
    old = ask(ENCODE)
    new = revise(old, {"priority": 3}, PLAN)
    assert (new.payload, new.resources, new.name) == (old.payload, ONE_SLOT, "shop:encode")


def test_a_new_call_brings_its_name_unless_one_was_given():
    call = request('{"function": "shop:other"}').call
    assert revise(ask(ENCODE), {"call": call}, PLAN).name == "shop:other"
    assert revise(ask(ENCODE, name="mine"), {"call": call}, PLAN).name == "mine"


def test_a_call_that_becomes_a_command_gets_the_resources_of_its_tier_and_back():
    command = revise(ask(ENCODE), {"command": ["ls"]}, PLAN)
    assert command.payload.call is None
    assert command.resources.cpu_milli == 500
    call = request(ENCODE).call
    again = revise(
        msgspec.structs.replace(
            command, payload=msgspec.structs.replace(command.payload, env={"A": "b"})
        ),
        {"call": call},
        PLAN,
    )
    assert (again.resources, again.payload.env) == (ONE_SLOT, {})


def test_a_call_sent_back_as_it_was_shown_keeps_its_secrets():
    old = ask('{"function": "f", "args": ["pin"], "kwargs": {"k": "v"}, "secret": ["k", 0]}')
    sent = request(
        '{"function": "f", "args": ["***"], "kwargs": {"k": "***", "n": 1}, "secret": ["k", 0]}'
    ).call
    new = revise(old, {"call": sent}, PLAN)
    assert new.payload.call.arguments == '{"args":["pin"],"kwargs":{"k":"v","n":1}}'


@pytest.mark.parametrize(
    "body",
    [
        '{"function": "g", "kwargs": {"k": "***"}, "secret": ["k"]}',
        '{"function": "f", "kwargs": {"k": "***"}}',
    ],
)
def test_a_secret_goes_to_no_other_function_and_is_never_uncovered(body):
    old = ask('{"function": "f", "kwargs": {"k": "v"}, "secret": ["k"]}')
    new = revise(old, {"call": request(body).call}, PLAN)
    assert new.payload.call.arguments == '{"args":[],"kwargs":{"k":"***"}}'


def test_a_replay_calls_the_same_function_with_the_same_arguments():
    old = ask('{"function": "f", "kwargs": {"k": "v"}, "secret": ["k"]}')
    assert replayed(old, PLAN, replay_of=7).payload.call == old.payload.call
