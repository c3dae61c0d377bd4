"""Whose turn it is: entitled tasks by deadline, all others by recent use per weight."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from duly.policy.fairness import shares, turns
from duly.policy.fairness.recent_use import RecentUse
from duly.policy.fairness.shares import PoolShares, TenantShare
from duly.policy.fairness.turns import take
from duly.policy.queueing import Order
from tests.policy.fairness.turns_reference import NO_GATE, NOW, SHAPES, Case, Reference, Task, Team

HOUR = timedelta(hours=1)
tenants = st.integers(1, 4)


@st.composite
def cases(draw):
    holds = st.dictionaries(
        st.integers(1, 5), st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(1, 6))
    )
    waiting = draw(
        st.lists(
            st.tuples(
                tenants,
                st.sampled_from(sorted(SHAPES)),
                st.integers(0, 3),
                st.integers(0, 1),
            ),
            max_size=25,
        )
    )
    return Case(
        cores=draw(st.sampled_from((3, 10, 24))),
        memory_mb=draw(st.sampled_from((1000, 10_000))),
        tasks=tuple(
            Task(number, tenant, shape, NOW + minutes * HOUR, priority)
            for number, (tenant, shape, minutes, priority) in enumerate(waiting)
        ),
        size=draw(st.integers(0, 30)),
        weights=draw(st.dictionaries(tenants, st.integers(1, 4))),
        held=draw(holds),
        held_before=draw(holds),
    )


def window_of(case):
    return take(case.subqueues(), case.size, case.order(), case.shares(), case.order().gate())


def ties(case):
    """Return True if two tenants could be told apart by nothing but their ids."""
    reference = Reference(case)
    seen = {}
    for tenant in {task.tenant_id for task in case.tasks}:
        key = reference._use(tenant)
        if key in seen.values():
            return True
        seen[tenant] = key
    return False


@given(cases())
@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_window_is_what_the_definitions_say(case):
    got = [(turn.task.tenant_id, turn.task.own_order, turn.is_entitled) for turn in window_of(case)]
    expected = [
        (task.tenant_id, task.own_order, entitled) for task, entitled in Reference(case).window()
    ]
    assert [kind for *_, kind in got] == [kind for *_, kind in expected]
    assume(not ties(case))
    assert got == expected


@given(cases(), st.randoms())
def test_the_order_of_the_input_does_not_matter(case, dice):
    subqueues = list(case.subqueues().items())
    dice.shuffle(subqueues)
    shuffled = take(dict(subqueues), case.size, case.order(), case.shares(), case.order().gate())
    assert shuffled == window_of(case)


@given(cases())
def test_tasks_of_a_tenant_start_in_its_own_order(case):
    window = window_of(case)
    for tenant in {task.tenant_id for task in case.tasks}:
        own = sorted(
            (task for task in case.tasks if task.tenant_id == tenant),
            key=lambda task: task.own_order,
        )
        chosen = [turn.task for turn in window if turn.task.tenant_id == tenant]
        assert chosen == own[: len(chosen)]


@given(cases())
def test_no_place_of_the_window_is_left_free_while_tasks_wait(case):
    assert len(window_of(case)) == min(case.size, len(case.tasks))


@given(cases())
def test_users_of_a_tenant_share_as_tenants_do(case):
    case = replace(case, weights={})
    expected = [turn.task.id for turn in window_of(case)]
    team = Team(case)
    window = take(team.subqueues(), case.size, case.order(team.shapes), team.shares(), NO_GATE)
    assert [turn.task.id for turn in window] == expected


def equal_tasks(tenant, count, **fields):
    return [Task(1000 * tenant + number, tenant, **fields) for number in range(count)]


def test_a_flood_leaves_the_others_their_shares():
    tasks = equal_tasks(1, 100) + equal_tasks(2, 5, start_by=NOW + 2 * HOUR)
    case = Case(10, 10_000, tuple(tasks), size=10)
    by_tenant = [turn.task.tenant_id for turn in window_of(case)]
    assert (by_tenant.count(1), by_tenant.count(2)) == (5, 5)


def test_urgency_counts_within_the_share_of_a_tenant_and_not_beyond_it():
    tasks = equal_tasks(1, 20, shape_id=3) + equal_tasks(2, 20)
    window = window_of(Case(10, 10_000, tuple(tasks), size=10))
    by_tenant = [turn.task.tenant_id for turn in window]
    assert by_tenant[:5] == [1] * 5
    assert by_tenant.count(1) == 5


def test_the_earliest_deadline_goes_first_while_nobody_is_beyond_its_share():
    tasks = [Task(n, 1 + n % 2, start_by=NOW + timedelta(minutes=(7 * n) % 10)) for n in range(10)]
    window = window_of(Case(100, 100_000, tuple(tasks), size=10))
    assert [turn.task for turn in window] == sorted(tasks, key=lambda task: task.start_by)


def test_who_used_less_of_late_goes_first_where_a_task_is_more_than_a_fair_share():
    tasks = [task for tenant in (1, 2, 3, 4) for task in equal_tasks(tenant, 2)]
    before = {1: (0, 3), 2: (0, 1), 4: (0, 2)}
    window = window_of(Case(3, 10_000, tuple(tasks), size=4, held_before=before))
    assert [turn.task.tenant_id for turn in window] == [3, 3, 2, 2]


def mutate(name):
    """Return what a mistake replaces: an owner, a name and the wrong value."""
    return {
        "weights are ignored": (PoolShares, "weight", lambda self, tenant: 1),
        "the task itself is not counted": (
            TenantShare,
            "is_entitled",
            lambda self, fractions: self.share <= self._entitlement,
        ),
        "nothing is charged": (TenantShare, "charge", lambda self, fractions: None),
        "everybody is entitled": (turns._TenantQueue, "is_entitled", True),
        "nobody is entitled": (turns._TenantQueue, "is_entitled", False),
        "use is what is held now": (TenantShare, "use_per_weight", TenantShare.share),
        "what others hold is divided": (
            PoolShares,
            "_divide",
            lambda self: 1 / self._competing.total_weight,
        ),
        "only processors count": (
            shares.Pool,
            "fractions",
            lambda self, needs: (needs.cpu_milli / dict(self._capacity)["cpu_milli"], 0.0),
        ),
        "use never decays": (RecentUse, "of", lambda self, tenant, now: 0.0),
        "queues are ignored": (Order, "_precedence", lambda self, shape_id, start_by: 0),
        "entitled tasks go by use": (
            turns._TenantQueue,
            "deadline_key",
            turns._TenantQueue.use_key,
        ),
        "priority counts between tenants": (
            turns._TenantQueue,
            "deadline_key",
            lambda self: self._heap[0][0],
        ),
    }[name]


EXAMPLES = settings(max_examples=3000, database=None, deadline=None, phases=[Phase.generate])
MUTANTS = (
    "weights are ignored",
    "the task itself is not counted",
    "nothing is charged",
    "everybody is entitled",
    "nobody is entitled",
    "use is what is held now",
    "what others hold is divided",
    "only processors count",
    "use never decays",
    "queues are ignored",
    "entitled tasks go by use",
    "priority counts between tenants",
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_the_policy_is_found(monkeypatch, mutant):
    def differs(case):
        expected = [(task.tenant_id, task.own_order) for task, _ in Reference(case).window()]
        got = [(turn.task.tenant_id, turn.task.own_order) for turn in window_of(case)]
        return not ties(case) and got != expected

    monkeypatch.setattr(*mutate(mutant))
    try:
        find(cases(), differs, settings=EXAMPLES)
    except NoSuchExample:
        pytest.fail("no case tells the difference")
