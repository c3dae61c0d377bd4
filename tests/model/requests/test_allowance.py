"""What a plan makes of a request: defaults, bounds, and what they may never do."""

from datetime import timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.errors import Invalid
from duly.model.queues.queue import Queue
from duly.model.requests.allowance import allowed_tiers
from duly.model.requests.task_request import TaskRequest, complete, replayed, revise
from duly.model.resources import TIERS, Resources
from duly.model.tenant import Plan

PLAN = Plan(
    name="small",
    delay_tolerance=timedelta(minutes=5),
    max_delay_tolerance=timedelta(days=1),
    tolerances={"mail": 30.0, "report": 7200.0},
    execution_cap=timedelta(minutes=10),
    max_execution_cap=timedelta(hours=1),
    weight=1,
    tiers=("basic", "large"),
    max_resources={"cpu_milli": 2000, "memory_mb": 2048, "gpu": 1},
    known_tiers={
        **TIERS,
        "basic": Resources(cpu_milli=250, memory_mb=128),
        "large": Resources(cpu_milli=2000, memory_mb=2048),
    },
)


def ask(plan=PLAN, **fields):
    return complete(msgspec.convert({"command": ["true"], **fields}, TaskRequest), plan)


def test_what_is_left_open_gets_what_the_plan_and_the_tenants_tiers_say():
    spec = ask()
    assert (spec.tier, spec.resources) == ("basic", Resources(cpu_milli=250, memory_mb=128))
    assert (spec.delay_tolerance, spec.execution_cap) == (
        timedelta(minutes=5),
        timedelta(minutes=10),
    )


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"category": "mail"}, 30),
        ({"category": "report"}, 7200),
        ({"category": "report", "delay_tolerance": 1}, 1),
        ({"category": None}, 300),
    ],
)
def test_a_category_picks_the_tolerance_unless_one_is_given(fields, seconds):
    spec = ask(**fields)
    assert spec.delay_tolerance == timedelta(seconds=seconds)
    assert spec.payload.category == fields["category"]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"execution_cap": "61m"},
            "execution_cap",
            "1 h 1 min is more than the 1 h that the plan 'small' allows.",
        ),
        (
            {"delay_tolerance": "25h"},
            "delay_tolerance",
            "1 d 1 h is more than the 1 d that the plan 'small' allows.",
        ),
        (
            {"category": "video"},
            "category",
            "the plan 'small' has no category 'video'. Use mail or report.",
        ),
        (
            {"tier": "premium"},
            "tier",
            "the plan 'small' does not include the tier 'premium'. Use basic or large.",
        ),
        ({"tier": "huge"}, "tier", "there is no tier 'huge'. Use basic or large."),
        (
            {"resources": {"cpu": 2.001}},
            "resources.cpu",
            "the task asks for 2.001 CPUs; the plan 'small' grants at most 2 at once.",
        ),
        (
            {"resources": {"memory": "3GiB"}},
            "resources.memory",
            "the task asks for 3072 MiB of memory; the plan 'small' grants at most 2048 MiB at "
            "once.",
        ),
        (
            {"resources": {"extra": {"gpu": 2}}},
            "resources.extra.gpu",
            "the task asks for 2 gpu; the plan 'small' grants at most 1 at once.",
        ),
    ],
)
def test_every_bound_is_named_in_the_refusal(fields, field, words):
    with pytest.raises(Invalid) as refusal:
        ask(**fields)
    assert refusal.value.field == field
    assert words in refusal.value.message


def test_a_plan_without_categories_says_so():
    with pytest.raises(Invalid, match="the plan 'small' has no categories"):
        ask(replace(PLAN, tolerances={}), category="mail")


def test_a_task_without_a_tier_gets_the_first_of_a_plan_that_has_no_basic():
    assert ask(replace(PLAN, tiers=("large", "regular"))).tier == "large"
    with pytest.raises(Invalid, match="the plan 'small' includes no tier that exists"):
        ask(replace(PLAN, tiers=("gone",)))


def test_the_log_of_a_task_is_bounded_by_its_plan_and_by_the_setting():
    bound = ask(replace(PLAN, max_log_bytes=1000))
    assert (bound.payload.log_bytes(5000), bound.payload.log_bytes(500)) == (1000, 500)
    assert revise(bound, {"name": "x"}, PLAN).payload.log_bytes(5000) == 1000
    assert replayed(bound, PLAN, replay_of=7).payload.log_bytes(5000) == 5000
    assert ask().payload.log_bytes(5000) == 5000


def test_the_result_of_a_task_is_bounded_by_its_plan_and_by_the_setting():
    bound = ask(replace(PLAN, max_result_bytes=1000))
    assert (bound.payload.result_bytes(5000), bound.payload.result_bytes(500)) == (1000, 500)
    assert revise(bound, {"name": "x"}, PLAN).payload.result_bytes(5000) == 1000
    assert replayed(bound, PLAN, replay_of=7).payload.result_bytes(5000) == 5000


