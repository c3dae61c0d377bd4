"""The laws of the store, against a model that fits on a page.

Whatever is submitted, leased, ended, cancelled, lost and changed, in any order: the tables
say what the model says. On the newest PostgreSQL that Duly brings, and on the oldest that
it supports.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from duly.model.requests.task_request import TaskRequest, complete
from duly.model.resources import Resources
from duly.model.run_time import NO_ESTIMATE
from duly.model.shape import Shape
from duly.model.task import Outcome, Reason, Status, Tally
from duly.store.attempts import leases
from duly.store.attempts.leases import EndedAttempt, SucceededAttempt
from duly.store.fleet import nodes, servers
from duly.store.tasks import tasks
from duly.store.tasks.tasks import NewTask
from tests.store.lawful import BACKSTOP, CLEAN, FINAL, PLAN, TTL, Node, Task, World, open_lawful

ROWS = """
select t.id, coalesce(l.status, e.status)::text as status,
       coalesce(l.attempt, e.attempt) as attempt,
       coalesce(l.failures, e.failures) as failures, coalesce(l.losses, e.losses) as losses,
       l.incarnation_id as incarnation, l.token, t.priority, l.priority as live_priority,
       l.cancel_requested_at is not null as is_cancelled,
       (l.id is null) <> (e.task_id is null) as is_one,
       exists (select 1 from dead_letters d where d.task_id = t.id) as is_dead,
       array(select a.attempt from attempts a where a.task_id = t.id order by a.attempt) as tried
  from tasks t
  left join live l on l.id = t.id
  left join ends e on e.task_id = t.id
