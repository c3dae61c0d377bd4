"""A task gets the results of its upstreams, through the node that holds its attempt."""

import pytest

from duly import wire
from duly.config import ExecutionSettings, Settings
from duly.errors import Fenced
from duly.model.graph import DependencyRequest
from duly.model.requests.amounts import ResourcesRequest
from duly.model.requests.task_request import UniqueRequest
from duly.model.task import Outcome
from duly.server.delivery import inputs
from duly.store.tasks.inputs import MAX_UPSTREAMS_EXAMINED
from tests.server.lab import seconds
from tests.server.lifecycle.test_cancelling import cancel
from tests.server.lifecycle.test_dependencies import after, submit_batch


@pytest.fixture
def settings():
    return Settings(execution=ExecutionSettings(inputs_limit=3 * 2**20))


async def end(lab, node, task, result=None, outcome=Outcome.SUCCEEDED):
    """Run a task to its end, with a result, and unblock its dependants."""
    node.latest = 0  # Assignments that were delivered with another are delivered again.
    ref = await lab.start(node, task)
    assert await node.report(ref, outcome, result=result)
    await lab.sweep()


async def assignment(lab, node, task):
    """Return the assignment of a task."""
    await lab.schedule()
    (start,) = [one for one in (await node.poll()).start if one.ref.task == task]
    return start


async def found(lab, node, task):
    """Start a task, and return its inputs; None if its assignment has none to fetch."""
    start = await assignment(lab, node, task)
    return None if start.inputs_limit is None else await fetch(lab, node, start.ref)


async def fetch(lab, node, ref):
    """Return all pages of the inputs of an attempt."""
    results, above = {}, 0
    while above is not None:
        asked = wire.InputsRequest(ref=ref, above=above)
        page = await lab.components.inputs.read_page(node.id, asked)
        results |= {one.name: one.result for one in page.results}
        above = page.above
    return results