def test_a_task_has_the_cpu_quota_of_its_plan_when_it_was_submitted():
    quota = replace(PLAN, cpu_quota=True)
    bound = ask(quota)
    assert bound.payload.cpu_quota
    assert revise(bound, {"resources": {"cpu": 1}}, PLAN).payload.cpu_quota
    assert not revise(ask(), {"name": "x"}, quota).payload.cpu_quota
    assert not replayed(bound, PLAN, replay_of=7).payload.cpu_quota


def test_a_payload_without_a_cpu_quota_does_not_mention_it():
    assert b"cpu_quota" not in msgspec.json.encode(ask().payload)


NO_URGENT = replace(PLAN, queues=("off_peak",))


def test_a_queue_is_asked_for_with_the_leave_of_the_plan():
    assert ask().queue is None
    assert ask(queue="urgent").queue == Queue.URGENT
    assert ask(NO_URGENT, queue="off_peak").queue == Queue.OFF_PEAK
    with pytest.raises(Invalid, match="the plan 'small' does not include the queue 'urgent'"):
        ask(NO_URGENT, queue="urgent")
    with pytest.raises(Invalid, match="the plan 'small' does not include the queue 'off_peak'"):
        ask(replace(PLAN, queues=()), queue="off_peak")
    with pytest.raises(Invalid, match="'periodic' is not a queue that tasks can ask for"):
        ask(queue="periodic")


def test_a_task_keeps_the_queue_that_it_was_granted_and_a_replay_asks_again():
    spec = ask(queue="urgent")
    assert revise(spec, {"name": "x"}, NO_URGENT).queue == Queue.URGENT
    for again in (partial(revise, spec, {"queue": "urgent"}), partial(replayed, spec, replay_of=7)):
        with pytest.raises(Invalid) as refusal:
            again(plan=NO_URGENT)
        assert refusal.value.field == "queue"


def test_what_a_schedule_has_produced_stays_that_in_a_change_but_not_in_a_replay():
    spec = replace(ask(), queue=Queue.PERIODIC)
    assert revise(spec, {"name": "x"}, PLAN).queue == Queue.PERIODIC
    assert revise(spec, {"queue": "urgent"}, PLAN).queue == Queue.URGENT
    assert replayed(spec, PLAN, replay_of=7).queue is None


@pytest.mark.parametrize(
    ("fields", "hours"),
    [
        ({}, 12),
        ({"delay_tolerance": "1h"}, 1),
        ({"category": "report"}, 2),
        ({"plan": replace(PLAN, max_delay_tolerance=timedelta(hours=3))}, 3),
        ({"plan": replace(PLAN, delay_tolerance=timedelta(hours=20))}, 20),
    ],
)
def test_off_peak_work_may_wait_for_half_a_day_unless_told(fields, hours):
    assert ask(queue="off_peak", **fields).delay_tolerance == timedelta(hours=hours)


def test_kinds_that_the_plan_does_not_bound_are_free():
    assert ask(resources={"disk": "1TiB", "extra": {"licence": 7}}).resources.disk_mb == 2**20


OWN_QUEUES = replace(PLAN, known_queues={"bulk": False, "night": True})


def test_a_queue_of_an_administrator_is_asked_for_by_its_name():
    assert ask(OWN_QUEUES, queue="bulk").queue == "bulk"
    assert ask(OWN_QUEUES, queue="bulk").delay_tolerance == PLAN.delay_tolerance
    with pytest.raises(Invalid, match=r"'gone' is not .* Use urgent, off_peak, bulk or night"):
        ask(OWN_QUEUES, queue="gone")
    with pytest.raises(Invalid, match=r"does not include the queue 'bulk'\. Use off_peak"):
        ask(replace(OWN_QUEUES, queues=("off_peak",)), queue="bulk")


def test_an_off_peak_queue_of_an_administrator_brings_its_tolerance():
    spec = ask(OWN_QUEUES, queue="night")
    assert spec.delay_tolerance == timedelta(hours=12)
    assert revise(spec, {"queue": "bulk"}, OWN_QUEUES).delay_tolerance == PLAN.delay_tolerance


def test_a_task_whose_queue_was_removed_is_delayable_from_its_next_change_on():
    spec = ask(OWN_QUEUES, queue="bulk")
    assert revise(spec, {"name": "x"}, PLAN).queue is None
    assert replayed(spec, PLAN, replay_of=1).queue is None


SHRUNK = replace(
    PLAN,
    execution_cap=timedelta(seconds=1),
    max_execution_cap=timedelta(seconds=2),
    delay_tolerance=timedelta(seconds=1),
    max_delay_tolerance=timedelta(seconds=2),
    tolerances={},
    tiers=("basic",),
    known_tiers=TIERS,
    max_resources={"cpu_milli": 500},
)


