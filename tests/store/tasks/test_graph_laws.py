"""The laws of graphs, against a model that fits on a page.

Graphs of any form are submitted, also onto what is there already; their tasks run, are tried
again, end, and are cancelled, paused and resumed in any order, one by one or by a wish for the
whole graph; and whoever waits is told sooner or later, in pieces. Nobody starts early, nobody is
left behind, an audit finds nothing, and everybody ends as the model says.

Walks by plain dice find most mistakes at once; hypothesis looks into the corners, and shows the
shortest way there. `DULY_TORTURE=1` looks a hundred times as often.
"""

import asyncio
import os
from itertools import compress
from random import Random

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
from duly.model.task import Status
from duly.store.tasks.graph_operations import OperationKind
from tests.store.graph_model import FINAL, Model, Part, is_met
from tests.store.graph_walk import LARGEST, LIMITS, walk
from tests.store.graph_world import LEFT, ROWS, GraphWorld
from tests.store.lawful import open_lawful

WALKS, EXAMPLES = (500, 1000) if os.environ.get("DULY_TORTURE") else (6, 2)
MOST = 2000
"""Rounds after which everybody has been told, one edge at a time."""
ON = st.sampled_from(["success", "success", "failure", "always"])
SOME = st.lists(st.booleans(), min_size=1, max_size=2 * LARGEST)
"""Which of the tasks, the newest first."""
ENDS = st.lists(st.sampled_from(["done", "done", "failed", "waiting"]), min_size=LARGEST)
KINDS = st.sampled_from(OperationKind)
PIECES = st.sampled_from(LIMITS)