async def test_a_result_is_named_by_the_ref_of_its_task_within_a_request_and_by_its_id_later(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b",), ("c", "a", "b"))
    later = await lab.submit(depends_on=[str(ids["a"])])
    await end(lab, node, ids["a"], b'{"n": 1}')
    await end(lab, node, ids["b"], b"null")
    await lab.schedule()
    node.latest = 0
    starts = {one.ref.task: one for one in (await node.poll()).start}
    assert await fetch(lab, node, starts[ids["c"]].ref) == {"a": b'{"n": 1}', "b": b"null"}
    assert await fetch(lab, node, starts[later].ref) == {str(ids["a"]): b'{"n": 1}'}


async def test_a_duplicate_is_named_by_its_ref_too(lab):
    node = await lab.node()
    known = lab.spec(ref="a", idempotency_key="k")
    (first,) = (await lab.components.submitter.submit_batch(lab.client, [known])).ids
    await end(lab, node, first, b"1")
    specs = [known, lab.spec(ref="b", depends_on=["a"])]
    again, second = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    assert again == first
    assert await found(lab, node, second) == {"a": b"1"}


async def test_a_task_that_holds_a_unique_key_under_another_ref_is_named_by_its_id(lab):
    """Otherwise it could be confused with another task of the request that has this ref."""
    node = await lab.node()
    unique = UniqueRequest(key="u", on_conflict="return")
    holder = lab.spec(ref="b", unique=unique)
    (first,) = (await lab.components.submitter.submit_batch(lab.client, [holder])).ids
    specs = [
        lab.spec(ref="a", unique=unique),
        lab.spec(ref="b"),
        lab.spec(ref="c", depends_on=["a", "b"]),
    ]
    known, other, last = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    assert known == first
    await end(lab, node, first, b"1")
    await end(lab, node, other, b"2")
    assert await found(lab, node, last) == {str(first): b"1", "b": b"2"}


async def test_a_task_without_upstream_results_fetches_no_inputs(lab):
    node = await lab.node()
    alone = await lab.submit()
    assert (await assignment(lab, node, alone)).inputs_limit is None
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await end(lab, node, ids["a"])
    assert (await assignment(lab, node, ids["b"])).inputs_limit is None


@pytest.mark.parametrize(
    ("outcome", "result"),
    [(Outcome.FAILED, b"1"), (Outcome.SUCCEEDED, b"not JSON"), (Outcome.SUCCEEDED, None)],
)
async def test_a_result_that_was_not_kept_is_no_input(lab, outcome, result):
    node = await lab.node()
    ids = [await lab.submit(max_attempts=1) for _ in range(2)]
    last = await lab.submit(depends_on=[after(task, "always") for task in ids])
    await end(lab, node, ids[0], result, outcome)
    await end(lab, node, ids[1], b"2")
    assert await found(lab, node, last) == {str(ids[1]): b"2"}


async def test_every_attempt_gets_the_same_inputs_with_and_without_a_read(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await end(lab, node, ids["a"], b"1")
    first = await assignment(lab, node, ids["b"])
    node.latest = 0  # As after a lost response: this poll reads the database.
    again = await assignment(lab, node, ids["b"])
    assert (again.ref, again.inputs_limit) == (first.ref, first.inputs_limit)
    assert await node.report(first.ref, Outcome.FAILED)
    await lab.clock.move(seconds(60))
    node = await lab.rejoin(node)
    await lab.sweep()
    second = await assignment(lab, node, ids["b"])
    assert second.ref.attempt == 2
    assert await fetch(lab, node, second.ref) == {"a": b"1"}


async def test_an_update_of_a_task_keeps_its_inputs(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await lab.components.updater.update(lab.client, ids["b"], {"priority": 5})
    await end(lab, node, ids["a"], b"1")
    assert await found(lab, node, ids["b"]) == {"a": b"1"}


async def test_a_replay_has_the_inputs_of_its_original(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await end(lab, node, ids["a"], b"1")
    await end(lab, node, ids["b"])
    first = await lab.components.replayer.replay(lab.client, ids["b"])
    assert await found(lab, node, first) == {"a": b"1"}
    assert await lab.conn.fetchval("select not bool_or(has_dependants) from live")


async def test_a_replay_neither_waits_for_running_upstreams_nor_gets_their_results(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b",), ("c", "a", "b"))
    await end(lab, node, ids["a"], b"1")
    await cancel(lab, ids["c"])
    again = await lab.components.replayer.replay(lab.client, ids["c"])
    assert await lab.status(again) == "waiting"
    node.latest = 0
    await end(lab, node, ids["b"], b"2")
    node.latest = 0
    assert await found(lab, node, again) == {"a": b"1"}


async def test_results_that_retention_has_deleted_are_no_inputs(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b",), ("c", "a", "b"))
    await end(lab, node, ids["a"], b"1")
    await end(lab, node, ids["b"], b"2")
    await lab.conn.execute("delete from ends where task_id = $1", ids["a"])
    await lab.conn.execute("delete from tasks where id = $1", ids["a"])
    assert await found(lab, node, ids["c"]) == {"b": b"2"}


async def test_only_the_node_that_holds_the_attempt_gets_its_inputs(lab):
    node, other = await lab.node(), await lab.node(cpu=0.1)
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await end(lab, node, ids["a"], b"1")
    ref = (await assignment(lab, node, ids["b"])).ref
    forged = [
        (other, ref),
        (node, wire.AttemptRef(ref.task, ref.attempt + 1, ref.token)),
        (node, wire.AttemptRef(ref.task, ref.attempt, ref.token + 1)),
        (node, wire.AttemptRef(ids["a"], 1, 1)),
        (node, wire.AttemptRef(2**63, ref.attempt, ref.token)),
    ]
    for who, named in forged:
        with pytest.raises(Fenced):
            await lab.components.inputs.read_page(who.id, wire.InputsRequest(ref=named))
    assert await fetch(lab, node, ref) == {"a": b"1"}
    await node.report(ref)
    with pytest.raises(Fenced):
        await lab.components.inputs.read_page(node.id, wire.InputsRequest(ref=ref))


async def store_upstreams(lab, results):
    """Make a task, ready to start, that depends on one for each of `results`."""
    specs = [lab.spec(ref=f"r{number}", run_at=lab.clock.now) for number in range(len(results))]
    refs = [DependencyRequest(task=spec.ref) for spec in specs]
    batch = await lab.components.submitter.submit_batch(
        lab.client, [*specs, lab.spec(ref="last", depends_on=refs)]
    )
    *ids, last = batch.ids
    # Not one by one, on nodes: there are thousands.
    await lab.conn.execute(
        """
        insert into ends (task_id, tenant_id, status, attempt, failures, losses, ready_at,
                          start_by, finished_at, result)
        select l.id, l.tenant_id, 'done', 1, 0, 0, l.ready_at, l.start_by, duly.now(),
               given.result::json
          from live l
          join unnest($1::bigint[], $2::text[]) as given (id, result) on given.id = l.id
        """,
        ids,
        results,
    )
    await lab.conn.execute("delete from live where id = any($1)", ids)
    while await lab.conn.fetchval("select exists (select from ended_upstreams)"):
        await lab.sweep()
    return last


async def test_thousands_of_inputs_come_in_pages_that_are_bounded(lab, monkeypatch):
    node = await lab.node()
    results = [f'"{number}"' for number in range(1200)]
    # Neither many nor large: without a result, of exactly the bytes of a page, and larger.
    results[3], results[5], results[7] = None, f'"{"x" * 9998}"', f'"{"y" * 20000}"'
    last = await store_upstreams(lab, results)
    start = await assignment(lab, node, last)
    monkeypatch.setattr(inputs, "MAX_PAGE_RESULTS", 500)
    monkeypatch.setattr(inputs, "FULL_PAGE_BYTES", 10_000)
    pages, above = [], 0
    while above is not None:
        page = await lab.components.inputs.read_page(
            node.id, wire.InputsRequest(ref=start.ref, above=above)
        )
        pages.append({one.name: one.result.decode() for one in page.results})
        above = page.above
    whole = {name: text for page in pages for name, text in page.items()}
    assert whole == {f"r{n}": text for n, text in enumerate(results) if text is not None}
    assert [len(page) for page in pages] == [5, 2, 500, 500, 192]


async def test_only_a_few_of_many_upstreams_are_read_before_the_start(lab):
    """A round of the leader must not wait for them; the agent finds out that there is none."""
    node = await lab.node()
    last = await store_upstreams(lab, [None] * (MAX_UPSTREAMS_EXAMINED + 1))
    assert await found(lab, node, last) == {}
    last = await store_upstreams(lab, [None] * MAX_UPSTREAMS_EXAMINED)
    assert (await assignment(lab, node, last)).inputs_limit is None


@pytest.mark.parametrize(("disk_mb", "limit"), [(1, 2**20), (100, 3 * 2**20)])
async def test_inputs_are_limited_by_the_disk_of_the_task_and_by_a_setting(lab, disk_mb, limit):
    node = await lab.node()
    first = await lab.submit()
    needs = ResourcesRequest(disk_mb=disk_mb)
    second = await lab.submit(depends_on=[str(first)], resources=needs)
    await end(lab, node, first, b"1")
    assert (await assignment(lab, node, second)).inputs_limit == limit


@pytest.mark.parametrize(
    ("above", "result"), [(-1, [b"1"]), (-(2**64), [b"1"]), (2**63 - 1, []), (2**64, [])]
)
async def test_a_page_may_start_anywhere(lab, above, result):
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await end(lab, node, ids["a"], b"1")
    ref = (await assignment(lab, node, ids["b"])).ref
    page = await lab.components.inputs.read_page(node.id, wire.InputsRequest(ref=ref, above=above))
    assert [one.result for one in page.results] == result
