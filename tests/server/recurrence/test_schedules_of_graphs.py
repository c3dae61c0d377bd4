"""Schedules of graphs: each is stored whole and once, within the tenant's plan."""

import asyncio

import msgspec
import pytest

from duly.errors import Invalid, TooLarge
from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.schedule_request import ScheduleRequest
from duly.server.recurrence import occurrences, timekeeper
from duly.store.tasks import views
from tests.server.calendar import Calendar
from tests.server.lab import seconds
from tests.server.recurrence.test_overlaps import CHAIN, finish
from tests.server.recurrence.test_schedule_limits import grant, tight
from tests.server.recurrence.test_timekeeper import believe

__all__ = ["tight"]


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


def asked(tasks, **fields):
    graph = {"tasks": tasks, **fields.pop("more", {})}
    return ScheduleRequest(every="1m", graph=msgspec.convert(graph, GraphRequest), **fields)


def true(**fields):
    return {"command": ["true"], **fields}


async def test_a_fire_time_becomes_a_graph_whose_tasks_know_it(lab, calendar):
    schedule = await calendar.create(graph=CHAIN, jitter="10s")
    node = await calendar.node()
    await calendar.go(1.5)
    (graph,) = await calendar.graphs(schedule)
    ids = list(graph.values())
    async with lab.components.database.connection() as conn:
        seen = await views.read_many(conn, lab.client.tenant_id, ids)
    assert {(one.schedule_id, one.fire_at, one.scheduling_type) for one in seen} == {
        (schedule, calendar.at(1), "every")
    }
    assert len({one.graph_id for one in seen}) == 1
    assert [await lab.status(task) for task in ids] == ["waiting", "blocked"]
    assert [(await lab.live(task))["remaining_path"] for task in ids] == [1, 0]
    await finish(lab, node, graph["a"])
    await finish(lab, node, graph["b"])
    assert await lab.status(graph["b"]) == "done"


async def test_two_overlapping_leaders_store_one_graph(lab, calendar):
    schedule = await calendar.create(graph=CHAIN)
    await lab.clock.set(calendar.at(1))
    await lab.components.cluster_manager.tick()
    other = lab.server()
    await other.cluster_manager.tick()
    believe(other, lab.components.cluster_manager.term)
    await asyncio.gather(lab.components.timekeeper.tick(), other.timekeeper.tick())
    assert await calendar.ran(schedule) == [1]
    assert (await lab.count("tasks"), await lab.count("graphs")) == (2, 1)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (
            asked({"a": true(depends_on=["b"]), "b": true(depends_on=["a"])}),
            "graph.tasks[0].depends_on",
        ),
        (asked({"a": true(), "b": true(depends_on=["x"])}), "graph.tasks[1].depends_on[0]"),
        (asked({"a": true(depends_on=["7251039274172410"])}), "graph.tasks[0].depends_on[0]"),
        (asked({"a": true(run_at="2027-01-01T00:00:00Z")}), "graph.tasks[0].run_at"),
        (asked({"a": true(unique={"key": "k"})}), "graph.tasks[0].unique"),
        (asked({"a": true(tier="huge")}), "graph.tasks[0].tier"),
        (asked({"a": true()}, more={"defaults": {"ref": "a"}}), "graph.defaults.ref"),
        (asked([true()]), "graph.tasks[0].ref"),
        (asked({}), "graph.tasks"),
        (asked({"a": true()}, more={"name": ""}), "graph.name"),
        (asked({str(n): {} for n in range(101)}, overlap="queue"), "graph.tasks"),
        (ScheduleRequest(every="1m"), "task"),
    ],
)
async def test_an_invalid_field_is_refused_by_name(lab, request_, field):
    if request_.graph is not None and len(request_.graph.tasks) > 100:
        tasks = [true(ref=f"t{number}") for number in range(101)]  # 101 * 101 edges
        request_ = asked(tasks, overlap="queue")
    with pytest.raises(Invalid) as refused:
        await lab.components.schedules.create(lab.client, request_)
    assert refused.value.field == field


async def test_a_graph_too_large_for_one_transaction_is_refused(lab):
    tasks = [true(ref=f"t{number}") for number in range(10_001)]
    with pytest.raises(TooLarge):
        await lab.components.schedules.create(lab.client, asked(tasks))


async def test_a_graph_replaces_a_task_and_a_task_a_graph(lab, calendar):
    schedule = await calendar.create(overlap="skip")
    await calendar.go(1)
    change = lab.components.schedules.update
    graph = {"tasks": {"a": true(), "b": true(depends_on=["a"])}}
    await change(lab.client, schedule, {"graph": graph})
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(2, 1, "overlap")]  # its task has not ended
    await lab.components.canceller.cancel(lab.client, await calendar.tasks(schedule))
    await calendar.go(3)
    assert len(await calendar.graphs(schedule)) == 1
    await change(lab.client, schedule, {"task": true()})
    await calendar.go(4)
    assert await calendar.ran(schedule) == [1, 3]
    for wrong in ({"task": true(), "graph": graph}, {"graph": None}):
        with pytest.raises(Invalid):
            await change(lab.client, schedule, wrong)