@st.composite
def shapes_of_graphs(draw):
    """Draw tasks by the places of those that they wait for; below 0 are tasks from before."""
    size = draw(st.integers(1, LARGEST))
    order = draw(st.permutations(range(size)))
    drawn = [
        draw(st.dictionaries(st.integers(-4, rank - 1), ON, max_size=3)) for rank in range(size)
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
        self.loop = loop
        self.world = GraphWorld(conn)
        self.model = Model()
        self.held = {}
        self.graphs = {}
        self.wishes = {}
        self.is_told = True

    def run(self, call):
        return self.loop.run_until_complete(call)

    @initialize()
    def begin(self):
        self.run(self.world.begin())

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
        number, in_order, ids = self.run(self.world.submit(asked))
        self.graphs[number] = in_order
        for task, ones in zip(ids, waits, strict=True):
            known = {ids[one] if one >= 0 else before[one]: on for one, on in ones.items()}
            self.model.parts[task] = Part(known)
        fates = self.model.fates()
        # Who can never run ends at once, which those that wait for it are told later.
        self.is_told = self.is_told and not any(fates[task] == "cancelled" for task in ids)

    def _some(self, picks):
        newest = sorted(self.model.parts, reverse=True)
        return sorted(compress(newest, picks)) or newest[:1]

    @precondition(lambda self: self.model.parts)
    @rule(picks=SOME)
    def start(self, picks):
        """Also those that may not: the leader may not know yet that they were paused or ended."""
        self._start(self._some(picks))

    def _start(self, numbers):
        fates = self.model.fates()
        given = self.run(self.world.lease(numbers))
        for number in numbers:
            part = self.model.parts[number]
            if fates[number] != "waiting":
                assert number not in given, f"{number} started and is {fates[number]}"
            elif number in given or self.is_told:
                part.attempt += 1
                part.is_running = True
                self.held[number] = given[number]
                assert given[number][0] == part.attempt

    @precondition(lambda self: self.held)
    @rule(picks=SOME, ends=ENDS)
    def end(self, picks, ends):
        running = sorted(self.held)
        self._end(dict(zip(compress(running, picks), ends, strict=False)))

    def _end(self, ends):
        """End attempts: a task is done, has failed or is tried again, unless it was cancelled."""
        held = {number: self.held.pop(number) for number in ends}
        well = {number: one for number, one in held.items() if ends[number] == "done"}
        ends = {
            number: "cancelled" if self.model.parts[number].is_to_end else end
            for number, end in ends.items()
        }
        done = {number for number, end in ends.items() if end == "done"}
        rest = {number: one for number, one in held.items() if number not in done}
        assert self.run(self.world.succeed(well)) == done
        self.run(self.world.fail(rest, {number: Status(ends[number]) for number in rest}))
        for number, end in ends.items():
            self.model.parts[number].is_running = False
            if end != "waiting":
                self.model.parts[number].end = end
                self.is_told = False

    @precondition(lambda self: self.model.parts)
    @rule(kind=KINDS, picks=SOME)
    def change(self, kind, picks):
        """Cancel, pause or resume some tasks."""
        numbers = self._some(picks)
        self._note(kind, numbers, self.run(self.world.do(kind, numbers)))

    def _note(self, kind, numbers, changed):
        fates = self.model.fates()
        for number in numbers:
            part = self.model.parts[number]
            if kind is OperationKind.CANCEL:
                self._note_cancelled(part, fates[number], changed.get(number))
            elif number in changed:
                assert part.end is None
                assert part.is_paused == (kind is OperationKind.RESUME)
                assert kind is OperationKind.RESUME or not part.is_to_end
                part.is_paused = kind is OperationKind.PAUSE
            else:
                # Those that have ended, or will, without having been told; and those that are so.
                is_over = part.is_to_end or fates[number] in FINAL
                assert is_over or part.is_paused == (kind is OperationKind.PAUSE)

    def _note_cancelled(self, part, fate, has_ended):
        if part.end is not None:
            assert has_ended is None
        elif part.is_running:
            assert has_ended is False
            part.is_to_end = True
        elif has_ended is None:
            # Of whoever it waits for it has ended already.
            assert fate == "cancelled"
        else:
            assert has_ended
            part.end = "cancelled"
            self.is_told = False

    @precondition(lambda self: self.graphs)
    @rule(pick=st.integers(0, 9), kind=KINDS)
    def wish(self, pick, kind):
        """Wish something of a whole graph, in the place of what was wished before."""
        graph = sorted(self.graphs)[pick % len(self.graphs)]
        made = self.run(self.world.wish(graph, kind))
        before = self.wishes.get(graph)
        stands = before is not None and before[0].kind is OperationKind.CANCEL
        assert (made is None) == (stands and kind is not OperationKind.CANCEL)
        if made is not None:
            self.wishes[graph] = made, []

    @precondition(lambda self: self.wishes)
    @rule(pick=st.integers(0, 9), limit=PIECES)
    def carry_out(self, pick, limit):
        """Do a piece of a wish; when it is over, all of the graph was gone through, in order."""
        graph = sorted(self.wishes)[pick % len(self.wishes)]
        wish, seen = self.wishes[graph]
        numbers, changed, is_over = self.run(self.world.carry(wish, limit))
        assert 0 < len(numbers) <= limit
        self._note(wish.kind, numbers, changed)
        last_first = wish.kind is OperationKind.CANCEL
        seen[:] = [*numbers, *seen] if last_first else [*seen, *numbers]
        whole = self.graphs[graph]
        assert seen == (whole[-len(seen) :] if last_first else whole[: len(seen)])
        assert is_over == (len(seen) == len(whole))
        if is_over:
            del self.wishes[graph]

    @rule(limit=PIECES)
    def tell_some(self, limit):
        self.run(self.world.tell(limit))
        assert self.run(self.world.audit()) == []

    @rule(limit=PIECES)
    def tell_all(self, limit):
        for _ in range(MOST):
            if not self.run(self.world.tell(limit)):
                self.is_told = True
                return
        raise AssertionError("there is no end of telling")

    @precondition(lambda self: self.model.parts)
    @rule(picks=SOME)
    def look_for_drift(self, picks):
        """There is none, so an audit finds none, and nothing to mend where it looks again."""
        assert self.run(self.world.audit()) == []
        assert not self.run(self.world.recount(self._some(picks)))

    @precondition(lambda self: self.model.parts)
    @rule(limit=PIECES, dice=st.randoms(use_true_random=False), rounds=st.integers(1, 3))
    def go_on(self, limit, dice, rounds):
        """Let all that may start do so, and some of it end, a few times."""
        for _ in range(rounds):
            self.tell_all(limit)
            self._round(dice, share=0.5)

    def _round(self, dice, share):
        ready = [number for number, fate in self.model.fates().items() if fate == "waiting"]
        if ready:
            self._start(ready)
        ending = [number for number in sorted(self.held) if dice.random() < share]
        self._end({number: dice.choice(["done", "done", "failed", "waiting"]) for number in ending})

    @precondition(lambda self: self.model.parts)
    @rule(limit=PIECES, dice=st.randoms(use_true_random=False))
    def run_to_the_end(self, limit, dice):
        """Nobody is left behind: in some rounds for each task, all have ended."""
        for wish, _ in self.wishes.copy().values():
            self._carry_to_the_end(wish, limit)
        for _ in range(5 * len(self.model.parts) + 20):
            fates = self.model.fates()
            if set(fates.values()) <= set(FINAL):
                break
            if paused := [number for number, part in self.model.parts.items() if part.is_paused]:
                self._note(
                    OperationKind.RESUME,
                    paused,
                    self.run(self.world.do(OperationKind.RESUME, paused)),
                )
            self.tell_all(50)
            self._round(dice, share=1)
        self.tell_all(limit)
        assert set(self.model.fates().values()) <= set(FINAL)
        assert self.run(self.world.conn.fetchval(LEFT)) == 0

    def _carry_to_the_end(self, wish, limit):
        while wish.graph_id in self.wishes:
            self.carry_out(sorted(self.wishes).index(wish.graph_id), limit)

    @invariant()
    def the_tables_say_what_the_model_says(self):
        if not self.model.parts:
            return
        fates = self.model.fates()
        rows = {row["id"]: row for row in self.run(self.world.conn.fetch(ROWS))}
        assert rows.keys() == fates.keys()
        for number, row in rows.items():
            part = self.model.parts[number]
            assert row["is_one"]
            assert row["attempt"] == part.attempt
            late = not self.is_told and row["status"] in ("blocked", "paused")
            assert row["status"] == fates[number] or late, (number, row["status"], fates[number])
            self._check_reason(number, row, fates)
            if self.is_told and row["blocked_by"] is not None:
                left = sum(fates[upstream] not in FINAL for upstream in part.waits)
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
        for seed in range(WALKS):
            walk(GraphLaws(conn, loop), Random(seed))
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
