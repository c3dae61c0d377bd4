"""Invariants of tasks and attempts that hold after every run, whatever its order and faults.

Each invariant is a function of the journal of writes, of the final tables and of the responses that
actors received. It yields a sentence for every violation.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence, is_lease, is_marked
from tests.interleavings.world import BATCH_SIZE

FAILURES = ("failed", "capped", "overused")


def no_admitted_task_is_lost(evidence: Evidence) -> Iterator[str]:
    for key, spec, task, _ in evidence.acknowledged.submits:
        row = evidence.tasks.get(task)
        if row is None:
            yield f"task {task} was acknowledged and is not stored"
        elif row["idempotency_key"] != key or row["max_attempts"] != spec.max_attempts:
            yield f"task {task} is stored with another body"


def a_key_stands_for_one_task(evidence: Evidence) -> Iterator[str]:
    by_key = defaultdict(set)
    for task, row in evidence.tasks.items():
        if row["idempotency_key"] is not None:
            by_key[row["idempotency_key"]].add(task)
    for key, _, task, _ in evidence.acknowledged.submits:
        if key is not None:
            by_key[key].add(task)
    for key, tasks in by_key.items():
        if len(tasks) > 1:
            yield f"the key {key} stands for {sorted(tasks)}"
        elif evidence.submissions[key]["task_id"] not in tasks:
            yield f"the key {key} refers to a task that does not exist"


def a_task_is_live_or_has_ended(evidence: Evidence) -> Iterator[str]:
    for task in evidence.tasks:
        if (task in evidence.live) == (task in evidence.ends):
            yield f"task {task}: live is {task in evidence.live}, ended is {task in evidence.ends}"
    for task in evidence.live.keys() | evidence.ends.keys():
        if task not in evidence.tasks:
            yield f"task {task} is live or ended, and was never stored"


def an_end_is_final(evidence: Evidence) -> Iterator[str]:
    for row in evidence.journal:
        if row["what"] in ("ends", "attempts") and row["op"] != "insert":
            yield f"a row of {row['what']} was rewritten: {row['old']}"


def every_step_is_legal(evidence: Evidence) -> Iterator[str]:
    for row in evidence.journal:
        if row["what"] != "live" or row["op"] != "update":
            continue
        old, new = row["old"], row["new"]
        if old["status"] != "running" and new["status"] == "running":
            if old["status"] != "waiting":
                yield f"task {old['id']} was leased while {old['status']}"
            if new["attempt"] != old["attempt"] + 1:
                yield f"task {old['id']} went from attempt {old['attempt']} to {new['attempt']}"
        elif new["attempt"] != old["attempt"]:
            yield f"task {old['id']} changed its attempt without a lease"
        elif old["status"] == new["status"] == "running" and old["token"] != new["token"]:
            yield f"task {old['id']} changed its token while running"


def attempts_have_no_gaps(evidence: Evidence) -> Iterator[str]:
    for task, row in (evidence.live | evidence.ends).items():
        numbers = [attempt["attempt"] for attempt in evidence.attempts[task]]
        last = row["attempt"] - (task in evidence.live and row["status"] == "running")
        if numbers != list(range(1, last + 1)):
            yield f"task {task} is at attempt {row['attempt']} and has {numbers}"
        tokens = [attempt["token"] for attempt in evidence.attempts[task]]
        if tokens != sorted(set(tokens)):
            yield f"task {task}: tokens do not rise: {tokens}"


def counters_match_the_attempts(evidence: Evidence) -> Iterator[str]:
    for task, row in (evidence.live | evidence.ends).items():
        outcomes = Counter(attempt["outcome"] for attempt in evidence.attempts[task])
        failures, losses = sum(outcomes[outcome] for outcome in FAILURES), outcomes["lost"]
        if (row["failures"], row["losses"]) != (failures, losses):
            yield f"task {task} counts {row['failures']}/{row['losses']}, not {failures}/{losses}"
        if failures > evidence.tasks[task]["max_attempts"]:
            yield f"task {task} has more failures than max_attempts"


def ends_follow_from_attempts(evidence: Evidence) -> Iterator[str]:
    for task, end in evidence.ends.items():
        last = evidence.attempts[task][-1]["outcome"] if evidence.attempts[task] else None
        if end["status"] == "done" and last != "succeeded" and not is_marked(end):
            yield f"task {task} is done after an attempt that {last}"
        if last == "succeeded" and end["status"] == "failed":
            yield f"task {task} succeeded and failed"
        if (end["status"] == "failed") != (task in evidence.dead):
            yield f"task {task} ended {end['status']}; dead letter: {task in evidence.dead}"


def acknowledged_reports_are_stored(evidence: Evidence) -> Iterator[str]:
    for ref, outcome, accepted in evidence.acknowledged.reports:
        rows = [
            row
            for row in evidence.attempts[ref.task]
            if (row["attempt"], row["token"]) == (ref.attempt, ref.token)
        ]
        stored = rows[0]["outcome"] if rows else None
        if accepted and (stored != outcome.value or is_marked(rows[0])):
            yield f"{ref} was accepted as {outcome.value} and is {stored}"
        if not accepted and stored != "lost" and not (rows and is_marked(rows[0])):
            yield f"{ref} was refused as stale and is {stored}"


def terms_rise_and_old_terms_make_no_leases(evidence: Evidence) -> Iterator[str]:
    term = 0
    for row in evidence.journal:
        if row["what"] == "terms" and row["op"] == "update":
            if row["new"]["term"] not in (term, term + 1):
                yield f"term {term} was followed by {row['new']['term']}"
            term = row["new"]["term"]
        elif is_lease(row) and row["new"]["term"] != term:
            yield f"task {row['new']['id']} was leased in term {row['new']['term']} of {term}"


def no_leader_writes_after_its_term(evidence: Evidence) -> Iterator[str]:
    terms = [
        (row["seq"], row["new"]["term"])
        for row in evidence.journal
        if row["what"] == "terms" and row["op"] == "update"
    ]
    for answer in (*evidence.answers_to("swept"), *evidence.answers_to("fired")):
        ended_at = min(
            (position for position, term in terms if term > answer.subject), default=2**62
        )
        for row in evidence.journal:
            is_own_write = (
                row["pid"] == answer.pid and answer.request.position < row["seq"] <= answer.position
            )
            if is_own_write and row["seq"] > ended_at:
                table, term = row["what"], answer.subject
                yield f"{answer.op} in term {term} wrote {table} after its end"


def cancelled_tasks_stay_cancelled(evidence: Evidence) -> Iterator[str]:
    for answer in evidence.answers_to("cancel"):
        task = answer.subject
        if any(
            row["id"] == task and position > answer.position for position, row in evidence.leases()
        ):
            yield f"task {task} was leased after it was cancelled"
        end = evidence.ends.get(task)
        if answer.value and end and end["status"] != "cancelled" and not is_marked(end):
            yield f"task {task} was cancelled and ended {evidence.ends[task]['status']}"
        if answer.value and task in evidence.live:
            yield f"task {task} was cancelled and is {evidence.live[task]['status']}"
        if not answer.value and evidence.ended_tasks().get(task, 2**62) > answer.position:
            yield f"task {task} was live, and its cancel was answered as if it had ended"


def marked_tasks_stay_marked(evidence: Evidence) -> Iterator[str]:
    for task, status in evidence.acknowledged.marks:
        end = evidence.ends.get(task)
        if end is None or not is_marked(end) or end["status"] != status:
            yield f"task {task} was marked as {status} and is {end}"
    for answer in evidence.answers_to("mark"):
        if any(
            row["id"] == answer.subject and position > answer.position
            for position, row in evidence.leases()
        ):
            yield f"task {answer.subject} was leased after it was marked"


def acknowledged_updates_are_stored(evidence: Evidence) -> Iterator[str]:
    for task, name, _ in evidence.acknowledged.updates:
        tried = [
            value
            for updated, name, value in evidence.acknowledged.tried_updates
            if (updated, name) == (task, name)
        ]
        if evidence.tasks[task][name] not in tried:
            yield f"task {task}: {name} is {evidence.tasks[task][name]!r} and not one of {tried}"
    for task, row in evidence.live.items():
        if row["priority"] != evidence.tasks[task]["priority"]:
            yield f"task {task} has two priorities"
        # A retry after a failure goes to a queue of a higher level, which is another shape.
        if row["shape_id"] != evidence.tasks[task]["shape_id"] and not row["failures"]:
            yield f"task {task} has two shapes"


def a_batch_is_stored_once_and_completely(evidence: Evidence) -> Iterator[str]:
    stored: dict[str, list[int]] = {}
    for task, row in evidence.tasks.items():
        if row["name"] and row["name"].startswith("batch "):
            stored.setdefault(row["name"].rpartition(" of ")[2], []).append(task)
    for body, tasks in stored.items():
        if len(tasks) != BATCH_SIZE:
            yield f"batch {body} has {len(tasks)} tasks"
    bodies: dict[str, set[str]] = {}
    for body in stored:
        bodies.setdefault(body[0], set()).add(body)
    for key, bodies_of_key in bodies.items():
        if len(bodies_of_key) > 1:
            yield f"the key {key} stands for {sorted(bodies_of_key)}"
    for body, ids in evidence.acknowledged.batches:
        if sorted(ids) != sorted(stored.get(body, [])):
            yield f"batch {body} was acknowledged as {ids} and is {stored.get(body)}"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    no_admitted_task_is_lost,
    a_key_stands_for_one_task,
    a_task_is_live_or_has_ended,
    an_end_is_final,
    every_step_is_legal,
    attempts_have_no_gaps,
    counters_match_the_attempts,
    ends_follow_from_attempts,
    acknowledged_reports_are_stored,
    terms_rise_and_old_terms_make_no_leases,
    no_leader_writes_after_its_term,
    cancelled_tasks_stay_cancelled,
    marked_tasks_stay_marked,
    acknowledged_updates_are_stored,
    a_batch_is_stored_once_and_completely,
]
