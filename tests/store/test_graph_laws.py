"""The laws of graphs, against a model that fits on a page.

Graphs of any form are submitted, also onto what is there already; their tasks run, end, and are
cancelled, paused and resumed in any order; and whoever waits is told sooner or later, in pieces.
Nobody starts early, nobody is left behind, and everybody ends as the model says.
`DULY_TORTURE=1` looks a hundred times as often.
"""

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duly.model.graph import DependencyRequest
from duly.model.request import TaskRequest, complete
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.task import Outcome, Reason, Status, Tally
from duly.server import linker
from duly.server.linker import ALONE
from duly.store import edges, leases, nodes, servers, tasks, wishes
from duly.store.leases import Ended, Succeeded
from duly.store.tasks import NewTask
from tests.store.graph_model import FINAL, Model, Part, is_met
from tests.store.lawful import BACKSTOP, CLEAN, PLAN, open_lawful

EXAMPLES = 1000 if os.environ.get("DULY_TORTURE") else 10
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ROWS = """
select t.id, coalesce(l.status, e.status)::text as status, l.blocked_by, l.attempt,
       e.reason ->> 'code' as code, (e.reason -> 'details' ->> 'upstream')::bigint as upstream,
       (l.id is null) <> (e.task_id is null) as is_one
  from tasks t
  left join live l on l.id = t.id
  left join ends e on e.task_id = t.id
"""
ON = st.sampled_from(["success", "success", "failure", "always"])


@st.composite
def shapes_of_graphs(draw):
    """Draw tasks by the places of those that they wait for; below 0 are tasks from before."""
    size = draw(st.integers(1, 6))
    order = draw(st.permutations(range(size)))
    drawn = [
        draw(st.dictionaries(st.integers(-3, rank - 1), ON, max_size=3)) for rank in range(size)
    ]
    placed = {rank: place for place, rank in enumerate(order)}
    return [
        {placed.get(one, one): on for one, on in drawn[rank].items()}
        for rank in (order[place] for place in range(size))
    ]