def test_what_a_task_was_granted_it_keeps_when_the_plan_shrinks():
    spec = ask(tier="large", category="report", execution_cap="1h")
    assert revise(spec, {"priority": 7}, SHRUNK) == replace(spec, priority=7)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"execution_cap": "59m"}, "execution_cap"),
        ({"delay_tolerance": "1h"}, "delay_tolerance"),
        ({"category": "report"}, "category"),
        ({"tier": "large"}, "tier"),
        ({"resources": {"cpu": 1}}, "resources.cpu"),
    ],
)
def test_what_is_asked_for_anew_is_bound_by_the_plan_of_today(changes, field):
    spec = ask(tier="large", category="report", execution_cap="1h")
    with pytest.raises(Invalid) as refusal:
        revise(spec, changes, replace(SHRUNK, known_tiers=PLAN.known_tiers, tolerances={}))
    assert refusal.value.field == field


def test_a_name_that_is_gone_cannot_be_given_again():
    spec = ask(tier="large")
    with pytest.raises(Invalid, match="there is no tier 'large'"):
        revise(spec, {"tier": "large"}, replace(PLAN, known_tiers=TIERS))


def test_another_category_brings_its_tolerance():
    spec = ask(category="mail")
    assert revise(spec, {"category": "report"}, PLAN).delay_tolerance == timedelta(hours=2)
    assert revise(spec, {"category": None}, PLAN).delay_tolerance == timedelta(minutes=5)
    assert revise(spec, {"name": "x"}, PLAN).delay_tolerance == timedelta(seconds=30)
    both = revise(spec, {"category": "report", "delay_tolerance": 9}, PLAN)
    assert both.delay_tolerance == timedelta(seconds=9)


def test_a_replay_asks_for_the_same_again():
    spec = ask(tier="large", category="mail", labels={"a": "b"}, idempotency_key="k", priority=3)
    assert replayed(spec, PLAN, replay_of=7) == replace(spec, idempotency_key=None, replay_of=7)


def test_a_replay_is_bound_by_the_plan_of_today_but_needs_no_name_that_is_gone():
    spec = ask(tier="large", category="mail", execution_cap="1h")
    with pytest.raises(Invalid, match="1 h is more than the 1 min that the plan 'small' allows"):
        replayed(spec, replace(PLAN, max_execution_cap=timedelta(minutes=1)), replay_of=7)
    without = replace(PLAN, tolerances={}, known_tiers=TIERS)
    assert replayed(spec, without, replay_of=7).resources == spec.resources


seconds = st.integers(0, 10**9).map(lambda n: timedelta(seconds=n))
amounts = st.integers(1, 10_000)


@st.composite
def plans(draw):
    known = {
        name: Resources(cpu_milli=draw(amounts), memory_mb=draw(amounts))
        for name in ("basic", "regular", "mine")
    }
    return Plan(
        name="drawn",
        delay_tolerance=draw(seconds),
        max_delay_tolerance=draw(st.none() | seconds),
        tolerances=draw(st.dictionaries(st.sampled_from(["mail", "report"]), st.floats(0, 1e9))),
        execution_cap=draw(seconds) + timedelta(seconds=1),
        max_execution_cap=draw(seconds) + timedelta(seconds=1),
        weight=1,
        tiers=draw(st.none() | st.lists(st.sampled_from([*known, "gone"]), min_size=1).map(tuple)),
        max_resources=draw(st.none() | st.fixed_dictionaries({"cpu_milli": amounts})),
        known_tiers=known,
    )


requests = st.fixed_dictionaries(
    {},
    optional={
        "tier": st.sampled_from(["basic", "regular", "mine", "gone"]),
        "category": st.sampled_from(["mail", "report", "video"]),
        "delay_tolerance": st.floats(0, 1e9),
        "execution_cap": st.integers(1, 10**9),
        "resources": st.fixed_dictionaries({"cpu": st.floats(0.001, 20)}),
    },
)


@given(plan=plans(), fields=requests)
def test_nothing_that_is_accepted_exceeds_the_plan(plan, fields):
    try:
        spec = ask(plan, **fields)
    except Invalid:
        return
    assert timedelta(0) < spec.execution_cap <= plan.max_execution_cap
    assert plan.max_delay_tolerance is None or spec.delay_tolerance <= plan.max_delay_tolerance
    assert spec.tier in allowed_tiers(plan)
    for kind, most in (plan.max_resources or {}).items():
        assert getattr(spec.resources, kind) <= most


@given(plan=plans(), later=plans(), fields=requests)
def test_whatever_becomes_of_the_plan_a_task_can_be_changed_in_what_the_plan_says_nothing_of(
    plan, later, fields
):
    try:
        spec = ask(plan, **fields)
    except Invalid:
        return
    assert revise(spec, {"name": "renamed"}, later) == replace(spec, name="renamed")


@given(plan=plans(), fields=requests)
def test_only_the_bounds_of_the_plan_refuse_a_request(plan, fields):
    wide = replace(
        plan,
        max_delay_tolerance=None,
        max_execution_cap=timedelta(days=36525),
        tiers=None,
        max_resources=None,
        tolerances={"mail": 1.0, "report": 2.0, "video": 3.0},
        known_tiers={**plan.known_tiers, "gone": Resources(cpu_milli=1, memory_mb=1)},
    )
    assert ask(wide, **fields)
