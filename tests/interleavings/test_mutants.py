"""The explorer can fail: each mistake on purpose breaks a law within a bounded number of seeds."""

import pytest

from duly.server import queue_manager
from duly.store import leases, nodes, servers, tasks
from tests.interleavings.explorer import Broken, exploring, function

MOST = 200
"""How many seeds a mistake may survive."""


def without(module, name, *clauses):
    """Return a change of a statement that leaves clauses out."""

    def apply(monkeypatch):
        text = module.SQL[name]
        for clause, other in clauses:
            assert clause in text, f"{name} does not contain {clause!r}"
            text = text.replace(clause, other)
        monkeypatch.setitem(module.SQL, name, text)
        return ""

    return apply


def altered(name, *clauses):
    """Return a change of a function of the schema."""

    def apply(monkeypatch):
        return function(name, *clauses)

    return apply


def unmatched(monkeypatch):
    """Take a report for whatever attempt the task is at."""
    monkeypatch.setattr(queue_manager, "_matches", lambda held, report: held is not None)
    return without(
        leases,
        "lock_attempts",
        ("and l.attempt = report.attempt", ""),
        ("and l.token = report.token", ""),
    )(monkeypatch)


MUTANTS = {
    "a report is taken without its attempt and token": ("repeats", unmatched),
    "a finish does not lock its row": (
        "cancels",
        without(leases, "lock_attempts", ("for update\n", "offset 0\n")),
    ),
    "a lease does not lock the incarnation": (
        "joins",
        altered("lease", ("where i.id = any(p_incarnations)", "where false")),
    ),
    "a lease does not check its term": (
        "hand-overs",
        altered("lease", ("if not found then", "if false then")),
    ),
    "a lease ignores that the node drains": (
        "drains",
        altered("lease", ("and not n.draining", "")),
    ),
    "only what has just expired is swept": (
        "joins",
        without(leases, "lock_orphans", ("i.ended_at is not null", "i.end_reason = 'expired'")),
    ),
    "everything that runs is swept": (
        "losses",
        without(leases, "lock_orphans", ("i.ended_at is not null", "true")),
    ),
    "an incarnation is renewed after its end": (
        "losses",
        without(nodes, "renew", ("and coalesce(ended_at, 'infinity') = 'infinity'", "")),
    ),
    "taking over does not wait for open work": (
        "hand-overs",
        without(servers, "lock_term", ("for update", "")),
    ),
    "a cancel ends only what waits": (
        "changes",
        altered("request_cancel", ("and l.token is not null", "and false")),
    ),
    "a finish forgets that the task was cancelled": (
        "cancels",
        without(
            leases,
            "lock_attempts",
            ("l.cancel_requested_at,", "null::timestamptz as cancel_requested_at,"),
        ),
    ),
    "losses are not counted": (
        "losses",
        without(leases, "end_attempts", ("losses = held.losses", "losses = 0")),
    ),
    "a key moves to whoever used it last": (
        "submits",
        without(
            tasks,
            "insert_tasks",
            ("do nothing", "do update set task_id = excluded.task_id"),
        ),
    ),
    "a change is made without a lock": (
        "changes",
        without(tasks, "lock_unstarted", ("for update", "")),
    ),
    "what is in use is forgotten": (
        "everything",
        without(leases, "read_in_use", ("where status = 'running'", "where false")),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mistake_is_found(dsn, monkeypatch, mutant):
    theme, change = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as changes:
        sabotage = change(changes)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(Broken):
                for seed in range(MOST):
                    await explorer.run(seed, theme)
