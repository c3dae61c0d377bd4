"""Mutants: deliberate defects, each of which some invariant must detect.

A mistake comes with the theme under which it shows soon.
"""

from types import SimpleNamespace

from duly.model.graph import Condition
from duly.server.admission import idempotency
from duly.server.lifecycle import queue_manager
from duly.server.recurrence import timekeeper
from duly.server.recurrence.occurrences import NewOccurrence
from duly.store.accounts import buckets
from duly.store.attempts import leases, stopping_attempts
from duly.store.fleet import fleet_snapshot, nodes, reservations, servers
from duly.store.tasks import graph_operations, schedules, tasks
from duly.store.tasks.edges import NewEdge
from tests.interleavings.explorer import function


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
    without(
        leases,
        "finish_attempts",
        ("and attempt = ($3::int[])[width_bucket(id, $2)]", "and $3::int[] is not null"),
        ("and token = ($4::bigint[])[width_bucket(id, $2)]", "and $4::bigint[] is not null"),
    )(monkeypatch)
    return without(
        leases,
        "lock_attempts",
        ("and l.attempt = report.attempt", ""),
        ("and l.token = report.token", ""),
    )(monkeypatch)


def unread(monkeypatch):
    """Do not ask whether the reservation was still there."""
    change = reservations.change

    async def blindly(conn, changed):
        await change(conn, changed)
        return True

    monkeypatch.setattr(reservations, "change", blindly)
    return ""


def bodiless(monkeypatch):
    """Look at the key of a batch alone."""
    monkeypatch.setattr(idempotency, "hash_spec", lambda spec, plan: b"")
    return ""


def termless(monkeypatch):
    """Fire schedules whatever has become of the term."""

    async def hold(conn, term):
        pass

    monkeypatch.setattr(timekeeper, "servers", SimpleNamespace(hold=hold))
    return ""


def waiting_for_the_last(monkeypatch):
    """Let an occurrence wait for the one right before it alone."""

    def last(self):
        for index in self.spec.roots if self.waits_for else ():
            yield NewEdge(self.ids[index], self.waits_for[-1], Condition.ALWAYS)

    monkeypatch.setattr(NewOccurrence, "queue_edges", last)
    return ""


def unmarked(monkeypatch):
    """Do not raise the mark when a tenant is suspended."""
    return "drop trigger tenants_revise_quotas on tenants"


