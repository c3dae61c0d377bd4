"""Invariants of tasks and attempts that hold after every run, whatever its order and faults.

Each law looks at the journal of writes, at the tables as they are when everything is
quiet, and at what actors were told. A law that is broken is a sentence.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence, is_lease, is_marked
from tests.interleavings.world import BATCH

FAULTS = ("failed", "capped", "overused")


def no_admitted_task_is_lost(seen: Evidence) -> Iterator[str]:
    for key, spec, task, _ in seen.told.submits:
        row = seen.tasks.get(task)
        if row is None:
            yield f"task {task} was acknowledged and is not stored"
        elif row["idempotency_key"] != key or row["max_attempts"] != spec.max_attempts:
            yield f"task {task} is stored with another body"


def a_key_stands_for_one_task(seen: Evidence) -> Iterator[str]:
    by_key = defaultdict(set)
    for task, row in seen.tasks.items():
        if row["idempotency_key"] is not None:
            by_key[row["idempotency_key"]].add(task)
    for key, _, task, _ in seen.told.submits:
        if key is not None:
            by_key[key].add(task)
    for key, found in by_key.items():
        if len(found) > 1:
            yield f"the key {key} stands for {sorted(found)}"
        elif seen.submissions[key]["task_id"] not in found:
            yield f"the key {key} points to a task that is not there"


def a_task_is_live_or_has_ended(seen: Evidence) -> Iterator[str]:
    for task in seen.tasks:
        if (task in seen.live) == (task in seen.ends):
            yield f"task {task}: live is {task in seen.live}, ended is {task in seen.ends}"
    for task in seen.live.keys() | seen.ends.keys():
        if task not in seen.tasks:
            yield f"task {task} is live or ended, and was never stored"


def an_end_is_final(seen: Evidence) -> Iterator[str]:
    for row in seen.journal:
        if row["what"] in ("ends", "attempts") and row["op"] != "insert":
            yield f"a row of {row['what']} was rewritten: {row['old']}"


def every_step_is_legal(seen: Evidence) -> Iterator[str]:
    for row in seen.journal:
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


def attempts_have_no_gaps(seen: Evidence) -> Iterator[str]:
    for task, row in (seen.live | seen.ends).items():
        numbers = [one["attempt"] for one in seen.attempts[task]]
        last = row["attempt"] - (task in seen.live and row["status"] == "running")
        if numbers != list(range(1, last + 1)):
            yield f"task {task} is at attempt {row['attempt']} and has {numbers}"
        tokens = [one["token"] for one in seen.attempts[task]]
        if tokens != sorted(set(tokens)):
            yield f"task {task}: tokens do not rise: {tokens}"


def tallies_are_true(seen: Evidence) -> Iterator[str]:
    for task, row in (seen.live | seen.ends).items():
        outcomes = Counter(one["outcome"] for one in seen.attempts[task])
        failures, losses = sum(outcomes[fault] for fault in FAULTS), outcomes["lost"]
        if (row["failures"], row["losses"]) != (failures, losses):
            yield f"task {task} counts {row['failures']}/{row['losses']}, not {failures}/{losses}"
        if failures > seen.tasks[task]["max_attempts"]:
            yield f"task {task} was tried too often"


def ends_follow_from_attempts(seen: Evidence) -> Iterator[str]:
    for task, end in seen.ends.items():
        last = seen.attempts[task][-1]["outcome"] if seen.attempts[task] else None
        if end["status"] == "done" and last != "succeeded" and not is_marked(end):
            yield f"task {task} is done after an attempt that {last}"
        if last == "succeeded" and end["status"] == "failed":
            yield f"task {task} succeeded and failed"
        if (end["status"] == "failed") != (task in seen.dead):
            yield f"task {task} ended {end['status']}; dead letter: {task in seen.dead}"


def what_was_told_of_reports_is_true(seen: Evidence) -> Iterator[str]:
    for ref, outcome, accepted in seen.told.reports:
        rows = [
            row
            for row in seen.attempts[ref.task]
            if (row["attempt"], row["token"]) == (ref.attempt, ref.token)
        ]
        stored = rows[0]["outcome"] if rows else None
        if accepted and (stored != outcome.value or is_marked(rows[0])):
            yield f"{ref} was accepted as {outcome.value} and is {stored}"
        if not accepted and stored != "lost" and not (rows and is_marked(rows[0])):
            yield f"{ref} was refused as stale and is {stored}"


def terms_rise_and_old_ones_are_silent(seen: Evidence) -> Iterator[str]:
    term = 0
    for row in seen.journal:
        if row["what"] == "terms" and row["op"] == "update":
            if row["new"]["term"] not in (term, term + 1):
                yield f"term {term} was followed by {row['new']['term']}"
            term = row["new"]["term"]
        elif is_lease(row) and row["new"]["term"] != term:
            yield f"task {row['new']['id']} was leased in term {row['new']['term']} of {term}"


def a_sweep_ends_with_its_term(seen: Evidence) -> Iterator[str]:
    terms = [
        (row["seq"], row["new"]["term"])
        for row in seen.journal
        if row["what"] == "terms" and row["op"] == "update"
    ]
    for told in (*seen.told_of("swept"), *seen.told_of("fired")):
        over = min((place for place, term in terms if term > told.about), default=2**62)
        for row in seen.journal:
            is_its_own = row["pid"] == told.pid and told.asked.place < row["seq"] <= told.place
            if is_its_own and row["seq"] > over:
                yield f"what {told.op} in term {told.about} wrote {row['what']} after its end"


def what_is_cancelled_stays_so(seen: Evidence) -> Iterator[str]:
    for told in seen.told_of("cancel"):
        task = told.about
        if any(row["id"] == task and place > told.place for place, row in seen.leases()):
            yield f"task {task} was leased after it was cancelled"
        end = seen.ends.get(task)
        if told.value and end and end["status"] != "cancelled" and not is_marked(end):
            yield f"task {task} was cancelled and ended {seen.ends[task]['status']}"
        if told.value and task in seen.live:
            yield f"task {task} was cancelled and is {seen.live[task]['status']}"
        if not told.value and seen.ended_tasks().get(task, 2**62) > told.place:
            yield f"task {task} was live, and its cancel was answered as if it had ended"


def what_is_marked_stays_so(seen: Evidence) -> Iterator[str]:
    for task, status in seen.told.marks:
        end = seen.ends.get(task)
        if end is None or not is_marked(end) or end["status"] != status:
            yield f"task {task} was marked as {status} and is {end}"
    for told in seen.told_of("mark"):
        if any(row["id"] == told.about and place > told.place for place, row in seen.leases()):
            yield f"task {told.about} was leased after it was marked"


def updates_are_kept(seen: Evidence) -> Iterator[str]:
    for task, what, _ in seen.told.updates:
        tried = [
            value for one, field, value in seen.told.tried_updates if (one, field) == (task, what)
        ]
        if seen.tasks[task][what] not in tried:
            yield f"task {task}: {what} is {seen.tasks[task][what]!r} and not one of {tried}"
    for task, row in seen.live.items():
        if row["priority"] != seen.tasks[task]["priority"]:
            yield f"task {task} has two priorities"
        if row["shape_id"] != seen.tasks[task]["shape_id"]:
            yield f"task {task} has two shapes"


def a_batch_is_stored_once_and_whole(seen: Evidence) -> Iterator[str]:
    stored: dict[str, list[int]] = {}
    for task, row in seen.tasks.items():
        if row["name"] and row["name"].startswith("batch "):
            stored.setdefault(row["name"].rpartition(" of ")[2], []).append(task)
    for body, tasks in stored.items():
        if len(tasks) != BATCH:
            yield f"batch {body} has {len(tasks)} tasks"
    bodies: dict[str, set[str]] = {}
    for body in stored:
        bodies.setdefault(body[0], set()).add(body)
    for key, found in bodies.items():
        if len(found) > 1:
            yield f"the key {key} stands for {sorted(found)}"
    for body, ids in seen.told.batches:
        if sorted(ids) != sorted(stored.get(body, [])):
            yield f"batch {body} was told {ids} and is {stored.get(body)}"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    no_admitted_task_is_lost,
    a_key_stands_for_one_task,
    a_task_is_live_or_has_ended,
    an_end_is_final,
    every_step_is_legal,
    attempts_have_no_gaps,
    tallies_are_true,
    ends_follow_from_attempts,
    what_was_told_of_reports_is_true,
    terms_rise_and_old_ones_are_silent,
    a_sweep_ends_with_its_term,
    what_is_cancelled_stays_so,
    what_is_marked_stays_so,
    updates_are_kept,
    a_batch_is_stored_once_and_whole,
]