"""


class Laws(RuleBasedStateMachine):
    """Does at random what servers do, one statement after the other."""

    known = Bundle("known")
    leased = Bundle("leased")

    def __init__(self, conn, loop):
        super().__init__()
        self.conn = conn
        self.loop = loop
        self.ids = iter(range(679_000_000_000_000_000, 2**62))

    def run(self, call):
        return self.loop.run_until_complete(call)

    @initialize()
    def begin(self):
        now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
        self.run(self.conn.execute(CLEAN))
        self.run(self.conn.execute("insert into clock values ($1)", now))
        term = self.run(servers.take_over(self.conn, 0, ttl=timedelta(days=999)))
        self.world = World(now, term)
        needs = complete(TaskRequest(command=["true"]), PLAN).resources
        key = tasks.shape_key(Shape(needs))
        self.shape = self.run(tasks.intern_shapes(self.conn, {key: Shape(needs)}))[key]
        for name in ("a", "b"):
            node = self.run(nodes.add(self.conn, name, name.encode(), {}))
            self.world.nodes[node] = Node(0, now)
            self._join(node)

    def _join(self, node):
        incarnation = self.run(
            nodes.join(self.conn, node, Resources(), {}, "process", "1", {}, ttl=TTL)
        )
        was = self.world.nodes[node]
        self.world.nodes[node] = Node(incarnation, self.world.now + TTL, drains=was.drains)

    @rule(seconds=st.sampled_from([1, 7, 16]))
    def time_passes(self, seconds):
        self.world.now += timedelta(seconds=seconds)
        self.run(self.conn.execute("update clock set at = $1", self.world.now))

    @rule(target=known, key=st.sampled_from([None, None, "a", "b"]), late=st.booleans())
    def submit(self, key, late):
        run_at = self.world.now + timedelta(seconds=5) if late else None
        spec = complete(TaskRequest(command=["true"], idempotency_key=key), PLAN)
        spec = msgspec.structs.replace(spec, run_at=run_at)
        new = NewTask(next(self.ids), 1, None, self.shape, spec, b"x")
        stored = self.run(tasks.insert(self.conn, [new], server=0)).stored
        if key in self.world.keys:
            assert stored == []
            found = self.run(tasks.read_submissions(self.conn, [(1, key)]))
            assert found[1, key].task_id == self.world.keys[key]
            return multiple()
        assert [one.id for one in stored] == [new.id]
        status = "scheduled" if late else "waiting"
        self.world.tasks[new.id] = Task(status, run_at or self.world.now)
        if key is not None:
            self.world.keys[key] = new.id
        return new.id

    @rule()
    def release(self):
        due = [
            task
            for task in self.world.tasks.values()
            if task.status == "scheduled" and task.ready_at <= self.world.now
        ]
        assert len(self.run(leases.release_due(self.conn, limit=100))) == len(due)
        for task in due:
            task.status = "waiting"

    @rule(
        target=leased,
        number=known,
        node=st.sampled_from([0, 1]),
        term=st.sampled_from([0, 0, 0, 1]),
    )
    def lease(self, number, node, term):
        node = list(self.world.nodes.values())[node]
        held = servers.Term(self.world.term.number - term, self.world.term.server)
        placement = (number, node.incarnation, 0, self.shape)
        ask = leases.lease(self.conn, held, [placement], revision=1, given=None, backstop=BACKSTOP)
        if term:
            with pytest.raises(asyncpg.PostgresError, match="is over"):
                self.run(ask)
            return multiple()
        given = self.run(ask)
        task = self.world.tasks[number]
        may = task.status == "waiting" and node.is_alive and not node.drains
        if not may or node.expires_at <= self.world.now:
            assert given == []
            return multiple()
        [one] = given
        task.status, task.attempt = "running", task.attempt + 1
        task.incarnation, task.token = node.incarnation, one.token
        assert (one.id, one.attempt) == (number, task.attempt)
        return (number, one.attempt, one.token, self._node_of(node))

    def _node_of(self, node):
        return next(number for number, one in self.world.nodes.items() if one is node)

    @rule(
        ref=leased,
        status=st.sampled_from([Status.DONE, Status.FAILED, Status.WAITING, Status.SCHEDULED]),
        wrong=st.sampled_from(["", "", "", "token", "attempt", "node"]),
    )
    def finish(self, ref, status, wrong):
        number, attempt, token, node = ref
        ask = (number, attempt + (wrong == "attempt"), token + (wrong == "token"))
        if status is Status.DONE:
            self._succeed(ask, node + (wrong == "node"), attempt, bool(wrong))
            return
        held, _ = self.run(leases.lock_attempts(self.conn, node + (wrong == "node"), [ask]))
        task = self.world.tasks[number]
        if wrong or (task.status, task.attempt) != ("running", attempt):
            assert held == {}
            return
        outcome = {"done": Outcome.SUCCEEDED, "failed": Outcome.CAPPED}.get(status, Outcome.FAILED)
        self._end(held[number], status, outcome)
        task.failures += 1

    def _succeed(self, ask, node, attempt, wrong):
        one = SucceededAttempt(*ask, 0, 1.0, 0.5, None, 0, b"", None, None)
        done = self.run(leases.finish_attempts(self.conn, node, [one]))
        task = self.world.tasks[ask[0]]
        if wrong or task.is_cancelled or (task.status, task.attempt) != ("running", attempt):
            assert done == {}
            return
        assert done == {ask[0]: False}
        task.status = "done"
        task.incarnation = task.token = None

    def _end(self, held, status, outcome):
        lost = outcome is Outcome.LOST
        tally = Tally(held.failures + (not lost and status is not Status.DONE), held.losses + lost)
        at = self.world.now + timedelta(seconds=5 if status is Status.SCHEDULED else 0)
        ended = EndedAttempt(
            held=held,
            outcome=outcome,
            exit_code=0,
            reason=None,
            started_at=None,
            finished_at=self.world.now,
            usage=None,
            log_size=0,
            log_tail=b"",
            status=status,
            ready_at=at,
            start_by=at,
            shape_id=held.shape_id,
            tally=tally,
            result=None,
            task_reason=Reason("because", "It did."),
        )
        self.run(leases.end_attempts(self.conn, [ended]))
        task = self.world.tasks[held.id]
        task.status, task.ready_at = status.value, at
        task.incarnation = task.token = None
        task.is_cancelled = False

    @rule(number=known)
    def cancel(self, number):
        found = self.run(tasks.request_cancel(self.conn, 1, [number]))
        task = self.world.tasks[number]
        if task.status in FINAL:
            assert found == {}
        elif task.status == "running":
            assert found == {number: task.incarnation}
            task.is_cancelled = True
        else:
            assert found == {number: None}
            task.status = "cancelled"

    @rule(number=known)
    def cancel_for_a_stranger(self, number):
        assert self.run(tasks.request_cancel(self.conn, 2, [number])) == {}

    @rule(number=known)
    def give_up(self, number):
        reason = Reason("hopeless", "No node could ever fit it.")
        ended = self.run(leases.end_unstarted(self.conn, {number: reason}, Status.FAILED))
        task = self.world.tasks[number]
        if task.status in ("waiting", "scheduled"):
            assert ended == [number]
            task.status = "failed"
        else:
            assert ended == []

    @rule(node=st.sampled_from([0, 1]))
    def renew(self, node):
        node_id, known = list(self.world.nodes.items())[node]
        alive = self.run(
            nodes.renew(self.conn, [nodes.Heartbeat(known.incarnation, node_id)], ttl=TTL)
        )
        assert alive == ({known.incarnation} if known.is_alive else set())
        if known.is_alive:
            known.expires_at = self.world.now + TTL

    @rule(node=st.sampled_from([0, 1]))
    def join(self, node):
        node_id, was = list(self.world.nodes.items())[node]
        orphans = self.world.held_by(was)
        self._join(node_id)
        self._sweep(orphans)

    @rule()
    def expire(self):
        silent = [
            node
            for node in self.world.nodes.values()
            if node.is_alive and node.expires_at <= self.world.now
        ]
        ended = self.run(leases.expire_incarnations(self.conn, self.world.now))
        assert sorted(one for one, _ in ended) == sorted(node.incarnation for node in silent)
        orphans = [task for node in silent for task in self.world.held_by(node)]
        for node in silent:
            node.is_alive = False
        self._sweep(orphans)

    def _sweep(self, orphans):
        held = self.run(leases.lock_orphans(self.conn, limit=100))
        assert sorted(one.token for one in held) == sorted(task.token for task in orphans)
        for one in held:
            task = self.world.tasks[one.id]
            assert (one.cancel_requested_at is not None) == task.is_cancelled
            self._end(one, Status.WAITING, Outcome.LOST)
            task.losses += 1

    @rule(node=st.sampled_from([0, 1]), drains=st.booleans())
    def drain(self, node, drains):
        node_id, known = list(self.world.nodes.items())[node]
        assert self.run(nodes.drain(self.conn, node_id, draining=drains))
        known.drains = drains

    @rule(number=known, priority=st.integers(-5, 5))
    def update(self, number, priority):
        held = self.run(tasks.lock_unstarted(self.conn, 1, number))
        task = self.world.tasks[number]
        if task.status not in ("waiting", "scheduled"):
            assert held is None or held.status == task.status
            return
        stored = self.run(tasks.read_spec(self.conn, 1, number))
        spec = msgspec.structs.replace(stored.spec, priority=priority)
        now = self.world.now
        change = tasks.update(
            self.conn,
            number,
            self.shape,
            spec,
            ready_at=task.ready_at,
            now=now,
            run_time=NO_ESTIMATE,
        )
        self.run(change)
        task.priority = priority
        task.status = "scheduled" if task.ready_at > now else "waiting"

    @rule(ref=consumes(leased))
    def forget(self, ref):
        """Keep the list of attempts short, so that current ones are chosen too."""

    @invariant()
    def the_tables_say_what_the_model_says(self):
        if not hasattr(self, "world"):
            return
        rows = self.run(self.conn.fetch(ROWS))
        assert len(rows) == len(self.world.tasks)
        for row in rows:
            task = self.world.tasks[row["id"]]
            assert row["is_one"]
            assert row["status"] == task.status
            assert (row["attempt"], row["failures"], row["losses"]) == (
                task.attempt,
                task.failures,
                task.losses,
            )
            assert (row["incarnation"], row["token"]) == (task.incarnation, task.token)
            assert row["is_cancelled"] == task.is_cancelled
            assert row["priority"] == task.priority
            assert row["live_priority"] in (None, task.priority)
            assert row["is_dead"] == (task.status == "failed")
            assert row["tried"] == list(range(1, task.attempt + (task.status != "running")))


@pytest.mark.parametrize("version", ["postgres", "postgres_15"])
def test_the_tables_say_what_a_simple_model_says(request, version):
    dsn = request.getfixturevalue(version)
    loop = asyncio.new_event_loop()
    conn = loop.run_until_complete(open_lawful(dsn, "laws"))
    try:
        run_state_machine_as_test(
            lambda: Laws(conn, loop),
            settings=settings(
                max_examples=25,
                stateful_step_count=35,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(conn.close())
        loop.close()
