"""Mutants: deliberate defects, each of which some invariant must detect.

Each comes with the theme in which it is detected soon.
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
from duly.store.tasks import graph_operations, overdue, schedules, tasks
from duly.store.tasks.edges import NewEdge
from tests.interleavings.explorer import mutated_function


def mutated_statement(module, name, *clauses):
    """Return a mutation that replaces clauses of a statement."""

    def apply(monkeypatch):
        text = module.SQL[name]
        for clause, replacement in clauses:
            assert clause in text, f"{name} does not contain {clause!r}"
            text = text.replace(clause, replacement)
        monkeypatch.setitem(module.SQL, name, text)
        return ""

    return apply


def mutated_schema_function(name, *clauses):
    """Return a mutation of a function of the schema."""

    def apply(monkeypatch):
        return mutated_function(name, *clauses)

    return apply


def accept_any_attempt(monkeypatch):
    """Accept a report for whichever attempt the task is at."""
    monkeypatch.setattr(queue_manager, "_matches", lambda held, report: held is not None)
    mutated_statement(
        leases,
        "finish_attempts",
        ("and attempt = ($3::int[])[width_bucket(id, $2)]", "and $3::int[] is not null"),
        ("and token = ($4::bigint[])[width_bucket(id, $2)]", "and $4::bigint[] is not null"),
    )(monkeypatch)
    return mutated_statement(
        leases,
        "lock_attempts",
        ("and l.attempt = report.attempt", ""),
        ("and l.token = report.token", ""),
    )(monkeypatch)


def change_blindly(monkeypatch):
    """Do not check whether the reservation still exists."""
    change = reservations.change

    async def blindly(conn, changed):
        await change(conn, changed)
        return True

    monkeypatch.setattr(reservations, "change", blindly)
    return ""


def ignore_bodies(monkeypatch):
    """Compare only the key of a batch, not its body."""
    monkeypatch.setattr(idempotency, "hash_spec", lambda spec, plan: b"")
    return ""


def fire_without_term(monkeypatch):
    """Fire schedules without checking the term."""

    async def hold(conn, term):
        pass

    monkeypatch.setattr(timekeeper, "servers", SimpleNamespace(hold=hold))
    return ""


def wait_for_last_only(monkeypatch):
    """Let an occurrence wait only for the one right before it."""

    def last(self):
        for index in self.spec.roots if self.waits_for else ():
            yield NewEdge(self.ids[index], self.waits_for[-1], Condition.ALWAYS)

    monkeypatch.setattr(NewOccurrence, "queue_edges", last)
    return ""


def keep_quota_revision(monkeypatch):
    """Do not raise the revision of the quotas when a tenant is suspended."""
    return "drop trigger tenants_revise_quotas on tenants"


MUTANTS = {
    "a report is taken without its attempt and token": ("repeated reports", accept_any_attempt),
    "a decision does not lock its row": (
        "cancels",
        mutated_statement(leases, "lock_attempts", ("for update\n", "offset 0\n")),
    ),
    "a lease does not lock the incarnation": (
        "joins",
        mutated_schema_function(
            "lease_tasks",
            (
                "where i.id = any(p_incarnations)\n      order by",
                "where false\n      order by",
            ),
        ),
    ),
    "a lease does not check its term": (
        "failovers",
        mutated_schema_function("lease_tasks", ("if not found then", "if false then")),
    ),
    "a lease ignores that the node drains": (
        "drains",
        mutated_schema_function("lease_tasks", ("and not n.draining", "")),
    ),
    "only expired incarnations are swept": (
        "joins",
        mutated_statement(
            leases, "lock_orphans", ("i.ended_at is not null", "i.end_reason = 'expired'")
        ),
    ),
    "all running tasks are swept": (
        "losses",
        mutated_statement(
            leases,
            "lock_orphans",
            ("i.ended_at is not null", "true"),
            ("i.end_reason = 'left' as", "coalesce(i.end_reason = 'left', false) as"),
        ),
    ),
    "an incarnation is renewed after its end": (
        "losses",
        mutated_statement(nodes, "renew", ("and coalesce(ended_at, 'infinity') = 'infinity'", "")),
    ),
    "a new leader does not wait for open transactions of the old term": (
        "failovers",
        mutated_statement(servers, "lock_term", ("for update", "")),
    ),
    "attaching an edge does not lock the upstream": (
        "cancelled upstreams",
        mutated_schema_function("attach_edges", ("for key share", "offset 0")),
    ),
    "the end of an upstream is counted twice": (
        "dependants",
        mutated_schema_function("resolve_ended_upstreams", ("and e.is_counted", "")),
    ),
    "a task with dependants is not marked": (
        "dependants",
        mutated_schema_function(
            "attach_edges", ("set has_dependants = true", "set has_dependants = false")
        ),
    ),
    "downstream tasks are updated twice": (
        "dependants",
        mutated_schema_function(
            "resolve_ended_upstreams", ("and (seen < portion or", "and ('x' = 'y' or")
        ),
    ),
    "a task of a paused graph is retried": (
        "graphs",
        mutated_statement(
            leases,
            "end_attempts",
            ("case when live.is_paused then 'paused' else held.status end", "held.status"),
        ),
    ),
    "a pause skips running tasks": (
        "graphs",
        mutated_schema_function(
            "pause_tasks", ("and l.cancel_requested_at is null", "and l.token is null")
        ),
    ),
    "the end of an upstream releases a paused task": (
        "graphs",
        mutated_schema_function("resolve_ended_upstreams", ("or l.status <> 'blocked'", "")),
    ),
    "an update releases a paused task": (
        "pauses",
        mutated_statement(tasks, "update_task", ("when status = 'paused' then 'paused'", "")),
    ),
    "a running task gets the status paused": (
        "pauses",
        mutated_schema_function(
            "pause_tasks",
            ("(case when l.token is null then 'paused' else 'running' end)", "'paused'"),
        ),
    ),
    "a pause extends start_by by the time before it": (
        "pauses",
        mutated_statement(
            graph_operations, "count_from_pause", ("live.ready_at < pause.at", "'x' = 'y'")
        ),
    ),
    "the actor of a pause is not recorded": (
        "pauses",
        mutated_statement(graph_operations, "record_pause", ("events.id = newest.id", "'x' = 'y'")),
    ),
    "a graph operation dies with its server": (
        "graphs",
        mutated_statement(
            graph_operations, "read_abandoned", ("<= duly.now() -", "<= '-infinity' -")
        ),
    ),
    "a superseded graph operation continues": (
        "graphs",
        mutated_statement(graph_operations, "lock_batch", ("and w.id = $3", "and $3::bigint > 0")),
    ),
    "a cancel ends only waiting tasks": (
        "changes",
        mutated_schema_function("request_cancel", ("and l.token is not null", "and false")),
    ),
    "a finish forgets that the task was cancelled": (
        "cancels",
        mutated_statement(
            leases,
            "lock_attempts",
            ("l.cancel_requested_at,", "null::timestamptz as cancel_requested_at,"),
        ),
    ),
    "a success forgets that the task was cancelled": (
        "cancels",
        mutated_statement(leases, "finish_attempts", ("and cancel_requested_at is null", "")),
    ),
    "a mark frees the room before the attempt has ended": (
        "marks",
        mutated_statement(
            fleet_snapshot, "read_snapshot", ("where $1) as held", "where false) as held")
        ),
    ),
    "any report frees the room of a marked attempt": (
        "marks",
        mutated_statement(
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
        mutated_statement(leases, "end_attempts", ("losses = held.losses", "losses = 0")),
    ),
    "an idempotency key moves to its last user": (
        "submits",
        mutated_statement(
            tasks,
            "insert_tasks",
            ("key) do nothing", "key) do update set task_id = excluded.task_id"),
        ),
    ),
    "a task is updated without a lock": (
        "changes",
        mutated_statement(tasks, "lock_unstarted", ("for update", "")),
    ),
    "running attempts are not counted as used": (
        "everything",
        mutated_statement(
            fleet_snapshot, "read_snapshot", ("where status = 'running'", "where false")
        ),
    ),
    "a task is leased with a shape that it no longer has": (
        "shapes",
        mutated_schema_function(
            "lease_tasks",
            ("and (l.shape_id = (shapes)[width_bucket(l.id, ids)]) is not false", ""),
        ),
    ),
    "a task that is being updated is failed as unplaceable": (
        "unplaceable",
        mutated_statement(leases, "lock_unplaceable", ("for update skip locked", "")),
    ),
    "a task that got more time is cancelled as overdue": (
        "overdue",
        mutated_schema_function(
            "cancel_overdue",
            (
                "and duly.overdue_at(l.start_by, l.ready_at, l.delay_tolerance, l.patience) <= at",
                "",
            ),
        ),
    ),
    "a wait is marked as overdue again": (
        "overdue",
        mutated_statement(overdue, "read_page", ("and e.kind = 'overdue'", "and false")),
    ),
    "a capacity override does not fence leases that were decided before": (
        "overrides",
        mutated_schema_function("override_capacity", ("i.revision + 1", "i.revision")),
    ),
    "a reservation does not fence leases that were decided before": (
        "reservations",
        mutated_statement(reservations, "lock_incarnation", ("revision + 1", "revision")),
    ),
    "two reservations are made concurrently": (
        "reservations",
        mutated_statement(reservations, "lock_node", ("for update", "")),
        mutated_statement(reservations, "lock_incarnation", ("and ended_at is null", "and false")),
    ),
    "reservations are not counted as used": (
        "reservations",
        mutated_statement(
            fleet_snapshot,
            "read_snapshot",
            ("where coalesce(expires_at", "where false and coalesce(expires_at"),
        ),
    ),
    "a reservation is dropped before it expires": (
        "reservations",
        mutated_statement(reservations, "drop_expired", ("<= duly.now()", "is not null")),
    ),
    "a change of a dropped reservation is acknowledged": ("reservation changes", change_blindly),
    "a lease ignores that the agent stops": (
        "stops",
        mutated_schema_function("lease_tasks", ("and not i.is_stopping", "")),
    ),
    "a removal leaves the incarnation alive": (
        "removals",
        mutated_schema_function("remove_node", ("set ended_at = at, end_reason", "set end_reason")),
    ),
    "a node joins while it is removed": (
        "removals",
        mutated_schema_function("join_node", ("and n.removed_at is null", "")),
    ),
    "tasks of a removed node are not swept": (
        "removals",
        mutated_statement(
            leases,
            "lock_orphans",
            ("i.ended_at is not null", "i.ended_at is not null and i.end_reason <> 'removed'"),
        ),
    ),
    "a removal leaves the reservations": (
        "removals",
        mutated_schema_function("remove_node", ("where r.node_id = p_node", "where false")),
    ),
    "a batch is stored again under its key": (
        "keyed batches",
        mutated_statement(
            tasks, "claim_batch_key", ("do nothing", "do update set batch = excluded.batch")
        ),
    ),
    "the key of a batch accepts any body": ("keyed batches", ignore_bodies),
    "two servers charge one bucket concurrently": (
        "rates",
        mutated_statement(tasks, "insert_tasks", ("for update of b skip locked", "")),
    ),
    "two servers charge one bucket concurrently, without keys": (
        "rates",
        mutated_statement(tasks, "insert_charged", ("for update of b skip locked", "")),
    ),
    "a batch does not lock the bucket": (
        "rates",
        mutated_statement(buckets, "lock_bucket", ("for update of b", "")),
    ),
    "a repeated submission is charged again": (
        "rates",
        mutated_statement(
            tasks,
            "insert_tasks",
            (
                "from admitted\n                 where is_limited",
                "from given\n                 where is_limited",
            ),
        ),
    ),
    "a lease uses limits that have changed": (
        "quotas",
        mutated_schema_function("hold_quota_fence", ("q.revision = p_revision", "true")),
    ),
    "a schedule fires without a lock": (
        "firing",
        mutated_statement(schedules, "lock_due", ("for update skip locked", "")),
    ),
    "a schedule is changed without a lock": (
        "firing",
        mutated_statement(schedules, "lock", ("for update", "")),
    ),
    "a fire time gets a second task": (
        "firing",
        mutated_statement(
            schedules,
            "claim",
            (
                "where $10::boolean\n"
                "   and coalesce(occurrences.task_id, occurrences.graph_id) is null",
                "where $10::boolean is not null",
            ),
        ),
    ),
    "a paused schedule fires": (
        "firing",
        mutated_statement(schedules, "lock_due", ("where paused_at is null", "where true")),
    ),
    "a queued occurrence waits only for the last one": (
        "queued occurrences",
        wait_for_last_only,
    ),
    "the end of a queued occurrence is not noticed": (
        "queued occurrences",
        mutated_schema_function(
            "attach_edges", ("set has_dependants = true", "set has_dependants = false")
        ),
    ),
    "schedules are fired after the term has ended": ("firing with two leaders", fire_without_term),
    "a suspension does not fence leases that were decided before": ("quotas", keep_quota_revision),
}
