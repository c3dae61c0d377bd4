"""What a tenant may have at once is never exceeded, and never kept from it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.limits import UNLIMITED, Limits
from duly.model.resources import Resources
from duly.model.shape import Concurrency, Shape
from duly.policy.budget.limits import (
    UNBOUNDED,
    BlockingLimit,
    Budget,
    KeyUsage,
    TenantUsage,
    amount,
    blocking_limit,
    startable_count,
)

NEEDS = Resources(cpu_milli=500, memory_mb=256, extra={"gpu": 1})
KINDS = ("cpu_milli", "memory_mb", "gpu")
SHAPES = {
    1: Shape(Resources(cpu_milli=500, memory_mb=256)),
    2: Shape(Resources(cpu_milli=2000, memory_mb=100, extra={"gpu": 1})),
    3: Shape(Resources(cpu_milli=100, memory_mb=1), {}, Concurrency("a", 2)),
    4: Shape(Resources(cpu_milli=700, memory_mb=1), {}, Concurrency("a", 3)),
    5: Shape(Resources(cpu_milli=100, memory_mb=1), {}, Concurrency("b", 1)),
}


@pytest.mark.parametrize(
    ("limits", "use", "under_key", "shape", "found"),
    [
        (UNLIMITED, TenantUsage(10**6), KeyUsage(), Shape(NEEDS), None),
        (
            Limits(is_suspended=True),
            TenantUsage(),
            KeyUsage(),
            Shape(NEEDS),
            BlockingLimit("tenant_suspended"),
        ),
        (Limits(2), TenantUsage(1), KeyUsage(), Shape(NEEDS), None),
        (
            Limits(2),
            TenantUsage(2),
            KeyUsage(),
            Shape(NEEDS),
            BlockingLimit("tenant_limit", "running", 2, 2),
        ),
        (
            Limits(2),
            TenantUsage(9),
            KeyUsage(),
            Shape(NEEDS),
            BlockingLimit("tenant_limit", "running", 2, 9),
        ),
        (
            Limits(None, {"memory_mb": 1000}),
            TenantUsage(1, Resources(memory_mb=745)),
            KeyUsage(),
            Shape(NEEDS),
            BlockingLimit("tenant_limit", "memory_mb", 1000, 745, 256),
        ),
        (
            Limits(None, {"memory_mb": 1001}),
            TenantUsage(1, Resources(memory_mb=745)),
            KeyUsage(),
            Shape(NEEDS),
            None,
        ),
        (Limits(None, {"gpu": 0}), TenantUsage(), KeyUsage(), SHAPES[1], None),
        (
            Limits(None, {"gpu": 0}),
            TenantUsage(),
            KeyUsage(),
            Shape(NEEDS),
            BlockingLimit("tenant_limit", "gpu", 0, 0, 1),
        ),
        (UNLIMITED, TenantUsage(5), KeyUsage(1, 2), SHAPES[3], None),
        (
            UNLIMITED,
            TenantUsage(5),
            KeyUsage(2, 2),
            SHAPES[3],
            BlockingLimit("concurrency_limit", "a", 2, 2),
        ),
        (
            UNLIMITED,
            TenantUsage(5),
            KeyUsage(2, 2),
            SHAPES[4],
            BlockingLimit("concurrency_limit", "a", 2, 2),
        ),
        (
            UNLIMITED,
            TenantUsage(5),
            KeyUsage(2, 3),
            SHAPES[3],
            BlockingLimit("concurrency_limit", "a", 2, 2),
        ),
        (UNLIMITED, TenantUsage(5), KeyUsage(2, 3), SHAPES[4], None),
    ],
)
def test_what_keeps_a_task_from_starting_is_named_with_its_figures(
    limits, use, under_key, shape, found
):
    assert blocking_limit(limits, use, under_key, shape) == found


amounts = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 5000), max_size=3)
limits_of_a_tenant = st.builds(
    Limits, st.none() | st.integers(1, 8), st.none() | amounts, st.just(value=False)
)
uses = st.builds(
    TenantUsage,
    st.integers(0, 9),
    st.builds(
        Resources,
        cpu_milli=st.integers(0, 5000),
        memory_mb=st.integers(0, 2000),
        extra=st.just({}) | st.just({"gpu": 2}),
    ),
)


@given(limits_of_a_tenant, uses, st.sampled_from([SHAPES[1], SHAPES[2]]))
def test_there_is_room_for_exactly_as_many_as_may_start(limits, use, shape):
    left = startable_count(limits, use, shape.needs)
    assert (left == 0) == (blocking_limit(limits, use, KeyUsage(), shape) is not None)
    if 0 < left < UNBOUNDED:
        last = TenantUsage(use.running + left - 1, use.resources.plus(shape.needs, left - 1))
        full = TenantUsage(use.running + left, use.resources.plus(shape.needs, left))
        assert blocking_limit(limits, last, KeyUsage(), shape) is None
        assert blocking_limit(limits, full, KeyUsage(), shape) is not None


def overdrawn(limits, started):
    """Say what of `started`, shapes of one tenant that run together, is beyond its limits."""
    total = Resources()
    for shape in started:
        total = total.plus(SHAPES[shape].needs)
    stated = [asked for shape in started if (asked := SHAPES[shape].concurrency)]
    keys = Counter(asked.key for asked in stated)
    return (
        (
            ["running"]
            if limits.max_running is not None and len(started) > limits.max_running
            else []
        )
        + [
            kind
            for kind, most in (limits.max_resources or {}).items()
            if amount(total, kind) > most and any(amount(SHAPES[s].needs, kind) for s in started)
        ]
        + [asked for asked in stated if keys[asked.key] > asked.limit]
    )


@given(
    limits_of_a_tenant,
    st.lists(st.tuples(st.integers(1, 2), st.sampled_from(list(SHAPES))), max_size=40),
)
def test_what_is_charged_stays_within_the_limits_and_nothing_that_fits_is_refused(limits, asked):
    budget = Budget({1: limits, 2: UNLIMITED}, {1: TenantUsage(), 2: TenantUsage()}, {}, SHAPES)
    started = {1: [], 2: []}
    for tenant, shape in asked:
        own = limits if tenant == 1 else UNLIMITED
        left, cause = budget.room(tenant, shape), budget.cause(tenant, shape)
        may = not overdrawn(own, [*started[tenant], shape])
        assert (left > 0, cause is None, budget.charge(tenant, shape)) == (may, may, may)
        if may:
            started[tenant].append(shape)
    assert not overdrawn(limits, started[1])


def test_a_copy_is_charged_by_itself():
    budget = Budget({1: Limits(1)}, {1: TenantUsage()}, {}, SHAPES)
    assert budget.copy().charge(1, 3)
    assert budget.room(1, 3) == 1


def test_nothing_starts_of_whom_nobody_has_counted():
    budget = Budget({1: UNLIMITED}, {}, {}, SHAPES)
    assert budget.charge(1, 1)
    assert not budget.charge(1, 3)
    assert not budget.charge(2, 1)
    assert budget.uncounted == set()
    assert budget.cause(1, 3) == ("uncounted", 1)
    assert budget.cause(2, 1) == ("uncounted", 2)
    assert budget.uncounted == {1, 2}


def test_lines_that_the_same_thing_keeps_have_one_cause():
    running = Budget({1: Limits(1)}, {1: TenantUsage(1)}, {}, SHAPES)
    assert {running.cause(1, shape) for shape in SHAPES} == {1}
    keyed = Budget({1: UNLIMITED}, {1: TenantUsage(2)}, {(1, "a"): KeyUsage(2, 2)}, SHAPES)
    assert keyed.cause(1, 3) != keyed.cause(1, 4)
    assert keyed.cause(1, 5) is None