async def test_a_graph_is_admitted_as_a_whole_or_not_at_all(lab, calendar, tight):
    await lab.conn.execute("update plans set tasks_per_hour = 60, burst = 3 where name = 'tight'")
    first = await calendar.create(by=tight, graph=CHAIN)
    second = await calendar.create(by=tight, graph=CHAIN)
    await calendar.go(1)
    assert sorted([len(await calendar.ran(one)) for one in (first, second)]) == [0, 1]
    (refused,) = [one for one in (first, second) if not await calendar.ran(one)]
    assert await calendar.missed(refused) == [(1, 1, "limit_exceeded")]
    assert await lab.count("tasks") == 2
    tokens = "select tokens from buckets where tenant_id = $1"
    assert await lab.conn.fetchval(tokens, tight.tenant_id) == 1


async def test_a_graph_that_the_plan_refuses_is_recorded(lab, calendar, tight):
    task = {"execution_cap": "2h"}
    schedule = await calendar.create(by=tight, graph=CHAIN, overlap="allow", task=task)
    await grant(lab, max_waiting=3)
    await calendar.go(1)
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(2, 1, "limit_exceeded")]
    await grant(lab, max_waiting=None, max_execution_cap=seconds(3600))
    await calendar.go(3)
    assert await calendar.missed(schedule) == [
        (2, 1, "limit_exceeded"),
        (3, 1, "not_submittable"),
    ]
    assert await lab.count("tasks") == 2


async def test_a_graph_that_the_plan_never_allows_is_refused_at_creation(lab, calendar, tight):
    for limits in ("max_waiting = 1", "max_waiting = null, tasks_per_hour = 60, burst = 1"):
        await lab.conn.execute(f"update plans set {limits} where name = 'tight'")
        with pytest.raises(Invalid) as refused:
            await calendar.create(by=await lab.credential("tight"), graph=CHAIN)
        assert refused.value.field == "graph.tasks"


async def test_transactions_are_bounded_by_tasks(lab, calendar, monkeypatch):
    monkeypatch.setattr(timekeeper, "MAX_TASKS_PER_TRANSACTION", 5)
    monkeypatch.setattr(occurrences, "TASKS_PER_STATEMENT", 3)
    monkeypatch.setattr(occurrences, "EDGES_PER_STATEMENT", 1)
    made = [await calendar.create(graph=CHAIN) for _ in range(4)]
    late = await calendar.create(graph=CHAIN, misfire="all", overlap="allow")
    await lab.clock.set(calendar.at(1))
    await lab.components.cluster_manager.tick()
    term = lab.components.cluster_manager.term
    fired = await lab.components.timekeeper._fire(term, set())
    assert (fired.schedules, len(fired.result.tasks)) == (3, 6)
    await calendar.go(8)
    assert all([await calendar.ran(one) for one in made])
    assert await calendar.ran(late) == [1, 2, 3, 4, 5, 6, 7, 8]
    # Two graphs of one schedule at once are all that five tasks let through.
    assert await calendar.next_run(late) == 9


async def test_manual_runs_and_backfills_submit_graphs(lab, calendar):
    schedule = await calendar.create(graph=CHAIN, misfire="skip", overlap="allow")
    made = await lab.components.schedules.run(lab.client, schedule)
    assert made.graph is not None
    await calendar.go(3.5)
    filled = await lab.components.schedules.backfill(
        lab.client, schedule, calendar.at(0.5), calendar.at(3)
    )
    assert len(filled) == 2
    assert await calendar.ran(schedule) == [0, 1, 2, 3]
    assert len(await calendar.graphs(schedule)) == 4


async def test_an_occurrence_is_kept_while_a_task_of_its_graph_is_live(lab, calendar):
    schedule = await calendar.create(graph=CHAIN, overlap="cancel_other")
    await calendar.go(1)
    await calendar.go(2)
    second = (await calendar.graphs(schedule))[1]
    await lab.components.canceller.cancel(lab.client, [second["a"]])
    await lab.conn.execute("update live set status = 'paused' where id = $1", second["b"])
    await lab.conn.execute("update occurrences set recorded_at = recorded_at - interval '1 y'")
    await lab.components.retention.tick()
    assert await calendar.ran(schedule) == [2]


async def test_a_graph_may_use_the_maximum_of_queue_edges(lab):
    tasks = [true(ref=f"t{number}") for number in range(100)]  # 100 * 100 edges
    await lab.components.schedules.create(lab.client, asked(tasks, overlap="queue"))