MUTANTS = {
    "a report is taken without its attempt and token": ("repeats", unmatched),
    "a decision does not lock its row": (
        "cancels",
        without(leases, "lock_attempts", ("for update\n", "offset 0\n")),
    ),
    "a lease does not lock the incarnation": (
        "joins",
        altered(
            "lease_tasks",
            (
                "where i.id = any(p_incarnations)\n      order by",
                "where false\n      order by",
            ),
        ),
    ),
    "a lease does not check its term": (
        "hand-overs",
        altered("lease_tasks", ("if not found then", "if false then")),
    ),
    "a lease ignores that the node drains": (
        "drains",
        altered("lease_tasks", ("and not n.draining", "")),
    ),
    "only what has just expired is swept": (
        "joins",
        without(leases, "lock_orphans", ("i.ended_at is not null", "i.end_reason = 'expired'")),
    ),
    "everything that runs is swept": (
        "losses",
        without(
            leases,
            "lock_orphans",
            ("i.ended_at is not null", "true"),
            ("i.end_reason = 'left' as", "coalesce(i.end_reason = 'left', false) as"),
        ),
    ),
    "an incarnation is renewed after its end": (
        "losses",
        without(nodes, "renew", ("and coalesce(ended_at, 'infinity') = 'infinity'", "")),
    ),
    "taking over does not wait for open work": (
        "hand-overs",
        without(servers, "lock_term", ("for update", "")),
    ),
    "whoever waits for a task does not keep it from ending": (
        "cancelled upstreams",
        altered("attach_edges", ("for key share", "offset 0")),
    ),
    "an end is counted that was seen when its edge was made": (
        "dependants",
        altered("resolve_ended_upstreams", ("and e.is_counted", "")),
    ),
    "a task with dependants is not marked": (
        "dependants",
        altered("attach_edges", ("set has_dependants = true", "set has_dependants = false")),
    ),
    "dependants are told twice": (
        "dependants",
        altered("resolve_ended_upstreams", ("and (seen < portion or", "and ('x' = 'y' or")),
    ),
    "a task of a paused graph is tried again": (
        "graphs",
        without(
            leases,
            "end_attempts",
            ("case when live.is_paused then 'paused' else held.status end", "held.status"),
        ),
    ),
    "a pause overlooks what runs": (
        "graphs",
        altered("pause_tasks", ("and l.cancel_requested_at is null", "and l.token is null")),
    ),
    "the end of an upstream lets a paused task go": (
        "graphs",
        altered("resolve_ended_upstreams", ("or l.status <> 'blocked'", "")),
    ),
    "a change lets a paused task go": (
        "pauses",
        without(tasks, "update_task", ("when status = 'paused' then 'paused'", "")),
    ),
    "a task that runs is said to be paused": (
        "pauses",
        altered(
            "pause_tasks",
            ("(case when l.token is null then 'paused' else 'running' end)", "'paused'"),
        ),
    ),
    "a pause gives back what a task had waited": (
        "pauses",
        without(graph_operations, "count_from_pause", ("live.ready_at < pause.at", "'x' = 'y'")),
    ),
    "who paused a task is forgotten": (
        "pauses",
        without(graph_operations, "record_pause", ("events.id = newest.id", "'x' = 'y'")),
    ),
    "what is wished dies with its server": (
        "graphs",
        without(graph_operations, "read_abandoned", ("<= duly.now() -", "<= '-infinity' -")),
    ),
    "a wish goes on in the place of the next": (
        "graphs",
        without(graph_operations, "lock_batch", ("and w.id = $3", "and $3::bigint > 0")),
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
    "a success forgets that the task was cancelled": (
        "cancels",
        without(leases, "finish_attempts", ("and cancel_requested_at is null", "")),
    ),
    "a mark frees the room before the attempt has ended": (
        "marks",
        without(fleet_snapshot, "read_snapshot", ("where $1) as held", "where false) as held")),
    ),
    "any report frees the room of a marked attempt": (
        "marks",
        without(
            stopping_attempts,
            "remove",
            ("stopping_attempts.token = report.token", "$4 is not null"),
            ("and stopping_attempts.token = any($4)", ""),
            ("and stopping_attempts.task_id = report.task_id", ""),
            ("and stopping_attempts.attempt = report.attempt", ""),
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
            ("key) do nothing", "key) do update set task_id = excluded.task_id"),
        ),
    ),
    "a change is made without a lock": (
        "changes",
        without(tasks, "lock_unstarted", ("for update", "")),
    ),
    "what is in use is forgotten": (
        "everything",
        without(fleet_snapshot, "read_snapshot", ("where status = 'running'", "where false")),
    ),
    "a task is leased for what it asked before": (
        "shapes",
        altered(
            "lease_tasks",
            ("and (l.shape_id = (shapes)[width_bucket(l.id, ids)]) is not false", ""),
        ),
    ),
    "a task that is being changed is given up": (
        "misfits",
        without(leases, "lock_unplaceable", ("for update skip locked", "")),
    ),
    "an override lets leases pass that were decided before": (
        "overrides",
        altered("override_capacity", ("i.revision + 1", "i.revision")),
    ),
    "a reservation lets leases pass that were decided before": (
        "reservations",
        without(reservations, "lock_incarnation", ("revision + 1", "revision")),
    ),
    "two reservations are made at once": (
        "reservations",
        without(reservations, "lock_node", ("for update", "")),
        without(reservations, "lock_incarnation", ("and ended_at is null", "and false")),
    ),
    "what is reserved is forgotten": (
        "reservations",
        without(
            fleet_snapshot,
            "read_snapshot",
            ("where coalesce(expires_at", "where false and coalesce(expires_at"),
        ),
    ),
    "a reservation is forgotten before its time": (
        "reservations",
        without(reservations, "drop_expired", ("<= duly.now()", "is not null")),
    ),
    "a change of a reservation that is gone is said to be made": ("extensions", unread),
    "a lease ignores that the agent stops": (
        "stops",
        altered("lease_tasks", ("and not i.is_stopping", "")),
    ),
    "a removal leaves the incarnation alive": (
        "removals",
        altered("remove_node", ("set ended_at = at, end_reason", "set end_reason")),
    ),
    "a node joins while it is removed": (
        "removals",
        altered("join_node", ("and n.removed_at is null", "")),
    ),
    "what ran on a removed node is left there": (
        "removals",
        without(
            leases,
            "lock_orphans",
            ("i.ended_at is not null", "i.ended_at is not null and i.end_reason <> 'removed'"),
        ),
    ),
    "a removal leaves the reservations": (
        "removals",
        altered("remove_node", ("where r.node_id = p_node", "where false")),
    ),
    "a batch is stored again under its key": (
        "wholes",
        without(tasks, "claim_batch_key", ("do nothing", "do update set batch = excluded.batch")),
    ),
    "the key of a batch takes any body": ("wholes", bodiless),
    "two servers take the tokens of one bucket at once": (
        "rates",
        without(tasks, "insert_tasks", ("for update of b skip locked", "")),
    ),
    "two servers take them for tasks without keys": (
        "rates",
        without(tasks, "insert_charged", ("for update of b skip locked", "")),
    ),
    "a batch does not lock the bucket": (
        "rates",
        without(buckets, "lock_bucket", ("for update of b", "")),
    ),
    "what was submitted before is charged again": (
        "rates",
        without(
            tasks,
            "insert_tasks",
            (
                "from admitted\n                 where is_limited",
                "from given\n                 where is_limited",
            ),
        ),
    ),
    "a lease goes by limits that have changed": (
        "quotas",
        altered("hold_quota_fence", ("q.revision = p_revision", "true")),
    ),
    "a schedule fires without a lock": (
        "fires",
        without(schedules, "lock_due", ("for update skip locked", "")),
    ),
    "a schedule is changed without a lock": (
        "fires",
        without(schedules, "lock", ("for update", "")),
    ),
    "a fire time that has a task is given another": (
        "fires",
        without(
            schedules,
            "claim",
            (
                "where $10::boolean\n"
                "   and coalesce(occurrences.task_id, occurrences.graph_id) is null",
                "where $10::boolean is not null",
            ),
        ),
    ),
    "what is paused fires": (
        "fires",
        without(schedules, "lock_due", ("where paused_at is null", "where true")),
    ),
    "one that waits for its turn waits for the last one alone": (
        "queues of fires",
        waiting_for_the_last,
    ),
    "what is ahead in a queue ends unnoticed": (
        "queues of fires",
        altered("attach_edges", ("set has_dependants = true", "set has_dependants = false")),
    ),
    "schedules are fired after the term": ("fires of two leaders", termless),
    "a suspension lets leases pass that were decided before": ("quotas", unmarked),
}
