"""What an administrator may say of a plan."""

from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.duration import MAX_DURATION
from duly.errors import Invalid
from duly.model.queues.queue import REQUESTABLE
from duly.model.requests.plan_request import PlanRequest, change_plan, plan_from
from duly.model.tenant import Plan


def say(**fields):
    return plan_from(msgspec.convert({"name": "team", **fields}, PlanRequest))


def test_a_plan_of_which_only_the_name_is_said_has_no_limit():
    assert say() == Plan(
        name="team",
        delay_tolerance=timedelta(minutes=5),
        execution_cap=timedelta(hours=24),
        max_execution_cap=MAX_DURATION,
        weight=1,
    )


def test_everything_can_be_said():
    plan = say(
        price_class="gold", price_per_task=0.00001, tasks_per_hour=100, burst=5, max_running=3,
        max_resources={"cpu": 2, "memory": "2GiB", "extra": {"gpu": 0}}, max_waiting=9,
        max_schedules=0, tiers=["basic", "basic"], queues=["urgent"], delay_tolerance="1m",
        max_delay_tolerance="1h", tolerances={"mail": "30s"}, execution_cap="10m",
        max_execution_cap="1h", weight=4, retention="7d", max_log_bytes=1, max_result_bytes=2,
        max_artifact_bytes=3, artifact_bytes=4, cpu_quota=True,
    )  # fmt: skip
    assert plan == Plan(
        name="team", price_class="gold", price_per_task=Decimal("0.00001"), tasks_per_hour=100,
        burst=5, max_running=3, max_resources={"cpu_milli": 2000, "memory_mb": 2048, "gpu": 0},
        max_waiting=9, max_schedules=0, tiers=("basic",), queues=("urgent",),
        delay_tolerance=timedelta(minutes=1), max_delay_tolerance=timedelta(hours=1),
        tolerances={"mail": 30.0}, execution_cap=timedelta(minutes=10),
        max_execution_cap=timedelta(hours=1), weight=4, retention=timedelta(days=7),
        max_log_bytes=1, max_result_bytes=2,
        max_artifact_bytes=3, artifact_bytes=4, cpu_quota=True,
    )  # fmt: skip


