"""Usage is counted exactly once, whichever server records it and whatever fails."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from duly.model.task import Outcome, Usage
from duly.model.usage import Amounts
from tests.server.books import (
    amounts_told,
    booked,
    recount,
    set_prices,
    told,
    unbooked,
)
from tests.server.conftest import execute
from tests.server.lab import CLOCK

DAY = timedelta(days=1)
SECOND = 1_000_000
"""In microseconds."""
GIB_HOUR = 1024 * 3600 * SECOND


async def book(lab):
    """Let the leader write the books."""
    await lab.components.cluster_manager.tick()
    await lab.components.usage_recorder.tick()


async def end(lab, node, outcome=Outcome.SUCCEEDED, *, ran=10.0, ago=0.0, **fields):
    """Bring a task to the end of an attempt that ran for so long, and ended so long ago."""
    await lab.components.cluster_manager.tick()
    ref = await lab.run(node, **fields)
    await lab.clock.move(timedelta(seconds=ran + ago))
    await node.heartbeat(ref)
    used = Usage(cpu_seconds=1.5, peak_memory_mb=10, wall_seconds=ran)
    assert await node.report(ref, outcome, ran=ran, ended_ago=ago, usage=used)
    return ref


@pytest.fixture
def emptied_dsn(dsn):
    """A database of its own, because days are dropped from it."""
    asyncio.run(execute(dsn, CLOCK))
    return dsn


@pytest.fixture(autouse=True)
async def prices(lab):
    """Plans that cost what is easy to reckon with."""
    await set_prices(lab.conn, "unlimited", "0.01", "3.6", "1")


async def test_an_attempt_counts_once_before_and_after_it_is_recorded(lab):
    node = await lab.node()
    await end(lab, node, tier="basic")
    expected = Amounts(
        tasks=1,
        attempts=1,
        cpu_us=1_500_000,
        granted_cpu_milli_us=500 * 10 * SECOND,
        granted_memory_mb_us=256 * 10 * SECOND,
    )
    price = Fraction("0.01") + Fraction("3.6") / 720 + Fraction(256 * 10 * SECOND, GIB_HOUR)
    key = (lab.clock.now.date(), "default", "kim", "basic", "ordinary")
    assert (await booked(lab.conn), await told(lab.conn)) == (0, {key: (expected, price)})
    await book(lab)
    assert (await booked(lab.conn), await told(lab.conn)) == (1, {key: (expected, price)})
    await book(lab)
    assert (await booked(lab.conn), await told(lab.conn)) == (1, {key: (expected, price)})


async def test_every_outcome_is_counted_as_a_recount_does_and_what_we_broke_off_is_free(lab):
    node = await lab.node()
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CAPPED, Outcome.OVERUSED):
        await end(lab, node, outcome, max_attempts=1)
    charged = (await amounts_told(lab.conn, ()))[()]
    assert charged.granted_cpu_milli_us == 4 * 500 * 10 * SECOND
    await end(lab, node, Outcome.PREEMPTED)
    await end(lab, node, Outcome.EXPIRED)
    lost = await lab.run(node)
    await lab.silence(timedelta(seconds=60))
    assert (lost.attempt, "lost") in await lab.attempts(lost.task)
    for _ in range(2):
        found = (await amounts_told(lab.conn, ()))[()]
        assert found.attempts == await lab.count("attempts") > 6
        assert found.granted_cpu_milli_us == charged.granted_cpu_milli_us
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await book(lab)


async def test_a_task_counts_once_and_each_of_its_attempts(lab):
    node = await lab.node()
    ref = await end(lab, node, Outcome.FAILED)
    await book(lab)
    await lab.clock.move(timedelta(hours=2))
    node = await lab.rejoin(node)
    await lab.sweep()
    again = await lab.start(node, ref.task)
    assert await node.report(again, ran=0)
    await book(lab)
    found = (await amounts_told(lab.conn, ()))[()]
    assert (found.tasks, found.attempts) == (1, 2)


async def test_users_tiers_urgencies_and_tenants_are_told_apart(lab):
    node = await lab.node()
    await end(lab, node, tier="basic", delay_tolerance=5)
    await end(lab, node, tier="regular", delay_tolerance="2h")
    await end(lab, node, tier="premium", delay_tolerance="7d", by=lab.stranger)
    await book(lab)
    await end(lab, node, tier="basic", delay_tolerance=5)
    found = await amounts_told(lab.conn, ("tenant", "tier", "urgency"))
    assert {key: one.tasks for key, one in found.items()} == {
        ("default", "basic", "urgent"): 2,
        ("default", "regular", "patient"): 1,
        ("acme", "premium", "off_peak"): 1,
    }
    assert await amounts_told(lab.conn) == await recount(lab.conn)
    mine = await told(lab.conn, ("tenant",), [lab.stranger.tenant_id])
    assert set(mine) == {("acme",)}


async def test_urgent_work_costs_more_than_the_same_off_peak(lab):
    node = await lab.node()
    await end(lab, node, delay_tolerance=0)
    await end(lab, node, delay_tolerance=300)
    await end(lab, node, delay_tolerance="1d")
    for _ in range(2):
        prices = {key[0]: price for key, (_, price) in (await told(lab.conn, ("urgency",))).items()}
        assert prices["urgent"] == prices["ordinary"] * Fraction("1.5")
        assert prices["off_peak"] == prices["ordinary"] / 2
        await book(lab)


async def test_a_new_price_applies_to_attempts_recorded_from_then_on(lab):
    node = await lab.node()
    await end(lab, node, ran=3600, cpu=1)
    await book(lab)
    before = (await told(lab.conn, ()))[()][1]
    await set_prices(lab.conn, "unlimited", "0.01", "7.2", "1")
    assert (await told(lab.conn, ()))[()][1] == before
    await end(lab, node, ran=3600, cpu=1)
    for _ in range(2):
        amounts, price = (await told(lab.conn, ("tier",)))[("basic",)]
        assert price == 2 * before + Fraction("3.6")
        assert amounts.attempts == 2
        await book(lab)
    assert await amounts_told(lab.conn) == await recount(lab.conn)


async def test_a_tenant_pays_by_its_own_plan(lab):
    await set_prices(lab.conn, "standard", "0.02", "0", "0")
    await lab.conn.execute("update tenants set plan = 'standard' where name = 'acme'")
    node = await lab.node()
    await end(lab, node, ran=0, by=lab.stranger)
    await end(lab, node, ran=0)
    for _ in range(2):
        found = await told(lab.conn, ("tenant",))
        assert {key[0]: price for key, (_, price) in found.items()} == {
            "acme": Fraction("0.02"),
            "default": Fraction("0.01"),
        }
        await book(lab)


async def test_usage_of_a_removed_user_keeps_the_name(lab):
    node = await lab.node()
    await end(lab, node)
    await lab.conn.execute("update users set removed_at = duly.now()")
    await book(lab)
    await lab.conn.execute("update tenants set removed_at = duly.now() where name = 'default'")
    assert set(await told(lab.conn, ("tenant", "user"))) == {("default", "kim")}


async def test_the_day_is_the_utc_day_of_the_end(lab):
    midnight = datetime.combine(lab.clock.now.date() + DAY, time(), UTC)
    await lab.clock.set(midnight - timedelta(seconds=30))
    await lab.components.cluster_manager.tick()
    node = await lab.node()
    before = await lab.run(node)
    after = await lab.run(node)
    await lab.clock.set(midnight)
    assert await node.report(before, ran=1, ended_ago=1e-6)
    assert await node.report(after, ran=1)
    for _ in range(2):
        found = await amounts_told(lab.conn, ("day",))
        assert {key[0]: one.attempts for key, one in found.items()} == {
            midnight.date() - DAY: 1,
            midnight.date(): 1,
        }
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await book(lab)


async def test_a_late_report_counts_for_the_day_of_the_end(lab):
    node = await lab.node()
    ref = await lab.run(node)
    ended = lab.clock.now + timedelta(minutes=1)
    await book(lab)
    await lab.clock.move(timedelta(days=3, minutes=1))
    await node.heartbeat(ref)
    await end(lab, node)
    await book(lab)
    assert await node.report(ref, ran=60, ended_ago=3 * 86_400)
    for _ in range(2):
        found = await amounts_told(lab.conn, ("day",))
        assert found[(ended.date(),)].attempts == 1
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await book(lab)
    assert await unbooked(lab.conn) == 0


async def test_a_task_that_is_changed_between_attempts_pays_for_what_each_was_given(lab):
    node = await lab.node()
    ref = await end(lab, node, Outcome.FAILED, tier="basic", delay_tolerance=300, max_attempts=5)
    change = lab.components.updater.update
    await change(lab.client, ref.task, {"tier": "regular", "delay_tolerance": 7200})
    await change(lab.client, ref.task, {"tier": "premium"})
    first = {("basic", "ordinary"): 500 * 10 * SECOND}
    assert await granted(lab) == first
    await book(lab)
    assert await granted(lab) == first
    await lab.clock.move(timedelta(seconds=30))
    await lab.sweep()
    node = await lab.rejoin(node)
    again = await lab.start(node, ref.task)
    await lab.clock.move(timedelta(seconds=10))
    assert await node.report(again, ran=10)
    for _ in range(2):
        assert await granted(lab) == {**first, ("premium", "patient"): 2000 * 10 * SECOND}
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await book(lab)


async def granted(lab):
    """Return what processors were granted, by tier and urgency."""
    found = await amounts_told(lab.conn, ("tier", "urgency"))
    return {key: one.granted_cpu_milli_us for key, one in found.items()}


async def test_amounts_too_large_for_a_sum_do_not_stop_the_recorder(lab):
    node = await lab.node()
    ref = await lab.run(node)
    assert await node.report(ref, usage=Usage(cpu_seconds=1e300))
    await book(lab)
    assert await booked(lab.conn) == 1


async def test_usage_outlives_its_attempts_and_is_dropped_in_its_time(lab):
    node = await lab.node()
    await end(lab, node)
    await book(lab)
    before = await told(lab.conn)
    await lab.clock.move(DAY * 399)
    await clean_up(lab)
    assert await lab.count("attempts") == 0
    assert await told(lab.conn) == before
    await lab.clock.move(DAY * 2)
    await clean_up(lab)
    assert await told(lab.conn) == {}


async def test_history_is_not_dropped_before_it_is_recorded(lab):
    node = await lab.node()
    ref = await end(lab, node)
    before = await told(lab.conn)
    await lab.clock.move(DAY * 40)
    await clean_up(lab)
    assert (await lab.attempts(ref.task), await told(lab.conn)) == ([(1, "succeeded")], before)
    await book(lab)
    await clean_up(lab)
    assert (await lab.attempts(ref.task), await told(lab.conn)) == ([], before)
    assert await lab.count("tasks") == 0


async def clean_up(lab):
    await lab.components.cluster_manager.tick()
    while await lab.components.retention.tick():
        pass


async def test_numbers_that_a_failover_gave_back_are_not_given_out_again(lab):
    node = await lab.node()
    await end(lab, node)
    await book(lab)
    await lab.conn.execute("select setval('entries', greatest(last_value - 1, 1)) from entries")
    await lab.conn.execute("update usage_watermark set booked_to = booked_to + 5")
    await book(lab)
    await end(lab, node)
    assert (await booked(lab.conn), await unbooked(lab.conn)) == (1, 1)
    assert await amounts_told(lab.conn) == await recount(lab.conn)


async def test_the_price_has_no_rounding_before_the_end(lab):
    await set_prices(lab.conn, "unlimited", "0", "0.000000001", "0")
    node = await lab.node()
    for _ in range(3):
        await end(lab, node, ran=1, cpu=1)
    await book(lab)
    assert (await told(lab.conn, ()))[()][1] == Fraction(Decimal("0.000000001")) * 3 / 3600
