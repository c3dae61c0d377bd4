from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.queues.queue import Queue
from duly.model.task import Outcome
from duly.model.tenant import Plan
from duly.model.usage import Amounts, Rates, Urgency
from duly.policy.price import TARIFF, band_of, cost, round_price

HOUR_US = 3600 * 1_000_000
HOURS = Amounts(
    tasks=10, attempts=12, granted_cpu_milli_us=2000 * HOUR_US, granted_memory_mb_us=512 * HOUR_US
)
"""Ten tasks that had two cores and half a GiB for an hour between them."""
RATES = Rates(
    price_per_task=Decimal("0.01"),
    price_per_cpu_hour=Decimal("0.04"),
    price_per_gib_hour=Decimal("0.006"),
)

numbers = st.integers(0, 10**18)
amounts = st.builds(
    Amounts,
    tasks=numbers,
    attempts=numbers,
    cpu_us=numbers,
    granted_cpu_milli_us=numbers,
    granted_memory_mb_us=numbers,
)
prices = st.decimals(0, 10**6, places=9)
rates = st.builds(
    Rates, price_per_task=prices, price_per_cpu_hour=prices, price_per_gib_hour=prices
)
tolerances = st.timedeltas(timedelta(0), timedelta(days=3650))
factors = st.sampled_from([band.factor for band in TARIFF.bands])


def test_a_price_is_made_of_tasks_cores_and_memory():
    assert cost(RATES, Decimal(1), HOURS) == Fraction("0.1") + Fraction("0.08") + Fraction("0.003")


def test_urgent_work_is_dearer_and_what_can_wait_is_cheaper():
    assert [(band.urgency, band.factor) for band in TARIFF.bands] == [
        (Urgency.URGENT, Decimal("1.5")),
        (Urgency.ORDINARY, Decimal("1")),
        (Urgency.PATIENT, Decimal("0.8")),
        (Urgency.OFF_PEAK, Decimal("0.5")),
    ]
    assert cost(RATES, Decimal("0.5"), HOURS) == cost(RATES, Decimal(1), HOURS) / 2


@pytest.mark.parametrize(
    ("tolerance", "urgency"),
    [
        (timedelta(0), Urgency.URGENT),
        (timedelta(seconds=59.999999), Urgency.URGENT),
        (timedelta(minutes=1), Urgency.ORDINARY),
        (timedelta(minutes=5), Urgency.ORDINARY),
        (timedelta(hours=1), Urgency.PATIENT),
        (timedelta(hours=12) - timedelta(microseconds=1), Urgency.PATIENT),
        (timedelta(hours=12), Urgency.OFF_PEAK),
        (timedelta(days=365), Urgency.OFF_PEAK),
    ],
)
def test_the_tolerance_says_how_urgent_a_task_is(tolerance, urgency):
    assert band_of(tolerance).urgency is urgency


@pytest.mark.parametrize(
    ("queue", "tolerance", "urgency"),
    [
        (Queue.URGENT, timedelta(days=1), Urgency.URGENT),
        (Queue.PERIODIC, timedelta(minutes=5), Urgency.ORDINARY),
        (Queue.OFF_PEAK, timedelta(minutes=5), Urgency.PATIENT),
        (Queue.OFF_PEAK, timedelta(hours=1), Urgency.OFF_PEAK),
        (Queue.OFF_PEAK, timedelta(hours=12), Urgency.OFF_PEAK),
        (Queue.OFF_PEAK, timedelta(seconds=1), Urgency.URGENT),
    ],
)
def test_the_queue_that_was_asked_for_is_paid_for(queue, tolerance, urgency):
    assert band_of(tolerance, queue).urgency is urgency


@given(tolerances)
def test_off_peak_is_never_dearer_and_urgent_never_cheaper(tolerance):
    plain = band_of(tolerance).factor
    assert band_of(tolerance, Queue.OFF_PEAK).factor <= plain
    assert plain <= band_of(tolerance, Queue.URGENT).factor


@given(tolerances, tolerances)
def test_a_longer_tolerance_is_never_dearer(one, other):
    short, long = sorted([one, other])
    assert band_of(long).factor <= band_of(short).factor


@given(rates, factors, amounts, amounts)
def test_the_parts_of_a_sum_cost_what_the_sum_costs(rates, factor, one, other):
    assert cost(rates, factor, one) + cost(rates, factor, other) == cost(
        rates, factor, one.plus(other)
    )


@given(rates, factors, amounts, st.sampled_from(Amounts.__struct_fields__), numbers)
def test_more_never_costs_less_and_only_what_is_granted_costs(rates, factor, had, field, more):
    grown = msgspec.structs.replace(had, **{field: getattr(had, field) + more})
    before, after = cost(rates, factor, had), cost(rates, factor, grown)
    assert after >= before >= 0
    if field in ("cpu_us", "attempts"):
        assert after == before


@given(amounts)
def test_a_plan_without_prices_costs_nothing(amounts):
    assert cost(Rates(), Decimal("1.5"), amounts) == 0


@given(st.fractions(0, 10**12))
def test_a_price_is_told_to_the_millionth(price):
    shown = round_price(price)
    assert abs(Fraction(shown) - price) <= Fraction(1, 2_000_000)
    assert shown.as_tuple().exponent == -6


def test_rates_are_those_of_the_plan():
    plan = Plan(
        name="p",
        delay_tolerance=timedelta(0),
        execution_cap=timedelta(1),
        max_execution_cap=timedelta(1),
        weight=1,
        price_per_task=Decimal(1),
        price_per_cpu_hour=Decimal(2),
        price_per_gib_hour=Decimal(3),
    )
    assert Rates.of(plan) == Rates(
        price_per_task=Decimal(1), price_per_cpu_hour=Decimal(2), price_per_gib_hour=Decimal(3)
    )


def test_what_duly_broke_off_is_free():
    assert TARIFF.free == {Outcome.LOST, Outcome.PREEMPTED, Outcome.EXPIRED}