def test_a_default_that_is_not_said_fits_below_the_longest():
    plan = say(max_execution_cap="1h", max_delay_tolerance="10s")
    assert (plan.execution_cap, plan.delay_tolerance) == (
        timedelta(hours=1),
        timedelta(seconds=10),
    )


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"burst": 5}, "burst", "it needs tasks_per_hour. Give both or neither."),
        (
            {"retention": "23h"},
            "retention",
            "23 h is too short. Use at least 1 d, or leave it out.",
        ),
        ({"retention": 0}, "retention", "more than 0"),
        (
            {"tasks_per_hour": 5},
            "burst",
            "it is missing. With tasks_per_hour, say how many tasks may come at once, from 1.",
        ),
        ({"tasks_per_hour": 0, "burst": 1}, "tasks_per_hour", "from 1 to"),
        ({"tasks_per_hour": 10**30, "burst": 1}, "tasks_per_hour", "from 1 to"),
        ({"max_running": 0}, "max_running", "from 1 to"),
        ({"max_schedules": -1}, "max_schedules", "from 0 to"),
        ({"max_log_bytes": 10**18}, "max_log_bytes", "from 0 to"),
        ({"weight": 0}, "weight", "from 1 to 1000"),
        (
            {"execution_cap": "2h", "max_execution_cap": "1h"},
            "execution_cap",
            "2 h is more than max_execution_cap, which is 1 h. A default must be within the limit.",
        ),
        ({"max_execution_cap": 0}, "max_execution_cap", "more than 0"),
        (
            {"delay_tolerance": 9, "max_delay_tolerance": 5},
            "delay_tolerance",
            "9.0 s is more than max_delay_tolerance, which is 5.0 s. A default must be within the "
            "limit.",
        ),
        (
            {"tolerances": {"a": 9}, "max_delay_tolerance": 5},
            "tolerances.a",
            "9.0 s is more than max_delay_tolerance, which is 5.0 s. A default must be within the "
            "limit.",
        ),
        ({"tolerances": {"A B": 9}}, "tolerances", "lower-case letters"),
        ({"tolerances": {"a": "soon"}}, "tolerances.a", "not a duration"),
        ({"tolerances": {f"c{n}": 1 for n in range(51)}}, "tolerances", "at most 50"),
        (
            {"tiers": []},
            "tiers",
            "it is empty, so no task could run. Name at least one, or leave it out.",
        ),
        ({"tiers": ["ba/sic"]}, "tiers", "lower-case letters"),
        ({"queues": ["off peak"]}, "queues", "lower-case letters"),
        ({"max_resources": {}}, "max_resources", "it is empty. Give an amount, or leave it out."),
        (
            {"max_resources": {"cpu": 0}},
            "max_resources.cpu",
            "0 is not a number of CPUs from 0.001 to 100000. Try 0.5 or 2.",
        ),
        (
            {"max_resources": {"memory_mb": 0}},
            "max_resources.memory",
            "0 is too little. It must be more than 0.",
        ),
        (
            {"max_resources": {"extra": {"X": 1}}},
            "max_resources.extra",
            "'X' is not the name of a custom resource.",
        ),
        ({"price_per_task": -1}, "price_per_task", "is not a number from 0 to 1000000."),
        ({"price_per_task": float("nan")}, "price_per_task", "is not a number from 0 to 1000000."),
        ({"price_class": "a b"}, "price_class", "lower-case letters"),
        ({"name": "Über"}, "name", "lower-case letters"),
        ({"name": ""}, "name", "lower-case letters"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_field(fields, field, words):
    with pytest.raises(Invalid) as refusal:
        say(**fields)
    assert refusal.value.field == field
    assert words in refusal.value.message


def test_a_change_leaves_the_rest_as_it_was():
    plan = msgspec.structs.replace(say(), price_per_task=Decimal("0.12345678901234567890"))
    assert change_plan(plan, {"max_running": 4}) == msgspec.structs.replace(plan, max_running=4)
    assert change_plan(plan, {"name": "team"}) == plan


def test_a_change_is_checked_together_with_what_stays():
    plan = say(tasks_per_hour=9, burst=3, max_execution_cap="2h", execution_cap="2h")
    with pytest.raises(Invalid, match="burst: it needs tasks_per_hour"):
        change_plan(plan, {"tasks_per_hour": None})
    with pytest.raises(Invalid, match="2 h is more than max_execution_cap, which is 1 h"):
        change_plan(plan, {"max_execution_cap": "1h"})
    assert change_plan(plan, {"tasks_per_hour": None, "burst": None}).burst is None
    assert change_plan(plan, {"max_execution_cap": None}).max_execution_cap == MAX_DURATION


def test_a_cpu_quota_stays_until_it_is_taken_away():
    plan = say(cpu_quota=True)
    assert change_plan(plan, {"max_running": 4}).cpu_quota
    for no_quota in (False, None):
        assert not change_plan(plan, {"cpu_quota": no_quota}).cpu_quota


def test_a_plan_is_not_renamed():
    with pytest.raises(Invalid, match="keeps its name"):
        change_plan(say(), {"name": "other"})


durations = st.integers(1, 10**7)
names = st.sampled_from(["basic", "regular", "premium", "mine"])
fields = st.fixed_dictionaries(
    {},
    optional={
        "tasks_per_hour": st.none() | st.integers(0, 10**6),
        "burst": st.none() | st.integers(0, 10**6),
        "max_running": st.none() | st.integers(-1, 10),
        "max_resources": st.none() | st.fixed_dictionaries({"cpu": st.floats(0, 64)}),
        "tiers": st.none() | st.lists(names, max_size=3),
        "queues": st.none() | st.lists(st.sampled_from(REQUESTABLE), max_size=3),
        "delay_tolerance": st.none() | durations,
        "max_delay_tolerance": st.none() | durations,
        "tolerances": st.none() | st.dictionaries(names, durations, max_size=2),
        "execution_cap": st.none() | durations,
        "max_execution_cap": st.none() | durations,
        "price_per_task": st.none() | st.floats(0, 10),
    },
)


@given(fields, fields)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_that_is_accepted_agrees_with_itself_and_so_does_every_change_of_it(said, changes):
    try:
        plan = say(**said)
        plan = change_plan(plan, changes)
    except Invalid as refusal:
        assert refusal.message
        return
    assert plan.execution_cap <= plan.max_execution_cap
    longest = plan.max_delay_tolerance or MAX_DURATION
    assert plan.delay_tolerance <= longest
    assert all(timedelta(seconds=tolerance) <= longest for tolerance in plan.tolerances.values())
    assert (plan.tasks_per_hour is None) == (plan.burst is None)
    assert change_plan(plan, {}) == plan
