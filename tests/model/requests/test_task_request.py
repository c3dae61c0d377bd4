"""What a client may ask for, and how it is told what it may not."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.errors import DulyError, Invalid, TooLarge
from duly.model.requests.amounts import parse_size
from duly.model.requests.program_request import (
    MAX_ARGUMENT_BYTES,
    MAX_SOURCE_BYTES,
    MAX_STDIN_BYTES,
)
from duly.model.requests.task_request import (
    Completer,
    TaskRequest,
    complete,
    replayed,
    revise,
)
from duly.model.resources import TIERS, Resources
from duly.model.task import OnLost
from duly.model.tenant import Plan

PLAN = Plan(
    name="unlimited",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=24),
    max_execution_cap=timedelta(days=30),
    weight=1,
)


def ask(**fields):
    fields.setdefault("command", ["true"])
    return complete(msgspec.convert(fields, TaskRequest), PLAN)


def test_what_is_left_open_gets_the_plans_defaults():
    spec = ask()
    assert spec.resources == TIERS["basic"]
    assert (spec.tier, spec.delay_tolerance, spec.execution_cap) == (
        "basic",
        PLAN.delay_tolerance,
        PLAN.execution_cap,
    )
    assert (spec.max_attempts, spec.on_lost, spec.priority, spec.labels) == (3, OnLost.RETRY, 0, {})


def test_amounts_replace_those_of_the_tier_kind_by_kind():
    spec = ask(tier="regular", resources={"cpu": 0.25, "memory": "1.5GiB", "extra": {"gpu": 1}})
    assert spec.resources == Resources(
        cpu_milli=250, memory_mb=1536, disk_mb=2048, extra={"gpu": 1}
    )


def test_a_time_keeps_its_instant():
    spec = ask(run_at="2027-01-31T06:30:00+01:00")
    assert spec.run_at == datetime(2027, 1, 31, 5, 30, tzinfo=UTC)


REFUSED = [
    ({"command": []}, "command", 'it is empty. Write it like ["echo", "hi"].'),
    ({"command": [""]}, "command[0]", "is empty"),
    ({"command": ["a\0b"]}, "command[0]", "NUL"),
    ({"command": ["a", "\ud800"]}, "command[1]", "surrogate"),
    ({"command": ["x" * (MAX_ARGUMENT_BYTES + 1)]}, "command[0]", "at most"),
    ({"command": ["x" * 100_000] * 11}, "command", "it has 1100000 bytes"),
    ({"command": ["x"] * 10_001}, "command", "arguments"),
    ({"source": "#!/bin/sh"}, "source", "command and source"),
    ({"command": None}, "command", "nothing to run"),
    ({"command": None, "source": "echo hi"}, "source", "#!/bin/sh"),
    ({"command": None, "script_path": "job.sh"}, "script_path", "absolute"),
    ({"name": ""}, "name", "it is empty. Give a value, or leave it out."),
    ({"name": "x" * 201}, "name", "at most 200"),
    ({"name": "a\0"}, "name", "NUL"),
    ({"tier": "huge"}, "tier", "there is no tier 'huge'. Use basic, regular or premium."),
    ({"resources": {"cpu": 0}}, "resources.cpu", "is not a number of CPUs"),
    ({"resources": {"memory_mb": 0}}, "resources.memory", "0 is too little. Use at least 1 MiB."),
    ({"resources": {"memory": "0"}}, "resources.memory", "0 is too little. Use at least 1 MiB."),
    ({"resources": {"cpu": -1}}, "resources.cpu", "is not a number of CPUs"),
    ({"resources": {"cpu": float("nan")}}, "resources.cpu", "is not a number of CPUs"),
    ({"resources": {"cpu": float("inf")}}, "resources.cpu", "is not a number of CPUs"),
    ({"resources": {"memory_mb": -1}}, "resources.memory_mb", "is not a whole number from 0"),
    (
        {"resources": {"memory_mb": 10**12}},
        "resources.memory_mb",
        "is not a whole number from 0",
    ),
    ({"resources": {"memory_mb": 1, "memory": "1MiB"}}, "resources.memory", "not both"),
    ({"resources": {"memory": "much"}}, "resources.memory", "512MiB"),
    ({"resources": {"extra": {"G P U": 1}}}, "resources.extra", "'G P U' is not the name"),
    ({"delay_tolerance": "soon"}, "delay_tolerance", "5m"),
    ({"delay_tolerance": -1}, "delay_tolerance", "-1 is not a duration from 0 to 100 years."),
    ({"delay_tolerance": 1e300}, "delay_tolerance", "100 years"),
    ({"execution_cap": 0}, "execution_cap", "more than 0"),
    ({"execution_cap": "31d"}, "execution_cap", "31 d is more than the 30 d"),
    ({"max_attempts": 0}, "max_attempts", "is not a whole number from 1"),
    ({"max_attempts": 10**9}, "max_attempts", "is not a whole number from 1"),
    ({"priority": 10**18}, "priority", "is not a whole number from"),
    ({"on_lost": "panic"}, "on_lost", "'panic' is unknown. Use retry or fail."),
    ({"on_overdue": "sulk"}, "on_overdue", "'sulk' is unknown. Use wait or cancel."),
    ({"run_at": "tomorrow"}, "run_at", "2027-01-31T06:30:00Z"),
    ({"run_at": "2027-01-31T06:30:00"}, "run_at", "offset"),
    ({"run_at": "9999-01-01T00:00:00Z"}, "run_at", "2200"),
    ({"idempotency_key": " "}, "idempotency_key", "it is empty. Give a value, or leave it out."),
    ({"env": {"A B": "1"}}, "env", "'A B' is not the name"),
    ({"env": {"DULY_TASK_ID": "1"}}, "env", "'DULY_TASK_ID' is reserved"),
    ({"env": {"A": "\0"}}, "env.A", "NUL"),
    ({"env": {f"A{i}": "" for i in range(1001)}}, "env", "at most 1000"),
    (
        {"env": {"PATH": ":".join(f"/{i}" for i in range(257))}},
        "env.PATH",
        "it names 257 different folders; at most 256 are allowed.",
    ),
    (
        {"env": {"A": "x" * 131_072}},
        "env.A",
        "it has 131073 bytes with its name; at most 131070 are allowed.",
    ),
    ({"labels": {"": "x"}}, "labels", "1 to 100"),
    ({"labels": {"a": "x" * 101}}, "labels", "1 to 100"),
]


@pytest.mark.parametrize(("fields", "field", "words"), REFUSED)
def test_every_refusal_names_the_field_and_says_what_is_wrong(fields, field, words):
    with pytest.raises(Invalid) as refusal:
        ask(**fields)
    assert refusal.value.field == field
    assert words in refusal.value.message


def test_a_script_has_a_size():
    with pytest.raises(TooLarge):
        ask(command=None, source="#!" + "x" * MAX_SOURCE_BYTES)


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("512MiB", 512), ("2 GB", 2048), ("1k", 1), ("1048577", 2), ("0.5g", 512), ("0", 0)],
)
def test_a_size_is_rounded_up_to_whole_mebibytes(text, mebibytes):
    assert parse_size(text, "memory") == mebibytes


def test_a_change_leaves_the_rest_as_it_was():
    spec = ask(name="a", tier="regular", labels={"x": "1"}, idempotency_key="k", execution_cap=5)
    changed = revise(spec, {"priority": 7}, PLAN)
    assert changed == msgspec.structs.replace(spec, priority=7)


def test_resources_change_kind_by_kind_unless_a_tier_is_named():
    spec = ask(tier="regular", resources={"cpu": 3})
    assert revise(spec, {"resources": {"memory": "2GiB"}}, PLAN).resources == Resources(
        cpu_milli=3000, memory_mb=2048, disk_mb=2048
    )
    assert revise(spec, {"tier": "premium"}, PLAN).resources == TIERS["premium"]


def test_another_way_to_run_replaces_the_one_before():
    changed = revise(ask(command=["true"]), {"source": "#!/bin/sh\n"}, PLAN)
    assert (changed.payload.command, changed.payload.source) == (None, "#!/bin/sh\n")


def test_an_idempotency_key_cannot_be_changed():
    with pytest.raises(Invalid, match="cannot be changed"):
        revise(ask(), {"idempotency_key": "k"}, PLAN)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(TaskRequest.__struct_fields__), json, max_size=6)


@given(fields)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_asked_is_either_accepted_or_refused_with_a_sentence(body):
    try:
        spec = complete(msgspec.convert(body, TaskRequest), PLAN)
    except (DulyError, msgspec.ValidationError) as refusal:
        assert str(refusal)
    else:
        assert revise(spec, {}, PLAN) == spec


@given(fields, fields)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_changed_is_either_accepted_or_refused_with_a_sentence(body, changes):
    try:
        revise(complete(msgspec.convert(body, TaskRequest), PLAN), changes, PLAN)
    except (DulyError, msgspec.ValidationError) as refusal:
        assert str(refusal)


TERMS = st.fixed_dictionaries(
    {},
    optional={
        "tier": st.sampled_from(["basic", "regular"]),
        "resources": st.sampled_from([{"cpu": 0.5}, {"cpu": 1}, {"memory": "1GiB"}]),
        "delay_tolerance": st.sampled_from([60, "60", "2m"]),
        "execution_cap": st.sampled_from([60, "1h"]),
        "max_attempts": st.integers(1, 3),
        "on_lost": st.sampled_from(["retry", "fail"]),
        "on_overdue": st.sampled_from(["wait", "cancel"]),
        "requires": st.sampled_from([{"zone": "a"}, {"zone": "b"}]),
        "priority": st.integers(0, 1),
        "concurrency": st.sampled_from([{"key": "a", "limit": 1}, {"key": "a", "limit": 2}]),
        "name": st.sampled_from(["a", "b"]),
        "labels": st.sampled_from([{"a": "b"}, {"a": "c"}]),
        "unique": st.sampled_from([{"key": "a"}, {"key": "b", "while": "waiting"}]),
    },
)


@given(st.lists(TERMS, max_size=6))
def test_in_a_batch_each_is_completed_as_if_it_came_alone(batch):
    requests = [msgspec.convert({"command": ["true"], **terms}, TaskRequest) for terms in batch]
    completer = Completer(PLAN)
    assert [completer.complete(request) for request in requests] == [
        complete(request, PLAN) for request in requests
    ]


def test_input_is_bounded_and_refused_as_invalid_beyond_that():
    assert ask(stdin="ü" * (MAX_STDIN_BYTES // 2)).payload.stdin is not None
    with pytest.raises(Invalid, match="bundle") as refused:
        ask(stdin="ü" * (MAX_STDIN_BYTES // 2) + "x")
    assert refused.value.field == "stdin"
    with pytest.raises(Invalid, match="NUL"):
        ask(stdin="a\0b")


def test_input_stays_when_a_task_is_changed_or_replayed():
    spec = ask(stdin="hi")
    assert revise(spec, {"priority": 1}, PLAN).payload.stdin == "hi"
    assert revise(spec, {"stdin": None}, PLAN).payload.stdin is None
    assert replayed(spec, PLAN, replay_of=1).payload.stdin == "hi"