class GraphLaws(RuleBasedStateMachine):
    """Does at random what clients, nodes and the leader do, one after the other."""

    def __init__(self, conn, loop):
        super().__init__()
        self.conn = conn
        self.loop = loop
        self.ids = iter(range(679_000_000_000_000_000, 2**62))
        self.model = Model()
        self.tokens = {}
        self.is_told = True

    def run(self, call):
        return self.loop.run_until_complete(call)

    @initialize()
    def begin(self):
        self.run(self.conn.execute(CLEAN))
        self.run(self.conn.execute("delete from edges; delete from ended_upstreams"))
        self.run(self.conn.execute("insert into clock values ($1)", NOW))
        self.term = self.run(servers.take_over(self.conn, 0, ttl=timedelta(days=999)))
        needs = complete(TaskRequest(command=["true"]), PLAN).resources
        key = tasks.shape_key(Shape(needs))
        self.shape = self.run(tasks.intern_shapes(self.conn, {key: Shape(needs)}))[key]
        self.node = self.run(nodes.add(self.conn, "n", b"n", {}))
        joining = nodes.join(
            self.conn, self.node, Resources(), {}, "process", "1", ttl=timedelta(days=999)
        )
        self.incarnation = self.run(joining)

    @rule(graph=shapes_of_graphs())
    def submit(self, graph):
        before = sorted(self.model.parts)
        waits = [{one: on for one, on in ones.items() if one >= -len(before)} for ones in graph]
        asked = [
            [
                DependencyRequest(task=f"r{one}" if one >= 0 else str(before[one]), on=on)
                for one, on in ones.items()
            ]
            for ones in waits
        ]
        ids = self.run(self._store(asked))
        for number, ones in zip(ids, waits, strict=True):
            known = {ids[one] if one >= 0 else before[one]: on for one, on in ones.items()}
            self.model.parts[number] = Part(known)
        fates = self.model.fates()
        # Who can never run ends at once, which those that wait for it are told later.
        self.is_told = self.is_told and not any(fates[number] == "cancelled" for number in ids)

    async def _store(self, asked):
        specs = [
            complete(TaskRequest(command=["true"], ref=f"r{place}", depends_on=ones), PLAN)
            for place, ones in enumerate(asked)
        ]
        links = await linker.link(specs)
        new = []
        for place in range(len(specs)) if links is None else links.order:
            part = ALONE if links is None else links.part_of(place)
            new.append(
                NewTask(
                    *(next(self.ids), 1, None, self.shape, specs[place], b""),
                    blocked_by=part.edges,
                    has_dependants=part.has_dependants,
                )
            )
        ids = [task.id for task in new]
        async with self.conn.transaction():
            await tasks.insert(self.conn, new, server=0)
            if links is not None:
                await linker.attach(self.conn, 1, links, new, ids)
        return ids if links is None else links.as_asked(ids)

    def _pick(self, pick):
        numbers = sorted(self.model.parts)
        return numbers[pick % len(numbers)]

    @precondition(lambda self: self.model.parts)
    @rule(pick=st.integers(0, 99))
    def start(self, pick):
        self._start(self._pick(pick))

    def _start(self, number):
        fate = self.model.fates()[number]
        placement = (number, self.incarnation, 0, self.shape)
        asking = leases.lease(
            self.conn, self.term, [placement], revision=1, given=None, backstop=BACKSTOP
        )
        given = self.run(asking)
        if fate != "waiting":
            assert given == [], f"{number} started and is {fate}"
        elif given or self.is_told:
            [one] = given
            self.model.parts[number].is_running = True
            self.tokens[number] = one.token

    @precondition(lambda self: self.tokens)
    @rule(pick=st.integers(0, 99), succeeds=st.booleans())
    def end(self, pick, succeeds):
        running = sorted(self.tokens)
        self._end(running[pick % len(running)], succeeds=succeeds)

    def _end(self, number, *, succeeds):
        part, token = self.model.parts[number], self.tokens.pop(number)
        if succeeds and not part.is_to_end:
            one = Succeeded(number, 1, token, 0, 1.0, 0.5, None, 0, b"", None, None)
            assert number in self.run(leases.finish_attempts(self.conn, self.node, [one]))
            part.end = "done"
        else:
            status = Status.CANCELLED if part.is_to_end else Status.FAILED
            self.run(self._finish(number, token, status))
            part.end = status.value
        part.is_running = False
        self.is_told = False

    async def _finish(self, number, token, status):
        held, _ = await leases.lock_attempts(self.conn, self.node, [(number, 1, token)])
        ended = Ended(
            held=held[number],
            outcome=Outcome.CAPPED,
            exit_code=1,
            reason=None,
            started_at=None,
            finished_at=NOW,
            usage=None,
            log_size=0,
            log_tail=b"",
            status=status,
            ready_at=NOW,
            start_by=NOW,
            tally=Tally(1, 0),
            result=None,
            task_reason=Reason("because", "It did."),
        )
        await leases.end_attempts(self.conn, [ended])

    @precondition(lambda self: self.model.parts)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=4))
    def cancel(self, picks):
        numbers = sorted({self._pick(pick) for pick in picks})
        fates = self.model.fates()
        found = self.run(tasks.request_cancel(self.conn, 1, numbers))
        for number in numbers:
            part = self.model.parts[number]
            if part.end is not None:
                assert number not in found
            elif part.is_running:
                assert found[number] is False
                part.is_to_end = True
            elif number in found:
                assert found[number]
                part.end = "cancelled"
                self.is_told = False
            else:
                # Of whoever it waits for it has ended already.
                assert fates[number] == "cancelled"

    @precondition(lambda self: self.model.parts)
    @rule(pick=st.integers(0, 99), resumes=st.booleans())
    def pause_or_resume(self, pick, resumes):
        number = self._pick(pick)
        if resumes:
            self._resume(number)
        elif number in self.run(wishes.pause(self.conn, 1, [number])):
            self.model.parts[number].is_paused = True

    def _resume(self, number):
        if self.run(wishes.resume(self.conn, 1, [number])):
            assert self.model.parts[number].is_paused
            self.model.parts[number].is_paused = False

    @rule(limit=st.integers(1, 5))
    def tell_some(self, limit):
        self.run(edges.settle(self.conn, self.term, limit=limit))

    @rule(limit=st.integers(1, 50))
    def tell_all(self, limit):
        while self.run(edges.settle(self.conn, self.term, limit=limit)).has_more:
            pass
        self.is_told = True

    @precondition(lambda self: self.model.parts)
    @rule(limit=st.integers(1, 50), dice=st.randoms(use_true_random=False))
    def run_to_the_end(self, limit, dice):
        """Nobody is left behind: in so many rounds as there are tasks, all have ended."""
        for _ in range(len(self.model.parts) + 1):
            if set(self.model.fates().values()) <= set(FINAL):
                break
            for number, part in self.model.parts.items():
                if part.is_paused and part.end is None:
                    self._resume(number)
            self.tell_all(limit)
            for number, fate in self.model.fates().items():
                if fate == "waiting":
                    self._start(number)
            for number in dice.sample(sorted(self.tokens), len(self.tokens)):
                self._end(number, succeeds=dice.random() < 0.7)
        self.tell_all(limit)
        assert set(self.model.fates().values()) <= set(FINAL)
        assert self.run(self.conn.fetchval("select count(*) from live")) == 0
        assert self.run(self.conn.fetchval("select count(*) from ended_upstreams")) == 0

    @invariant()
    def the_tables_say_what_the_model_says(self):
        if not self.model.parts:
            return
        fates = self.model.fates()
        rows = {row["id"]: row for row in self.run(self.conn.fetch(ROWS))}
        assert rows.keys() == fates.keys()
        for number, row in rows.items():
            assert row["is_one"]
            late = not self.is_told and row["status"] in ("blocked", "paused")
            assert row["status"] == fates[number] or late, (number, row["status"], fates[number])
            self._check_reason(number, row, fates)
            if self.is_told and row["blocked_by"] is not None:
                waits = self.model.parts[number].waits
                left = sum(fates[upstream] not in FINAL for upstream in waits)
                assert row["blocked_by"] == left

    def _check_reason(self, number, row, fates):
        if row["status"] == "cancelled" and self.model.parts[number].end is None:
            assert row["code"] in ("upstream_failed", "upstream_succeeded")
            end, on = fates[row["upstream"]], self.model.parts[number].waits[row["upstream"]]
            assert end in FINAL
            assert not is_met(on, end)
            assert (row["code"] == "upstream_succeeded") == (end == "done")


@pytest.mark.timeout(1800)
def test_everybody_ends_as_a_simple_model_says(postgres):
    loop = asyncio.new_event_loop()
    conn = loop.run_until_complete(open_lawful(postgres, "graph_laws"))
    try:
        run_state_machine_as_test(
            lambda: GraphLaws(conn, loop),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(conn.close())
        loop.close()


@pytest.mark.parametrize(
    ("waits", "end", "expected"),
    [
        ({}, None, "waiting"),
        ({1: "success"}, None, "blocked"),
        ({1: "success"}, "done", "waiting"),
        ({1: "success"}, "failed", "cancelled"),
        ({1: "failure"}, "cancelled", "waiting"),
        ({1: "failure"}, "done", "cancelled"),
        ({1: "always"}, "failed", "waiting"),
    ],
)
def test_the_model_says_what_the_reference_says(waits, end, expected):
    assert Model({1: Part({}, end), 2: Part(waits)}).fates()[2] == expected
