"""Synthetic runs for the tests of the checker: correct ones, and ones with a violation.

A synthetic run records every step without checking it, so that any violation can be constructed.
"""

import itertools
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tests.torture.database_dump import (
    AttemptRow,
    DatabaseDump,
    EdgeRow,
    EndRow,
    GraphRow,
    IncarnationRow,
    LiveRow,
    NodeRow,
    SubmissionRow,
    TaskRow,
    TenantRow,
)
from tests.torture.evidence import Evidence, FaultInterval, RunSettings
from tests.torture.history import Call, Op
from tests.torture.invariants import ALL
from tests.torture.journal import Step
from tests.torture.ledger import LEDGER_MARK, Entry

RunStep = Callable[["SyntheticRun"], object]
TASK = 7
"""The task of most synthetic runs."""
SOURCE = f"#!/bin/sh\n{LEDGER_MARK}\n"
FAILURES = ("failed", "capped", "overused")


class SyntheticRun:
    """A synthetic run, in which every step takes a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.steps: list[Step] = []
        self.entries: list[Entry] = []
        self.calls: list[Call] = []
        self.tasks: dict[int, TaskRow] = {}
        self.live: dict[int, LiveRow] = {}
        self.ends: dict[int, EndRow] = {}
        self.attempts: list[AttemptRow] = []
        self.incarnations: dict[int, IncarnationRow] = {}
        self.dead_letters: list[int] = []
        self.edges: list[EdgeRow] = []
        self.graphs: list[GraphRow] = []
        self.paused: set[int] = set()
        self.tenants: list[TenantRow] = []
        self.keys: dict[int, dict[str, Any]] = {}
        self.faults: list[FaultInterval] = []
        self.term = 0
        self.held: dict[int, Step] = {}
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)
        self._xids = itertools.count(1)
        self.begin_term(1)
        self.join(1)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def begin_term(self, term: int) -> None:
        self.term = term
        self.note(what="term", op="update", term=term, server=0)

    def join(self, incarnation: int, *, cpu_milli: int = 1000) -> None:
        """Start an incarnation of the node with the same number: node-1, node-2."""
        self.incarnations[incarnation] = IncarnationRow(
            id=incarnation, node_id=incarnation, capacity={"cpu_milli": cpu_milli}
        )
        self.note(what="incarnation", op="insert", incarnation=incarnation, status="alive")

    def call(
        self,
        op: Op,
        *,
        outcome: Literal["ok", "info", "fail"] = "ok",
        result: dict[str, Any] | None = None,
        key: str | None = None,
        args: dict[str, Any] | None = None,
    ) -> None:
        invoked, self.now = self.now, self.now + 1
        self.calls.append(
            Call(
                op=op,
                number=len(self.calls),
                key=key,
                args=args or {},
                invoked=invoked,
                returned=self.now,
                outcome=outcome,
                result=result,
            )
        )

    def store(self, task: int, *, xid: int | None = None, **fields: Any) -> None:
        """Store a waiting task, without a call of a client."""
        self.tasks[task] = TaskRow(id=task, payload={"source": SOURCE}, **fields)
        self.live[task] = LiveRow(id=task)
        self._live(task, "insert", **({} if xid is None else {"xid": xid}))

    def block(self, task: int, upstream: int, condition: str = "success") -> None:
        """Store a task with an upstream, and acknowledge it."""
        self.tasks[task] = TaskRow(id=task, payload={"source": SOURCE})
        self.live[task] = LiveRow(id=task, status="blocked")
        self._live(task, "insert")
        self.edges.append(EdgeRow(dependant_id=task, upstream_id=upstream, condition=condition))
        dependencies = [{"task": str(upstream), "on": condition}]
        self.call(
            "submit", result={"id": str(task)}, args={"source": SOURCE, "depends_on": dependencies}
        )

    def submit(self, task: int, **fields: Any) -> None:
        """Store a task and acknowledge it."""
        self.store(task, **fields)
        self.call("submit", result={"id": str(task)}, args={"source": SOURCE})

    def lease(self, task: int, *, incarnation: int = 1, **other: Any) -> int:
        """Lease a task to an incarnation; return the token."""
        token = next(self._tokens)
        row = self.live[task]
        self.live[task] = msgspec.structs.replace(
            row,
            status="running",
            attempt=row.attempt + 1,
            token=token,
            incarnation_id=incarnation,
        )
        self.held[task] = self._live(task, "update", **{"term": self.term, **other})
        return token

    def release(self, task: int) -> None:
        """Make a scheduled or blocked task ready."""
        self._move(task, "waiting")

    def pause(self, task: int) -> None:
        """Mark a task as paused; a running task continues."""
        self.paused.add(task)
        self._move(task, "paused")

    def resume(self, task: int, status: str = "waiting") -> None:
        self.paused.discard(task)
        self._move(task, status)

    def _move(self, task: int, status: str) -> None:
        if self.live[task].status != "running":
            self.live[task] = msgspec.structs.replace(self.live[task], status=status)
        self._live(task, "update")

    def write(self, what: str, task: int, *, token: int | None = None, **other: Any) -> None:
        """Write to the ledger, for the current attempt or for `token`."""
        held = self.held[task]
        fields = {
            "attempt": held.attempt,
            "token": token or held.token,
            "cpu_milli": 500,
            "node": f"node-{held.incarnation}",
            **other,
        }
        self.now += 1
        self.entries.append(Entry(what=what, task=task, at=self.now, **fields))

    def run(self, task: int) -> None:
        self.write("start", task)
        self.write("end", task)

    def finish(
        self, task: int, outcome: str = "succeeded", status: str = "done", **other: Any
    ) -> None:
        """Record the end of the current attempt, and move the task to `status`."""
        held, row, xid = self.held[task], self.live[task], next(self._xids)
        assert held.attempt is not None and held.token is not None
        fields = {"attempt": held.attempt, "token": held.token, "incarnation": held.incarnation}
        attempt = {**fields, **other}
        self.note(what="attempt", op="insert", xid=xid, task=task, outcome=outcome, **attempt)
        self.attempts.append(
            AttemptRow(
                task_id=task, attempt=attempt["attempt"], token=attempt["token"], outcome=outcome
            )
        )
        counted = msgspec.structs.replace(
            row,
            failures=row.failures + (outcome in FAILURES),
            losses=row.losses + (outcome == "lost"),
        )
        if status in ("waiting", "scheduled", "paused"):
            self.live[task] = msgspec.structs.replace(
                counted, status=status, token=None, incarnation_id=None
            )
            self._live(task, "update", xid=xid)
        else:
            self.live[task] = counted
            self.end(task, status, outcome=outcome, xid=xid)

    def end(
        self, task: int, status: str, *, outcome: str | None = None, xid: int = 0, **other: Any
    ) -> None:
        """End a task; without an outcome, a task that has not started."""
        xid = xid or next(self._xids)
        self._live(task, "delete", xid=xid)
        row = self.live.pop(task)
        counts = {"attempt": row.attempt, "failures": row.failures, "losses": row.losses}
        self.ends[task] = EndRow(
            task_id=task, status=status, outcome=outcome, **{**counts, **other}
        )
        self.note(what="end", op="insert", xid=xid, task=task, status=status, outcome=outcome)
        if status == "failed":
            self.dead_letters.append(task)

    def note(self, **step: Any) -> Step:
        """Add a step to the journal."""
        self.now += 1
        step.setdefault("xid", next(self._xids))
        self.steps.append(Step(seq=next(self._numbers), boot=self.now, **step))
        return self.steps[-1]

    def _live(self, task: int, op: str, **other: Any) -> Step:
        row = self.live[task]
        fields = {
            "task": task,
            "status": row.status,
            "attempt": row.attempt,
            "token": row.token,
            "incarnation": row.incarnation_id,
            "failures": row.failures,
            "losses": row.losses,
            "shape": row.shape_id,
            "cancel_requested": False,
            "is_paused": task in self.paused,
            **other,
        }
        return self.note(what="live", op=op, **fields)

    def evidence(self, **other: Any) -> Evidence:
        """Return the evidence of the run so far."""
        dump = DatabaseDump(
            tasks=list(self.tasks.values()),
            live=list(self.live.values()),
            ends=list(self.ends.values()),
            attempts=list(self.attempts),
            incarnations=list(self.incarnations.values()),
            nodes=[NodeRow(id=node, name=f"node-{node}") for node in self.incarnations],
            submissions=[
                SubmissionRow(key=row.idempotency_key, task_id=row.id)
                for row in self.tasks.values()
                if row.idempotency_key is not None
            ],
            edges=list(self.edges),
            graphs=list(self.graphs),
            dead_letters=list(self.dead_letters),
            tenants=self.tenants,
            shapes={1: {"cpu_milli": 500}},
            keys=self.keys,
            journal=list(self.steps),
        )
        fields = {"settings": RunSettings(grace=10.0), **other}
        return Evidence(
            dump=dump,
            calls=self.calls,
            entries=self.entries,
            faults=self.faults,
            **fields,
        )


def run_with(*steps: RunStep) -> SyntheticRun:
    """Return a run in which a task was submitted, followed by `steps`."""
    synthetic = SyntheticRun()
    synthetic.submit(TASK)
    for step in steps:
        step(synthetic)
    return synthetic


def lease(synthetic: SyntheticRun) -> None:
    synthetic.lease(TASK)


def run(synthetic: SyntheticRun) -> None:
    synthetic.lease(TASK)
    synthetic.run(TASK)


def start(synthetic: SyntheticRun) -> None:
    synthetic.lease(TASK)
    synthetic.write("start", TASK)


def done(synthetic: SyntheticRun) -> None:
    run(synthetic)
    synthetic.finish(TASK)


def lost(synthetic: SyntheticRun) -> None:
    start(synthetic)
    synthetic.finish(TASK, "lost", "waiting")


def failed(synthetic: SyntheticRun) -> None:
    run(synthetic)
    synthetic.finish(TASK, "failed", "waiting")


def cancelled(synthetic: SyntheticRun) -> None:
    synthetic.call(
        "cancel", args={"task": str(TASK)}, result={"id": str(TASK), "status": "running"}
    )


def messages(synthetic: SyntheticRun, invariant: int, **other: Any) -> list[str]:
    """Return the messages of the violations of one invariant."""
    return [violation.message for violation in ALL[invariant](synthetic.evidence(**other))]
